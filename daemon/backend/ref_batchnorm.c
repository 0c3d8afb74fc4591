/* BatchNorm2d on (N,C,H,W): out = (in − mean[c]) / √(var[c] + eps) · weight[c] + bias[c].
 *
 * In training mean and variance are the batch's (biased variance) and move the running ones by
 * `momentum` (unbiased variance); in evaluation they are the running ones. */
#include "backend/ref_internal.h"

#include <math.h>

typedef struct NormSizes {
    int64_t n, c, plane;
} NormSizes;

static NormSizes sizes_of(const Kernel *kernel)
{
    const int64_t *in = kernel->input.dims;
    return (NormSizes){in[0], in[1], kernel->input_elements / (in[0] * in[1])};
}

/* saved (C) pairs of mean and 1/deviation, in double */
typedef struct Statistics {
    double mean, inverse;
} Statistics;

static void prepare_norm(const Kernel *kernel, KernelInfo *info)
{
    info->backward_reads_input = true;
    if (kernel->training)
        info->saved_bytes = (size_t)kernel->input.dims[1] * sizeof(Statistics);
}

/* Element i of channel c, i counting over (N, plane). */
static int64_t place(const NormSizes *z, int64_t c, int64_t i)
{
    return (i / z->plane * z->c + c) * z->plane + i % z->plane;
}

static void mean_and_variance(const NormSizes *z, const float *in, int64_t c, double *mean,
                              double *variance)
{
    int64_t count = z->n * z->plane;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++)
        sum += in[place(z, c, i)];
    *mean = sum / (double)count;
    for (int64_t i = 0; i < count; i++) {
        double distance = in[place(z, c, i)] - *mean;
        squares += distance * distance;
    }
    *variance = squares / (double)count;
}

/* running = (1 − momentum) · running + momentum · observed */
static void move_running(const Kernel *kernel, const KernelArgs *args, int64_t c, double mean,
                         double variance)
{
    NormSizes z = sizes_of(kernel);
    double momentum = kernel->node.attrs.norm.momentum;
    double count = (double)(z.n * z.plane), unbiased = variance * count / (count - 1);
    float *running_mean = args->buffers[0], *running_variance = args->buffers[1];
    running_mean[c] = (float)((1 - momentum) * running_mean[c] + momentum * mean);
    running_variance[c] = (float)((1 - momentum) * running_variance[c] + momentum * unbiased);
}

static Statistics statistics_of(const Kernel *kernel, const KernelArgs *args, int64_t c)
{
    NormSizes z = sizes_of(kernel);
    double mean, variance;
    if (kernel->training) {
        mean_and_variance(&z, args->inputs[0], c, &mean, &variance);
        move_running(kernel, args, c, mean, variance);
    } else {
        mean = args->buffers[0][c];
        variance = args->buffers[1][c];
    }
    return (Statistics){mean, 1 / sqrt(variance + (double)kernel->node.attrs.norm.eps)};
}

static void forward_norm(const Kernel *kernel, const KernelArgs *args)
{
    NormSizes z = sizes_of(kernel);
    const float *in = args->inputs[0], *weight = args->params[0], *bias = args->params[1];
    float *out = args->output;
    for (int64_t c = 0; c < z.c; c++) {
        Statistics s = statistics_of(kernel, args, c);
        for (int64_t i = 0; i < z.n * z.plane; i++) {
            int64_t at = place(&z, c, i);
            out[at] = (float)((in[at] - s.mean) * s.inverse * weight[c] + bias[c]);
        }
        if (kernel->training)
            ((Statistics *)args->saved)[c] = s;
    }
    if (kernel->training && args->counter)
        ++*args->counter;
}

/* With x̂ the normalised input and M = N·plane:
 * dBias = Σ dOut, dWeight = Σ dOut·x̂, dIn = weight/deviation · (dOut − (dBias + x̂·dWeight) / M) */
static void backward_norm(const Kernel *kernel, const KernelArgs *args)
{
    NormSizes z = sizes_of(kernel);
    const float *in = args->inputs[0], *gradient = args->output_gradient;
    const Statistics *saved = args->saved;
    float *to = args->input_gradients[0];
    int64_t count = z.n * z.plane;
    for (int64_t c = 0; c < z.c; c++) {
        Statistics s = saved[c];
        double sum = 0, sum_normalised = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t at = place(&z, c, i);
            sum += gradient[at];
            sum_normalised += gradient[at] * (in[at] - s.mean) * s.inverse;
        }
        args->param_gradients[0][c] = (float)sum_normalised;
        args->param_gradients[1][c] = (float)sum;
        for (int64_t i = 0; to && i < count; i++) {
            int64_t at = place(&z, c, i);
            double normalised = (in[at] - s.mean) * s.inverse;
            to[at] = (float)(args->params[0][c] * s.inverse *
                             (gradient[at] - (sum + normalised * sum_normalised) / (double)count));
        }
    }
}

const RefOperator ref_batchnorm2d = {prepare_norm, forward_norm, backward_norm};
