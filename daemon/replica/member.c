/* Replicas that train shared parameters: buffers and counters of their own, a gradient, and no
 * step. */
#include <stdlib.h>

#include "base/clock.h"
#include "replica/combine.h"
#include "replica/replica_internal.h"
#include "replica/shared_internal.h"
#include "replica/snapshot_internal.h"

static int reserve(Replica *replica)
{
    const Accelerator *accelerator = engine_accelerator(replica->engine);
    int r = weights_new_parts(accelerator, engine_spec(replica->engine)->graph, WEIGHTS_BUFFERS, 0,
                              &replica->weights);
    if (r < 0)
        return r;
    engine_count_bytes(replica->engine, (ptrdiff_t)weights_bytes(&replica->weights));
    return replica_alloc(replica, &replica->gradients);
}

int replica_new_shared(Engine *engine, int rank, Replica **ret, Error *err)
{
    Replica *replica = calloc(1, sizeof *replica);
    if (!replica)
        return error_set(err, -ENOMEM, "not enough memory for replica %d", rank);
    replica->engine = engine;
    replica->rank = rank;
    replica->shared = true;
    int r = reserve(replica);
    if (r < 0) {
        replica_free(replica);
        return error_set(err, r, "not enough memory for replica %d", rank);
    }
    return replica_begin(replica, ret, err);
}

bool replica_is_shared(const Replica *replica)
{
    return replica->shared;
}

int member_snapshot_new(const Graph *graph, Snapshot **ret)
{
    return snapshot_new_parts(graph, WEIGHTS_BUFFERS, 0, ret);
}

void replica_attach(Replica *replica, SharedVersion *version)
{
    replica->attached = version;
    replica->weights.params = version ? version->params : NULL;
    if (version)
        replica->weights.version = version->number;
}

int replica_gradient(Replica *replica, const Batch *batch, uint64_t step, const StepRule *rule,
                     StepResult *ret, Error *err)
{
    uint64_t begin = clock_monotonic_us();
    StepResult result = {0};
    float *used;
    if (!replica->shared)
        return error_set(err, -EINVAL, "replica %d has parameters of its own; train it",
                         replica->rank);
    int r = replica_run(replica, batch, step, rule, replica->gradients, &used, &result, err);
    if (r < 0)
        return r;
    result.compute_us = clock_monotonic_us() - begin;
    *ret = result;
    return 0;
}

static int take_gradient(Replica *replica, const Context *context, const StepRule *rule,
                         StepResult *result)
{
    int r = combine_copy(engine_accelerator(replica->engine), context_gradients(context),
                         replica->gradients, replica->weights.n_params);
    if (r == 0)
        r = replica_settle(replica, replica->gradients, context_samples(context), rule, result);
    return r;
}

int replica_take_gradient(Replica *replica, const Context *context, const StepRule *rule,
                          StepResult *ret, Error *err)
{
    uint64_t begin = clock_monotonic_us();
    StepResult result = {0};
    if (!replica->shared)
        return error_set(err, -EINVAL, "replica %d has parameters of its own; step it",
                         replica->rank);
    if (!context_gradients(context))
        return error_set(err, -ENODATA, "the context has no gradients yet; run its backward first");
    int r = replica_reserve_held(replica, rule, err);
    if (r < 0)
        return r;
    r = take_gradient(replica, context, rule, &result);
    if (r < 0)
        return replica_device_error(replica, r, "taking a gradient", err);
    result.compute_us = clock_monotonic_us() - begin;
    *ret = result;
    return 0;
}

const float *replica_gradients(const Replica *replica)
{
    return replica->gradients;
}
