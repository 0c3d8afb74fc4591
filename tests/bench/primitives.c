#include "primitives.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/onednn/primitive.h"

enum { MAX_ENTRIES = 24, MAX_MEMORY = 8 };

typedef struct Entry {
    const char *name;
    bool matrix;
    Primitive primitive;
    void *memory[MAX_MEMORY]; /* one an argument, in their order */
    void *scratchpad;
} Entry;

struct PrimitiveSet {
    Device *device;
    int count;
    Entry entries[MAX_ENTRIES];
};

/* Small numbers, neither denormal nor all alike. */
static void fill(float *memory, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memory[i] = (float)(i * 2654435761U % 1000) / 1000 - 0.5F;
}

static int add_memory(const Device *device, const_dnnl_primitive_desc_t pd, int argument,
                      void **ret)
{
    dnnl_memory_t unused;
    size_t bytes = 0;
    int r = adapter_memory_of_argument(pd, argument, device->engine, &unused, &bytes);
    if (r < 0)
        return r;
    dnnl_memory_destroy(unused);
    r = onednn_alloc(NULL, bytes, ret);
    if (r == 0 && argument != DNNL_ARG_WORKSPACE)
        fill(*ret, bytes / sizeof(float));
    return r;
}

/* Takes pd over. described: how making it ended. names end with 0. */
static int add(PrimitiveSet *set, const char *name, bool matrix, int described,
               dnnl_primitive_desc_t pd, const int *names)
{
    if (described < 0)
        return described;
    Entry *entry = &set->entries[set->count++];
    entry->name = name;
    entry->matrix = matrix;
    int n = 0, r = 0;
    for (; names[n] && r == 0; n++)
        r = add_memory(set->device, pd, names[n], &entry->memory[n]);
    if (r == 0)
        r = primitive_init(&entry->primitive, set->device, pd, names, n);
    if (r == 0)
        r = onednn_alloc(NULL, entry->primitive.scratchpad_bytes, &entry->scratchpad);
    dnnl_primitive_desc_destroy(pd);
    return r;
}

/* ---- the net --------------------------------------------------------------------------------- */

static const int conv_forward_names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                         DNNL_ARG_BIAS, 0};
static const int conv_data_names[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC, 0};
static const int conv_weights_names[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                         DNNL_ARG_DIFF_BIAS, 0};
static const int backward_names[] = {DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, 0};

typedef struct ConvShape {
    const char *forward, *data, *weights, *relu; /* names; NULL: left out */
    int64_t in[4], kernel[4], out[4];
} ConvShape;

/* One convolution of the step. *dst is the layout of its output, owned by the caller. */
static int add_conv(PrimitiveSet *set, const ConvShape *shape, Layout **dst)
{
    static const Window window = {.stride = {1, 1}};
    _cleanup_layout_ Layout *in = NULL, *kernel = NULL, *bias = NULL, *out = NULL, *src = NULL;
    _cleanup_context_ PrimitiveContext context = {0}, backward = {0};
    _cleanup_pd_ dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool relu = shape->relu != NULL;
    int r = layout_new_any(4, shape->in, &in);
    if (r == 0)
        r = layout_new_any(4, shape->kernel, &kernel);
    if (r == 0)
        r = layout_new_plain(1, &shape->kernel[0], &bias);
    if (r == 0)
        r = layout_new_any(4, shape->out, &out);
    if (r == 0)
        r = primitive_context_init(&context, set->device, dnnl_forward_training, relu);
    if (r == 0)
        r = primitive_context_init(&backward, set->device, dnnl_backward, false);
    if (r == 0)
        r = adapter_conv_forward(&context, &window, in, kernel, bias, out, &hint);
    if (r == 0)
        r = layout_of_argument(hint, DNNL_ARG_SRC, &src);
    if (r == 0)
        r = layout_of_argument(hint, DNNL_ARG_DST, dst);
    if (r < 0)
        return r;
    backward.hint = hint;
    r = adapter_conv_forward(&context, &window, in, kernel, bias, out, &pd);
    r = add(set, shape->forward, true, r, pd, conv_forward_names);
    if (r == 0 && shape->data) {
        r = adapter_conv_backward_data(&backward, &window, in, kernel, *dst, &pd);
        r = add(set, shape->data, true, r, pd, conv_data_names);
    }
    if (r == 0) {
        r = adapter_conv_backward_weights(&backward, &window, src, kernel, bias, *dst, &pd);
        r = add(set, shape->weights, true, r, pd, conv_weights_names);
    }
    return r;
}

static int add_relu_backward(PrimitiveSet *set, const char *name, const Layout *data)
{
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int r = primitive_context_init(&context, set->device, dnnl_forward_training, false);
    if (r == 0)
        r = adapter_relu_forward(&context, data, &hint);
    context.hint = hint;
    if (r == 0)
        r = adapter_relu_backward(&context, data, &pd);
    return add(set, name, false, r, pd, backward_names);
}

/* 2×2 maximum of `src`. */
static int add_pool(PrimitiveSet *set, const Layout *src)
{
    static const int forward_names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE, 0};
    static const int names[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_WORKSPACE, 0};
    static const Window window = {.kernel = {2, 2}, .stride = {2, 2}};
    int64_t dims[] = {src->dims[0], src->dims[1], src->dims[2] / 2, src->dims[3] / 2};
    _cleanup_layout_ Layout *any = NULL, *dst = NULL;
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int r = layout_new_any(4, dims, &any);
    if (r == 0)
        r = primitive_context_init(&context, set->device, dnnl_forward_training, false);
    if (r == 0)
        r = adapter_pool_forward(&context, dnnl_pooling_max, &window, src, any, &hint);
    if (r == 0)
        r = layout_of_argument(hint, DNNL_ARG_DST, &dst);
    if (r < 0)
        return r;
    r = adapter_pool_forward(&context, dnnl_pooling_max, &window, src, any, &pd);
    r = add(set, "pool forward", false, r, pd, forward_names);
    if (r < 0)
        return r;
    context.hint = hint;
    r = adapter_pool_backward(&context, dnnl_pooling_max, &window, src, dst, &pd);
    return add(set, "pool backward", false, r, pd, names);
}

/* c (m,n) = a (m,k) · b (k,n), a or b as transposes in memory. */
static int add_matmul(PrimitiveSet *set, const char *name, int64_t m, int64_t k, int64_t n,
                      bool a_transposed, bool b_transposed, bool bias)
{
    static const int with_bias[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS, 0};
    static const int without[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, 0};
    _cleanup_layout_ Layout *a = NULL, *b = NULL, *c = NULL, *d = NULL;
    _cleanup_context_ PrimitiveContext context = {0};
    dnnl_primitive_desc_t pd = NULL;
    int64_t a_strides[] = {a_transposed ? 1 : k, a_transposed ? m : 1};
    int64_t b_strides[] = {b_transposed ? 1 : n, b_transposed ? k : 1};
    int r = layout_new_strided(2, (int64_t[]){m, k}, a_strides, &a);
    if (r == 0)
        r = layout_new_strided(2, (int64_t[]){k, n}, b_strides, &b);
    if (r == 0)
        r = layout_new_plain(2, (int64_t[]){m, n}, &c);
    if (r == 0)
        r = layout_new_plain(2, (int64_t[]){1, n}, &d);
    if (r == 0)
        r = primitive_context_init(&context, set->device, dnnl_prop_kind_undef, false);
    if (r == 0)
        r = adapter_matmul(&context, a, b, bias ? d : NULL, c, &pd);
    return add(set, name, true, r, pd, bias ? with_bias : without);
}

static int add_logsoftmax(PrimitiveSet *set, int64_t batch)
{
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, 0};
    _cleanup_layout_ Layout *data = NULL;
    _cleanup_context_ PrimitiveContext context = {0};
    _cleanup_pd_ dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int r = layout_new_plain(2, (int64_t[]){batch, 10}, &data);
    if (r == 0)
        r = primitive_context_init(&context, set->device, dnnl_forward_training, false);
    if (r == 0)
        r = adapter_logsoftmax_forward(&context, data, 1, &hint);
    if (r < 0)
        return r;
    r = adapter_logsoftmax_forward(&context, data, 1, &pd);
    r = add(set, "log_softmax forward", false, r, pd, names);
    if (r < 0)
        return r;
    context.hint = hint;
    r = adapter_logsoftmax_backward(&context, data, 1, &pd);
    return add(set, "log_softmax backward", false, r, pd, backward_names);
}

static int add_convolutions(PrimitiveSet *set, int64_t batch)
{
    const ConvShape conv1 = {
        "conv1 forward",    NULL,          "conv1 backward-weights", "relu1 backward",
        {batch, 1, 28, 28}, {32, 1, 3, 3}, {batch, 32, 26, 26}};
    const ConvShape conv2 = {
        "conv2 forward",     "conv2 backward-data", "conv2 backward-weights", NULL,
        {batch, 32, 26, 26}, {64, 32, 3, 3},        {batch, 64, 24, 24}};
    _cleanup_layout_ Layout *one = NULL, *two = NULL;
    int r = add_conv(set, &conv1, &one);
    if (r == 0)
        r = add_relu_backward(set, conv1.relu, one);
    if (r == 0)
        r = add_conv(set, &conv2, &two);
    if (r == 0 && two)
        r = add_pool(set, two);
    return r;
}

static int add_linears(PrimitiveSet *set, int64_t batch)
{
    _cleanup_layout_ Layout *hidden = NULL;
    int r = add_matmul(set, "fc1 forward", batch, 9216, 128, false, true, true);
    if (r == 0)
        r = add_matmul(set, "fc1 backward-data", batch, 128, 9216, false, false, false);
    if (r == 0)
        r = add_matmul(set, "fc1 backward-weights", 128, batch, 9216, true, false, false);
    if (r == 0)
        r = layout_new_plain(2, (int64_t[]){batch, 128}, &hidden);
    if (r == 0)
        r = add_relu_backward(set, "relu2 backward", hidden);
    if (r == 0)
        r = add_matmul(set, "fc2 forward", batch, 128, 10, false, true, true);
    if (r == 0)
        r = add_matmul(set, "fc2 backward-data", batch, 10, 128, false, false, false);
    if (r == 0)
        r = add_matmul(set, "fc2 backward-weights", 10, batch, 128, true, false, false);
    return r;
}

int primitive_set_new(int64_t batch, PrimitiveSet **ret, Error *err)
{
    PrimitiveSet *set = calloc(1, sizeof *set);
    if (!set)
        return error_set(err, -ENOMEM, "no memory for the primitives");
    int r = onednn_device_open(0, 1, &set->device, err);
    if (r == 0) {
        onednn_device_bind(set->device);
        r = add_convolutions(set, batch);
        if (r == 0)
            r = add_linears(set, batch);
        if (r == 0)
            r = add_logsoftmax(set, batch);
        if (r < 0)
            error_set(err, r, "oneDNN cannot make primitive %d of the step: %s", set->count,
                      strerror(-r));
    }
    if (r < 0) {
        primitive_set_free(set);
        return r;
    }
    *ret = set;
    return 0;
}

PrimitiveSet *primitive_set_free(PrimitiveSet *set)
{
    if (!set)
        return NULL;
    for (int i = 0; i < set->count; i++) {
        primitive_done(&set->entries[i].primitive);
        for (int j = 0; j < MAX_MEMORY; j++)
            onednn_release(NULL, set->entries[i].memory[j]);
        onednn_release(NULL, set->entries[i].scratchpad);
    }
    onednn_device_close(set->device);
    free(set);
    return NULL;
}

int primitive_set_count(const PrimitiveSet *set)
{
    return set->count;
}

const char *primitive_set_name(const PrimitiveSet *set, int index)
{
    return set->entries[index].name;
}

bool primitive_set_is_matrix(const PrimitiveSet *set, int index)
{
    return set->entries[index].matrix;
}

double primitive_set_time(PrimitiveSet *set, int index, int runs)
{
    Entry *entry = &set->entries[index];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < runs; i++)
        if (primitive_run(&entry->primitive, set->device, (const void *const *)entry->memory,
                          entry->scratchpad) < 0)
            abort(); /* it ran when it was made; a bench has no other remedy */
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
           1e3 / runs;
}
