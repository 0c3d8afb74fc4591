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
    job->retry = (Timer){.fire = checkpoint_retry, .data = job};
    job->created_ms = clock_unix_ms();
    job->settings = (JobSettings){.interval = spec->interval,
                                  .checkpoint_rounds = spec->checkpoint_rounds,
                                  .checkpoint_keep = spec->checkpoint_keep,
                                  .lr = spec->lr};
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

/* The round in progress; of a job that has completed, the last one that was. */
static uint64_t shown_round(const Job *job)
{
    uint64_t round = job->members ? job->round.number : job->result_round;
    return round - (job->state == JOB_COMPLETED && round > 0);
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
                         .round = shown_round(job),
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

/* ---- status ---------------------------------------------------------------------------------- */

uint64_t job_step(const Job *job)
{
    if (!job->members)
        return job->result_step;
    uint64_t step = UINT64_MAX, furthest = 0;
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        const Member *member = &job->members[r];
        furthest = member->step > furthest ? member->step : furthest;
        if (member->place == MEMBER_LIVE && member->step < step)
            step = member->step;
    }
    return step == UINT64_MAX ? furthest : step;
}

uint64_t job_epoch(const Job *job)
{
    uint64_t per_epoch = job->dealer ? dealer_batches_per_epoch(job->dealer) : 0;
    return job->members ? (per_epoch ? job->batches / per_epoch : 0) : job->result_epoch;
}

static uint64_t samples_total(const JobSpec *spec)
{
    if (spec->epochs)
        return spec->samples * spec->epochs;
    return spec->steps * spec->trainers * spec->batch;
}

uint32_t job_member_count(const Job *job)
{
    return job->members || job->summary ? job->spec.trainers : 0;
}

/* Over the ranks' last batches; of a job that is not in memory, what was kept. */
static float mean_loss(const Job *job)
{
    double sum = 0;
    unsigned n = 0;
    for (uint32_t r = 0; job->members && r < job->spec.trainers; r++) {
        if (job->members[r].step == 0 || job->members[r].place != MEMBER_LIVE)
            continue;
        sum += (double)job->members[r].last_loss;
        n++;
    }
    return n ? (float)(sum / n) : job->last_loss;
}

void job_status(Job *job, JobStatus *ret)
{
    uint64_t now = clock_monotonic_us(), total = samples_total(&job->spec);
    bool running = job->state == JOB_RUNNING;
    *ret = (JobStatus){
        .id = job->id,
        .round = shown_round(job),
        .step = job_step(job),
        .epoch = job_epoch(job),
        .samples = job->samples,
        .samples_total = total,
        .created_ms = job->created_ms,
        .checkpoint = job->latest_checkpoint,
        .state = job->state,
        .reason = job->reason,
        .owner = job->owner,
        .device = strcmp(job->spec.device, "auto") == 0 ? "cpu" : job->spec.device,
        .spec = &job->spec,
        .plan = job_plan(job),
        .settings = job->settings,
        .loss = mean_loss(job),
        .checksum = job->checksum,
        .samples_per_s = running ? job->rate : 0,
        .eta_s = -1,
        .running_s = job->lived_s + (running ? (double)(now - job->live_since_us) / 1e6 : 0),
    };
    if (running && job->rate > 0 && total >= job->samples)
        ret->eta_s = (double)(total - job->samples) / job->rate;
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
