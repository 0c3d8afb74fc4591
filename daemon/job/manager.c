#include "job/manager.h"

#include <stdio.h>
#include <string.h>

#include "job/job_internal.h"

struct JobManager {
    JobManagerSpec spec;
    Job **jobs; /* by number, ascending */
    unsigned n, capacity;
    unsigned *placed; /* replicas by lane */
    bool stopping, loaded;
    JobDone stop_done;
    void *stop_data;
    void (*stop_progress)(void *data, const char *what);
};

int manager_new(const JobManagerSpec *spec, JobManager **ret)
{
    JobManager *manager = calloc(1, sizeof *manager);
    if (!manager)
        return -ENOMEM;
    manager->spec = *spec;
    manager->placed = calloc(spec->n_lanes, sizeof *manager->placed);
    if (!manager->placed) {
        free(manager);
        return -ENOMEM;
    }
    *ret = manager;
    return 0;
}

JobManager *manager_free(JobManager *manager)
{
    if (!manager)
        return NULL;
    for (unsigned i = 0; i < manager->n; i++)
        job_free(manager->jobs[i]);
    free(manager->jobs);
    free(manager->placed);
    free(manager);
    return NULL;
}

const JobManagerSpec *manager_spec(const JobManager *manager)
{
    return &manager->spec;
}

Store *manager_store(JobManager *manager)
{
    return manager->spec.store;
}

Lane *const *manager_lanes(const JobManager *manager, unsigned *n)
{
    *n = manager->spec.n_lanes;
    return manager->spec.lanes;
}

unsigned manager_count(const JobManager *manager)
{
    return manager->n;
}

Job *manager_job(JobManager *manager, unsigned index)
{
    return manager->jobs[index];
}

Job *manager_find(JobManager *manager, uint64_t id)
{
    unsigned low = 0, high = manager->n;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (manager->jobs[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < manager->n && manager->jobs[low]->id == id ? manager->jobs[low] : NULL;
}

/* ---- which lane ------------------------------------------------------------------------------ */

/* "auto" and "cpu": the lane with the fewest replicas; "cpu:N": that one. */
Lane *manager_place(JobManager *manager, const JobSpec *spec)
{
    unsigned best = 0;
    for (unsigned i = 0; i < manager->spec.n_lanes; i++) {
        if (strcmp(lane_name(manager->spec.lanes[i]), spec->device) == 0) {
            best = i;
            break;
        }
        if (manager->placed[i] < manager->placed[best])
            best = i;
    }
    manager->placed[best]++;
    return manager->spec.lanes[best];
}

void manager_unplace(JobManager *manager, const Lane *lane)
{
    if (lane)
        manager->placed[lane_index(lane)]--;
}

void manager_lane_use(const JobManager *manager, unsigned lane, unsigned *replicas, size_t *bytes)
{
    *replicas = manager->placed[lane];
    *bytes = 0;
    for (unsigned i = 0; i < manager->n; i++)
        if (manager->jobs[i]->engines && manager->jobs[i]->engines[lane])
            *bytes += engine_bytes(manager->jobs[i]->engines[lane]);
}

static int check_device(const JobManager *manager, const char *device, Error *err)
{
    char known[200] = "";
    if (!*device || strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0)
        return 0;
    for (unsigned i = 0; i < manager->spec.n_lanes; i++) {
        const char *name = lane_name(manager->spec.lanes[i]);
        if (strcmp(name, device) == 0)
            return 0;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", name);
    }
    return error_set(err, -EINVAL, "there is no device '%.40s' here; there are: auto, cpu%s",
                     device, known);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool takes_a_slot(const Job *job)
{
    return job->phase != PHASE_IDLE;
}

unsigned manager_running(const JobManager *manager)
{
    unsigned running = 0;
    for (unsigned i = 0; i < manager->n; i++)
        running += takes_a_slot(manager->jobs[i]);
    return running;
}

static void start_queued(JobManager *manager)
{
    for (unsigned i = 0; i < manager->n && !manager->stopping; i++) {
        Job *job = manager->jobs[i];
        if (job->state != JOB_QUEUED || takes_a_slot(job))
            continue;
        if (manager_running(manager) >= manager->spec.max_running) {
            job_set_reason(job, "%u jobs run already, which is the most (jobs.running)",
                           manager->spec.max_running);
            return;
        }
        job_set_reason(job, "%s", "");
        job_load(job, 0);
    }
}

static void stop_if_quiet(JobManager *manager);

void manager_job_changed(JobManager *manager, Job *job)
{
    (void)job;
    if (manager->stopping)
        stop_if_quiet(manager);
    else if (manager->loaded)
        start_queued(manager);
}

static int add_job(JobManager *manager, Job *job)
{
    if (manager->n == manager->capacity) {
        unsigned capacity = manager->capacity ? manager->capacity * 2 : 16;
        Job **grown = realloc(manager->jobs, capacity * sizeof(Job *));
        if (!grown)
            return -ENOMEM;
        manager->jobs = grown;
        manager->capacity = capacity;
    }
    manager->jobs[manager->n++] = job;
    return 0;
}

/* ---- submitting ------------------------------------------------------------------------------ */

typedef struct Submission {
    JobManager *manager;
    JobSpec spec;
    JobSubmitted done;
    void *data;
    char owner[128];
} Submission;

static int new_job(JobManager *manager, uint64_t id, const JobSpec *spec, const char *owner,
                   Job **ret)
{
    Job *job;
    int r = job_new(manager, id, spec, owner, &job);
    if (r == 0 && (r = add_job(manager, job)) < 0)
        job_free(job);
    if (r == 0)
        *ret = job;
    return r;
}

static void on_inserted(void *data, int r, const Error *err, uint64_t id)
{
    Submission *submission = data;
    JobManager *manager = submission->manager;
    Error problem = r < 0 ? *err : (Error){0};
    Job *job = NULL;
    if (r == 0) {
        r = new_job(manager, id, &submission->spec, submission->owner, &job);
        if (r < 0)
            error_set(&problem, r, "out of memory");
    }
    if (r == 0) {
        log_job(LOG_NOTICE, id, -1, "submitted by %s: %s, %u trainer%s, policy %s, K=%u",
                submission->owner, job->spec.model, job->spec.trainers,
                job->spec.trainers == 1 ? "" : "s", job->spec.policy, job->spec.interval);
        job_event(job, "submitted", submission->owner, "%s with %u trainer%s", job->spec.model,
                  job->spec.trainers, job->spec.trainers == 1 ? "" : "s");
        start_queued(manager);
    }
    submission->done(submission->data, r, &problem, job);
    free(submission);
}

static int insert(Submission *submission, Error *err)
{
    char *json = NULL;
    int r = job_spec_to_json(&submission->spec, &json);
    JobRecord record = {.name = submission->spec.name,
                        .spec = json,
                        .owner = submission->owner,
                        .state = JOB_QUEUED,
                        .reason = "",
                        .result = "{}",
                        .created_ms = clock_unix_ms(),
                        .updated_ms = clock_unix_ms()};
    if (r == 0)
        r = store_job_insert(submission->manager->spec.store, &record, on_inserted, submission);
    free(json);
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int check_submission(JobManager *manager, JobSpec *spec, Error *err)
{
    JobPlan plan;
    if (manager->stopping)
        return error_set(err, -EAGAIN, "dpsd is stopping; submit again when it is back");
    if (manager->n >= manager->spec.max_jobs)
        return error_set(err, -ENOBUFS,
                         "%u jobs are stored, which is the most (jobs.stored in dpsd.conf)",
                         manager->n);
    int r = check_device(manager, spec->device, err);
    if (r == 0)
        r = job_spec_resolve(spec, &manager->spec.defaults, &plan, err);
    if (r == 0)
        job_plan_free(&plan);
    return r;
}

void manager_submit(JobManager *manager, const JobSpec *spec, const char *owner, JobSubmitted done,
                    void *data)
{
    Error err = {0};
    Submission *submission = calloc(1, sizeof *submission);
    if (!submission) {
        done(data, -ENOMEM, (error_set(&err, -ENOMEM, "out of memory"), &err), NULL);
        return;
    }
    *submission = (Submission){.manager = manager, .spec = *spec, .done = done, .data = data};
    snprintf(submission->owner, sizeof submission->owner, "%s", owner);
    int r = check_submission(manager, &submission->spec, &err);
    if (r == 0)
        r = insert(submission, &err);
    if (r < 0) {
        done(data, r, &err, NULL);
        free(submission);
    }
}

/* ---- loading at start ------------------------------------------------------------------------ */

typedef struct Loading {
    JobManager *manager;
    JobDone done;
    void *data;
} Loading;

static int take_record(JobManager *manager, const JobRecord *record)
{
    JobSpec spec;
    Error err = {0};
    Job *job = NULL;
    int r = job_spec_from_json(record->spec, &spec, &err);
    if (r < 0) {
        log_job(LOG_ERR, record->id, -1, "left alone: %s", err.message);
        return 0;
    }
    r = new_job(manager, record->id, &spec, record->owner, &job);
    if (r < 0 || !job)
        return r;
    job->state = (JobState)record->state;
    job->live_since_us = clock_monotonic_us();
    job->created_ms = record->created_ms;
    snprintf(job->reason, sizeof job->reason, "%s", record->reason ? record->reason : "");
    if (record->result)
        (void)result_read(job, record->result);
    return 0;
}

static void on_jobs(void *data, int r, const Error *err, const JobRecord *records, size_t n)
{
    Loading *loading = data;
    JobManager *manager = loading->manager;
    Error problem = r < 0 ? *err : (Error){0};
    for (size_t i = 0; i < n && r == 0; i++)
        if ((r = take_record(manager, &records[i])) < 0)
            error_set(&problem, r, "out of memory");
    for (unsigned i = 0; i < manager->n && r == 0 && !manager->stopping; i++) {
        Job *job = manager->jobs[i];
        if (job->state == JOB_RUNNING || job->state == JOB_RECOVERING) {
            if (job->state == JOB_RUNNING)
                job_set_state(job, JOB_RECOVERING, NULL, "dpsd was started again");
            job_load(job, 0);
        }
    }
    manager->loaded = r == 0; /* those that ran before come first */
    if (r == 0)
        start_queued(manager);
    loading->done(loading->data, r, &problem);
    free(loading);
}

void manager_load(JobManager *manager, JobDone done, void *data)
{
    Error err = {0};
    Loading *loading = calloc(1, sizeof *loading);
    int r = loading ? 0 : -ENOMEM;
    if (r == 0) {
        *loading = (Loading){.manager = manager, .done = done, .data = data};
        r = store_jobs_load(manager->spec.store, on_jobs, loading);
    }
    if (r < 0) {
        free(loading);
        done(data, r, (error_set(&err, r, "out of memory"), &err));
    }
}

/* ---- stopping -------------------------------------------------------------------------------- */

static bool is_quiet(const Job *job)
{
    return job->phase == PHASE_IDLE && job->tasks == 0 && job->rounds_unsaved == 0;
}

static void stop_if_quiet(JobManager *manager)
{
    for (unsigned i = 0; i < manager->n; i++)
        if (!is_quiet(manager->jobs[i]))
            return;
    if (manager->stop_done) {
        JobDone done = manager->stop_done;
        manager->stop_done = NULL;
        done(manager->stop_data, 0, NULL);
    }
}

/* The state stays RUNNING in the store, so that the next start recovers the job. */
static void on_last_checkpoint(void *data, int r, const Error *err, const CheckpointRecord *record)
{
    Job *job = data;
    (void)record;
    if (r < 0)
        log_job(LOG_ERR, job->id, -1, "stopping without a new checkpoint: %s", err->message);
    job_unload(job, "stopping");
}

static void stop_job(JobManager *manager, Job *job)
{
    char what[64];
    job->stopping = true;
    if (job->phase == PHASE_LIVE) {
        snprintf(what, sizeof what, "saving job %llu", (unsigned long long)job->id);
        if (manager->stop_progress)
            manager->stop_progress(manager->stop_data, what);
        checkpoint_want(job, on_last_checkpoint, job);
        job_advance(job);
    } else if (job->phase == PHASE_HOSTING) {
        job_unload(job, "stopping");
    }
}

void manager_stop(JobManager *manager, void (*progress)(void *data, const char *what), JobDone done,
                  void *data)
{
    manager->stopping = true;
    manager->stop_done = done;
    manager->stop_data = data;
    manager->stop_progress = progress;
    for (unsigned i = 0; i < manager->n; i++)
        stop_job(manager, manager->jobs[i]);
    stop_if_quiet(manager);
}
