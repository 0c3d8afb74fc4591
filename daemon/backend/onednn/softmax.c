/* LogSoftmax over the last dimension, on plain rows. The backward reads the output. */
#include "backend/onednn/reorder.h"

typedef struct SoftmaxKernel {
    Kernel base;
    Primitive forward, backward;
    Reorder source, input_gradient;
} SoftmaxKernel;

static int compile_primitives(SoftmaxKernel *softmax, Device *device, const KernelSpec *spec)
{
    static const int forward_names[] = {DNNL_ARG_SRC, DNNL_ARG_DST};
    static const int backward_names[] = {DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t forward = NULL, backward = NULL;
    Kernel *kernel = &softmax->base;
    int axis = kernel->output->ndim - 1;
    int r = primitive_context_init(&context, device, kernel_propagation(spec), false);
    if (r == 0)
        r = adapter_logsoftmax_forward(&context, kernel->output, axis, &forward);
    if (r == 0)
        r = kernel_primitive(kernel, &softmax->forward, device, forward, forward_names, 2);
    if (r < 0 || !spec->training || !spec->need_input_gradient[0])
        return r;
    context.hint = forward;
    r = adapter_logsoftmax_backward(&context, kernel->output, axis, &backward);
    if (r == 0)
        r = kernel_primitive(kernel, &softmax->backward, device, backward, backward_names, 3);
    if (r == 0)
        r = reorder_init_out(&softmax->input_gradient, device, kernel->output, spec->inputs[0],
                             kernel);
    return r;
}

static int softmax_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    SoftmaxKernel *softmax = (SoftmaxKernel *)kernel;
    Shape shape = kernel_shape(spec, spec->node->output);
    int r = layout_of_shape(&shape, &kernel->output);
    if (r == 0)
        r = reorder_init_in(&softmax->source, device, spec->inputs[0], kernel->output, kernel);
    if (r == 0)
        r = compile_primitives(softmax, device, spec);
    info->backward_reads_output = true;
    return r;
}

static int softmax_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    SoftmaxKernel *softmax = (SoftmaxKernel *)kernel;
    const void *src = NULL;
    int r = reorder_in(&softmax->source, device, kernel, args, args->inputs[0], &src);
    if (r < 0)
        return r;
    return kernel_run(kernel, &softmax->forward, device, args, (const void *[]){src, args->output});
}

static int softmax_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    SoftmaxKernel *softmax = (SoftmaxKernel *)kernel;
    void *outside = args->input_gradients[0];
    if (!outside)
        return 0;
    void *diff_src = reorder_target(&softmax->input_gradient, args, outside);
    int r = kernel_run(kernel, &softmax->backward, device, args,
                       (const void *[]){args->output, args->output_gradient, diff_src});
    if (r == 0)
        r = reorder_out(&softmax->input_gradient, device, kernel, args, outside);
    return r;
}

static void softmax_done(Kernel *kernel)
{
    SoftmaxKernel *softmax = (SoftmaxKernel *)kernel;
    primitive_done(&softmax->forward);
    primitive_done(&softmax->backward);
    reorder_done(&softmax->source);
    reorder_done(&softmax->input_gradient);
}

const KernelClass kernel_logsoftmax = {softmax_compile, softmax_forward, softmax_backward,
                                       softmax_done, sizeof(SoftmaxKernel)};
