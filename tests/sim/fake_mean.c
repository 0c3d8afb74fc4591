/* In place of replica/mean.c, centre.c and gather.c. */
#include <stdlib.h>

#include "fake_replica.h"
#include "replica/centre.h"
#include "replica/gather.h"

struct Centre {
    Engine *engine;
    uint64_t state, momentum;
    bool has_momentum;
    Holder holder;
};

uint64_t state_mean(const uint64_t *states, int count)
{
    bool same = true;
    uint64_t mean = (uint64_t)count;
    for (int i = 0; i < count; i++) {
        same &= states[i] == states[0];
        mean = state_mix(mean, states[i]);
    }
    return same ? states[0] : mean;
}

/* ---- means ------------------------------------------------------------------------------------
 */

/* Who takes part: into states, in rank order. */
static void begin(Replica *const *replicas, const bool *contributes, int count, uint64_t *states,
                  MeanResult *ret)
{
    *ret = (MeanResult){0};
    for (int i = 0; i < count; i++) {
        replica_touch(replicas[i], "a meeting");
        if (replicas[i]->shared)
            sim_fail("a meeting of shared replicas");
        if (i && replicas[i]->rank <= replicas[i - 1]->rank)
            sim_fail("a meeting's replicas are not in rank order");
        if (replicas[i]->held.n)
            sim_fail("a meeting while rank %d holds gradients", replicas[i]->rank);
        ret->finite[i] = replicas[i]->state != SIM_STATE_NAN;
        if (contributes[i] && ret->finite[i])
            states[ret->contributors++] = replicas[i]->state;
    }
}

static void all_take(Replica *const *replicas, int count, uint64_t state)
{
    for (int i = 0; i < count; i++) {
        replicas[i]->state = state;
        replicas[i]->version++;
    }
}

int replicas_mean(Replica *const *replicas, const bool *contributes, int count,
                  const MeanSpec *spec, MeanResult *ret, Error *err)
{
    uint64_t states[MEAN_MAX_REPLICAS];
    (void)spec;
    (void)err;
    begin(replicas, contributes, count, states, ret);
    if (ret->contributors == 0)
        return 0;
    ret->checksum = state_mean(states, ret->contributors);
    all_take(replicas, count, ret->checksum);
    return 0;
}

/* ---- centres ----------------------------------------------------------------------------------
 */

int centre_new(Engine *engine, bool momentum, Centre **ret, Error *err)
{
    on_a_lane("centre_new");
    Centre *centre = calloc(1, sizeof *centre);
    if (!centre)
        return error_set(err, -ENOMEM, "out of memory");
    *centre = (Centre){.engine = engine, .state = engine->spec.seed, .has_momentum = momentum};
    engine->others++;
    *ret = centre;
    return 0;
}

Centre *centre_free(Centre *centre)
{
    if (!centre)
        return NULL;
    hold_alone(&centre->holder, "centre_free", -1);
    if (centre->engine->lane != fake_lane_current())
        sim_fail("a centre is freed on lane %d", fake_lane_current());
    centre->engine->others--;
    free(centre);
    return NULL;
}

int centre_set(Centre *centre, Replica *replica, Error *err)
{
    (void)err;
    hold_alone(&centre->holder, "centre_set", -1);
    replica_touch(replica, "centre_set");
    centre->state = replica->state;
    centre->momentum = 0;
    return 0;
}

int replica_take_centre(Replica *replica, Centre *centre, Error *err)
{
    (void)err;
    hold_alone(&centre->holder, "replica_take_centre", -1);
    replica_touch(replica, "replica_take_centre");
    replica->state = centre->state;
    replica->version++;
    return 0;
}

int replicas_elastic(Replica *const *replicas, const bool *contributes, int count, Centre *centre,
                     float alpha, MeanResult *ret, Error *err)
{
    uint64_t states[MEAN_MAX_REPLICAS], old = centre->state;
    (void)err;
    hold_alone(&centre->holder, "replicas_elastic", -1);
    begin(replicas, contributes, count, states, ret);
    for (int i = 0; i < count; i++) {
        if (contributes[i] && ret->finite[i] && alpha > 0) {
            centre->state = state_mix(centre->state, replicas[i]->state);
            replicas[i]->state = state_mix(replicas[i]->state, old);
            replicas[i]->version++;
        }
    }
    for (int i = 0; i < count; i++)
        if (!ret->finite[i])
            replicas[i]->state = centre->state;
    ret->checksum = centre->state;
    return 0;
}

int replicas_outer(Replica *const *replicas, const bool *contributes, int count, Centre *centre,
                   const OuterRule *rule, const MeanSpec *spec, MeanResult *ret, Error *err)
{
    uint64_t states[MEAN_MAX_REPLICAS], mean;
    (void)spec;
    hold_alone(&centre->holder, "replicas_outer", -1);
    if (!centre->has_momentum)
        return error_set(err, -EINVAL, "the centre has no momentum");
    begin(replicas, contributes, count, states, ret);
    if (ret->contributors == 0)
        return 0;
    mean = state_mean(states, ret->contributors);
    if (rule->lr != 1 || rule->momentum > 0) {
        centre->momentum = state_mix(centre->momentum, mean);
        mean = state_mix(centre->state, centre->momentum);
    }
    ret->checksum = centre->state = mean;
    all_take(replicas, count, mean);
    return 0;
}

int centre_snapshot(Centre *centre, Snapshot *into)
{
    hold_alone(&centre->holder, "centre_snapshot", -1);
    state_write(centre->state, into->params);
    mark_as_mean(into);
    if (into->n_states)
        state_write(centre->momentum, into->states[0]);
    return 0;
}

int centre_restore(Centre *centre, const Snapshot *from)
{
    hold_alone(&centre->holder, "centre_restore", -1);
    centre->state = state_read(from->params);
    if (from->n_states)
        centre->momentum = state_read(from->states[0]);
    return 0;
}

/* ---- without a meeting ------------------------------------------------------------------------
 */

int gather_copies(Replica *const *replicas, Snapshot *const *copies, int count, Error *err)
{
    (void)err;
    for (int i = 0; i < count; i++) {
        replica_touch(replicas[i], "gather_copies");
        if (replicas[i]->engine->lane != fake_lane_current())
            sim_fail("the replica of rank %d is copied on lane %d", replicas[i]->rank,
                     fake_lane_current());
        state_write(replicas[i]->state, copies[i]->params);
        copies[i]->version = replicas[i]->version;
    }
    return 0;
}

int replica_take_mean(Replica *replica, const Snapshot *const *copies, const uint64_t *samples,
                      int count, MeanResult *ret, Error *err)
{
    uint64_t states[MEAN_MAX_REPLICAS];
    (void)samples;
    (void)err;
    *ret = (MeanResult){0};
    replica_touch(replica, "replica_take_mean");
    for (int i = 0; i < count; i++) {
        uint64_t state = state_read(copies[i]->params);
        ret->finite[i] = state != SIM_STATE_NAN;
        if (ret->finite[i])
            states[ret->contributors++] = state;
    }
    if (ret->contributors == 0)
        return 0;
    ret->checksum = state_mean(states, ret->contributors);
    replica->state = ret->checksum;
    replica->version++;
    return 0;
}
