/* Conv2d: out (N,K,OH,OW) = in (N,C,H,W) ⋆ w (K,C/G,R,S) + bias (K), with stride, padding, dilation
 * and groups, and the Relu after it where the graph says so.
 *
 * Each output row, or input plane, is summed in double in the scratch memory; loops run along rows,
 * so that they are quick enough for whole training runs. */
#include "backend/ref_internal.h"

#include <string.h>

typedef struct ConvSizes {
    int64_t n, c, h, w;
    int64_t k, oh, ow;
    int64_t r, s;
    int64_t per_group_in, per_group_out; /* channels */
} ConvSizes;

static ConvSizes sizes_of(const Kernel *kernel)
{
    const int64_t *in = kernel->input.dims, *out = kernel->output.shape.dims;
    const ConvAttrs *a = &kernel->node.attrs.conv;
    return (ConvSizes){.n = in[0],
                       .c = in[1],
                       .h = in[2],
                       .w = in[3],
                       .k = out[1],
                       .oh = out[2],
                       .ow = out[3],
                       .r = a->kernel[0],
                       .s = a->kernel[1],
                       .per_group_in = in[1] / a->groups,
                       .per_group_out = out[1] / a->groups};
}

/* A row of output positions met with one column of the filter: output o reads input
 * o · stride + offset, for o in [begin, end), where that lies inside the row. */
typedef struct Span {
    int64_t begin, end, stride, offset;
} Span;

static Span span_of(const ConvAttrs *a, int64_t column, int64_t input_width, int64_t output_width)
{
    Span span = {.end = output_width,
                 .stride = a->stride[1],
                 .offset = column * a->dilation[1] - a->padding[1]};
    if (span.offset < 0)
        span.begin = (-span.offset + span.stride - 1) / span.stride;
    while (span.end > span.begin && (span.end - 1) * span.stride + span.offset >= input_width)
        span.end--;
    return span;
}

/* The input row that output row `oh` meets with filter row `r`; negative or >= H: padding. */
static int64_t input_row(const ConvAttrs *a, int64_t oh, int64_t r)
{
    return oh * a->stride[0] - a->padding[0] + r * a->dilation[0];
}

static size_t sums_bytes(const ConvSizes *z)
{
    int64_t row = z->ow, plane = z->h * z->w;
    return (size_t)(row > plane ? row : plane) * sizeof(double);
}

static void prepare_conv(const Kernel *kernel, KernelInfo *info)
{
    ConvSizes z = sizes_of(kernel);
    info->backward_reads_input = true;
    info->backward_reads_output = kernel->node.fused_relu;
    info->scratch_bytes = sums_bytes(&z);
    if (kernel->training && kernel->node.fused_relu)
        info->scratch_bytes += (size_t)kernel->output_elements * sizeof(float);
}

/* sums (OW) += in plane (H,W) ⋆ filter (R,S), for output row oh */
static void add_row(const ConvAttrs *a, const ConvSizes *z, const float *plane, const float *filter,
                    int64_t oh, double *sums)
{
    for (int64_t r = 0; r < z->r; r++) {
        int64_t h = input_row(a, oh, r);
        if (h < 0 || h >= z->h)
            continue;
        for (int64_t s = 0; s < z->s; s++) {
            Span span = span_of(a, s, z->w, z->ow);
            double weight = filter[r * z->s + s];
            for (int64_t o = span.begin; o < span.end; o++)
                sums[o] += weight * plane[h * z->w + o * span.stride + span.offset];
        }
    }
}

static void forward_conv(const Kernel *kernel, const KernelArgs *args)
{
    const ConvAttrs *a = &kernel->node.attrs.conv;
    ConvSizes z = sizes_of(kernel);
    const float *in = args->inputs[0], *weight = args->params[0];
    float *out = args->output;
    double *sums = args->scratch;
    for (int64_t nk = 0; nk < z.n * z.k; nk++) {
        int64_t n = nk / z.k, k = nk % z.k, first = k / z.per_group_out * z.per_group_in;
        for (int64_t oh = 0; oh < z.oh; oh++) {
            for (int64_t o = 0; o < z.ow; o++)
                sums[o] = a->bias ? args->params[1][k] : 0;
            for (int64_t c = 0; c < z.per_group_in; c++)
                add_row(a, &z, in + (n * z.c + first + c) * z.h * z.w,
                        weight + (k * z.per_group_in + c) * z.r * z.s, oh, sums);
            for (int64_t o = 0; o < z.ow; o++, out++)
                *out = kernel->node.fused_relu && sums[o] < 0 ? 0 : (float)sums[o];
        }
    }
}

/* sums (H,W) += gradient plane (OH,OW) spread by filter (R,S): the transpose of the convolution */
static void spread_plane(const ConvAttrs *a, const ConvSizes *z, const float *gradient,
                         const float *filter, double *sums)
{
    for (int64_t oh = 0; oh < z->oh; oh++) {
        for (int64_t r = 0; r < z->r; r++) {
            int64_t h = input_row(a, oh, r);
            if (h < 0 || h >= z->h)
                continue;
            for (int64_t s = 0; s < z->s; s++) {
                Span span = span_of(a, s, z->w, z->ow);
                double weight = filter[r * z->s + s];
                double *row = sums + h * z->w;
                for (int64_t o = span.begin; o < span.end; o++)
                    row[o * span.stride + span.offset] += weight * gradient[oh * z->ow + o];
            }
        }
    }
}

/* dIn (N,C,H,W) */
static void backward_input(const ConvAttrs *a, const ConvSizes *z, const float *gradient,
                           const float *weight, double *sums, float *to)
{
    int64_t plane = z->h * z->w;
    for (int64_t nc = 0; nc < z->n * z->c; nc++) {
        int64_t n = nc / z->c, c = nc % z->c, group = c / z->per_group_in;
        memset(sums, 0, (size_t)plane * sizeof *sums);
        for (int64_t j = 0; j < z->per_group_out; j++) {
            int64_t k = group * z->per_group_out + j;
            spread_plane(a, z, gradient + (n * z->k + k) * z->oh * z->ow,
                         weight + (k * z->per_group_in + c % z->per_group_in) * z->r * z->s, sums);
        }
        for (int64_t i = 0; i < plane; i++, to++)
            *to = (float)sums[i];
    }
}

/* One element of dW: Σ over (OH,OW) of the gradient times the input that this place of the filter
 * met. */
static double meet_planes(const ConvAttrs *a, const ConvSizes *z, const float *plane,
                          const float *gradient, int64_t r, int64_t s)
{
    Span span = span_of(a, s, z->w, z->ow);
    double sum = 0;
    for (int64_t oh = 0; oh < z->oh; oh++) {
        int64_t h = input_row(a, oh, r);
        if (h < 0 || h >= z->h)
            continue;
        for (int64_t o = span.begin; o < span.end; o++)
            sum +=
                (double)gradient[oh * z->ow + o] * plane[h * z->w + o * span.stride + span.offset];
    }
    return sum;
}

/* dW (K,C/G,R,S) */
static void backward_weight(const ConvAttrs *a, const ConvSizes *z, const float *gradient,
                            const float *in, float *to)
{
    int64_t filter = z->r * z->s;
    for (int64_t i = 0; i < z->k * z->per_group_in * filter; i++) {
        int64_t k = i / (z->per_group_in * filter), r = i % filter / z->s, s = i % z->s;
        int64_t c = k / z->per_group_out * z->per_group_in + i / filter % z->per_group_in;
        double sum = 0;
        for (int64_t n = 0; n < z->n; n++)
            sum += meet_planes(a, z, in + (n * z->c + c) * z->h * z->w,
                               gradient + (n * z->k + k) * z->oh * z->ow, r, s);
        to[i] = (float)sum;
    }
}

/* dBias (K) = Σ over (N,OH,OW) of dOut */
static void backward_bias(const ConvSizes *z, const float *gradient, float *to)
{
    int64_t plane = z->oh * z->ow;
    for (int64_t k = 0; k < z->k; k++) {
        double sum = 0;
        for (int64_t n = 0; n < z->n; n++)
            for (int64_t i = 0; i < plane; i++)
                sum += gradient[(n * z->k + k) * plane + i];
        to[k] = (float)sum;
    }
}

static void backward_conv(const Kernel *kernel, const KernelArgs *args)
{
    const ConvAttrs *a = &kernel->node.attrs.conv;
    ConvSizes z = sizes_of(kernel);
    const float *gradient = args->output_gradient;
    double *sums = args->scratch;
    float *masked = (float *)((char *)args->scratch + sums_bytes(&z)); /* (N,K,OH,OW) */
    if (kernel->node.fused_relu) {
        ref_mask_by_relu(kernel, args, masked);
        gradient = masked;
    }
    if (args->input_gradients[0])
        backward_input(a, &z, gradient, args->params[0], sums, args->input_gradients[0]);
    backward_weight(a, &z, gradient, args->inputs[0], args->param_gradients[0]);
    if (a->bias)
        backward_bias(&z, gradient, args->param_gradients[1]);
}

const RefOperator ref_conv2d = {prepare_conv, forward_conv, backward_conv};
