/* Linear, with bias and a fused Relu, as matmul on plain layouts in all three directions:
 *     out (R,O) = in (R,I) · wᵀ (I,O) + bias (O)
 *     dIn (R,I) = dOut (R,O) · w (O,I)
 *     dW (O,I)  = dOutᵀ (O,R) · in (R,I)
 * R is all dimensions but the last. */
#include "backend/cpu_math.h"
#include "backend/onednn/reorder.h"

#include <string.h>

typedef struct LinearKernel {
    Kernel base;
    int64_t rows, inputs, outputs;
    bool bias;
    Primitive forward, backward_data, backward_weights, relu_backward;
    Reorder source, input_gradient;
    size_t masked_gradient;
} LinearKernel;

/* A matrix (rows, columns), or its transpose as it lies in memory. */
static int matrix(int64_t rows, int64_t columns, bool transposed, Layout **ret)
{
    int64_t dims[] = {rows, columns};
    int64_t strides[] = {transposed ? 1 : columns, transposed ? rows : 1};
    return layout_new_strided(2, dims, strides, ret);
}

static int compile_matmul(LinearKernel *linear, Device *device, Primitive *primitive,
                          const Layout *a, const Layout *b, const Layout *bias, const Layout *c,
                          bool relu)
{
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t pd = NULL;
    int r = primitive_context_init(&context, device, dnnl_prop_kind_undef, relu);
    if (r == 0)
        r = adapter_matmul(&context, a, b, bias, c, &pd);
    if (r == 0)
        r = kernel_primitive(&linear->base, primitive, device, pd, names, bias ? 4 : 3);
    return r;
}

static int compile_forward(LinearKernel *linear, Device *device, bool relu)
{
    _cleanup_layout_ Layout *in = NULL, *weights = NULL, *bias = NULL, *out = NULL;
    int r = matrix(linear->rows, linear->inputs, false, &in);
    if (r == 0)
        r = matrix(linear->inputs, linear->outputs, true, &weights);
    if (r == 0 && linear->bias)
        r = matrix(1, linear->outputs, false, &bias);
    if (r == 0)
        r = matrix(linear->rows, linear->outputs, false, &out);
    if (r == 0)
        r = compile_matmul(linear, device, &linear->forward, in, weights, bias, out, relu);
    return r;
}

static int compile_backward_data(LinearKernel *linear, Device *device)
{
    _cleanup_layout_ Layout *gradient = NULL, *weights = NULL, *in = NULL;
    int r = matrix(linear->rows, linear->outputs, false, &gradient);
    if (r == 0)
        r = matrix(linear->outputs, linear->inputs, false, &weights);
    if (r == 0)
        r = matrix(linear->rows, linear->inputs, false, &in);
    if (r == 0)
        r = compile_matmul(linear, device, &linear->backward_data, gradient, weights, NULL, in,
                           false);
    return r;
}

static int compile_backward_weights(LinearKernel *linear, Device *device)
{
    _cleanup_layout_ Layout *gradient = NULL, *in = NULL, *weights = NULL;
    int r = matrix(linear->outputs, linear->rows, true, &gradient);
    if (r == 0)
        r = matrix(linear->rows, linear->inputs, false, &in);
    if (r == 0)
        r = matrix(linear->outputs, linear->inputs, false, &weights);
    if (r == 0)
        r = compile_matmul(linear, device, &linear->backward_weights, gradient, in, NULL, weights,
                           false);
    return r;
}

static int compile_backward(LinearKernel *linear, Device *device, const KernelSpec *spec,
                            const Layout *plain)
{
    Kernel *kernel = &linear->base;
    int r = compile_backward_weights(linear, device);
    if (r == 0 && spec->need_input_gradient[0]) {
        r = compile_backward_data(linear, device);
        if (r == 0)
            r = reorder_init_out(&linear->input_gradient, device, plain, spec->inputs[0], kernel);
    }
    if (r == 0 && spec->node->fused_relu) {
        linear->masked_gradient = kernel_scratch(kernel, kernel->output->bytes);
        r = kernel_relu_backward(kernel, &linear->relu_backward, device, kernel->output);
    }
    return r;
}

static int linear_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    LinearKernel *linear = (LinearKernel *)kernel;
    _cleanup_layout_ Layout *plain = NULL;
    Shape in = kernel_shape(spec, spec->node->inputs[0]),
          out = kernel_shape(spec, spec->node->output);
    linear->inputs = in.dims[in.ndim - 1];
    linear->outputs = out.dims[out.ndim - 1];
    linear->rows = shape_elements(&in, spec->batch) / linear->inputs;
    linear->bias = spec->node->n_params > 1;
    int r = layout_of_shape(&in, &plain);
    if (r == 0)
        r = layout_of_shape(&out, &kernel->output);
    if (r == 0)
        r = reorder_init_in(&linear->source, device, spec->inputs[0], plain, kernel);
    if (r == 0)
        r = compile_forward(linear, device, spec->node->fused_relu);
    if (r == 0 && spec->training)
        r = compile_backward(linear, device, spec, plain);
    info->backward_reads_input = true;
    info->backward_reads_output = spec->node->fused_relu;
    return r;
}

static int linear_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    LinearKernel *linear = (LinearKernel *)kernel;
    const void *in = NULL;
    int r = reorder_in(&linear->source, device, kernel, args, args->inputs[0], &in);
    if (r < 0)
        return r;
    return kernel_run(kernel, &linear->forward, device, args,
                      (const void *[]){in, args->params[0], args->output, args->params[1]});
}

/* dBias (O) = Σ over rows of dOut (R,O), in row order */
static void bias_gradient(const LinearKernel *linear, const float *gradient, float *to)
{
    memcpy(to, gradient, (size_t)linear->outputs * sizeof(float));
    for (int64_t row = 1; row < linear->rows; row++)
        cpu_accumulate(to, gradient + row * linear->outputs, (size_t)linear->outputs);
}

static int backward_weights(LinearKernel *linear, Device *device, const KernelArgs *args,
                            const void *gradient)
{
    Kernel *kernel = &linear->base;
    const void *in = NULL;
    int r = reorder_in(&linear->source, device, kernel, args, args->inputs[0], &in);
    if (r == 0)
        r = kernel_run(kernel, &linear->backward_weights, device, args,
                       (const void *[]){gradient, in, args->param_gradients[0]});
    if (r == 0 && linear->bias)
        bias_gradient(linear, gradient, args->param_gradients[1]);
    return r;
}

static int backward_data(LinearKernel *linear, Device *device, const KernelArgs *args,
                         const void *gradient)
{
    Kernel *kernel = &linear->base;
    void *outside = args->input_gradients[0];
    void *to = reorder_target(&linear->input_gradient, args, outside);
    int r = kernel_run(kernel, &linear->backward_data, device, args,
                       (const void *[]){gradient, args->params[0], to});
    if (r == 0)
        r = reorder_out(&linear->input_gradient, device, kernel, args, outside);
    return r;
}

static int linear_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    LinearKernel *linear = (LinearKernel *)kernel;
    const void *gradient = args->output_gradient;
    int r = 0;
    if (kernel->node.fused_relu) {
        gradient = (char *)args->scratch + linear->masked_gradient;
        r = kernel_run(kernel, &linear->relu_backward, device, args,
                       (const void *[]){args->output, args->output_gradient, gradient});
    }
    if (r == 0)
        r = backward_weights(linear, device, args, gradient);
    if (r == 0 && args->input_gradients[0])
        r = backward_data(linear, device, args, gradient);
    return r;
}

static void linear_done(Kernel *kernel)
{
    LinearKernel *linear = (LinearKernel *)kernel;
    primitive_done(&linear->forward);
    primitive_done(&linear->backward_data);
    primitive_done(&linear->backward_weights);
    primitive_done(&linear->relu_backward);
    reorder_done(&linear->source);
    reorder_done(&linear->input_gradient);
}

const KernelClass kernel_linear = {linear_compile, linear_forward, linear_backward, linear_done,
                                   sizeof(LinearKernel)};
