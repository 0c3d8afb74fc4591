/* Conv2d, with bias and a fused Relu. Values lie as oneDNN likes them best (nChw16c on AVX-512);
 * weights and their gradients are plain outside and reordered here. */
#include "backend/onednn/reorder.h"

typedef struct ConvKernel {
    Kernel base;
    Window window;
    Layout *src, *plain_weights, *bias; /* bias NULL without one */
    Primitive forward, backward_data, backward_weights, relu_backward;
    Reorder source, weights, weights_for_data, input_gradient, weight_gradient;
    size_t masked_gradient; /* by the Relu */
} ConvKernel;

/* ---- compile --------------------------------------------------------------------------------- */

static void set_window(ConvKernel *conv)
{
    const ConvAttrs *attrs = &conv->base.node.attrs.conv;
    for (int i = 0; i < 2; i++) {
        conv->window.kernel[i] = attrs->kernel[i];
        conv->window.stride[i] = attrs->stride[i];
        conv->window.dilation[i] = attrs->dilation[i] - 1;
        conv->window.padding[i] = attrs->padding[i];
    }
}

/* (G, O/G, I/G, kh, kw) with groups, (O, I, kh, kw) without. */
static int weight_dims(const ConvKernel *conv, const Shape *input, int64_t *dims)
{
    const ConvAttrs *attrs = &conv->base.node.attrs.conv;
    int n = 0;
    if (attrs->groups > 1)
        dims[n++] = attrs->groups;
    dims[n++] = attrs->out_channels / attrs->groups;
    dims[n++] = input->dims[1] / attrs->groups;
    dims[n++] = attrs->kernel[0];
    dims[n++] = attrs->kernel[1];
    return n;
}

static int describe_forward(const ConvKernel *conv, const KernelSpec *spec,
                            PrimitiveContext *context, bool plain, dnnl_primitive_desc_t *ret)
{
    Shape in = kernel_shape(spec, spec->node->inputs[0]),
          out = kernel_shape(spec, spec->node->output);
    _cleanup_layout_ Layout *src = NULL, *weights = NULL, *dst = NULL;
    int64_t dims[SHAPE_MAX_DIMS];
    int r = layout_new_any(in.ndim, in.dims, &src);
    if (r == 0)
        r = layout_new_any(weight_dims(conv, &in, dims), dims, &weights);
    if (r == 0)
        r = plain ? layout_of_shape(&out, &dst) : layout_new_any(out.ndim, out.dims, &dst);
    if (r == 0)
        r = adapter_conv_forward(context, &conv->window, src, weights, conv->bias, dst, ret);
    return r;
}

/* Chooses the layouts of input and output. */
static int compile_forward(ConvKernel *conv, Device *device, const KernelSpec *spec,
                           dnnl_primitive_desc_t *ret)
{
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_layout_ Layout *weights = NULL;
    Kernel *kernel = &conv->base;
    bool plain = spec->plain_output;
    int r =
        primitive_context_init(&context, device, kernel_propagation(spec), spec->node->fused_relu);
    if (r == 0)
        r = describe_forward(conv, spec, &context, plain, ret);
    if (r == 0)
        r = layout_of_argument(*ret, DNNL_ARG_DST, &kernel->output);
    if (r == 0)
        r = layout_of_argument(*ret, DNNL_ARG_SRC, &conv->src);
    if (r == 0)
        r = layout_of_argument(*ret, DNNL_ARG_WEIGHTS, &weights);
    if (r == 0 && !kernel->output->simple)
        return -EOPNOTSUPP; /* no convolution on float32 asks for more than one block */
    if (r == 0)
        r = reorder_init_in(&conv->source, device, spec->inputs[0], conv->src, kernel);
    if (r == 0)
        r = reorder_init_in(&conv->weights, device, conv->plain_weights, weights, kernel);
    if (r == 0)
        r = kernel_primitive(kernel, &conv->forward, device, *ret, names, conv->bias ? 4 : 3);
    return r;
}

static int compile_backward_data(ConvKernel *conv, Device *device, const KernelSpec *spec,
                                 const PrimitiveContext *context)
{
    static const int names[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    _cleanup_layout_ Layout *any_src = NULL, *any_weights = NULL, *src = NULL, *weights = NULL;
    Kernel *kernel = &conv->base;
    int r = layout_new_any(conv->src->ndim, conv->src->dims, &any_src);
    if (r == 0)
        r = layout_new_any(conv->plain_weights->ndim, conv->plain_weights->dims, &any_weights);
    if (r == 0)
        r = adapter_conv_backward_data(context, &conv->window, any_src, any_weights, kernel->output,
                                       &pd);
    if (r == 0)
        r = layout_of_argument(pd, DNNL_ARG_DIFF_SRC, &src);
    if (r == 0)
        r = layout_of_argument(pd, DNNL_ARG_WEIGHTS, &weights);
    if (r == 0)
        r = reorder_init_in(&conv->weights_for_data, device, conv->plain_weights, weights, kernel);
    if (r == 0)
        r = reorder_init_out(&conv->input_gradient, device, src, spec->inputs[0], kernel);
    if (r == 0)
        r = kernel_primitive(kernel, &conv->backward_data, device, pd, names, 3);
    return r;
}

static int compile_backward_weights(ConvKernel *conv, Device *device,
                                    const PrimitiveContext *context)
{
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                DNNL_ARG_DIFF_BIAS};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    _cleanup_layout_ Layout *any = NULL, *weights = NULL;
    Kernel *kernel = &conv->base;
    int r = layout_new_any(conv->plain_weights->ndim, conv->plain_weights->dims, &any);
    if (r == 0)
        r = adapter_conv_backward_weights(context, &conv->window, conv->src, any, conv->bias,
                                          kernel->output, &pd);
    if (r == 0)
        r = layout_of_argument(pd, DNNL_ARG_DIFF_WEIGHTS, &weights);
    if (r == 0)
        r = reorder_init_out(&conv->weight_gradient, device, weights, conv->plain_weights, kernel);
    if (r == 0)
        r = kernel_primitive(kernel, &conv->backward_weights, device, pd, names,
                             conv->bias ? 4 : 3);
    return r;
}

static int compile_backward(ConvKernel *conv, Device *device, const KernelSpec *spec,
                            dnnl_primitive_desc_t forward)
{
    _cleanup_context_ PrimitiveContext context = {0};
    Kernel *kernel = &conv->base;
    int r = primitive_context_init(&context, device, dnnl_backward, false);
    context.hint = forward;
    if (r == 0 && spec->need_input_gradient[0])
        r = compile_backward_data(conv, device, spec, &context);
    if (r == 0)
        r = compile_backward_weights(conv, device, &context);
    if (r == 0 && spec->node->fused_relu) {
        conv->masked_gradient = kernel_scratch(kernel, kernel->output->bytes);
        r = kernel_relu_backward(kernel, &conv->relu_backward, device, kernel->output);
    }
    return r;
}

static int conv_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    ConvKernel *conv = (ConvKernel *)kernel;
    _cleanup_pd_ dnnl_primitive_desc_t forward = NULL;
    Shape in = kernel_shape(spec, spec->node->inputs[0]);
    int64_t dims[SHAPE_MAX_DIMS];
    set_window(conv);
    int r = layout_new_plain(weight_dims(conv, &in, dims), dims, &conv->plain_weights);
    if (r == 0 && spec->node->attrs.conv.bias)
        r = layout_new_plain(1, &spec->node->attrs.conv.out_channels, &conv->bias);
    if (r == 0)
        r = compile_forward(conv, device, spec, &forward);
    if (r == 0 && spec->training)
        r = compile_backward(conv, device, spec, forward);
    info->backward_reads_input = true;
    info->backward_reads_output = spec->node->fused_relu;
    return r;
}

/* ---- run ------------------------------------------------------------------------------------- */

static int conv_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    ConvKernel *conv = (ConvKernel *)kernel;
    const void *src = NULL, *weights = NULL;
    int r = reorder_in(&conv->source, device, kernel, args, args->inputs[0], &src);
    if (r == 0)
        r = reorder_in(&conv->weights, device, kernel, args, args->params[0], &weights);
    if (r < 0)
        return r;
    return kernel_run(kernel, &conv->forward, device, args,
                      (const void *[]){src, weights, args->output, args->params[1]});
}

static int backward_data(ConvKernel *conv, Device *device, const KernelArgs *args,
                         const void *gradient)
{
    Kernel *kernel = &conv->base;
    void *outside = args->input_gradients[0];
    void *diff_src = reorder_target(&conv->input_gradient, args, outside);
    const void *weights = NULL;
    int r = reorder_in(&conv->weights_for_data, device, kernel, args, args->params[0], &weights);
    if (r == 0)
        r = kernel_run(kernel, &conv->backward_data, device, args,
                       (const void *[]){gradient, weights, diff_src});
    if (r == 0)
        r = reorder_out(&conv->input_gradient, device, kernel, args, outside);
    return r;
}

static int backward_weights(ConvKernel *conv, Device *device, const KernelArgs *args,
                            const void *gradient)
{
    Kernel *kernel = &conv->base;
    void *outside = args->param_gradients[0];
    void *diff_weights = reorder_target(&conv->weight_gradient, args, outside);
    const void *src = NULL;
    int r = reorder_in(&conv->source, device, kernel, args, args->inputs[0], &src);
    if (r == 0)
        r = kernel_run(kernel, &conv->backward_weights, device, args,
                       (const void *[]){src, gradient, diff_weights, args->param_gradients[1]});
    if (r == 0)
        r = reorder_out(&conv->weight_gradient, device, kernel, args, outside);
    return r;
}

static int conv_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    ConvKernel *conv = (ConvKernel *)kernel;
    const void *gradient = args->output_gradient;
    int r = 0;
    if (kernel->node.fused_relu) {
        gradient = (char *)args->scratch + conv->masked_gradient;
        r = kernel_run(kernel, &conv->relu_backward, device, args,
                       (const void *[]){args->output, args->output_gradient, gradient});
    }
    if (r == 0 && args->input_gradients[0])
        r = backward_data(conv, device, args, gradient);
    if (r == 0)
        r = backward_weights(conv, device, args, gradient);
    return r;
}

static void conv_done(Kernel *kernel)
{
    ConvKernel *conv = (ConvKernel *)kernel;
    Primitive *primitives[] = {&conv->forward, &conv->backward_data, &conv->backward_weights,
                               &conv->relu_backward};
    Reorder *reorders[] = {&conv->source, &conv->weights, &conv->weights_for_data,
                           &conv->input_gradient, &conv->weight_gradient};
    for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++)
        primitive_done(primitives[i]);
    for (size_t i = 0; i < sizeof reorders / sizeof *reorders; i++)
        reorder_done(reorders[i]);
    layout_release(conv->src);
    layout_release(conv->plain_weights);
    layout_release(conv->bias);
}

const KernelClass kernel_conv = {conv_compile, conv_forward, conv_backward, conv_done,
                                 sizeof(ConvKernel)};
