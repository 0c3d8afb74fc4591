#include "replica/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu_math.h"
#include "base/cleanup.h"
#include "replica/checksum.h"
#include "replica/shared.h"
#include "replica/snapshot_internal.h"

DEFINE_CLEANUP(Snapshot, snapshot_free);

/* calloc that gives something for no elements too. */
static bool allocate(size_t n, size_t size, void **ret)
{
    *ret = calloc(n > 0 ? n : 1, size);
    return *ret != NULL;
}

static bool allocate_floats(size_t n, float **ret)
{
    void *memory;
    if (!allocate(n, sizeof **ret, &memory))
        return false;
    *ret = memory;
    return true;
}

static int make(size_t n_params, size_t n_buffers, size_t n_counters, int n_states, Snapshot **ret)
{
    _cleanup_(snapshot_freep) Snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return -ENOMEM;
    snapshot->n_params = n_params;
    snapshot->n_buffers = n_buffers;
    snapshot->n_counters = n_counters;
    snapshot->n_states = n_states;
    void *counters = NULL;
    bool good = allocate_floats(n_params, &snapshot->params) &&
                allocate_floats(n_buffers, &snapshot->buffers) &&
                allocate(n_counters, sizeof *snapshot->counters, &counters);
    snapshot->counters = counters;
    for (int i = 0; good && i < n_states; i++)
        good = allocate_floats(n_params, &snapshot->states[i]);
    if (!good)
        return -ENOMEM;
    *ret = MOVE(snapshot);
    return 0;
}

int snapshot_new_parts(const Graph *graph, unsigned parts, int n_states, Snapshot **ret)
{
    bool buffers = parts & WEIGHTS_BUFFERS;
    return make(parts & WEIGHTS_PARAMS ? graph_params_length(graph) : 0,
                buffers ? graph_float_buffers_length(graph) : 0,
                buffers ? graph_counters_length(graph) : 0, n_states, ret);
}

int snapshot_new(const Graph *graph, const Optimizer *optimizer, Snapshot **ret)
{
    return snapshot_new_parts(graph, WEIGHTS_PARAMS | WEIGHTS_BUFFERS,
                              optimizer_state_count(optimizer), ret);
}

Snapshot *snapshot_free(Snapshot *snapshot)
{
    if (!snapshot)
        return NULL;
    free(snapshot->params);
    free(snapshot->buffers);
    free(snapshot->counters);
    for (int i = 0; i < OPTIMIZER_MAX_STATES; i++)
        free(snapshot->states[i]);
    free(snapshot);
    return NULL;
}

/* ---- to and from a replica ------------------------------------------------------------------- */

static bool fits(const Weights *weights, unsigned parts, const Snapshot *snapshot)
{
    bool params = weights->params && weights->n_params == snapshot->n_params;
    bool buffers =
        weights->n_buffers == snapshot->n_buffers && weights->n_counters == snapshot->n_counters;
    bool states = weights->n_states == snapshot->n_states;
    return (params || !(parts & WEIGHTS_PARAMS)) && (buffers || !(parts & WEIGHTS_BUFFERS)) &&
           (states || !(parts & WEIGHTS_STATES));
}

static void copy_counters(const int64_t *from, int64_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

int weights_to_snapshot(const Accelerator *accelerator, const Weights *weights, unsigned parts,
                        Snapshot *into)
{
    size_t bytes = weights->n_params * sizeof(float);
    int r = 0;
    if (!fits(weights, parts, into))
        return -EINVAL;
    if (parts & WEIGHTS_PARAMS) {
        r = accelerator_read(accelerator, weights->params, into->params, bytes);
        into->version = weights->version;
    }
    if (r == 0 && parts & WEIGHTS_BUFFERS) {
        r = accelerator_read(accelerator, weights->buffers, into->buffers,
                             weights->n_buffers * sizeof(float));
        copy_counters(weights->counters, into->counters, weights->n_counters);
    }
    if (!(parts & WEIGHTS_STATES))
        return r;
    for (int i = 0; r == 0 && i < weights->n_states; i++)
        r = accelerator_read(accelerator, weights->states[i], into->states[i], bytes);
    into->updates = weights->updates;
    return r;
}

int weights_from_snapshot(const Accelerator *accelerator, Weights *weights, unsigned parts,
                          const Snapshot *from)
{
    size_t bytes = weights->n_params * sizeof(float);
    int r = 0;
    if (!fits(weights, parts, from))
        return -EINVAL;
    if (parts & WEIGHTS_PARAMS) {
        weights->version =
            (from->version > weights->version ? from->version : weights->version) + 1;
        r = accelerator_write(accelerator, from->params, weights->params, bytes);
    }
    if (r == 0 && parts & WEIGHTS_BUFFERS) {
        r = accelerator_write(accelerator, from->buffers, weights->buffers,
                              weights->n_buffers * sizeof(float));
        copy_counters(from->counters, weights->counters, weights->n_counters);
    }
    if (!(parts & WEIGHTS_STATES))
        return r;
    for (int i = 0; r == 0 && i < weights->n_states; i++)
        r = accelerator_write(accelerator, from->states[i], weights->states[i], bytes);
    weights->updates = from->updates;
    return r;
}

/* A shared replica's own numbers are its buffers. */
static unsigned parts_of(const Replica *replica)
{
    return replica_is_shared(replica) ? WEIGHTS_BUFFERS
                                      : WEIGHTS_PARAMS | WEIGHTS_BUFFERS | WEIGHTS_STATES;
}

int replica_snapshot(Replica *replica, Snapshot *into)
{
    return weights_to_snapshot(engine_accelerator(replica_engine(replica)),
                               replica_weights(replica), parts_of(replica), into);
}

int replica_restore(Replica *replica, const Snapshot *from)
{
    replica_drop_held(replica);
    return weights_from_snapshot(engine_accelerator(replica_engine(replica)),
                                 replica_weights(replica), parts_of(replica), from);
}

int replica_note_buffers(Replica *replica, Snapshot *into)
{
    return weights_to_snapshot(engine_accelerator(replica_engine(replica)),
                               replica_weights(replica), WEIGHTS_BUFFERS, into);
}

int replica_undo_buffers(Replica *replica, const Snapshot *noted)
{
    return weights_from_snapshot(engine_accelerator(replica_engine(replica)),
                                 replica_weights(replica), WEIGHTS_BUFFERS, noted);
}

void snapshot_undo_buffers(Snapshot *snapshot, const Snapshot *noted)
{
    memcpy(snapshot->buffers, noted->buffers, noted->n_buffers * sizeof *noted->buffers);
    copy_counters(noted->counters, snapshot->counters, noted->n_counters);
}

/* ---- host arithmetic ------------------------------------------------------------------------- */

void snapshot_max_counters(const Snapshot *const *from, int count, Snapshot *to)
{
    for (size_t i = 0; i < to->n_counters; i++) {
        for (int k = 0; k < count; k++) {
            if (k == 0 || from[k]->counters[i] > to->counters[i])
                to->counters[i] = from[k]->counters[i];
        }
    }
}

static bool same_sizes(const Snapshot *a, const Snapshot *b)
{
    return a->n_params == b->n_params && a->n_buffers == b->n_buffers &&
           a->n_counters == b->n_counters && a->n_states == b->n_states;
}

int snapshot_mean(const Snapshot *const *snapshots, int count, Snapshot **ret)
{
    if (count < 1)
        return -EINVAL;
    const Snapshot *first = snapshots[0];
    for (int i = 1; i < count; i++) {
        if (!same_sizes(first, snapshots[i]))
            return -EINVAL;
    }
    _cleanup_free_ const float **arrays = malloc((size_t)count * sizeof(float *));
    Snapshot *mean;
    if (!arrays)
        return -ENOMEM;
    int r = make(first->n_params, first->n_buffers, first->n_counters, first->n_states, &mean);
    if (r < 0)
        return r;
    for (int i = 0; i < count; i++)
        arrays[i] = snapshots[i]->params;
    cpu_mean(arrays, count, mean->params, 0, mean->n_params);
    for (int i = 0; i < count; i++)
        arrays[i] = snapshots[i]->buffers;
    cpu_mean(arrays, count, mean->buffers, 0, mean->n_buffers);
    snapshot_max_counters(snapshots, count, mean);
    for (int i = 0; i < count; i++) {
        mean->updates =
            snapshots[i]->updates > mean->updates ? snapshots[i]->updates : mean->updates;
        mean->version =
            snapshots[i]->version > mean->version ? snapshots[i]->version : mean->version;
    }
    *ret = mean;
    return 0;
}

static bool same_buffers(const Snapshot *a, const Snapshot *b)
{
    return a->n_buffers == b->n_buffers && a->n_counters == b->n_counters;
}

int shared_snapshot_join(const Snapshot *shared, const Snapshot *const *members, int count,
                         Snapshot **ret)
{
    const float *arrays[MEAN_MAX_REPLICAS];
    if (count < 1 || count > MEAN_MAX_REPLICAS)
        return -EINVAL;
    for (int i = 0; i < count; i++) {
        if (!same_buffers(members[0], members[i]))
            return -EINVAL;
        arrays[i] = members[i]->buffers;
    }
    Snapshot *model;
    int r = make(shared->n_params, members[0]->n_buffers, members[0]->n_counters, shared->n_states,
                 &model);
    if (r < 0)
        return r;
    memcpy(model->params, shared->params, shared->n_params * sizeof(float));
    for (int i = 0; i < shared->n_states; i++)
        memcpy(model->states[i], shared->states[i], shared->n_params * sizeof(float));
    cpu_mean(arrays, count, model->buffers, 0, model->n_buffers);
    snapshot_max_counters(members, count, model);
    model->updates = shared->updates;
    model->version = shared->version;
    *ret = model;
    return 0;
}

uint64_t snapshot_checksum(const Graph *graph, const Snapshot *snapshot)
{
    uint64_t checksum = 0; /* reading host memory does not fail */
    (void)checksum_params(graph, NULL, snapshot->params, &checksum);
    return checksum;
}
