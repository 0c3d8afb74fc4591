/* BatchNorm2d in the layout that the input comes in. Mean and variance of the batch are saved for
 * the backward; running statistics are updated here, as PyTorch does it: the variance unbiased. */
#include "backend/onednn/reorder.h"

typedef struct NormKernel {
    Kernel base;
    int64_t channels, samples; /* samples: elements of a channel in the batch */
    Primitive forward, backward;
    Reorder source, input_gradient;
    size_t unwanted_gradient; /* of the input, where nobody needs it */
} NormKernel;

/* Versions differ in whether the backward wants the shift, which it has no use for. */
static int backward_arguments(const_dnnl_primitive_desc_t pd)
{
    int inputs = 0;
    dnnl_primitive_desc_query(pd, dnnl_query_num_of_inputs_s32, 0, &inputs);
    return inputs > 5 ? 9 : 8;
}

static int compile_backward(NormKernel *norm, Device *device, const KernelSpec *spec,
                            dnnl_primitive_desc_t forward)
{
    static const int names[] = {DNNL_ARG_SRC,        DNNL_ARG_MEAN,       DNNL_ARG_VARIANCE,
                                DNNL_ARG_DIFF_DST,   DNNL_ARG_SCALE,      DNNL_ARG_DIFF_SRC,
                                DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT, DNNL_ARG_SHIFT};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    Kernel *kernel = &norm->base;
    int r = primitive_context_init(&context, device, dnnl_backward, false);
    context.hint = forward;
    if (r == 0)
        r = adapter_batchnorm_backward(&context, kernel->output, spec->node->attrs.norm.eps, &pd);
    if (r == 0)
        r = kernel_primitive(kernel, &norm->backward, device, pd, names, backward_arguments(pd));
    if (r < 0)
        return r;
    if (!spec->need_input_gradient[0]) {
        norm->unwanted_gradient = kernel_scratch(kernel, kernel->output->bytes);
        return 0;
    }
    return reorder_init_out(&norm->input_gradient, device, kernel->output, spec->inputs[0], kernel);
}

static int compile_primitives(NormKernel *norm, Device *device, const KernelSpec *spec)
{
    static const int names[] = {DNNL_ARG_SRC,      DNNL_ARG_DST,   DNNL_ARG_MEAN,
                                DNNL_ARG_VARIANCE, DNNL_ARG_SCALE, DNNL_ARG_SHIFT};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    Kernel *kernel = &norm->base;
    int r = primitive_context_init(&context, device, kernel_propagation(spec), false);
    if (r == 0)
        r = adapter_batchnorm_forward(&context, kernel->output, spec->node->attrs.norm.eps,
                                      !spec->training, &pd);
    if (r == 0)
        r = kernel_primitive(kernel, &norm->forward, device, pd, names, 6);
    if (r == 0 && spec->training)
        r = compile_backward(norm, device, spec, pd);
    return r;
}

static int norm_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    NormKernel *norm = (NormKernel *)kernel;
    Shape in = kernel_shape(spec, spec->node->inputs[0]);
    norm->channels = in.dims[1];
    norm->samples = shape_elements(&in, spec->batch) / norm->channels;
    int r = kernel_working_layout(spec, &kernel->output);
    if (r == 0)
        r = reorder_init_in(&norm->source, device, spec->inputs[0], kernel->output, kernel);
    if (r == 0)
        r = compile_primitives(norm, device, spec);
    info->backward_reads_input = true;
    if (spec->training)
        info->saved_bytes = (size_t)norm->channels * 2 * sizeof(float);
    return r;
}

/* running = (1 − m) · running + m · batch; the batch's variance has n in its denominator, the
 * running one n − 1. */
static void update_running(const NormKernel *norm, const float *mean, const float *variance,
                           float *running_mean, float *running_variance)
{
    float m = norm->base.node.attrs.norm.momentum;
    float unbias = norm->samples > 1 ? (float)norm->samples / (float)(norm->samples - 1) : 1;
    for (int64_t c = 0; c < norm->channels; c++) {
        running_mean[c] = (1 - m) * running_mean[c] + m * mean[c];
        running_variance[c] = (1 - m) * running_variance[c] + m * (variance[c] * unbias);
    }
}

static int norm_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    NormKernel *norm = (NormKernel *)kernel;
    float *mean = kernel->training ? args->saved : args->buffers[0];
    float *variance = kernel->training ? mean + norm->channels : args->buffers[1];
    const void *src = NULL;
    int r = reorder_in(&norm->source, device, kernel, args, args->inputs[0], &src);
    if (r == 0)
        r = kernel_run(
            kernel, &norm->forward, device, args,
            (const void *[]){src, args->output, mean, variance, args->params[0], args->params[1]});
    if (r < 0 || !kernel->training)
        return r;
    update_running(norm, mean, variance, args->buffers[0], args->buffers[1]);
    if (args->counter)
        ++*args->counter;
    return 0;
}

static int norm_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    NormKernel *norm = (NormKernel *)kernel;
    const float *mean = args->saved, *variance = mean + norm->channels;
    void *outside = args->input_gradients[0];
    void *diff_src = outside ? reorder_target(&norm->input_gradient, args, outside)
                             : (char *)args->scratch + norm->unwanted_gradient;
    const void *src = NULL;
    int r = reorder_in(&norm->source, device, kernel, args, args->inputs[0], &src);
    if (r == 0)
        r = kernel_run(kernel, &norm->backward, device, args,
                       (const void *[]){src, mean, variance, args->output_gradient, args->params[0],
                                        diff_src, args->param_gradients[0],
                                        args->param_gradients[1], args->params[1]});
    if (r == 0 && outside)
        r = reorder_out(&norm->input_gradient, device, kernel, args, outside);
    return r;
}

static void norm_done(Kernel *kernel)
{
    NormKernel *norm = (NormKernel *)kernel;
    primitive_done(&norm->forward);
    primitive_done(&norm->backward);
    reorder_done(&norm->source);
    reorder_done(&norm->input_gradient);
}

const KernelClass kernel_batchnorm = {norm_compile, norm_forward, norm_backward, norm_done,
                                      sizeof(NormKernel)};
