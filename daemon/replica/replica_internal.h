/* What replica.c, step.c, context.c and member.c share. Internal to daemon/replica. */
#pragma once

#include "replica/replica.h"
#include "replica/shared.h"

struct Replica {
    Engine *engine;
    int rank;
    bool shared; /* weights.params is the attached version's, or NULL */
    Weights weights;
    SharedVersion *attached;
    float *gradients; /* of a shared replica: what replica_gradient left */
    float *held;      /* sum of samples × gradient over held batches; NULL until the first hold */
    int64_t held_samples;
    int64_t joined_samples; /* that the last step took along; still in held[] until the next hold */
};

/* Writes the seed's initial weights into the parts that the new replica has; frees it on failure.
 * -ENOMEM, -EIO */
int replica_begin(Replica *replica, Replica **ret, Error *err);
/* Device memory for one array of the parameters' length, counted as the engine's. -ENOMEM */
int replica_alloc(Replica *replica, float **ret);
void replica_release(Replica *replica, float *array); /* NULL is fine */

/* The key of all random numbers of one forward. */
RngKey replica_rng(const Replica *replica, uint64_t step, uint32_t draw);
/* Plan and arena for a batch that was checked. -EINVAL without parameters */
int replica_prepare(Replica *replica, const Batch *batch, bool training, Plan **plan,
                    Activations **activations, Error *err);
/* The sentence for what went wrong on the device in `what`. */
int replica_device_error(const Replica *replica, int code, const char *what, Error *err);

/* Forward, loss, backward and replica_settle on one batch. The gradient goes to `gradients`, or
 * where that is NULL into the plan's own array; *used tells. Fills *result but compute_us. */
int replica_run(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                float *gradients, float **used, StepResult *result, Error *err);

/* ---- step.c: from a gradient to a step ------------------------------------------------------- */

/* Verdict (STEP_APPLIED, _NOT_FINITE or _OVER_LIMIT) and norm of a gradient. -EIO */
int gradient_judge(const Accelerator *accelerator, const float *gradients, size_t n,
                   const StepRule *rule, StepVerdict *verdict, double *norm);
/* to = from scaled down to clip_norm if its norm is above that; *scaled tells whether `to` was
 * written. The two may be one array. -EIO */
int gradient_clip(const Accelerator *accelerator, const float *from, float *to, size_t n,
                  double norm, float clip_norm, bool *scaled);
/* Room for what is to be held, before anything is computed. -ENOMEM */
int replica_reserve_held(Replica *replica, const StepRule *rule, Error *err);
/* Judges a gradient and holds it, or makes it the mean with what is held. Where verdict is then
 * STEP_APPLIED it is to be applied. Fills verdict, gradient_norm and samples. -EIO */
int replica_settle(Replica *replica, float *gradients, int64_t samples, const StepRule *rule,
                   StepResult *result);
/* One optimizer step with a flat gradient array, clipped in place. -EIO */
int replica_apply(Replica *replica, float *gradients, const StepRule *rule, double norm);
