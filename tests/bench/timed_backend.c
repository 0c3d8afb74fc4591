#include "timed_backend.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/backends.h"

/* The kernels that were compiled, two entries each (forward, backward), behind the fixed ones. */
enum { AT_NORMALISE, AT_LOSS, AT_OPTIMIZER, AT_COPY, AT_ACCUMULATE, AT_CHECK, FIXED };

static TimedEntry entries[TIMED_MAX] = {
    [AT_NORMALISE] = {.name = "normalise"},   [AT_LOSS] = {.name = "loss"},
    [AT_OPTIMIZER] = {.name = "optimizer"},   [AT_COPY] = {.name = "read, write, zero"},
    [AT_ACCUMULATE] = {.name = "accumulate"}, [AT_CHECK] = {.name = "norm2, all_finite"},
};
static const Kernel *kernels[TIMED_MAX];
static int count = FIXED;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static int charge(int index, uint64_t begin, int result)
{
    if (index < TIMED_MAX) {
        entries[index].ns += now_ns() - begin;
        entries[index].calls++;
    }
    return result;
}

void timed_backend_reset(void)
{
    for (int i = 0; i < TIMED_MAX; i++)
        entries[i].ns = entries[i].calls = 0;
}

int timed_backend_count(void)
{
    return count;
}

const TimedEntry *timed_backend_entry(int index)
{
    return &entries[index];
}

static int timed_compile(Device *device, const KernelSpec *spec, Kernel **ret, KernelInfo *info,
                         Error *err)
{
    int r = backend_onednn.compile(device, spec, ret, info, err);
    if (r == 0 && count + 2 <= TIMED_MAX) {
        kernels[count] = kernels[count + 1] = *ret;
        snprintf(entries[count].name, TIMED_NAME_MAX, "%s forward", spec->node->name);
        snprintf(entries[count + 1].name, TIMED_NAME_MAX, "%s backward", spec->node->name);
        count += 2;
    }
    return r;
}

static int find(const Kernel *kernel)
{
    for (int i = FIXED; i < count; i += 2)
        if (kernels[i] == kernel)
            return i;
    return TIMED_MAX;
}

static int timed_forward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    uint64_t begin = now_ns();
    return charge(find(kernel), begin, backend_onednn.forward(device, kernel, args));
}

static int timed_backward(Device *device, Kernel *kernel, const KernelArgs *args)
{
    uint64_t begin = now_ns();
    return charge(find(kernel) + 1, begin, backend_onednn.backward(device, kernel, args));
}

static int timed_accumulate(Device *device, const Layout *layout, void *to, const void *from)
{
    uint64_t begin = now_ns();
    return charge(AT_ACCUMULATE, begin, backend_onednn.accumulate(device, layout, to, from));
}

static int timed_normalise(Device *device, const uint8_t *from, float *to, int64_t batch,
                           int64_t channels, int64_t plane, float scale, const float *mean,
                           const float *deviation)
{
    uint64_t begin = now_ns();
    return charge(
        AT_NORMALISE, begin,
        backend_onednn.normalise(device, from, to, batch, channels, plane, scale, mean, deviation));
}

static int timed_loss(Device *device, LossKind kind, const float *output, const void *target,
                      int64_t batch, int64_t width, float *loss, float *gradient, int64_t *correct)
{
    uint64_t begin = now_ns();
    return charge(
        AT_LOSS, begin,
        backend_onednn.loss(device, kind, output, target, batch, width, loss, gradient, correct));
}

static int timed_optimizer_step(Device *device, const Optimizer *optimizer, uint64_t t,
                                float *params, const float *gradients, float *const *states,
                                size_t n)
{
    uint64_t begin = now_ns();
    return charge(
        AT_OPTIMIZER, begin,
        backend_onednn.optimizer_step(device, optimizer, t, params, gradients, states, n));
}

static int timed_norm2(Device *device, const float *array, size_t n, double *ret)
{
    uint64_t begin = now_ns();
    return charge(AT_CHECK, begin, backend_onednn.norm2(device, array, n, ret));
}

static int timed_all_finite(Device *device, const float *array, size_t n, bool *ret)
{
    uint64_t begin = now_ns();
    return charge(AT_CHECK, begin, backend_onednn.all_finite(device, array, n, ret));
}

static int timed_read(Device *device, const void *from, void *host, size_t bytes)
{
    uint64_t begin = now_ns();
    return charge(AT_COPY, begin, backend_onednn.read(device, from, host, bytes));
}

static int timed_write(Device *device, const void *host, void *to, size_t bytes)
{
    uint64_t begin = now_ns();
    return charge(AT_COPY, begin, backend_onednn.write(device, host, to, bytes));
}

static int timed_zero(Device *device, void *memory, size_t bytes)
{
    uint64_t begin = now_ns();
    return charge(AT_COPY, begin, backend_onednn.zero(device, memory, bytes));
}

/* ---- not on the step path: passed through ---------------------------------------------------- */

static int open_device(int index, int threads, Device **ret, Error *err)
{
    return backend_onednn.device_open(index, threads, ret, err);
}

static void close_device(Device *device)
{
    backend_onednn.device_close(device);
}

static void bind_device(Device *device)
{
    backend_onednn.device_bind(device);
}

static int alloc_memory(Device *device, size_t bytes, void **ret)
{
    return backend_onednn.alloc(device, bytes, ret);
}

static void release_memory(Device *device, void *memory)
{
    backend_onednn.release(device, memory);
}

static int plain_layout(Device *device, const Shape *shape, Layout **ret)
{
    return backend_onednn.layout_plain(device, shape, ret);
}

static void free_layout(Device *device, Layout *layout)
{
    backend_onednn.layout_free(device, layout);
}

static void free_kernel(Device *device, Kernel *kernel)
{
    backend_onednn.kernel_free(device, kernel);
}

static int take_mean(Device *device, const float *const *arrays, int n, float *to, size_t begin,
                     size_t end)
{
    return backend_onednn.mean(device, arrays, n, to, begin, end);
}

const Backend timed_backend = {
    .name = "onednn, timed",
    .device_open = open_device,
    .device_close = close_device,
    .device_bind = bind_device,
    .alloc = alloc_memory,
    .release = release_memory,
    .read = timed_read,
    .write = timed_write,
    .zero = timed_zero,
    .layout_plain = plain_layout,
    .layout_free = free_layout,
    .compile = timed_compile,
    .kernel_free = free_kernel,
    .forward = timed_forward,
    .backward = timed_backward,
    .accumulate = timed_accumulate,
    .normalise = timed_normalise,
    .loss = timed_loss,
    .optimizer_step = timed_optimizer_step,
    .norm2 = timed_norm2,
    .all_finite = timed_all_finite,
    .mean = take_mean,
};
