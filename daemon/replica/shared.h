/* One set of parameters that several replicas train: of the policies barrier and async.
 *
 * The parameters stand in versions: arrays that nobody writes while anybody but the SharedParams
 * holds them. An update writes in place where nobody else does, into a spare array otherwise (copy
 * on write). References are counted by the loop alone:
 *
 *     loop  version = shared_params_pin()             before a task that reads parameters
 *     lane  replica_attach(replica, version)          then replica_gradient, _forward, _evaluate,
 *           replica_attach(replica, NULL)             and at the end of the task
 *     loop  shared_params_unpin(version)
 *
 *     loop  shared_params_prepare_update(&update)     one at a time
 *     lane  shared_params_update(&update, …)          on the lane that was named
 *     loop  shared_params_publish(&update)            always, whatever the update returned
 *
 * A context remembers the version that its forward read (context_pinned): as long as it does, the
 * loop keeps a pin for it, beside that of the task. Its backward reads that version, attached or
 * not, however many updates came since, and lets go of it: after a backward, or after the task that
 * freed the context has come back, the loop drops the pin. Staleness of a gradient is
 * shared_params_version() − the number of the version that it was computed at, which
 * context_version tells to the end.
 *
 * Each member is a Replica with buffers and counters of its own, and no parameters
 * (replica_new_shared). Optimizer state is one for all. Errors: -ENOMEM, -EIO, -EINVAL. Once as
 * many versions have been held at once as ever will be, nothing allocates. */
#pragma once

#include "replica/mean.h"
#include "replica/snapshot.h"

typedef struct SharedParams SharedParams;
typedef struct SharedVersion SharedVersion;

/* Lane thread of `home`, whose engine owns all arrays: with the seed's initial weights. */
int shared_params_new(Engine *home, SharedParams **ret, Error *err);
SharedParams *shared_params_free(SharedParams *shared); /* no version is pinned any more */

/* ---- loop thread ----------------------------------------------------------------------------- */

/* Of the current version; it grows by one with every update. */
uint64_t shared_params_version(const SharedParams *shared);
/* The current version, held until unpinned. NULL while an update in place is under way: publish it
 * first. */
SharedVersion *shared_params_pin(SharedParams *shared);
/* One more reference to a version that is held already. */
void shared_version_hold(SharedVersion *version);
void shared_params_unpin(SharedParams *shared, SharedVersion *version); /* NULL is fine */
uint64_t shared_version_number(const SharedVersion *version);
/* Versions that exist, the current one and spare ones included. */
int shared_params_versions(const SharedParams *shared);
/* -ESTALE where version `number` is more than max_staleness behind: "conv1.weight is at version 28;
 * this gradient was computed at version 27 (max_staleness 0)". */
int shared_params_check(const SharedParams *shared, uint64_t number, uint64_t max_staleness,
                        Error *err);

/* An update in the making. The caller's memory; the fields are shared.c's, but `in_place` may be
 * read. */
typedef struct SharedUpdate {
    SharedParams *shared;
    Engine *on;
    SharedVersion *to; /* NULL: to be made */
    SharedVersion *surplus;
    int made, freed; /* versions */
    bool in_place;
    bool applied;
} SharedUpdate;

/* on: the engine of the lane that will run the update. may_wait: pins may be refused until the
 * publication, so the update may be in place if nobody holds the current version; else it is a copy
 * in any case. -EBUSY: one is under way */
int shared_params_prepare_update(SharedParams *shared, Engine *on, bool may_wait,
                                 SharedUpdate *ret);
void shared_params_publish(SharedUpdate *update);

/* ---- lane thread ----------------------------------------------------------------------------- */

/* A gradient that a step is to be made of. */
typedef struct SharedGradient {
    const float *gradients; /* replica_gradients() or context_gradients() */
    uint64_t samples;       /* its weight in the mean */
    double norm_limit;      /* of its rank; 0: the rule's */
} SharedGradient;

typedef struct SharedResult {
    StepVerdict verdicts[MEAN_MAX_REPLICAS]; /* of each gradient, by position */
    double norms[MEAN_MAX_REPLICAS]; /* of each; 0 unless the rule has want_norm or norm_limit */
    double norm;      /* of their mean before clipping; 0 unless want_norm or clip_norm */
    int contributors; /* gradients in the step; 0: there was none and the version stays */
} SharedResult;

/* One optimizer step with the mean of the gradients in the order given (gradients_mean). Those that
 * are not finite or above rule->norm_limit are left out. rule->hold has no meaning here. */
int shared_params_update(SharedUpdate *update, const SharedGradient *gradients, int count,
                         const StepRule *rule, SharedResult *ret, Error *err);

/* Mean of `count` gradients into `to`, which may be one of them: weighted by samples as
 * replicas_mean weighs replicas (equal samples, or NULL: the uniform mean). */
int gradients_mean(const Engine *engine, const float *const *gradients, const uint64_t *samples,
                   int count, float *to);

/* XXH3-64 of a held version's parameters in name order. */
int shared_version_checksum(const SharedParams *shared, const SharedVersion *version,
                            uint64_t *ret);

/* Parameters, optimizer state, version and updates, with no update under way. Buffers and counters
 * of the snapshot are left alone: they are the members' (replica_snapshot). So a full snapshot will
 * do, or one of parameters only. A restore gives a version above any that was. -EINVAL (sizes, or
 * somebody holds the current version) */
int shared_snapshot_new(const Graph *graph, const Optimizer *optimizer, Snapshot **ret);
int shared_params_snapshot(SharedParams *shared, Snapshot *into);
int shared_params_restore(SharedParams *shared, const Snapshot *from);

/* ---- members, on their lane ------------------------------------------------------------------ */

/* A replica with buffers, counters and room for one gradient. Its replica_snapshot copies buffers
 * and counters only (into a snapshot of any parameters, or of none: member_snapshot_new);
 * replica_restore likewise. */
int replica_new_shared(Engine *engine, int rank, Replica **ret, Error *err);
bool replica_is_shared(const Replica *replica);
int member_snapshot_new(const Graph *graph, Snapshot **ret);

/* The parameters that the replica reads until told otherwise; NULL: none. */
void replica_attach(Replica *replica, SharedVersion *version);

/* Forward, loss and backward on one batch, without a step: the gradient is left in
 * replica_gradients(replica) until the next call. rule: hold, want_norm and norm_limit as in
 * replica_train, where STEP_APPLIED means that the gradient is there to be used. */
int replica_gradient(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                     StepResult *ret, Error *err);
const float *replica_gradients(const Replica *replica);
/* The same with the gradient of a context, which is copied, so that the context may go while it
 * waits for the update. -ENODATA before its backward */
int replica_take_gradient(Replica *replica, const Context *context, const StepRule *rule,
                          StepResult *ret, Error *err);

/* After replica_backward; NULL before. Read by an update while the context is left alone. */
const float *context_gradients(const Context *context);
/* The version that the context still needs; NULL after its backward and for unshared replicas. */
SharedVersion *context_pinned(const Context *context);

/* ---- host memory, any thread ----------------------------------------------------------------- */

/* The model of a shared job: parameters and optimizer state of `shared`, float buffers the mean and
 * counters the maximum of the members'. -ENOMEM, -EINVAL */
int shared_snapshot_join(const Snapshot *shared, const Snapshot *const *members, int count,
                         Snapshot **ret);
