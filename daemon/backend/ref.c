/* The reference backend: plain C on plain row-major arrays, terms summed in double. It is the truth
 * that the conformance suite holds the other backends to, so it is written to be read. */
#include "backend/backends.h"
#include "backend/cpu_math.h"
#include "backend/ref_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum { ALIGNMENT = 64 };

struct Device {
    int index;
};

static const RefOperator *const operators[OP_KIND_COUNT] = {
    [OP_CONV2D] = &ref_conv2d,
    [OP_RELU] = &ref_relu,
    [OP_MAXPOOL2D] = &ref_maxpool2d,
    [OP_AVGPOOL2D] = &ref_avgpool2d,
    [OP_BATCHNORM2D] = &ref_batchnorm2d,
    [OP_DROPOUT] = &ref_dropout,
    [OP_DROPOUT2D] = &ref_dropout2d,
    [OP_FLATTEN] = &ref_flatten,
    [OP_LINEAR] = &ref_linear,
    [OP_LOGSOFTMAX] = &ref_logsoftmax,
    [OP_ADD] = &ref_add,
};

/* ---- device and memory ----------------------------------------------------------------------- */

static int ref_device_open(int index, int threads, Device **ret, Error *err)
{
    (void)threads; /* one, however many are offered */
    if (index != 0)
        return error_set(err, -ENODEV, "ref has one device, 0; there is no %d", index);
    Device *device = calloc(1, sizeof *device);
    if (!device)
        return error_set(err, -ENOMEM, "no memory for a ref device");
    device->index = index;
    *ret = device;
    return 0;
}

static void ref_device_close(Device *device)
{
    free(device);
}

static void ref_device_bind(Device *device)
{
    (void)device; /* nothing of it belongs to a thread */
}

static int ref_alloc(Device *device, size_t bytes, void **ret)
{
    (void)device;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, rounded > 0 ? rounded : ALIGNMENT);
    if (!memory)
        return -ENOMEM;
    memset(memory, 0, rounded);
    *ret = memory;
    return 0;
}

static void ref_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

static int ref_read(Device *device, const void *from, void *host, size_t bytes)
{
    (void)device;
    memcpy(host, from, bytes);
    return 0;
}

static int ref_write(Device *device, const void *host, void *to, size_t bytes)
{
    (void)device;
    memcpy(to, host, bytes);
    return 0;
}

static int ref_zero(Device *device, void *memory, size_t bytes)
{
    (void)device;
    memset(memory, 0, bytes);
    return 0;
}

static int ref_layout_plain(Device *device, const Shape *shape, Layout **ret)
{
    (void)device;
    Layout *layout = malloc(sizeof *layout);
    if (!layout)
        return -ENOMEM;
    layout->shape = *shape;
    *ret = layout;
    return 0;
}

static void ref_layout_free(Device *device, Layout *layout)
{
    (void)device;
    free(layout);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int ref_compile(Device *device, const KernelSpec *spec, Kernel **ret, KernelInfo *info,
                       Error *err)
{
    (void)device;
    _cleanup_free_ Kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return error_set(err, -ENOMEM, "%s: no memory for its kernel", spec->node->name);
    kernel->node = *spec->node;
    kernel->training = spec->training;
    kernel->input = spec->inputs[0]->shape;
    kernel->output.shape =
        shape_at_batch(graph_value_shape(spec->graph, spec->node->output), spec->batch);
    kernel->input_elements = shape_elements(&kernel->input, spec->batch);
    kernel->output_elements = shape_elements(&kernel->output.shape, spec->batch);

    info->output = &kernel->output;
    info->output_bytes = (size_t)kernel->output_elements * sizeof(float);
    operators[kernel->node.kind]->prepare(kernel, info);
    *ret = MOVE(kernel);
    return 0;
}

static void ref_kernel_free(Device *device, Kernel *kernel)
{
    (void)device;
    free(kernel);
}

static int ref_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    (void)device;
    operators[kernel->node.kind]->forward(kernel, args);
    return 0;
}

static int ref_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    (void)device;
    if (!kernel->training)
        return -EINVAL; /* nothing was saved for it */
    operators[kernel->node.kind]->backward(kernel, args);
    return 0;
}

/* ---- flat operations: those of all CPU backends ---------------------------------------------- */

static int ref_accumulate(Device *device, const Layout *layout, void *to, const void *from)
{
    (void)device;
    cpu_accumulate(to, from, (size_t)shape_elements(&layout->shape, layout->shape.dims[0]));
    return 0;
}

static int ref_normalise(Device *device, const uint8_t *from, float *to, int64_t batch,
                         int64_t channels, int64_t plane, float scale, const float *mean,
                         const float *deviation)
{
    (void)device;
    cpu_normalise(from, to, batch, channels, plane, scale, mean, deviation);
    return 0;
}

static int ref_loss(Device *device, LossKind kind, const float *output, const void *target,
                    int64_t batch, int64_t width, float *loss, float *gradient, int64_t *correct)
{
    (void)device;
    return cpu_loss(kind, output, target, batch, width, loss, gradient, correct);
}

static int ref_optimizer_step(Device *device, const Optimizer *optimizer, uint64_t t, float *params,
                              const float *gradients, float *const *states, size_t n)
{
    (void)device;
    cpu_optimizer_step(optimizer, t, params, gradients, states, n);
    return 0;
}

static int ref_norm2(Device *device, const float *array, size_t n, double *ret)
{
    (void)device;
    *ret = cpu_norm2(array, n);
    return 0;
}

static int ref_all_finite(Device *device, const float *array, size_t n, bool *ret)
{
    (void)device;
    *ret = cpu_all_finite(array, n);
    return 0;
}

static int ref_mean(Device *device, const float *const *arrays, int count, float *to, size_t begin,
                    size_t end)
{
    (void)device;
    cpu_mean(arrays, count, to, begin, end);
    return 0;
}

const Backend backend_ref = {
    .name = "ref",
    .device_open = ref_device_open,
    .device_close = ref_device_close,
    .device_bind = ref_device_bind,
    .alloc = ref_alloc,
    .release = ref_release,
    .read = ref_read,
    .write = ref_write,
    .zero = ref_zero,
    .layout_plain = ref_layout_plain,
    .layout_free = ref_layout_free,
    .compile = ref_compile,
    .kernel_free = ref_kernel_free,
    .forward = ref_forward,
    .backward = ref_backward,
    .accumulate = ref_accumulate,
    .normalise = ref_normalise,
    .loss = ref_loss,
    .optimizer_step = ref_optimizer_step,
    .norm2 = ref_norm2,
    .all_finite = ref_all_finite,
    .mean = ref_mean,
};
