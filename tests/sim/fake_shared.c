/* In place of replica/shared.c: versions that are read and written, held and used again as the real
 * ones are. Nobody may read a version while it is written, or the other way round. */
#include <stdlib.h>
#include <string.h>

#include "fake_replica.h"

struct SharedParams {
    Engine *home;
    SharedVersion *current, *spares;
    int n_versions;
    bool updating, in_place;
    uint64_t updates;
};

static SharedVersion *version_new(SharedParams *shared)
{
    SharedVersion *version = calloc(1, sizeof *version);
    shared->n_versions++;
    return version;
}

void version_read(SharedVersion *version, const char *what)
{
    on_a_lane(what);
    if (!version->holds)
        sim_fail("%s: parameters are read that nobody holds", what);
    if (sim_now() < version->written_until_us)
        sim_fail("%s: version %llu is read while it is written", what,
                 (unsigned long long)version->number);
    if (fake_lane_task_end() > version->read_until_us)
        version->read_until_us = fake_lane_task_end();
}

static void version_write(SharedVersion *version)
{
    if (sim_now() < version->read_until_us || sim_now() < version->written_until_us)
        sim_fail("version %llu is written while it is read", (unsigned long long)version->number);
    version->written_until_us = fake_lane_task_end();
}

int shared_params_new(Engine *home, SharedParams **ret, Error *err)
{
    on_a_lane("shared_params_new");
    SharedParams *shared = calloc(1, sizeof *shared);
    if (!shared)
        return error_set(err, -ENOMEM, "out of memory");
    shared->home = home;
    shared->current = version_new(shared);
    shared->current->state = home->spec.seed;
    shared->current->holds = 1;
    home->others++;
    *ret = shared;
    return 0;
}

SharedParams *shared_params_free(SharedParams *shared)
{
    if (!shared)
        return NULL;
    on_a_lane("shared_params_free");
    if (shared->current->holds != 1 || shared->updating)
        sim_fail("shared parameters go while they are held %u times", shared->current->holds);
    while (shared->spares) {
        SharedVersion *version = shared->spares;
        shared->spares = version->next;
        shared->n_versions--;
        free(version);
    }
    if (--shared->n_versions)
        sim_fail("shared parameters go while %d versions are held", shared->n_versions);
    free(shared->current);
    shared->home->others--;
    free(shared);
    return NULL;
}

/* ---- loop -------------------------------------------------------------------------------------
 */

uint64_t shared_params_version(const SharedParams *shared)
{
    return shared->current->number;
}

uint64_t shared_version_number(const SharedVersion *version)
{
    return version->number;
}

int shared_params_versions(const SharedParams *shared)
{
    return shared->n_versions;
}

SharedVersion *shared_params_pin(SharedParams *shared)
{
    on_the_loop("shared_params_pin");
    if (shared->updating && shared->in_place)
        return NULL;
    shared->current->holds++;
    return shared->current;
}

void shared_version_hold(SharedVersion *version)
{
    on_the_loop("shared_version_hold");
    if (!version->holds)
        sim_fail("a version is held that nobody held");
    version->holds++;
}

static void put_spare(SharedParams *shared, SharedVersion *version)
{
    version->next = shared->spares;
    shared->spares = version;
}

void shared_params_unpin(SharedParams *shared, SharedVersion *version)
{
    on_the_loop("shared_params_unpin");
    if (!version)
        return;
    if (!version->holds)
        sim_fail("version %llu is let go once too often", (unsigned long long)version->number);
    if (--version->holds == 0)
        put_spare(shared, version);
}

int shared_params_check(const SharedParams *shared, uint64_t number, uint64_t max_staleness,
                        Error *err)
{
    uint64_t now = shared->current->number;
    if (number <= now && now - number <= max_staleness)
        return 0;
    return error_set(err, -ESTALE, "it is at version %llu; this gradient was computed at %llu",
                     (unsigned long long)now, (unsigned long long)number);
}

int shared_params_prepare_update(SharedParams *shared, Engine *on, bool may_wait, SharedUpdate *ret)
{
    on_the_loop("shared_params_prepare_update");
    if (shared->updating)
        return -EBUSY;
    *ret = (SharedUpdate){.shared = shared, .on = on};
    shared->updating = true;
    shared->in_place = ret->in_place = may_wait && shared->current->holds == 1;
    if (!ret->in_place && shared->spares) {
        ret->to = shared->spares;
        shared->spares = ret->to->next;
    }
    return 0;
}

void shared_params_publish(SharedUpdate *update)
{
    on_the_loop("shared_params_publish");
    SharedParams *shared = update->shared;
    SharedVersion *old = shared->current;
    if (!shared->updating)
        sim_fail("an update is published that was not begun");
    shared->updating = false;
    if (update->applied && update->in_place) {
        old->number++;
    } else if (update->applied) {
        update->to->number = old->number + 1;
        update->to->holds = 1;
        shared->current = update->to;
        shared_params_unpin(shared, old);
    } else if (update->to) {
        put_spare(shared, update->to);
    }
    *update = (SharedUpdate){0};
}

/* ---- lanes ------------------------------------------------------------------------------------
 */

static Gradient *gradient_of(const float *memory)
{
    Gradient *gradient = (Gradient *)(void *)(uintptr_t)memory;
    if (gradient->magic != SIM_BATCH_MAGIC)
        sim_fail("a gradient is used that is none");
    return gradient;
}

/* The target has what the current version has. */
static SharedVersion *target(SharedUpdate *update)
{
    SharedVersion *current = update->shared->current;
    if (update->in_place) {
        version_write(current);
        return current;
    }
    if (!update->to)
        update->to = version_new(update->shared);
    update->to->read_until_us = 0; /* nobody holds it, so whoever read it has ended */
    version_read(current, "shared_params_update");
    version_write(update->to);
    update->to->state = current->state;
    return update->to;
}

int shared_params_update(SharedUpdate *update, const SharedGradient *gradients, int count,
                         const StepRule *rule, SharedResult *ret, Error *err)
{
    uint64_t prints[MEAN_MAX_REPLICAS];
    (void)err;
    on_a_lane("shared_params_update");
    *ret = (SharedResult){0};
    for (int i = 0; i < count; i++) {
        Gradient *gradient = gradient_of(gradients[i].gradients);
        if (i && gradient->replica->rank <= gradient_of(gradients[i - 1].gradients)->replica->rank)
            sim_fail("the gradients of a step are not in rank order");
        if (!gradient->n)
            sim_fail("job %llu rank %d: a gradient is used twice",
                     (unsigned long long)gradient->replica->job->id, gradient->replica->rank);
        hold_alone(&gradient->holder, "shared_params_update", gradient->replica->rank);
        if (i == 0)
            check_rate(gradient->replica->job, gradient->replica->rank, rule->lr);
        StepRule own = *rule;
        if (gradients[i].norm_limit > 0)
            own.norm_limit = gradients[i].norm_limit;
        ret->norms[i] = gradient->norm;
        ret->verdicts[i] = gradient->poison ? STEP_NOT_FINITE : gradient_verdict(gradient, &own);
        if (ret->verdicts[i] == STEP_APPLIED)
            prints[ret->contributors++] = gradient_print(gradient);
        gradient_used(gradient);
    }
    if (!ret->contributors)
        return 0;
    SharedVersion *to = target(update);
    to->state = state_mix(to->state, state_mean(prints, ret->contributors));
    update->shared->updates++;
    update->applied = true;
    return 0;
}

int shared_version_checksum(const SharedParams *shared, const SharedVersion *version, uint64_t *ret)
{
    (void)shared;
    on_a_lane("shared_version_checksum");
    *ret = version->state;
    return 0;
}

/* ---- snapshots --------------------------------------------------------------------------------
 */

int shared_params_snapshot(SharedParams *shared, Snapshot *into)
{
    on_a_lane("shared_params_snapshot");
    if (shared->updating)
        sim_fail("shared parameters are copied during an update");
    state_write(shared->current->state, into->params);
    for (int i = 0; i < into->n_states; i++)
        state_write(shared->updates, into->states[i]);
    into->updates = shared->updates;
    into->version = shared->current->number;
    return 0;
}

int shared_params_restore(SharedParams *shared, const Snapshot *from)
{
    on_a_lane("shared_params_restore");
    if (shared->updating || shared->current->holds > 1)
        return -EINVAL;
    uint64_t number = shared->current->number;
    shared->current->state = state_read(from->params);
    shared->current->number = (from->version > number ? from->version : number) + 1;
    shared->updates = from->updates;
    return 0;
}
