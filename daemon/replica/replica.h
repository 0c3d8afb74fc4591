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

/* How a gradient becomes a step. All zero but lr: a plain step, which looks at nothing. */
typedef struct StepRule {
    float lr;          /* overrides the optimizer's */
    float clip_norm;   /* 0: no clipping; else as torch.nn.utils.clip_grad_norm_ */
    double norm_limit; /* 0: none; a gradient whose norm is above it is left out */
    bool want_norm;    /* the norm is reported, and a gradient that is not finite left out */
    bool hold;         /* keep this batch's gradient for the step of a later batch */
    bool again;        /* the last call's batch once more: its step was refused, and what was held
                          for it counts once more, too */
} StepRule;

/* What became of a gradient. One that is left out changes neither parameters nor optimizer state
 * (the forward has updated BatchNorm's buffers, though). */
typedef enum StepVerdict {
    STEP_APPLIED,
    STEP_HELD,       /* rule.hold: added to what is held */
    STEP_NOT_FINITE, /* left out: NaN or infinity in it */
    STEP_OVER_LIMIT, /* left out: its norm is above norm_limit */
} StepVerdict;

typedef struct StepResult {
    float loss;
    uint64_t compute_us;
    StepVerdict verdict;
    double gradient_norm; /* before clipping; 0 unless the rule has want_norm, clip_norm or
                             norm_limit */
    int64_t samples;      /* that the gradient is the mean over, held ones included */
} StepResult;

/* The new replica has the seed's initial weights. -ENOMEM */
int replica_new(Engine *engine, int rank, Replica **ret, Error *err);
Replica *replica_free(Replica *replica); /* after its contexts */
Engine *replica_engine(const Replica *replica);
int replica_rank(const Replica *replica);
uint64_t replica_version(const Replica *replica);
Weights *replica_weights(Replica *replica);

/* The fast path: forward, loss, backward and optimizer step on one batch. `step` keys the random
 * numbers.
 *
 * With rule->hold no step is taken: samples × gradient is added to what the replica holds. The next
 * call without hold steps with the mean over all samples held and its own, after which nothing is
 * held, whatever its verdict. A held batch that is left out is just not added. What is held is not
 * part of snapshots and a restore drops it: the job takes no cut and no mean between a hold and its
 * step. -EINVAL for a shared replica, which has no parameters of its own (replica_gradient). */
int replica_train(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                  StepResult *ret, Error *err);
/* Samples held; forgets them. */
int64_t replica_held(const Replica *replica);
void replica_drop_held(Replica *replica);

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
/* One optimizer step with the context's gradients, which clipping scales in place; hold as in
 * replica_train. In *ret (which may be NULL) loss is 0. -ENODATA, -ESTALE, -EINVAL (shared) */
int replica_step(Replica *replica, Context *context, const StepRule *rule, StepResult *ret,
                 Error *err);
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
