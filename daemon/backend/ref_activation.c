/* Relu and LogSoftmax. */
#include "backend/ref_internal.h"

#include <math.h>

/* A Relu that its producer computes is its producer's memory. */
static void prepare_relu(const Kernel *kernel, KernelInfo *info)
{
    info->aliases_input = kernel->node.skip;
    info->backward_reads_output = !kernel->node.skip;
}

/* NaN is neither below zero nor above it, and stays NaN as in PyTorch. */
static void forward_relu(const Kernel *kernel, const KernelArgs *args)
{
    if (kernel->node.skip)
        return;
    const float *in = args->inputs[0];
    float *out = args->output;
    for (int64_t i = 0; i < kernel->output_elements; i++)
        out[i] = in[i] < 0 ? 0 : in[i];
}

void ref_mask_by_relu(const Kernel *kernel, const KernelArgs *args, float *masked)
{
    const float *out = args->output, *gradient = args->output_gradient;
    for (int64_t i = 0; i < kernel->output_elements; i++)
        masked[i] = out[i] <= 0 ? 0 : gradient[i];
}

static void backward_relu(const Kernel *kernel, const KernelArgs *args)
{
    if (!kernel->node.skip && args->input_gradients[0])
        ref_mask_by_relu(kernel, args, args->input_gradients[0]);
}

const RefOperator ref_relu = {prepare_relu, forward_relu, backward_relu};

static void prepare_logsoftmax(const Kernel *kernel, KernelInfo *info)
{
    (void)kernel;
    info->backward_reads_output = true;
}

static int64_t row_length(const Kernel *kernel)
{
    return kernel->input.dims[kernel->input.ndim - 1];
}

/* out = in − log Σ exp in, over each row of length n; the largest is taken out first so that
 * nothing overflows. */
static void forward_logsoftmax(const Kernel *kernel, const KernelArgs *args)
{
    int64_t n = row_length(kernel);
    for (int64_t at = 0; at < kernel->input_elements; at += n) {
        const float *in = (const float *)args->inputs[0] + at;
        float *out = (float *)args->output + at;
        double top = in[0], sum = 0;
        for (int64_t i = 1; i < n; i++)
            top = in[i] > top ? in[i] : top;
        for (int64_t i = 0; i < n; i++)
            sum += exp(in[i] - top);
        double norm = top + log(sum);
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(in[i] - norm);
    }
}

/* dIn = dOut − softmax · Σ dOut, over each row. */
static void backward_logsoftmax(const Kernel *kernel, const KernelArgs *args)
{
    int64_t n = row_length(kernel);
    if (!args->input_gradients[0])
        return;
    for (int64_t at = 0; at < kernel->input_elements; at += n) {
        const float *out = (const float *)args->output + at;
        const float *gradient = (const float *)args->output_gradient + at;
        float *to = (float *)args->input_gradients[0] + at;
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += gradient[i];
        for (int64_t i = 0; i < n; i++)
            to[i] = (float)(gradient[i] - exp((double)out[i]) * sum);
    }
}

const RefOperator ref_logsoftmax = {prepare_logsoftmax, forward_logsoftmax, backward_logsoftmax};
