/* Trainers that dpsd starts itself, and starts again with a growing pause when they end. */
#include "job/job_internal.h"

#include <stdio.h>

#define BACKOFF_FIRST_US (200 * USEC_PER_MSEC)
#define BACKOFF_MAX_US   (10 * USEC_PER_SEC)

/* A trainer that is not connected comes back by itself within this time, or it hangs. */
#define ABSENCE_US (5 * USEC_PER_SEC)

static void start(Member *member);

static void on_backoff(void *data)
{
    start(data);
}

/* Those that are wanted now: they may be others than when they were given up. */
const Member *managed_hopeless(const Job *job)
{
    const Member *last = NULL;
    if (job->spec.external_trainers || members_live(job) > 0)
        return NULL;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        if (job->members[r].spare)
            continue;
        if (!job->members[r].managed.given_up)
            return NULL;
        last = &job->members[r];
    }
    return last;
}

static void say_why(const Member *member, char why[160])
{
    snprintf(why, 160, "its trainer ended %u times without a step, last with %s",
             member->managed.fruitless, member->managed.last_end);
}

void managed_fail(Job *job, const Member *member)
{
    char why[160];
    say_why(member, why);
    job_fail(job, "rank %u: %s; the log has what it said", member->rank, why);
}

static void give_up(Member *member)
{
    char why[160];
    member->managed.given_up = true;
    say_why(member, why);
    if (member->place == MEMBER_LIVE)
        member_drop(member, why);
    else
        job_advance(member->job); /* the job fails if that was the last, here as there */
}

static void start_again_later(Member *member)
{
    const JobManagerSpec *spec = manager_spec(member->job->manager);
    if (member->managed.fruitless > spec->trainer_restarts) {
        give_up(member);
        return;
    }
    unsigned shift = member->managed.fruitless < 8 ? member->managed.fruitless : 8;
    uint64_t pause = BACKOFF_FIRST_US << shift;
    timer_arm(spec->timers, &member->managed.backoff,
              pause < BACKOFF_MAX_US ? pause : BACKOFF_MAX_US);
}

static void note_end(Member *member, const char *how)
{
    timer_cancel(manager_spec(member->job->manager)->timers, &member->managed.absence);
    member->managed.running = NULL;
    snprintf(member->managed.last_end, sizeof member->managed.last_end, "%s", how);
}

static void replace(Member *member)
{
    member->managed.restarts++;
    member->managed.fruitless++;
    job_touch(member->job);
    start_again_later(member);
}

static void on_ended(void *data, bool clean, const char *how)
{
    Member *member = data;
    Job *job = member->job;
    note_end(member, how);
    if (job->phase != PHASE_LIVE || job->finishing || job_state_is_final(job->state))
        return;
    log_job(clean ? LOG_INFO : LOG_WARNING, job->id, (int)member->rank, "trainer ended: %s", how);
    job_event(job, "trainer", NULL, "rank %u: trainer ended: %s", member->rank, how);
    replace(member);
}

/* Its process is there, its session is not: it is stopped or hangs, and is replaced. */
static void on_absence(void *data)
{
    Member *member = data;
    Job *job = member->job;
    const JobManagerSpec *spec = manager_spec(job->manager);
    if (member->events || !member->managed.running || job->phase != PHASE_LIVE || job->finishing)
        return;
    log_job(LOG_WARNING, job->id, (int)member->rank, "its trainer hangs and is replaced");
    job_event(job, "trainer", NULL, "rank %u: its trainer hangs and is replaced", member->rank);
    spec->launcher.stop(spec->launcher.self, member->managed.running);
    note_end(member, "no word from it");
    replace(member);
}

void managed_note_absence(Member *member)
{
    if (member->managed.running)
        timer_arm(manager_spec(member->job->manager)->timers, &member->managed.absence, ABSENCE_US);
}

static void start(Member *member)
{
    Job *job = member->job;
    const Launcher *launcher = &manager_spec(job->manager)->launcher;
    LaunchSpec spec = {.job = job->id,
                       .rank = member->rank,
                       .accumulate = job->spec.accumulate ? job->spec.accumulate : 1,
                       .data = job->spec.data,
                       .token = member->managed.token};
    Error err = {0};
    int r =
        launcher->start(launcher->self, &spec, on_ended, member, &member->managed.running, &err);
    if (r == 0)
        return;
    log_job(LOG_ERR, job->id, (int)member->rank, "cannot start its trainer: %s", err.message);
    snprintf(member->managed.last_end, sizeof member->managed.last_end, "%.79s", err.message);
    member->managed.fruitless++;
    start_again_later(member);
}

void managed_start(Member *member)
{
    ManagedTrainer *managed = &member->managed;
    if (member->job->spec.external_trainers || member->job->phase != PHASE_LIVE || member->spare ||
        managed->running || managed->given_up || timer_is_armed(&managed->backoff) ||
        !managed->backoff.fire)
        return;
    start(member);
}

void managed_stop(Member *member)
{
    const JobManagerSpec *spec = manager_spec(member->job->manager);
    ManagedTrainer *managed = &member->managed;
    timer_cancel(spec->timers, &managed->backoff);
    timer_cancel(spec->timers, &managed->absence);
    if (managed->running)
        spec->launcher.stop(spec->launcher.self, managed->running);
    managed->running = NULL;
}

void managed_start_all(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        token_make(job->members[r].managed.token);
    for (uint32_t r = 0; !job->spec.external_trainers && r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        member->managed.backoff = (Timer){.fire = on_backoff, .data = member};
        member->managed.absence = (Timer){.fire = on_absence, .data = member};
        managed_start(member);
    }
}

void managed_stop_all(Job *job)
{
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++)
        managed_stop(&job->members[r]);
}

void managed_note_step(Member *member)
{
    member->managed.fruitless = 0;
}
