#include "job/job_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int job_new(JobManager *manager, uint64_t id, const JobSpec *spec, const char *owner, Job **ret)
{
    Job *job = calloc(1, sizeof *job);
    if (!job)
        return -ENOMEM;
    job->manager = manager;
    job->id = id;
    job->spec = *spec;
    job->state = JOB_QUEUED;
    job->retry = (Timer){.fire = job_try_again, .data = job};
    job->created_ms = clock_unix_ms();
    job->quorum_timer = (Timer){.fire = quorum_timeout, .data = job};
    job->straggler_timer = (Timer){.fire = stragglers_name, .data = job};
    (void)job_spec_settings(spec, &job->settings, NULL); /* checked when it was submitted */
    job->owner = strdup(owner);
    if (!job->owner) {
        free(job);
        return -ENOMEM;
    }
    *ret = job;
    return 0;
}

Job *job_free(Job *job)
{
    if (!job)
        return NULL;
    timer_cancel(manager_spec(job->manager)->timers, &job->retry);
    timer_cancel(manager_spec(job->manager)->timers, &job->quorum_timer);
    timer_cancel(manager_spec(job->manager)->timers, &job->straggler_timer);
    evaluation_free(job);
    members_free(job);
    dealer_free(job->dealer);
    free(job->engines);
    free(job->summary);
    free(job->pending);
    checkpoint_drop(job);
    job_plan_free(&job->plan);
    free(job->owner);
    free(job);
    return NULL;
}

uint64_t job_id(const Job *job)
{
    return job->id;
}

JobState job_state(const Job *job)
{
    return job->state;
}

const JobSpec *job_spec(const Job *job)
{
    return &job->spec;
}

const JobPlan *job_plan(const Job *job)
{
    return job->planned ? &job->plan : NULL;
}

uint64_t job_changes(const Job *job)
{
    return job->changes;
}

void job_touch(Job *job)
{
    job->changes++;
}

static void log_save_failed(void *data, int r, const Error *err)
{
    const Job *job = data;
    if (r < 0)
        log_job(LOG_ERR, job->id, -1, "cannot save its state: %s", err->message);
}

/* Jobs stay in the manager until it ends, after the store: the callback finds them alive. */
void job_save(Job *job, StoreDone done, void *data)
{
    char *result = result_json(job);
    JobRecord record = {.id = job->id,
                        .state = (int)job->state,
                        .reason = job->reason,
                        .result = result ? result : "{}",
                        .updated_ms = clock_unix_ms()};
    int r = store_job_update(manager_store(job->manager), &record, done ? done : log_save_failed,
                             done ? data : job);
    free(result);
    if (r < 0) {
        Error err;
        error_set(&err, r, "out of memory");
        (done ? done : log_save_failed)(done ? data : job, r, &err);
    }
}

void job_event(Job *job, const char *kind, const char *who, const char *format, ...)
{
    char text[JOB_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    EventRecord event = {.job = job->id,
                         .unix_ms = clock_unix_ms(),
                         .round = job_shown_round(job),
                         .kind = (char *)kind,
                         .who = (char *)(who ? who : "dpsd"),
                         .text = text};
    /* An event that cannot be kept is in the log all the same. */
    (void)store_event_add(manager_store(job->manager), &event, NULL, NULL);
}

void job_set_reason(Job *job, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(job->reason, sizeof job->reason, format, args);
    va_end(args);
    job_touch(job);
}

static void count_running_time(Job *job, JobState next)
{
    uint64_t now = clock_monotonic_us();
    if (job->state == JOB_RUNNING && next != JOB_RUNNING)
        job->lived_s += (double)(now - job->live_since_us) / 1e6;
    if (next == JOB_RUNNING && job->state != JOB_RUNNING)
        job->live_since_us = now;
}

void job_set_state(Job *job, JobState state, const char *who, const char *reason)
{
    if (state == job->state)
        return;
    if (!job_state_may_move(job->state, state)) {
        log_job(LOG_ERR, job->id, -1, "refused to go from %s to %s", job_state_name(job->state),
                job_state_name(state));
        return;
    }
    count_running_time(job, state);
    log_job(state == JOB_FAILED ? LOG_ERR : LOG_NOTICE, job->id, -1, "%s → %s%s%s",
            job_state_name(job->state), job_state_name(state), reason ? ": " : "",
            reason ? reason : "");
    job->state = state;
    job_set_reason(job, "%s", reason ? reason : "");
    job_event(job, "state", who, "%s%s%s", job_state_name(state), reason ? ": " : "",
              reason ? reason : "");
    job_save(job, NULL, NULL);
    manager_job_changed(job->manager, job);
}

void job_fail(Job *job, const char *format, ...)
{
    char reason[JOB_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (job_state_is_final(job->state))
        return;
    job_set_state(job, JOB_FAILED, NULL, reason);
    job_unload(job, "failed");
}

void job_halt(Job *job, const char *format, ...)
{
    char reason[JOB_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (job->state == JOB_RUNNING)
        job_set_state(job, JOB_PAUSED, NULL, reason);
}

/* ---- what a user asks for -------------------------------------------------------------------- */

static void answer(JobDone done, void *data, int r, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void answer(JobDone done, void *data, int r, const char *format, ...)
{
    Error err = {.code = r};
    va_list args;
    va_start(args, format);
    vsnprintf(err.message, sizeof err.message, format, args);
    va_end(args);
    done(data, r, &err);
}

static void refuse_state(const Job *job, const char *verb, JobDone done, void *data)
{
    if (job->phase == PHASE_LOADING || job->phase == PHASE_HOSTING) {
        answer(done, data, -EAGAIN, "job %llu is being loaded; try again in a moment",
               (unsigned long long)job->id);
        return;
    }
    answer(done, data, -ESTALE, "job %llu is %s and cannot be %s", (unsigned long long)job->id,
           job_state_name(job->state), verb);
}

/* What was asked for has been done; the answer goes out once it is on disk. */
static void answer_when_saved(Job *job, JobDone done, void *data)
{
    job_save(job, done, data);
}

void job_pause(Job *job, const char *who, JobDone done, void *data)
{
    if (job->state != JOB_RUNNING || job->finishing) {
        refuse_state(job, "paused", done, data);
        return;
    }
    job_set_state(job, JOB_PAUSED, who, NULL);
    checkpoint_want(job, NULL, NULL);
    answer_when_saved(job, done, data);
    job_advance(job);
}

void job_resume(Job *job, const char *who, JobDone done, void *data)
{
    if (job->state != JOB_PAUSED) {
        refuse_state(job, "resumed", done, data);
        return;
    }
    if (job->phase == PHASE_LIVE) {
        guard_forgive_all(job);
        job_set_state(job, JOB_RUNNING, who, NULL);
        job_advance(job);
    } else if (job->phase == PHASE_IDLE) { /* paused before the daemon was started */
        job_set_state(job, JOB_RECOVERING, who, NULL);
        job_load(job, 0);
    }
    answer_when_saved(job, done, data);
}

void job_cancel(Job *job, const char *who, JobDone done, void *data)
{
    if (job_state_is_final(job->state)) {
        refuse_state(job, "cancelled", done, data);
        return;
    }
    job_set_state(job, JOB_CANCELLED, who, NULL);
    answer_when_saved(job, done, data);
    job_unload(job, "cancelled");
}

void job_checkpoint(Job *job, JobCheckpointed done, void *data)
{
    if (job->phase == PHASE_LIVE && !job->stopping) {
        checkpoint_want(job, done, data);
        job_advance(job);
        return;
    }
    Error err;
    if (job->phase == PHASE_LOADING || job->phase == PHASE_HOSTING) {
        error_set(&err, -EAGAIN, "job %llu is being loaded; try again in a moment",
                  (unsigned long long)job->id);
        done(data, -EAGAIN, &err, NULL);
        return;
    }
    error_set(
        &err, -ESTALE,
        "job %llu is %s and has no replicas to save; `dpsctl checkpoints` lists what is there",
        (unsigned long long)job->id, job_state_name(job->state));
    done(data, -ESTALE, &err, NULL);
}
