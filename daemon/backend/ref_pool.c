/* MaxPool2d and AvgPool2d: in (N,C,H,W) → out (N,C,OH,OW), plane by plane. */
#include "backend/ref_internal.h"

#include <math.h>
#include <string.h>

typedef struct PoolSizes {
    int64_t planes, h, w, oh, ow;
} PoolSizes;

static PoolSizes sizes_of(const Kernel *kernel)
{
    const int64_t *in = kernel->input.dims, *out = kernel->output.shape.dims;
    return (PoolSizes){in[0] * in[1], in[2], in[3], out[2], out[3]};
}

/* Inputs [top, bottom) × [left, right) that an output sees, padding cut off. */
typedef struct Window {
    int64_t top, bottom, left, right;
} Window;

static int64_t at_least(int64_t value, int64_t limit)
{
    return value > limit ? value : limit;
}

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static Window window_of(const PoolAttrs *a, const PoolSizes *z, int64_t oh, int64_t ow)
{
    int64_t top = oh * a->stride[0] - a->padding[0], left = ow * a->stride[1] - a->padding[1];
    return (Window){at_least(top, 0), at_most(top + a->kernel[0], z->h), at_least(left, 0),
                    at_most(left + a->kernel[1], z->w)};
}

/* ---- maximum --------------------------------------------------------------------------------- */

/* saved (N,C,OH,OW): where in its input plane each output came from. */
static void prepare_max(const Kernel *kernel, KernelInfo *info)
{
    info->saved_bytes = (size_t)kernel->output_elements * sizeof(int64_t);
}

/* The first of the largest; NaN counts as larger than anything. */
static int64_t find_max(const float *plane, const PoolSizes *z, Window window)
{
    int64_t best = window.top * z->w + window.left;
    for (int64_t h = window.top; h < window.bottom; h++)
        for (int64_t w = window.left; w < window.right; w++)
            if (plane[h * z->w + w] > plane[best] || isnan(plane[h * z->w + w]))
                best = h * z->w + w;
    return best;
}

static void forward_max(const Kernel *kernel, const KernelArgs *args)
{
    PoolSizes z = sizes_of(kernel);
    const float *plane = args->inputs[0];
    float *out = args->output;
    int64_t *saved = args->saved;
    for (int64_t p = 0; p < z.planes; p++, plane += z.h * z.w) {
        for (int64_t i = 0; i < z.oh * z.ow; i++) {
            Window window = window_of(&kernel->node.attrs.pool, &z, i / z.ow, i % z.ow);
            *saved = find_max(plane, &z, window);
            *out++ = plane[*saved++];
        }
    }
}

static void backward_max(const Kernel *kernel, const KernelArgs *args)
{
    PoolSizes z = sizes_of(kernel);
    const float *gradient = args->output_gradient;
    const int64_t *saved = args->saved;
    float *to = args->input_gradients[0];
    if (!to)
        return;
    memset(to, 0, (size_t)kernel->input_elements * sizeof *to);
    for (int64_t p = 0; p < z.planes; p++, to += z.h * z.w)
        for (int64_t i = 0; i < z.oh * z.ow; i++)
            to[*saved++] += *gradient++;
}

const RefOperator ref_maxpool2d = {prepare_max, forward_max, backward_max};

/* ---- average --------------------------------------------------------------------------------- */

static void prepare_average(const Kernel *kernel, KernelInfo *info)
{
    (void)kernel, (void)info;
}

/* What the sum over a window is divided by. Output sizes are rounded down, so a window never
 * reaches past the padding. */
static double divisor_of(const PoolAttrs *a, Window window)
{
    if (a->count_include_pad)
        return (double)(a->kernel[0] * a->kernel[1]);
    return (double)((window.bottom - window.top) * (window.right - window.left));
}

static void forward_average(const Kernel *kernel, const KernelArgs *args)
{
    const PoolAttrs *a = &kernel->node.attrs.pool;
    PoolSizes z = sizes_of(kernel);
    const float *plane = args->inputs[0];
    float *out = args->output;
    for (int64_t p = 0; p < z.planes; p++, plane += z.h * z.w) {
        for (int64_t i = 0; i < z.oh * z.ow; i++) {
            Window window = window_of(a, &z, i / z.ow, i % z.ow);
            double sum = 0;
            for (int64_t h = window.top; h < window.bottom; h++)
                for (int64_t w = window.left; w < window.right; w++)
                    sum += plane[h * z.w + w];
            *out++ = (float)(sum / divisor_of(a, window));
        }
    }
}

static void backward_average(const Kernel *kernel, const KernelArgs *args)
{
    const PoolAttrs *a = &kernel->node.attrs.pool;
    PoolSizes z = sizes_of(kernel);
    const float *gradient = args->output_gradient;
    float *to = args->input_gradients[0];
    if (!to)
        return;
    memset(to, 0, (size_t)kernel->input_elements * sizeof *to);
    for (int64_t p = 0; p < z.planes; p++, to += z.h * z.w) {
        for (int64_t i = 0; i < z.oh * z.ow; i++) {
            Window window = window_of(a, &z, i / z.ow, i % z.ow);
            float share = (float)(*gradient++ / divisor_of(a, window));
            for (int64_t h = window.top; h < window.bottom; h++)
                for (int64_t w = window.left; w < window.right; w++)
                    to[h * z.w + w] += share;
        }
    }
}

const RefOperator ref_avgpool2d = {prepare_average, forward_average, backward_average};
