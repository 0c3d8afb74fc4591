/* The centre of policies that keep one beside the replicas: EASGD's (elastic), or the start of the
 * round and the momentum of an outer optimizer (diloco).
 *
 * The job owns it; it lives on one lane, whose thread runs everything here, while the replicas
 * involved are idle and handed over to that task. Functions return 0, -ENOMEM, -EIO or -EINVAL
 * (not one model's). Nothing allocates but centre_new. */
#pragma once

#include "replica/mean.h"
#include "replica/snapshot.h"

typedef struct Centre Centre;

/* With the seed's initial weights, as new replicas have. momentum: for an outer optimizer, zero. */
int centre_new(Engine *engine, bool momentum, Centre **ret, Error *err);
Centre *centre_free(Centre *centre); /* on its lane; NULL is fine */

/* Parameters, buffers and counters of a replica become the centre's; momentum starts afresh. For a
 * policy that begins in the middle of a job, after a mean. */
int centre_set(Centre *centre, Replica *replica, Error *err);
/* The opposite, for a replica that starts afresh: its optimizer state is zeroed. */
int replica_take_centre(Replica *replica, Centre *centre, Error *err);

/* To and from host memory, as snapshots: params, buffers and counters are the centre's, states[0]
 * the momentum where it has one. A snapshot of elastic's centre is the job's model. */
int centre_snapshot_new(const Graph *graph, bool momentum, Snapshot **ret);
int centre_snapshot(Centre *centre, Snapshot *into);
int centre_restore(Centre *centre, const Snapshot *from);

/* Synchronous EASGD. With d_i = x_i − c of the contributors before anything moves, in rank order:
 *     x_i ← x_i − α·d_i        c ← c + α·d_0 + α·d_1 + …
 * Float buffers are averaged and counters take the maximum, as in replicas_mean; the centre gets
 * them too. A replica with NaN or infinity does not contribute and takes the new centre; one that
 * does not contribute otherwise keeps its parameters (and its version). α = 0 changes no bit of
 * anything. result.checksum is the centre's. Optimizer state is kept. */
int replicas_elastic(Replica *const *replicas, const bool *contributes, int count, Centre *centre,
                     float alpha, MeanResult *ret, Error *err);

typedef struct OuterRule {
    float lr, momentum;
} OuterRule;

/* An outer step of SGD with Nesterov momentum on the mean change of the round. With m the mean that
 * replicas_mean takes (by the same spec) and c the round's start:
 *     Δ = c − m      v ← Δ + μ·v      c ← c − lr·(Δ + μ·v)
 * (the last computed as m + (1 − lr)·Δ − lr·μ·v). All replicas take c, and buffers, counters and
 * optimizer state as in replicas_mean: lr 1 and μ 0 is replicas_mean, bit for bit. -EINVAL too for
 * a centre without momentum */
int replicas_outer(Replica *const *replicas, const bool *contributes, int count, Centre *centre,
                   const OuterRule *rule, const MeanSpec *spec, MeanResult *ret, Error *err);
