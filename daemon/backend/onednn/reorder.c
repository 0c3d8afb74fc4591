#include "backend/onednn/reorder.h"

static int init(Reorder *reorder, const Device *device, const Layout *from, const Layout *to,
                Kernel *kernel)
{
    static const int names[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    int r = primitive_context_init(&context, device, dnnl_prop_kind_undef, false);
    if (r == 0)
        r = adapter_reorder(&context, from, to, &pd);
    if (r == 0)
        r = kernel_primitive(kernel, &reorder->primitive, device, pd, names, 2);
    return r;
}

int reorder_init_in(Reorder *reorder, const Device *device, const Layout *outside,
                    const Layout *inside, Kernel *kernel)
{
    if (layout_same(outside, inside))
        return 0;
    reorder->needed = true;
    reorder->offset = kernel_scratch(kernel, inside->bytes);
    return init(reorder, device, outside, inside, kernel);
}

int reorder_init_out(Reorder *reorder, const Device *device, const Layout *inside,
                     const Layout *outside, Kernel *kernel)
{
    if (layout_same(outside, inside))
        return 0;
    reorder->needed = true;
    reorder->offset = kernel_scratch(kernel, inside->bytes);
    return init(reorder, device, inside, outside, kernel);
}

void reorder_done(Reorder *reorder)
{
    primitive_done(&reorder->primitive);
}

int reorder_in(Reorder *reorder, const Device *device, const Kernel *kernel, const KernelArgs *args,
               const void *outside, const void **ret)
{
    if (!reorder->needed) {
        *ret = outside;
        return 0;
    }
    *ret = (char *)args->scratch + reorder->offset;
    return kernel_run(kernel, &reorder->primitive, device, args, (const void *[]){outside, *ret});
}

void *reorder_target(const Reorder *reorder, const KernelArgs *args, void *outside)
{
    return reorder->needed ? (char *)args->scratch + reorder->offset : outside;
}

int reorder_out(Reorder *reorder, const Device *device, const Kernel *kernel,
                const KernelArgs *args, void *outside)
{
    if (!reorder->needed)
        return 0;
    const void *inside = (char *)args->scratch + reorder->offset;
    return kernel_run(kernel, &reorder->primitive, device, args, (const void *[]){inside, outside});
}

int reorder_straight(Reorder *reorder, const Device *device, const Kernel *kernel,
                     const KernelArgs *args, const void *from, void *to)
{
    if (!reorder->needed)
        return 0;
    return kernel_run(kernel, &reorder->primitive, device, args, (const void *[]){from, to});
}
