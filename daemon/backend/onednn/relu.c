/* Relu that its producer does not compute, in the layout that the input comes in. The backward
 * reads the output. A Relu that its producer computes is its producer's memory. */
#include "backend/onednn/reorder.h"

typedef struct ReluKernel {
    Kernel base;
    Primitive forward, backward;
    Reorder source, input_gradient;
} ReluKernel;

static int compile_forward(ReluKernel *relu, Device *device, const KernelSpec *spec)
{
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DST};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    Kernel *kernel = &relu->base;
    int r = primitive_context_init(&context, device, kernel_propagation(spec), false);
    if (r == 0)
        r = adapter_relu_forward(&context, kernel->output, &pd);
    if (r == 0)
        r = kernel_primitive(kernel, &relu->forward, device, pd, names, 2);
    return r;
}

static int relu_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    ReluKernel *relu = (ReluKernel *)kernel;
    if (spec->node->skip) {
        info->aliases_input = true;
        return layout_clone(spec->inputs[0], &kernel->output);
    }
    int r = kernel_working_layout(spec, &kernel->output);
    if (r == 0)
        r = reorder_init_in(&relu->source, device, spec->inputs[0], kernel->output, kernel);
    if (r == 0)
        r = compile_forward(relu, device, spec);
    if (r == 0 && spec->training && spec->need_input_gradient[0]) {
        info->backward_reads_output = true;
        r = kernel_relu_backward(kernel, &relu->backward, device, kernel->output);
        if (r == 0)
            r = reorder_init_out(&relu->input_gradient, device, kernel->output, spec->inputs[0],
                                 kernel);
    }
    return r;
}

static int relu_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    ReluKernel *relu = (ReluKernel *)kernel;
    const void *src = NULL;
    if (kernel->node.skip)
        return 0;
    int r = reorder_in(&relu->source, device, kernel, args, args->inputs[0], &src);
    if (r < 0)
        return r;
    return kernel_run(kernel, &relu->forward, device, args, (const void *[]){src, args->output});
}

static int relu_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    ReluKernel *relu = (ReluKernel *)kernel;
    void *outside = args->input_gradients[0];
    if (kernel->node.skip || !outside)
        return 0;
    void *diff_src = reorder_target(&relu->input_gradient, args, outside);
    int r = kernel_run(kernel, &relu->backward, device, args,
                       (const void *[]){args->output, args->output_gradient, diff_src});
    if (r == 0)
        r = reorder_out(&relu->input_gradient, device, kernel, args, outside);
    return r;
}

static void relu_done(Kernel *kernel)
{
    ReluKernel *relu = (ReluKernel *)kernel;
    primitive_done(&relu->forward);
    primitive_done(&relu->backward);
    reorder_done(&relu->source);
    reorder_done(&relu->input_gradient);
}

const KernelClass kernel_relu = {relu_compile, relu_forward, relu_backward, relu_done,
                                 sizeof(ReluKernel)};
