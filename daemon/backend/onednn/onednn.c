/* The oneDNN backend: what users without a GPU run. Values flow through the graph in the blocked
 * layouts that the convolutions choose; primitives and their memory objects are made when a node is
 * compiled and reused at every step. */
#include <stdlib.h>

#include "backend/backends.h"
#include "backend/cpu_math.h"
#include "backend/onednn/kernel.h"

static const KernelClass *const classes[OP_KIND_COUNT] = {
    [OP_CONV2D] = &kernel_conv,
    [OP_RELU] = &kernel_relu,
    [OP_MAXPOOL2D] = &kernel_pool,
    [OP_AVGPOOL2D] = &kernel_pool,
    [OP_BATCHNORM2D] = &kernel_batchnorm,
    [OP_DROPOUT] = &kernel_dropout,
    [OP_DROPOUT2D] = &kernel_dropout,
    [OP_FLATTEN] = &kernel_flatten,
    [OP_LINEAR] = &kernel_linear,
    [OP_LOGSOFTMAX] = &kernel_logsoftmax,
    [OP_ADD] = &kernel_add,
};

static int onednn_layout_plain(Device *device, const Shape *shape, Layout **ret)
{
    (void)device;
    return layout_of_shape(shape, ret);
}

static void onednn_layout_free(Device *device, Layout *layout)
{
    (void)device;
    layout_release(layout);
}

static void onednn_kernel_free(Device *device, Kernel *kernel)
{
    (void)device;
    if (!kernel)
        return;
    kernel->class->done(kernel);
    layout_release(kernel->output);
    free(kernel);
}

/* "conv1: oneDNN cannot compute Conv2d (32, 1, 28, 28) → (32, 32, 26, 26), weight (32, 1, 3, 3)" */
static int compile_failed(const KernelSpec *spec, int code, Error *err)
{
    const Node *node = spec->node;
    char in[128], out[128], weight[128] = "";
    Shape in_shape = kernel_shape(spec, node->inputs[0]),
          out_shape = kernel_shape(spec, node->output);
    shape_format(&in_shape, in, sizeof in);
    shape_format(&out_shape, out, sizeof out);
    if (node->n_params > 0)
        shape_format(&graph_param(spec->graph, node->params[0])->shape, weight, sizeof weight);
    if (code == -ENOMEM)
        return error_set(err, code, "%s: no memory to compile %s %s → %s", node->name,
                         op_kind_name(node->kind), in, out);
    return error_set(err, code, "%s: oneDNN cannot compute %s %s → %s%s%s on this CPU", node->name,
                     op_kind_name(node->kind), in, out, *weight ? ", weight " : "", weight);
}

static int onednn_compile(Device *device, const KernelSpec *spec, Kernel **ret, KernelInfo *info,
                          Error *err)
{
    const KernelClass *class = classes[spec->node->kind];
    Kernel *kernel = calloc(1, class->size);
    if (!kernel)
        return compile_failed(spec, -ENOMEM, err);
    kernel->class = class;
    kernel->node = *spec->node;
    kernel->training = spec->training;
    onednn_device_bind(device); /* a primitive is made for the number of threads at hand */
    int r = class->compile(device, spec, kernel, info);
    if (r < 0) {
        onednn_kernel_free(device, kernel);
        return compile_failed(spec, r, err);
    }
    info->output = kernel->output;
    info->output_bytes = kernel->output->bytes;
    info->scratch_bytes = kernel->scratch_bytes + kernel->scratchpad_bytes;
    *ret = kernel;
    return 0;
}

static int onednn_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    return kernel->class->forward(device, kernel, args);
}

static int onednn_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    if (!kernel->training)
        return -EINVAL; /* nothing was saved for it */
    return kernel->class->backward(device, kernel, args);
}

/* ---- flat operations: those of all CPU backends ---------------------------------------------- */

/* The padding of a blocked layout is zero and stays so. */
static int onednn_accumulate(Device *device, const Layout *layout, void *to, const void *from)
{
    (void)device;
    cpu_accumulate(to, from, (size_t)layout_elements(layout));
    return 0;
}

static int onednn_normalise(Device *device, const uint8_t *from, float *to, int64_t batch,
                            int64_t channels, int64_t plane, float scale, const float *mean,
                            const float *deviation)
{
    (void)device;
    cpu_normalise(from, to, batch, channels, plane, scale, mean, deviation);
    return 0;
}

static int onednn_loss(Device *device, LossKind kind, const float *output, const void *target,
                       int64_t batch, int64_t width, float *loss, float *gradient, int64_t *correct)
{
    (void)device;
    return cpu_loss(kind, output, target, batch, width, loss, gradient, correct);
}

static int onednn_optimizer_step(Device *device, const Optimizer *optimizer, uint64_t t,
                                 float *params, const float *gradients, float *const *states,
                                 size_t n)
{
    (void)device;
    cpu_optimizer_step(optimizer, t, params, gradients, states, n);
    return 0;
}

static int onednn_norm2(Device *device, const float *array, size_t n, double *ret)
{
    (void)device;
    *ret = cpu_norm2(array, n);
    return 0;
}

static int onednn_all_finite(Device *device, const float *array, size_t n, bool *ret)
{
    (void)device;
    *ret = cpu_all_finite(array, n);
    return 0;
}

static int onednn_mean(Device *device, const float *const *arrays, int count, float *to,
                       size_t begin, size_t end)
{
    (void)device;
    cpu_mean(arrays, count, to, begin, end);
    return 0;
}

static int onednn_weighted_sum(Device *device, const float *const *arrays, const float *weights,
                               int count, float *to, size_t begin, size_t end)
{
    (void)device;
    cpu_weighted_sum(arrays, weights, count, to, begin, end);
    return 0;
}

const Backend backend_onednn = {
    .name = "onednn",
    .device_open = onednn_device_open,
    .device_close = onednn_device_close,
    .device_bind = onednn_device_bind,
    .alloc = onednn_alloc,
    .release = onednn_release,
    .read = onednn_read,
    .write = onednn_write,
    .zero = onednn_zero,
    .layout_plain = onednn_layout_plain,
    .layout_free = onednn_layout_free,
    .compile = onednn_compile,
    .kernel_free = onednn_kernel_free,
    .forward = onednn_forward,
    .backward = onednn_backward,
    .accumulate = onednn_accumulate,
    .normalise = onednn_normalise,
    .loss = onednn_loss,
    .optimizer_step = onednn_optimizer_step,
    .norm2 = onednn_norm2,
    .all_finite = onednn_all_finite,
    .mean = onednn_mean,
    .weighted_sum = onednn_weighted_sum,
};
