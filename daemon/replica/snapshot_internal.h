/* Parts of a Weights to and from host memory: what replicas, centres and shared parameters make
 * their snapshots of. Internal to daemon/replica. */
#pragma once

#include "replica/snapshot.h"

/* Parts as in weights.h; what is left out has length 0. -ENOMEM */
int snapshot_new_parts(const Graph *graph, unsigned parts, int n_states, Snapshot **ret);
/* Copies those parts and leaves the others of the snapshot alone. Version goes with the parameters
 * (a restore sets one higher than any it had), updates with the states. -EIO, -EINVAL (sizes) */
int weights_to_snapshot(const Accelerator *accelerator, const Weights *weights, unsigned parts,
                        Snapshot *into);
int weights_from_snapshot(const Accelerator *accelerator, Weights *weights, unsigned parts,
                          const Snapshot *from);
/* counters[i] of `to` = the maximum over `count` snapshots. */
void snapshot_max_counters(const Snapshot *const *from, int count, Snapshot *to);
