/* In place of replica/snapshot.c: the fingerprint lies where the parameters would, the history where
 * the counters would. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_replica.h"
#include "replica/centre.h"
#include "replica/gather.h"

enum { HISTORY_WORDS = SIM_WORDS + 2 };

/* Finite numbers, unless it is not. */
void state_write(uint64_t state, float *to)
{
    for (int i = 0; i < STATE_FLOATS; i++)
        to[i] = state == SIM_STATE_NAN ? NAN : (float)(state >> 16 * i & 0xffff);
}

uint64_t state_read(const float *from)
{
    uint64_t state = 0;
    for (int i = 0; i < STATE_FLOATS; i++) {
        if (isnan(from[i]))
            return SIM_STATE_NAN;
        state |= (uint64_t)from[i] << 16 * i;
    }
    return state;
}

/* ---- making them ------------------------------------------------------------------------------
 */

static int make(bool params, bool counters, int n_states, Snapshot **ret)
{
    Snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return -ENOMEM;
    snapshot->n_params = params ? STATE_FLOATS : 0;
    snapshot->n_counters = counters ? HISTORY_WORDS : 0;
    snapshot->n_states = n_states;
    snapshot->params = calloc(STATE_FLOATS, sizeof(float));
    snapshot->buffers = calloc(1, sizeof(float));
    snapshot->counters = calloc(HISTORY_WORDS, sizeof(int64_t));
    for (int i = 0; i < n_states; i++)
        snapshot->states[i] = calloc(STATE_FLOATS, sizeof(float));
    *ret = snapshot;
    return 0;
}

int snapshot_new(const Graph *graph, const Optimizer *optimizer, Snapshot **ret)
{
    (void)graph;
    return make(true, true, optimizer_state_count(optimizer), ret);
}

int shared_snapshot_new(const Graph *graph, const Optimizer *optimizer, Snapshot **ret)
{
    (void)graph;
    return make(true, false, optimizer_state_count(optimizer), ret);
}

int member_snapshot_new(const Graph *graph, Snapshot **ret)
{
    (void)graph;
    return make(false, true, 0, ret);
}

int centre_snapshot_new(const Graph *graph, bool momentum, Snapshot **ret)
{
    (void)graph;
    return make(true, true, momentum, ret);
}

int gather_copy_new(const Graph *graph, Snapshot **ret)
{
    (void)graph;
    return make(true, true, 0, ret);
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

void mark_as_mean(Snapshot *snapshot)
{
    snapshot->counters[SIM_WORDS + 1] = MEAN_MARK;
}

/* ---- to and from replicas ---------------------------------------------------------------------
 */

static void write_history(const History *history, int64_t *counters)
{
    memcpy(counters, history->done, sizeof history->done);
    counters[SIM_WORDS] = (int64_t)history->samples;
    counters[SIM_WORDS + 1] = (int64_t)history->batches;
}

static void read_history(const int64_t *counters, History *history)
{
    memcpy(history->done, counters, sizeof history->done);
    history->samples = (uint64_t)counters[SIM_WORDS];
    history->batches = (uint64_t)counters[SIM_WORDS + 1];
}

int replica_snapshot(Replica *replica, Snapshot *into)
{
    replica_touch(replica, "replica_snapshot");
    write_history(&replica->history, into->counters);
    if (replica->shared)
        return 0;
    state_write(replica->state, into->params);
    for (int i = 0; i < into->n_states; i++)
        state_write(replica->updates, into->states[i]);
    into->updates = replica->updates;
    into->version = replica->version;
    return 0;
}

static void check_states(const Replica *replica, const Snapshot *from)
{
    for (int i = 0; i < from->n_states; i++)
        if (state_read(from->states[i]) != replica->updates)
            sim_fail("job %llu: the optimizer state of rank %d is not that of its %llu updates",
                     (unsigned long long)replica->job->id, replica->rank,
                     (unsigned long long)replica->updates);
}

int replica_restore(Replica *replica, const Snapshot *from)
{
    replica_touch(replica, "replica_restore");
    if (!replica->shared) {
        replica->state = state_read(from->params);
        replica->version =
            (from->version > replica->version ? from->version : replica->version) + 1;
        replica->updates = from->updates;
    }
    if (from->counters[SIM_WORDS + 1] == MEAN_MARK) {
        replica->mean = true;
        return 0;
    }
    ledger_leave(replica->job, &replica->history);
    read_history(from->counters, &replica->history);
    ledger_join(replica->job, &replica->history, replica->rank);
    replica_drop_held(replica);
    if (!replica->shared)
        check_states(replica, from);
    return 0;
}

/* Its model has no buffers, and the history that lies in the counters is that of whole steps. */
int replica_note_buffers(Replica *replica, Snapshot *into)
{
    (void)into;
    replica_touch(replica, "replica_note_buffers");
    return 0;
}

int replica_undo_buffers(Replica *replica, const Snapshot *noted)
{
    (void)noted;
    replica_touch(replica, "replica_undo_buffers");
    return 0;
}

void snapshot_undo_buffers(Snapshot *snapshot, const Snapshot *noted)
{
    (void)snapshot;
    (void)noted;
}

/* ---- host arithmetic --------------------------------------------------------------------------
 */

int snapshot_mean(const Snapshot *const *snapshots, int count, Snapshot **ret)
{
    uint64_t states[JOB_MAX_TRAINERS];
    Snapshot *snapshot;
    int r = make(true, true, snapshots[0]->n_states, &snapshot);
    if (r < 0)
        return r;
    for (int i = 0; i < count; i++)
        states[i] = state_read(snapshots[i]->params);
    state_write(state_mean(states, count), snapshot->params);
    mark_as_mean(snapshot);
    *ret = snapshot;
    return 0;
}

int shared_snapshot_join(const Snapshot *shared, const Snapshot *const *members, int count,
                         Snapshot **ret)
{
    (void)members;
    (void)count;
    return snapshot_mean(&shared, 1, ret);
}

uint64_t snapshot_checksum(const Graph *graph, const Snapshot *snapshot)
{
    (void)graph;
    return state_read(snapshot->params);
}
