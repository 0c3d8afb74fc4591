/* Checkpoints: a consistent cut of all replicas, copied while no member is in a step, written by
 * the store while training goes on. */
#include "job/job_internal.h"

#include <stdio.h>

#define RESULT_RETRY_US (5 * USEC_PER_SEC)

bool checkpoint_under_way(const Job *job)
{
    return job->checkpoint.wanted || job->checkpoint.cutting || job->checkpoint.writing;
}

static void tell(CheckpointWaiter **list, int r, const Error *err, const CheckpointRecord *record)
{
    CheckpointWaiter *waiter = *list;
    *list = NULL;
    while (waiter) {
        CheckpointWaiter *next = waiter->next;
        waiter->done(waiter->data, r, err, record);
        free(waiter);
        waiter = next;
    }
}

/* Who asks while one is being copied or written means a later one. */
void checkpoint_want(Job *job, JobCheckpointed done, void *data)
{
    CheckpointWork *work = &job->checkpoint;
    bool too_late = work->cutting || work->writing;
    work->wanted = true;
    if (!done)
        return;
    CheckpointWaiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter) {
        Error err;
        error_set(&err, -ENOMEM, "out of memory");
        done(data, -ENOMEM, &err, NULL);
        return;
    }
    CheckpointWaiter **list = too_late ? &work->later : &work->waiters;
    *waiter = (CheckpointWaiter){.done = done, .data = data, .next = *list};
    *list = waiter;
}

static void forget_parts(CheckpointWork *work)
{
    free(work->parts);
    free(work->meta);
    work->parts = NULL;
    work->meta = NULL;
    work->n_parts = 0;
}

void checkpoint_drop(Job *job)
{
    CheckpointWork *work = &job->checkpoint;
    Error err;
    error_set(&err, -ECANCELED, "job %llu left memory before the checkpoint was made",
              (unsigned long long)job->id);
    work->wanted = false;
    if (!work->writing)
        tell(&work->waiters, -ECANCELED, &err, NULL);
    tell(&work->later, -ECANCELED, &err, NULL);
}

/* ---- writing --------------------------------------------------------------------------------- */

void checkpoint_finish(Job *job)
{
    const char *reason = job->evaluation.stop_reason;
    if (!job->finishing || !job->checkpoint.result || job->phase != PHASE_LIVE ||
        checkpoint_under_way(job) || evaluation_is_under_way(job))
        return;
    job_set_state(job, JOB_COMPLETED, NULL, *reason ? reason : NULL);
    job_unload(job, "completed");
}

/* Those who asked after its cut are the ones that the next cut is for. */
static void tell_waiters(Job *job, int r, const Error *err, const CheckpointRecord *record)
{
    CheckpointWork *work = &job->checkpoint;
    CheckpointWaiter *told = MOVE(work->waiters);
    work->waiters = MOVE(work->later);
    tell(&told, r, err, record);
}

void job_try_again(void *data)
{
    Job *job = data;
    if (job->phase == PHASE_LIVE && job->finishing)
        checkpoint_want(job, NULL, NULL);
    job_advance(job);
}

static void saving_failed(Job *job, int r, const Error *err)
{
    log_job(LOG_ERR, job->id, -1, "checkpoint not saved: %s", err->message);
    job_event(job, "checkpoint", NULL, "not saved: %s", err->message);
    tell_waiters(job, r, err, NULL);
    if (!job->finishing || job->phase != PHASE_LIVE)
        return;
    job_set_reason(job, "cannot save the result, trying again: %s", err->message);
    timer_arm(manager_spec(job->manager)->timers, &job->retry, RESULT_RETRY_US);
}

static uint64_t parts_bytes(const CheckpointWork *work)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < work->n_parts; i++)
        bytes += work->parts[i].bytes;
    return bytes;
}

static void saved(Job *job, uint64_t id, uint64_t bytes)
{
    CheckpointWork *work = &job->checkpoint;
    CheckpointRecord record = {.id = id,
                               .job = job->id,
                               .round = work->round,
                               .step = work->step,
                               .created_ms = clock_unix_ms(),
                               .bytes = bytes,
                               .valid = true};
    job->latest_checkpoint = id;
    log_job(LOG_INFO, job->id, -1,
            "checkpoint %llu of round %llu on disk (%.1f MB, held training up for %.1f ms)",
            (unsigned long long)id, (unsigned long long)work->round, (double)bytes / 1e6,
            (double)work->hold_us / 1e3);
    tell_waiters(job, 0, NULL, &record);
    job_save(job, NULL, NULL);
}

static void on_saved(void *data, int r, const Error *err, uint64_t id)
{
    Job *job = data;
    CheckpointWork *work = &job->checkpoint;
    uint64_t bytes = parts_bytes(work);
    work->writing = false;
    forget_parts(work);
    job->tasks--;
    if (r < 0)
        saving_failed(job, r, err);
    else
        saved(job, id, bytes);
    job_touch(job);
    work->result = r == 0 && job->finishing && !work->wanted;
    checkpoint_finish(job);
    job_advance(job);
}

enum { PARTS_PER_SNAPSHOT = 3 + OPTIMIZER_MAX_STATES };

static void add_part(void *data, const char *name, void *bytes, size_t size)
{
    CheckpointWork *work = data;
    CheckpointPart *part = &work->parts[work->n_parts++];
    snprintf(part->name, sizeof part->name, "%s", name);
    part->data = bytes;
    part->bytes = size;
}

static int collect_parts(Job *job)
{
    CheckpointWork *work = &job->checkpoint;
    size_t most = ((size_t)job->spec.max_trainers + 1) * PARTS_PER_SNAPSHOT;
    work->parts = calloc(most, sizeof *work->parts);
    if (!work->parts)
        return -ENOMEM;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        char whose[RANK_NAME_MAX];
        rank_name(r, whose);
        snapshot_visit(whose, job->members[r].cut, add_part, work);
    }
    if (common_is_there(&job->common))
        snapshot_visit("common", job->common_cut, add_part, work);
    return 0;
}

/* The store reads the cuts, so the job stays until it answers: it counts as a task. */
static int write_out(Job *job)
{
    CheckpointWork *work = &job->checkpoint;
    int r = collect_parts(job);
    if (r < 0)
        return r;
    CheckpointRecord record = {.job = job->id,
                               .round = work->round,
                               .step = work->step,
                               .created_ms = clock_unix_ms(),
                               .meta = work->meta,
                               .in_use = evaluation_wants_checkpoint(job, work->round)};
    work->writing = true;
    job->tasks++;
    /* A restore that is under way may have chosen any of those that are there: none is pruned. */
    unsigned keep = job->restores ? 0 : job->settings.checkpoint_keep;
    r = store_checkpoint_save(manager_store(job->manager), &record, work->parts, work->n_parts,
                              keep, on_saved, job);
    if (r < 0) {
        work->writing = false;
        job->tasks--;
    }
    return r;
}

/* ---- cutting --------------------------------------------------------------------------------- */

static void cutting_failed(Job *job, int r)
{
    Error err;
    error_set(&err, r, "the replicas could not be copied: %s",
              r == -ENOMEM   ? "out of memory"
              : r == -EAGAIN ? "the store has too much to do"
                             : "the device failed");
    forget_parts(&job->checkpoint);
    saving_failed(job, r, &err);
}

static void on_copied(Job *job, int r)
{
    CheckpointWork *work = &job->checkpoint;
    work->cutting = false;
    work->hold_us = clock_monotonic_us() - work->begun_us;
    if (job->phase != PHASE_LIVE)
        return;
    if (r == 0)
        r = checkpoint_meta_write(job, &work->meta);
    if (r == 0)
        r = write_out(job);
    if (r < 0)
        cutting_failed(job, r);
}

void checkpoint_cut(Job *job)
{
    CheckpointWork *work = &job->checkpoint;
    work->wanted = false;
    work->begun_us = clock_monotonic_us();
    work->round = job->round - 1; /* whole rounds that lie behind the cut */
    work->step = job_step(job);
    work->cutting = true;
    work->result = false;
    job->rounds_since_checkpoint = 0;
    cuts_copy(job, on_copied);
}
