#include "replica/gather.h"

#include "backend/cpu_math.h"
#include "replica/checksum.h"
#include "replica/combine.h"
#include "replica/replica_internal.h"
#include "replica/snapshot_internal.h"

enum { HOST_BLOCK = 8192 }; /* floats of a mean on the stack, on their way to the device */

int gather_copy_new(const Graph *graph, Snapshot **ret)
{
    return snapshot_new_parts(graph, WEIGHTS_PARAMS | WEIGHTS_BUFFERS, 0, ret);
}

int gather_copies(Replica *const *replicas, Snapshot *const *copies, int count, Error *err)
{
    for (int i = 0; i < count; i++) {
        int r = weights_to_snapshot(engine_accelerator(replica_engine(replicas[i])),
                                    replica_weights(replicas[i]), WEIGHTS_PARAMS | WEIGHTS_BUFFERS,
                                    copies[i]);
        if (r == -EINVAL)
            return error_set(err, r, "the copy is not one of the model of replica %d",
                             replica_rank(replicas[i]));
        if (r < 0)
            return replica_device_error(replicas[i], r, "copying its parameters", err);
    }
    return 0;
}

/* ---- the mean of copies ---------------------------------------------------------------------- */

typedef struct Copies {
    const Snapshot *used[MEAN_MAX_REPLICAS];
    int n_used;
    bool uniform;
    float shares[MEAN_MAX_REPLICAS];
} Copies;

static bool fits(const Weights *weights, const Snapshot *copy)
{
    return weights->params && weights->n_params == copy->n_params &&
           weights->n_buffers == copy->n_buffers && weights->n_counters == copy->n_counters;
}

static int choose(Copies *chosen, const Replica *replica, const Snapshot *const *copies,
                  const uint64_t *samples, int count, MeanResult *result, Error *err)
{
    if (count < 1 || count > MEAN_MAX_REPLICAS || replica->shared)
        return error_set(err, -EINVAL, "a mean is of 1 to %d replicas' own parameters, not of %d",
                         MEAN_MAX_REPLICAS, count);
    for (int i = 0; i < count; i++) {
        if (!fits(&replica->weights, copies[i]))
            return error_set(err, -EINVAL, "replica %d and copy %d are of different models",
                             replica->rank, i);
        result->finite[i] = cpu_all_finite(copies[i]->params, copies[i]->n_params) &&
                            cpu_all_finite(copies[i]->buffers, copies[i]->n_buffers);
        if (result->finite[i])
            chosen->used[chosen->n_used++] = copies[i];
    }
    chosen->uniform = !combine_shares(samples, result->finite, count, chosen->shares);
    result->contributors = chosen->n_used;
    return 0;
}

/* to (on the device, n floats) = the mean of from[0 … n_used-1] (in host memory). */
static int write_mean(const Accelerator *accelerator, const Copies *chosen,
                      const float *const *from, float *to, size_t n)
{
    float block[HOST_BLOCK];
    const float *at[MEAN_MAX_REPLICAS];
    for (size_t begin = 0; begin < n; begin += HOST_BLOCK) {
        size_t length = n - begin < HOST_BLOCK ? n - begin : HOST_BLOCK;
        for (int i = 0; i < chosen->n_used; i++)
            at[i] = from[i] + begin;
        if (chosen->uniform)
            cpu_mean(at, chosen->n_used, block, 0, length);
        else
            cpu_weighted_sum(at, chosen->shares, chosen->n_used, block, 0, length);
        int r = accelerator_write(accelerator, block, to + begin, length * sizeof *block);
        if (r < 0)
            return r;
    }
    return 0;
}

static void take_counters(const Copies *chosen, Weights *weights)
{
    for (size_t c = 0; c < weights->n_counters; c++) {
        int64_t max = 0;
        for (int i = 0; i < chosen->n_used; i++)
            if (chosen->used[i]->counters[c] > max)
                max = chosen->used[i]->counters[c];
        weights->counters[c] = max;
    }
}

static int take(Replica *replica, const Copies *chosen, uint64_t *checksum)
{
    const Accelerator *accelerator = engine_accelerator(replica->engine);
    Weights *weights = &replica->weights;
    const float *from[MEAN_MAX_REPLICAS];
    weights->version++;
    for (int i = 0; i < chosen->n_used; i++)
        from[i] = chosen->used[i]->params;
    int r = write_mean(accelerator, chosen, from, weights->params, weights->n_params);
    for (int i = 0; i < chosen->n_used; i++)
        from[i] = chosen->used[i]->buffers;
    if (r == 0)
        r = write_mean(accelerator, chosen, from, weights->buffers, weights->n_buffers);
    take_counters(chosen, weights);
    if (r == 0)
        r = combine_clean_states(accelerator, weights);
    if (r == 0)
        r = checksum_params(engine_spec(replica->engine)->graph, accelerator, weights->params,
                            checksum);
    return r;
}

int replica_take_mean(Replica *replica, const Snapshot *const *copies, const uint64_t *samples,
                      int count, MeanResult *ret, Error *err)
{
    Copies chosen = {0};
    MeanResult result = {0};
    int r = choose(&chosen, replica, copies, samples, count, &result, err);
    if (r < 0)
        return r;
    if (chosen.n_used > 0) {
        r = take(replica, &chosen, &result.checksum);
        if (r < 0)
            return replica_device_error(replica, r, "taking the mean", err);
    }
    *ret = result;
    return 0;
}
