/* Flatten: plain memory of another shape is the same memory; a blocked value is made plain. */
#include "backend/onednn/reorder.h"

typedef struct FlattenKernel {
    Kernel base;
    Primitive forward, backward;
} FlattenKernel;

static int compile_reorder(FlattenKernel *flatten, Primitive *primitive, Device *device,
                           const Layout *from, const Layout *to)
{
    static const int names[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    int r = primitive_context_init(&context, device, dnnl_prop_kind_undef, false);
    if (r == 0)
        r = adapter_reorder(&context, from, to, &pd);
    if (r == 0)
        r = kernel_primitive(&flatten->base, primitive, device, pd, names, 2);
    return r;
}

static int flatten_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    FlattenKernel *flatten = (FlattenKernel *)kernel;
    _cleanup_layout_ Layout *plain = NULL; /* the input's shape */
    Shape in = kernel_shape(spec, spec->node->inputs[0]),
          out = kernel_shape(spec, spec->node->output);
    int r = layout_of_shape(&out, &kernel->output);
    info->aliases_input = spec->inputs[0]->plain;
    if (r < 0 || info->aliases_input)
        return r;
    r = layout_of_shape(&in, &plain);
    if (r == 0)
        r = compile_reorder(flatten, &flatten->forward, device, spec->inputs[0], plain);
    if (r == 0 && spec->training && spec->need_input_gradient[0])
        r = compile_reorder(flatten, &flatten->backward, device, plain, spec->inputs[0]);
    return r;
}

static int flatten_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    FlattenKernel *flatten = (FlattenKernel *)kernel;
    if (!flatten->forward.handle)
        return 0;
    return kernel_run(kernel, &flatten->forward, device, args,
                      (const void *[]){args->inputs[0], args->output});
}

static int flatten_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    FlattenKernel *flatten = (FlattenKernel *)kernel;
    if (!flatten->backward.handle || !args->input_gradients[0])
        return 0;
    return kernel_run(kernel, &flatten->backward, device, args,
                      (const void *[]){args->output_gradient, args->input_gradients[0]});
}

static void flatten_done(Kernel *kernel)
{
    FlattenKernel *flatten = (FlattenKernel *)kernel;
    primitive_done(&flatten->forward);
    primitive_done(&flatten->backward);
}

const KernelClass kernel_flatten = {flatten_compile, flatten_forward, flatten_backward,
                                    flatten_done, sizeof(FlattenKernel)};
