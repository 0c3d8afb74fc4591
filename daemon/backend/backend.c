/* The wrappers through which the rest of dpsd reaches a backend: they check what every backend may
 * rely on, so that no backend has to, and can inject a fault in place of any call. */
#include "backend/backend.h"

#include <stdatomic.h>
#include <stddef.h>

enum { DEVICE_ALIGNMENT = 64, MAX_THREADS = 1024 };

/* Calls left until one fails; 0: off. */
static atomic_uint calls_until_fault;

void backend_fail_after(unsigned calls)
{
    atomic_store(&calls_until_fault, calls);
}

static bool fault_is_due(void)
{
    unsigned left = atomic_load_explicit(&calls_until_fault, memory_order_relaxed);
    while (left > 0)
        if (atomic_compare_exchange_weak(&calls_until_fault, &left, left - 1))
            return left == 1;
    return false;
}

static bool aligned(const void *memory)
{
    return (uintptr_t)memory % DEVICE_ALIGNMENT == 0;
}

int accelerator_open(const Backend *backend, int index, int threads, Accelerator *ret, Error *err)
{
    if (!backend || index < 0 || threads < 1 || threads > MAX_THREADS)
        return error_set(err, -EINVAL, "device %d with %d threads cannot be opened", index,
                         threads);
    if (fault_is_due())
        return error_set(err, -EIO, "%s device %d: injected fault", backend->name, index);
    Device *device = NULL;
    int r = backend->device_open(index, threads, &device, err);
    if (r < 0)
        return r;
    *ret = (Accelerator){.backend = backend, .device = device};
    return 0;
}

void accelerator_close(Accelerator *accelerator)
{
    if (!accelerator || !accelerator->device)
        return;
    accelerator->backend->device_close(accelerator->device);
    *accelerator = (Accelerator){0};
}

void accelerator_bind(const Accelerator *accelerator)
{
    accelerator->backend->device_bind(accelerator->device);
}

/* ---- memory ---------------------------------------------------------------------------------- */

int accelerator_alloc(const Accelerator *accelerator, size_t bytes, void **ret)
{
    if (bytes > PTRDIFF_MAX - DEVICE_ALIGNMENT || fault_is_due())
        return -ENOMEM;
    return accelerator->backend->alloc(accelerator->device, bytes, ret);
}

void accelerator_release(const Accelerator *accelerator, void *memory)
{
    if (memory)
        accelerator->backend->release(accelerator->device, memory);
}

int accelerator_read(const Accelerator *accelerator, const void *from, void *host, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (!from || !host)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->read(accelerator->device, from, host, bytes);
}

int accelerator_write(const Accelerator *accelerator, const void *host, void *to, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (!host || !to)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->write(accelerator->device, host, to, bytes);
}

int accelerator_zero(const Accelerator *accelerator, void *memory, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (!memory)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->zero(accelerator->device, memory, bytes);
}

/* ---- kernels --------------------------------------------------------------------------------- */

int accelerator_layout_plain(const Accelerator *accelerator, const Shape *shape, Layout **ret)
{
    for (int i = 0; i < shape->ndim; i++)
        if (shape->dims[i] < 1)
            return -EINVAL; /* DIM_BATCH is to be replaced first */
    if (fault_is_due())
        return -ENOMEM;
    return accelerator->backend->layout_plain(accelerator->device, shape, ret);
}

void accelerator_layout_free(const Accelerator *accelerator, Layout *layout)
{
    if (layout)
        accelerator->backend->layout_free(accelerator->device, layout);
}

/* Statistics over one value a channel have no variance: PyTorch refuses them as well. */
static int check_batchnorm(const KernelSpec *spec, Error *err)
{
    if (spec->node->kind != OP_BATCHNORM2D || !spec->training)
        return 0;
    const Shape *in = graph_value_shape(spec->graph, spec->node->inputs[0]);
    if (shape_elements(in, spec->batch) > in->dims[1])
        return 0;
    char text[128];
    Shape shape = shape_at_batch(in, spec->batch);
    return error_set(err, -EOPNOTSUPP,
                     "%s: BatchNorm2d in training needs more than one value a channel, its input "
                     "is %s",
                     spec->node->name, shape_format(&shape, text, sizeof text));
}

int kernel_compile(const Accelerator *accelerator, const KernelSpec *spec, Kernel **ret,
                   KernelInfo *info, Error *err)
{
    const Node *node = spec->node;
    if (spec->batch < 1)
        return error_set(err, -EINVAL, "%s: a batch of %lld", node->name, (long long)spec->batch);
    for (int i = 0; i < node->n_inputs; i++)
        if (!spec->inputs[i])
            return error_set(err, -EINVAL, "%s: input %d has no layout", node->name, i);
    int r = check_batchnorm(spec, err);
    if (r < 0)
        return r;
    if (fault_is_due())
        return error_set(err, -EIO, "%s: injected fault", node->name);
    *info = (KernelInfo){0};
    return accelerator->backend->compile(accelerator->device, spec, ret, info, err);
}

void kernel_free(const Accelerator *accelerator, Kernel *kernel)
{
    if (kernel)
        accelerator->backend->kernel_free(accelerator->device, kernel);
}

int kernel_forward(const Accelerator *accelerator, Kernel *kernel, const KernelArgs *args)
{
    if (!args->inputs[0] || !args->output || !aligned(args->inputs[0]) || !aligned(args->output) ||
        !aligned(args->saved) || !aligned(args->scratch))
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->forward(accelerator->device, kernel, args);
}

int kernel_backward(const Accelerator *accelerator, Kernel *kernel, const KernelArgs *args)
{
    if (!args->output_gradient || !aligned(args->output_gradient) || !aligned(args->saved) ||
        !aligned(args->scratch))
        return -EINVAL;
    for (int i = 0; i < NODE_MAX_INPUTS; i++)
        if (!aligned(args->input_gradients[i]))
            return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->backward(accelerator->device, kernel, args);
}

/* ---- flat operations ------------------------------------------------------------------------- */

int accelerator_accumulate(const Accelerator *accelerator, const Layout *layout, void *to,
                           const void *from)
{
    if (!layout || !to || !from)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->accumulate(accelerator->device, layout, to, from);
}

int accelerator_normalise(const Accelerator *accelerator, const uint8_t *from, float *to,
                          int64_t batch, int64_t channels, int64_t plane, float scale,
                          const float *mean, const float *deviation)
{
    if (!from || !to || !mean || !deviation || batch < 1 || channels < 1 || plane < 1)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->normalise(accelerator->device, from, to, batch, channels, plane,
                                           scale, mean, deviation);
}

int accelerator_loss(const Accelerator *accelerator, LossKind kind, const float *output,
                     const void *target, int64_t batch, int64_t width, float *loss, float *gradient,
                     int64_t *correct)
{
    if (!output || !target || !loss || batch < 1 || width < 1 || kind >= LOSS_KIND_COUNT)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->loss(accelerator->device, kind, output, target, batch, width, loss,
                                      gradient, correct);
}

int accelerator_optimizer_step(const Accelerator *accelerator, const Optimizer *optimizer,
                               uint64_t t, float *params, const float *gradients,
                               float *const *states, size_t n)
{
    if (!optimizer || t == 0 || !params || !gradients)
        return -EINVAL;
    for (int i = 0; i < optimizer_state_count(optimizer); i++)
        if (!states[i])
            return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->optimizer_step(accelerator->device, optimizer, t, params,
                                                gradients, states, n);
}

int accelerator_norm2(const Accelerator *accelerator, const float *array, size_t n, double *ret)
{
    if (!array || !ret)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->norm2(accelerator->device, array, n, ret);
}

int accelerator_all_finite(const Accelerator *accelerator, const float *array, size_t n, bool *ret)
{
    if (!array || !ret)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->all_finite(accelerator->device, array, n, ret);
}

int accelerator_mean(const Accelerator *accelerator, const float *const *arrays, int count,
                     float *to, size_t begin, size_t end)
{
    if (!arrays || count < 1 || !to || begin > end)
        return -EINVAL;
    if (fault_is_due())
        return -EIO;
    return accelerator->backend->mean(accelerator->device, arrays, count, to, begin, end);
}
