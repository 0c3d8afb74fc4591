/* Dropout by element and by channel. The mask of the forward is saved for the backward; its numbers
 * depend on seed, rank, step and node only, so every backend draws the same. */
#include "backend/cpu_math.h"
#include "backend/ref_internal.h"

/* Elements that share a number: 1, or all of a channel of an input (N, C, …). */
static int64_t run_length(const Kernel *kernel)
{
    if (kernel->node.kind == OP_DROPOUT)
        return 1;
    return kernel->input_elements / (kernel->input.dims[0] * kernel->input.dims[1]);
}

static int64_t run_count(const Kernel *kernel)
{
    return kernel->input_elements / run_length(kernel);
}

static void prepare_dropout(const Kernel *kernel, KernelInfo *info)
{
    if (kernel->training)
        info->saved_bytes = (size_t)run_count(kernel) * sizeof(float);
    else
        info->aliases_input = true; /* evaluation drops nothing */
}

/* to = from · mask, the mask's entry holding for a whole run */
static void apply_mask(const Kernel *kernel, const float *mask, const float *from, float *to)
{
    int64_t run = run_length(kernel);
    for (int64_t i = 0; i < kernel->input_elements; i++)
        to[i] = from[i] * mask[i / run];
}

static void forward_dropout(const Kernel *kernel, const KernelArgs *args)
{
    if (!kernel->training)
        return;
    RngKey key = cpu_dropout_key(&args->rng, kernel->node.index);
    cpu_dropout_mask(&key, kernel->node.attrs.dropout, 0, (size_t)run_count(kernel), args->saved);
    apply_mask(kernel, args->saved, args->inputs[0], args->output);
}

static void backward_dropout(const Kernel *kernel, const KernelArgs *args)
{
    if (args->input_gradients[0])
        apply_mask(kernel, args->saved, args->output_gradient, args->input_gradients[0]);
}

const RefOperator ref_dropout = {prepare_dropout, forward_dropout, backward_dropout};
const RefOperator ref_dropout2d = {prepare_dropout, forward_dropout, backward_dropout};
