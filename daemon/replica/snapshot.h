/* A replica's numbers in host memory: what checkpoints hold, what export and evaluation read.
 *
 * replica_snapshot and replica_restore run on the lane's thread; the rest is plain memory, owned by
 * whoever made it. */
#pragma once

#include "replica/replica.h"

typedef struct Snapshot {
    float *params, *buffers, *states[OPTIMIZER_MAX_STATES];
    int64_t *counters;
    size_t n_params, n_buffers, n_counters;
    int n_states;
    uint64_t updates, version;
} Snapshot;

/* Allocates for a graph and optimizer, zeroed. -ENOMEM */
int snapshot_new(const Graph *graph, const Optimizer *optimizer, Snapshot **ret);
Snapshot *snapshot_free(Snapshot *snapshot);

/* Copies out of, or into, the replica. A restore sets the version higher than any it had. -EIO,
 * -EINVAL when the sizes are another model's */
int replica_snapshot(Replica *replica, Snapshot *into);
int replica_restore(Replica *replica, const Snapshot *from);

/* Buffers and counters alone, of any replica, into or from a snapshot that has them
 * (member_snapshot_new is enough): what a forward changes, so that it can be undone. */
int replica_note_buffers(Replica *replica, Snapshot *into);
int replica_undo_buffers(Replica *replica, const Snapshot *noted);
/* The same in host memory: a snapshot that was taken after it, as it would have been before. */
void snapshot_undo_buffers(Snapshot *snapshot, const Snapshot *noted);

/* Mean of `count` snapshots in the order given, into a new one: parameters and float buffers
 * averaged, counters the maximum, optimizer state left zero. Same arithmetic as replicas_mean.
 * -ENOMEM */
int snapshot_mean(const Snapshot *const *snapshots, int count, Snapshot **ret);

/* XXH3-64 of the parameters in name order (gaps between them left out). */
uint64_t snapshot_checksum(const Graph *graph, const Snapshot *snapshot);
