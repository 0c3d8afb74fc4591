/* Linear: out (B,K) = in (B,D) · wᵀ (D,K) + bias (K), with the Relu after it where the graph says
 * so. B counts all leading dimensions. */
#include "backend/ref_internal.h"

#include <string.h>

typedef struct LinearSizes {
    int64_t b, d, k;
} LinearSizes;

static LinearSizes sizes_of(const Kernel *kernel)
{
    int64_t d = kernel->input.dims[kernel->input.ndim - 1];
    return (LinearSizes){kernel->input_elements / d, d, kernel->node.attrs.linear_outputs};
}

static void prepare_linear(const Kernel *kernel, KernelInfo *info)
{
    info->backward_reads_input = true;
    info->backward_reads_output = kernel->node.fused_relu;
    if (kernel->training)
        info->scratch_bytes = (size_t)sizes_of(kernel).d * sizeof(double) +
                              (size_t)kernel->output_elements * sizeof(float);
}

static void forward_linear(const Kernel *kernel, const KernelArgs *args)
{
    LinearSizes s = sizes_of(kernel);
    const float *in = args->inputs[0], *weight = args->params[0], *bias = args->params[1];
    float *out = args->output;
    for (int64_t b = 0; b < s.b; b++) {
        for (int64_t k = 0; k < s.k; k++) {
            double sum = kernel->node.n_params > 1 ? bias[k] : 0;
            for (int64_t d = 0; d < s.d; d++)
                sum += (double)in[b * s.d + d] * weight[k * s.d + d];
            out[b * s.k + k] = kernel->node.fused_relu && sum < 0 ? 0 : (float)sum;
        }
    }
}

/* dIn (B,D) = dOut (B,K) · w (K,D), a row at a time in `sums` (D) */
static void backward_input(LinearSizes s, const float *gradient, const float *weight, double *sums,
                           float *to)
{
    for (int64_t b = 0; b < s.b; b++) {
        memset(sums, 0, (size_t)s.d * sizeof *sums);
        for (int64_t k = 0; k < s.k; k++)
            for (int64_t d = 0; d < s.d; d++)
                sums[d] += (double)gradient[b * s.k + k] * weight[k * s.d + d];
        for (int64_t d = 0; d < s.d; d++)
            to[b * s.d + d] = (float)sums[d];
    }
}

/* dW (K,D) = dOutᵀ (K,B) · in (B,D) */
static void backward_weight(LinearSizes s, const float *gradient, const float *in, float *to)
{
    for (int64_t k = 0; k < s.k; k++) {
        for (int64_t d = 0; d < s.d; d++) {
            double sum = 0;
            for (int64_t b = 0; b < s.b; b++)
                sum += (double)gradient[b * s.k + k] * in[b * s.d + d];
            to[k * s.d + d] = (float)sum;
        }
    }
}

/* dBias (K) = Σ over B of dOut */
static void backward_bias(LinearSizes s, const float *gradient, float *to)
{
    for (int64_t k = 0; k < s.k; k++) {
        double sum = 0;
        for (int64_t b = 0; b < s.b; b++)
            sum += gradient[b * s.k + k];
        to[k] = (float)sum;
    }
}

static void backward_linear(const Kernel *kernel, const KernelArgs *args)
{
    LinearSizes s = sizes_of(kernel);
    const float *gradient = args->output_gradient;
    double *sums = args->scratch;          /* (D) */
    float *masked = (float *)(sums + s.d); /* (B,K) */
    if (kernel->node.fused_relu) {
        ref_mask_by_relu(kernel, args, masked);
        gradient = masked;
    }
    if (args->input_gradients[0])
        backward_input(s, gradient, args->params[0], sums, args->input_gradients[0]);
    backward_weight(s, gradient, args->inputs[0], args->param_gradients[0]);
    if (kernel->node.n_params > 1)
        backward_bias(s, gradient, args->param_gradients[1]);
}

const RefOperator ref_linear = {prepare_linear, forward_linear, backward_linear};
