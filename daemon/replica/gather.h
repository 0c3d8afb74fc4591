/* Averaging without a meeting: copies of replicas as they stand, and the mean of copies.
 *
 * A copy is taken by a task of the lane that the replica lives on, between two steps, so it is
 * never half-written; the mean by a task of the taker's lane, from host memory. Copies are
 * Snapshots without optimizer state, owned by the caller and used again. */
#pragma once

#include "replica/mean.h"
#include "replica/snapshot.h"

/* Room for a copy. -ENOMEM */
int gather_copy_new(const Graph *graph, Snapshot **ret);

/* Parameters, buffers, counters and version of `count` replicas of this lane. -EIO, -EINVAL */
int gather_copies(Replica *const *replicas, Snapshot *const *copies, int count, Error *err);

/* The replica takes the mean of copies[0 … count-1], in rank order and weighted as in replicas_mean
 * (samples by position, or NULL): parameters, float buffers, counters. Copies with NaN or infinity
 * are left out and named; with none left nothing changes and contributors is 0. Its optimizer state
 * is kept (where it is not finite it starts afresh), its version grows by one. Allocates nothing.
 * -EIO, -EINVAL */
int replica_take_mean(Replica *replica, const Snapshot *const *copies, const uint64_t *samples,
                      int count, MeanResult *ret, Error *err);
