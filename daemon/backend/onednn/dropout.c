/* Dropout by element and Dropout2d by channel, in the layout that the input comes in. Masks are
 * drawn in the plain order of elements, as on every backend, and saved for the backward. */
#include "backend/cpu_math.h"
#include "backend/onednn/reorder.h"

typedef struct DropoutKernel {
    Kernel base;
    Reorder source, input_gradient;
    int64_t batch, channels, plane; /* (N, C) and what lies behind them, as one */
    int64_t masks;                  /* one an element, or one a channel */
    bool passes;                    /* evaluation: nothing is dropped */
} DropoutKernel;

static int dropout_compile(Device *device, const KernelSpec *spec, Kernel *kernel, KernelInfo *info)
{
    DropoutKernel *dropout = (DropoutKernel *)kernel;
    Shape in = kernel_shape(spec, spec->node->inputs[0]);
    dropout->batch = in.dims[0];
    dropout->channels = in.ndim > 1 ? in.dims[1] : 1;
    dropout->plane = shape_elements(&in, spec->batch) / (dropout->batch * dropout->channels);
    dropout->masks = dropout->batch * dropout->channels;
    if (spec->node->kind == OP_DROPOUT)
        dropout->masks *= dropout->plane;
    int r = kernel_working_layout(spec, &kernel->output);
    if (r == 0)
        r = reorder_init_in(&dropout->source, device, spec->inputs[0], kernel->output, kernel);
    if (r == 0 && spec->training && spec->need_input_gradient[0])
        r = reorder_init_out(&dropout->input_gradient, device, kernel->output, spec->inputs[0],
                             kernel);
    dropout->passes = !spec->training;
    info->aliases_input = dropout->passes && !dropout->source.needed;
    if (!dropout->passes)
        info->saved_bytes = (size_t)dropout->masks * sizeof(float);
    return r;
}

/* to = from · mask, masks of plain order, for `run` elements that share one */
static void apply_runs(const float *mask, int64_t masks, int64_t run, const float *from, float *to)
{
    for (int64_t i = 0; i < masks; i++)
        for (int64_t j = 0; j < run; j++)
            to[i * run + j] = from[i * run + j] * mask[i];
}

/* One block of channels of one sample, values (plane, block), of which `channels` are real and the
 * rest is padding, which is zero and stays so. One mask a channel. */
static void channel_block(const float *mask, int64_t channels, int64_t block, int64_t plane,
                          const float *from, float *to)
{
    for (int64_t p = 0; p < plane; p++, from += block, to += block) {
        for (int64_t c = 0; c < channels; c++)
            to[c] = from[c] * mask[c];
        for (int64_t c = channels; c < block; c++)
            to[c] = 0;
    }
}

/* The same with one mask an element, in plain order: (channels, plane). */
static void element_block(const float *mask, int64_t channels, int64_t block, int64_t plane,
                          const float *from, float *to)
{
    for (int64_t p = 0; p < plane; p++, mask++, from += block, to += block) {
        for (int64_t c = 0; c < channels; c++)
            to[c] = from[c] * mask[c * plane];
        for (int64_t c = channels; c < block; c++)
            to[c] = 0;
    }
}

/* Values (N, C/block, plane, block); a channels-last layout is one block of all channels. */
static void apply_blocks(const DropoutKernel *dropout, int64_t block, const float *mask,
                         const float *from, float *to)
{
    bool by_channel = dropout->base.node.kind == OP_DROPOUT2D;
    int64_t plane = dropout->plane, step = plane * block;
    for (int64_t n = 0; n < dropout->batch; n++) {
        for (int64_t c = 0; c < dropout->channels; c += block, from += step, to += step) {
            int64_t left = dropout->channels - c, real = left < block ? left : block;
            if (by_channel)
                channel_block(mask, real, block, plane, from, to);
            else
                element_block(mask, real, block, plane, from, to);
            mask += by_channel ? real : real * plane;
        }
    }
}

static void apply(const DropoutKernel *dropout, const float *mask, const float *from, float *to)
{
    const Layout *layout = dropout->base.output;
    int64_t elements = dropout->batch * dropout->channels * dropout->plane;
    if (layout->plain)
        apply_runs(mask, dropout->masks, elements / dropout->masks, from, to);
    else
        apply_blocks(dropout, layout->block > 1 ? layout->block : dropout->channels, mask, from,
                     to);
}

static int dropout_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    DropoutKernel *dropout = (DropoutKernel *)kernel;
    if (dropout->passes)
        return reorder_straight(&dropout->source, device, kernel, args, args->inputs[0],
                                args->output);
    const void *in = NULL;
    int r = reorder_in(&dropout->source, device, kernel, args, args->inputs[0], &in);
    if (r < 0)
        return r;
    RngKey key = cpu_dropout_key(&args->rng, kernel->node.index);
    cpu_dropout_mask(&key, kernel->node.attrs.dropout, 0, (size_t)dropout->masks, args->saved);
    apply(dropout, args->saved, in, args->output);
    return 0;
}

static int dropout_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    DropoutKernel *dropout = (DropoutKernel *)kernel;
    void *outside = args->input_gradients[0];
    if (!outside)
        return 0;
    float *to = reorder_target(&dropout->input_gradient, args, outside);
    apply(dropout, args->saved, args->output_gradient, to);
    return reorder_out(&dropout->input_gradient, device, kernel, args, outside);
}

static void dropout_done(Kernel *kernel)
{
    DropoutKernel *dropout = (DropoutKernel *)kernel;
    reorder_done(&dropout->source);
    reorder_done(&dropout->input_gradient);
}

const KernelClass kernel_dropout = {dropout_compile, dropout_forward, dropout_backward,
                                    dropout_done, sizeof(DropoutKernel)};
