/* In place of replica/step.c: gradients, what is held of them, and what becomes of them. */
#include "fake_replica.h"

void gradient_begin(Gradient *gradient, Replica *replica, const SimBatch *batch, uint64_t samples)
{
    Holder holder = gradient == &replica->gradient ? gradient->holder : (Holder){0};
    *gradient = (Gradient){.magic = SIM_BATCH_MAGIC,
                           .replica = replica,
                           .numbers = {batch->number},
                           .samples = {samples},
                           .n = 1,
                           .poison = batch->poison,
                           .norm = batch->norm,
                           .holder = holder};
}

StepVerdict gradient_verdict(const Gradient *gradient, const StepRule *rule)
{
    if (gradient->poison && (rule->want_norm || rule->norm_limit > 0))
        return STEP_NOT_FINITE;
    if (rule->norm_limit > 0 && gradient->norm > rule->norm_limit)
        return STEP_OVER_LIMIT;
    return STEP_APPLIED;
}

uint64_t gradient_print(const Gradient *gradient)
{
    uint64_t print = gradient->n;
    for (unsigned i = 0; i < gradient->n; i++)
        print = state_mix(print, gradient->numbers[i] * 31 + gradient->samples[i]);
    return gradient->poison ? SIM_STATE_NAN : print;
}

static void add(Gradient *to, const Gradient *from)
{
    for (unsigned i = 0; i < from->n; i++) {
        if (to->n == HELD_MAX)
            sim_fail("job %llu rank %d: more than %d batches are held",
                     (unsigned long long)to->replica->job->id, to->replica->rank, HELD_MAX);
        to->numbers[to->n] = from->numbers[i];
        to->samples[to->n++] = from->samples[i];
    }
    to->poison |= from->poison;
}

/* A held batch that is left out counts as used with the step, too. */
void gradient_settle(Replica *replica, Gradient *gradient, const StepRule *rule, StepResult *ret)
{
    StepVerdict verdict = gradient_verdict(gradient, rule);
    ret->gradient_norm = gradient->norm;
    if (rule->again)
        replica->held = replica->joined;
    if (rule->hold) {
        if (!replica->held.n)
            replica->held = (Gradient){.replica = replica};
        if (verdict != STEP_APPLIED)
            gradient->poison = false;
        add(&replica->held, gradient);
        ret->verdict = verdict == STEP_APPLIED ? STEP_HELD : verdict;
        ret->samples = (int64_t)gradient->samples[0];
        return;
    }
    Gradient whole = replica->held;
    whole.replica = replica;
    whole.magic = gradient->magic;
    whole.holder = gradient->holder;
    add(&whole, gradient);
    whole.norm = gradient->norm;
    *gradient = whole;
    replica->joined = replica->held;
    replica->held.n = 0;
    replica->held.poison = false;
    ret->verdict = verdict;
    ret->samples = 0;
    for (unsigned i = 0; i < gradient->n; i++)
        ret->samples += (int64_t)gradient->samples[i];
}

void gradient_used(Gradient *gradient)
{
    Replica *replica = gradient->replica;
    for (unsigned i = 0; i < gradient->n; i++)
        ledger_add(replica->job, &replica->history, gradient->numbers[i], gradient->samples[i],
                   replica->rank);
    gradient->n = 0;
}

int64_t replica_held(const Replica *replica)
{
    return replica->held.n;
}

void replica_drop_held(Replica *replica)
{
    replica_touch(replica, "replica_drop_held");
    replica->held.n = 0;
    replica->held.poison = false;
}
