/* One copy of a model in training, and what can be done to it. Everything runs on the thread of the
 * lane that owns the replica, while a task that was given the replica runs.
 *
 * Errors: -EINVAL (data does not fit, with a sentence), -ENOMEM, -EIO (device), -ESTALE (a context
 * whose parameters have changed, with name and versions). A failed call leaves the weights as they
 * were, unless the device itself failed. */
#pragma once

#include "replica/engine.h"

typedef struct Replica Replica;
typedef struct Context Context;

/* One batch as it came over the wire; memory is the caller's and only read. */
typedef struct Batch {
    int64_t samples;
    bool x_is_u8;  /* else float32 */
    const void *x; /* (samples, input…) */
    const void
        *y; /* int64 classes (samples), or float32 (samples, output…) for mse; NULL for forward */
} Batch;

typedef struct StepResult {
    float loss;
    uint64_t compute_us;
} StepResult;

/* The new replica has the seed's initial weights. -ENOMEM */
int replica_new(Engine *engine, int rank, Replica **ret, Error *err);
Replica *replica_free(Replica *replica); /* after its contexts */
Engine *replica_engine(const Replica *replica);
int replica_rank(const Replica *replica);
uint64_t replica_version(const Replica *replica);
Weights *replica_weights(Replica *replica);

/* The fast path: forward, loss, backward and optimizer step on one batch. `step` keys the random
 * numbers. lr overrides the optimizer's. */
int replica_train(Replica *replica, const Batch *batch, uint64_t step, float lr, StepResult *ret,
                  Error *err);

/* Forward with everything saved for a backward. output: (samples, output…) plain, host memory of
 * replica_output_elements(). `draw` tells several forwards of the same step apart in the random
 * numbers. */
int replica_forward(Replica *replica, const Batch *batch, uint64_t step, uint32_t draw,
                    float *output, Context **ret, Error *err);
int64_t replica_output_elements(const Replica *replica, int64_t samples);

/* output_gradient: (samples, output…) plain, host memory. gradient_norm: over all parameters.
 * -ESTALE, -EALREADY (backward was already run) */
int replica_backward(Replica *replica, Context *context, const float *output_gradient,
                     double *gradient_norm, Error *err);
/* Copies the context's gradient of parameter `param` to host memory, row-major. -ENODATA before
 * backward */
int replica_read_gradient(Replica *replica, Context *context, int param, float *host, Error *err);
/* One optimizer step with the context's gradients. -ENODATA, -ESTALE */
int replica_step(Replica *replica, Context *context, float lr, Error *err);
/* NULL is fine. */
Context *context_free(Context *context);
uint64_t context_version(const Context *context);
int64_t context_samples(const Context *context);
size_t context_bytes(const Context *context);

typedef struct Evaluation {
    double loss_sum; /* over samples */
    int64_t correct;
    int64_t samples;
} Evaluation;

/* Forward in evaluation mode, added to *total. */
int replica_evaluate(Replica *replica, const Batch *batch, Evaluation *total, Error *err);
