/* The contract of a backend: how a device computes.
 *
 * A backend is a const table, reached through the wrappers at the end, which check arguments and
 * can inject faults (backend_fail_next). Adding a backend is a table and a line in registry.c.
 *
 * Memory that a Device hands out is opaque to callers (a GPU's is not addressable): it is read and
 * written by device_read and device_write only. CPU backends hand out ordinary memory.
 *
 * Parameters, their gradients, optimizer state and float buffers are flat float32 arrays in the
 * plain row-major layout of PyTorch. Values between nodes (activations and their gradients) are in
 * whatever layout the node that produces them chose; the gradient of a value has the layout of the
 * value. The graph's input, the input of a loss and the model's output as seen from outside are
 * plain.
 *
 * Threads: a Device, and everything made on it, is used by one thread at a time, its lane's.
 * Functions return 0 or a negative errno: -ENOMEM, -EOPNOTSUPP (with a sentence), -EIO (the device
 * failed). Nothing allocates on the step path: compile does, forward, backward and the flat
 * operations do not. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"
#include "model/graph.h"
#include "model/loss.h"
#include "model/optimizer.h"

typedef struct Device Device; /* each backend's own */
typedef struct Kernel Kernel; /* a node compiled for one batch size; each backend's own */
typedef struct Layout Layout; /* how a value lies in memory; each backend's own */
typedef struct Backend Backend;

/* What compile needs to know. inputs[i] is the layout that the producer of input i chose. */
typedef struct KernelSpec {
    const Graph *graph;
    const Node *node;
    int64_t batch;
    bool training; /* false: forward only, BatchNorm uses running statistics, dropout passes */
    bool need_input_gradient[NODE_MAX_INPUTS];
    bool plain_output; /* the output is seen from outside the graph and must be plain; set on the
                          producer, too, of a skipped Relu whose output is seen */
    const Layout *inputs[NODE_MAX_INPUTS];
} KernelSpec;

/* What a kernel wants from its caller. */
typedef struct KernelInfo {
    const Layout *output; /* owned by the kernel */
    size_t output_bytes;
    size_t saved_bytes;        /* kept from forward to backward, beside inputs and output */
    size_t scratch_bytes;      /* during a call */
    bool backward_reads_input; /* else the input may be overwritten after forward */
    bool backward_reads_output;
    bool aliases_input; /* the output is the input's memory (Flatten of a plain value, a fused
                           Relu); forward and backward are then no-ops and the gradient of
                           the input is the gradient of the output */
} KernelInfo;

/* Everything one execution touches. Pointers are device memory, 64-byte aligned. */
typedef struct KernelArgs {
    const void *inputs[NODE_MAX_INPUTS];
    void *output;
    void *saved;
    void *scratch;
    const float *params[NODE_MAX_PARAMS];
    float *buffers[NODE_MAX_BUFFERS]; /* float buffers; NULL where the buffer is a counter */
    int64_t *counter;                 /* num_batches_tracked, or NULL */
    RngKey rng; /* seed, rank and step; the kernel sets c to its node's index */
    /* backward only */
    const void *output_gradient;
    void *input_gradients[NODE_MAX_INPUTS];  /* NULL where not needed; overwritten, not added to */
    float *param_gradients[NODE_MAX_PARAMS]; /* overwritten */
} KernelArgs;

struct Backend {
    const char *name; /* "onednn" */

    /* threads: how many cores the lane may use. */
    int (*device_open)(int index, int threads, Device **ret, Error *err);
    void (*device_close)(Device *device);
    /* Tells the device that it is now used by the calling thread; once, first thing on the lane. */
    void (*device_bind)(Device *device);

    int (*alloc)(Device *device, size_t bytes, void **ret); /* zeroed, 64-byte aligned */
    void (*release)(Device *device, void *memory);
    int (*read)(Device *device, const void *from, void *host, size_t bytes);
    int (*write)(Device *device, const void *host, void *to, size_t bytes);
    int (*zero)(Device *device, void *memory, size_t bytes);

    /* The plain layout of a shape, for the graph's input. Freed by layout_free. */
    int (*layout_plain)(Device *device, const Shape *shape, Layout **ret);
    void (*layout_free)(Device *device, Layout *layout);

    int (*compile)(Device *device, const KernelSpec *spec, Kernel **ret, KernelInfo *info,
                   Error *err);
    void (*kernel_free)(Device *device, Kernel *kernel);
    int (*forward)(Device *device, Kernel *kernel, const KernelArgs *args);
    int (*backward)(Device *device, Kernel *kernel, const KernelArgs *args);

    /* to += from, for values that several nodes read; both in `layout`'s layout. */
    int (*accumulate)(Device *device, const Layout *layout, void *to, const void *from);

    /* U8 pixels (batch, channels, plane) → floats: (x · scale − mean[c]) / deviation[c]. */
    int (*normalise)(Device *device, const uint8_t *from, float *to, int64_t batch,
                     int64_t channels, int64_t plane, float scale, const float *mean,
                     const float *deviation);

    /* Mean loss over the batch into *loss (host memory) and, where gradient is not NULL, its
     * gradient with respect to output (batch, width). target: int64 classes (batch) or floats
     * (batch, width). correct, where not NULL: how many rows have their largest output at the
     * class (0 for LOSS_MSE). -EINVAL when a class is not in [0, width). */
    int (*loss)(Device *device, LossKind kind, const float *output, const void *target,
                int64_t batch, int64_t width, float *loss, float *gradient, int64_t *correct);

    /* One step number t (from 1) on n elements. states: optimizer_state_count arrays. */
    int (*optimizer_step)(Device *device, const Optimizer *optimizer, uint64_t t, float *params,
                          const float *gradients, float *const *states, size_t n);

    /* Square of the Euclidean norm, summed in double, into host memory. */
    int (*norm2)(Device *device, const float *array, size_t n, double *ret);
    /* Whether no element is NaN or infinite, into host memory. */
    int (*all_finite)(Device *device, const float *array, size_t n, bool *ret);
    /* to[i] = mean over the arrays in the order given, for i in [begin, end); `to` may be one of
     * them. Sums run in array order, so that the result does not depend on who computes which
     * range. */
    int (*mean)(Device *device, const float *const *arrays, int count, float *to, size_t begin,
                size_t end);
};

/* ---- registry -------------------------------------------------------------------------------- */

/* By name; NULL or "" or "auto": the best that this build and machine have. -ENOENT with the list.
 */
int backend_find(const char *name, const Backend **ret, Error *err);
int backend_count(void);
const Backend *backend_entry(int index); /* best first */

/* Test aid of the wrappers: the n-th checked call from now fails with -EIO (or -ENOMEM in alloc). 0
 * off. Off in production: nothing but tests calls it. */
void backend_fail_after(unsigned calls);

/* ---- wrappers: device + table ---------------------------------------------------------------- */

/* A device with its backend; what the rest of dpsd holds. Owned by its lane. */
typedef struct Accelerator {
    const Backend *backend;
    Device *device;
} Accelerator;

int accelerator_open(const Backend *backend, int index, int threads, Accelerator *ret, Error *err);
void accelerator_close(Accelerator *accelerator);
void accelerator_bind(const Accelerator *accelerator);
int accelerator_alloc(const Accelerator *accelerator, size_t bytes, void **ret);
void accelerator_release(const Accelerator *accelerator, void *memory);
int accelerator_read(const Accelerator *accelerator, const void *from, void *host, size_t bytes);
int accelerator_write(const Accelerator *accelerator, const void *host, void *to, size_t bytes);
int accelerator_zero(const Accelerator *accelerator, void *memory, size_t bytes);
int accelerator_layout_plain(const Accelerator *accelerator, const Shape *shape, Layout **ret);
void accelerator_layout_free(const Accelerator *accelerator, Layout *layout); /* NULL is fine */
int kernel_compile(const Accelerator *accelerator, const KernelSpec *spec, Kernel **ret,
                   KernelInfo *info, Error *err);
int kernel_forward(const Accelerator *accelerator, Kernel *kernel, const KernelArgs *args);
int kernel_backward(const Accelerator *accelerator, Kernel *kernel, const KernelArgs *args);
void kernel_free(const Accelerator *accelerator, Kernel *kernel); /* NULL is fine */
int accelerator_accumulate(const Accelerator *accelerator, const Layout *layout, void *to,
                           const void *from);
int accelerator_normalise(const Accelerator *accelerator, const uint8_t *from, float *to,
                          int64_t batch, int64_t channels, int64_t plane, float scale,
                          const float *mean, const float *deviation);
int accelerator_loss(const Accelerator *accelerator, LossKind kind, const float *output,
                     const void *target, int64_t batch, int64_t width, float *loss, float *gradient,
                     int64_t *correct);
int accelerator_optimizer_step(const Accelerator *accelerator, const Optimizer *optimizer,
                               uint64_t t, float *params, const float *gradients,
                               float *const *states, size_t n);
int accelerator_norm2(const Accelerator *accelerator, const float *array, size_t n, double *ret);
int accelerator_all_finite(const Accelerator *accelerator, const float *array, size_t n, bool *ret);
int accelerator_mean(const Accelerator *accelerator, const float *const *arrays, int count,
                     float *to, size_t begin, size_t end);
