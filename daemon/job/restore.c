/* A user puts a job back to a checkpoint. The checkpoint is verified before anything is given up.
 */
#include "job/job_internal.h"

#include <stdio.h>

typedef struct Restore {
    Job *job;
    uint64_t checkpoint; /* 0: the latest valid one */
    JobState asked_in;   /* the state then */
    JobDone done;
    void *data;
    char who[64];
} Restore;

static void refuse(Restore *restore, int r, const char *sentence)
{
    Error err = {.code = r};
    snprintf(err.message, sizeof err.message, "%s", sentence);
    restore->done(restore->data, r, &err);
}

/* Who cancels a job after a restore was asked for has the last word. */
static bool may_be_restored(const Job *job, JobState asked_in)
{
    if (job->state == JOB_CANCELLED && asked_in != JOB_CANCELLED)
        return false;
    return !job->load_done && job->state != JOB_QUEUED && !job->stopping &&
           job_state_may_move(job->state, JOB_RECOVERING) && job->phase != PHASE_LOADING &&
           job->phase != PHASE_HOSTING;
}

static const CheckpointRecord *choose(const Restore *restore, const CheckpointRecord *checkpoints,
                                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (restore->checkpoint ? checkpoints[i].id == restore->checkpoint : checkpoints[i].valid)
            return &checkpoints[i];
    return NULL;
}

static void go(Restore *restore, uint64_t checkpoint)
{
    Job *job = restore->job;
    char reason[64];
    snprintf(reason, sizeof reason, "restore of checkpoint %llu", (unsigned long long)checkpoint);
    job->finishing = false;
    job->load_done = restore->done;
    job->load_data = restore->data;
    job->restore_id = checkpoint;
    job->rewind_settings = true;
    job_set_state(job, JOB_RECOVERING, restore->who, reason);
    if (job->phase == PHASE_IDLE)
        job_load(job, checkpoint);
    else if (job->phase == PHASE_LIVE)
        job_unload(job, "restored"); /* job_load follows when the lanes are empty */
}

static void on_listed(void *data, int r, const Error *err, const CheckpointRecord *checkpoints,
                      size_t n)
{
    Restore *restore = data;
    Job *job = restore->job;
    char sentence[400];
    job->tasks--;
    job->restores--;
    const CheckpointRecord *chosen = r == 0 ? choose(restore, checkpoints, n) : NULL;
    if (r < 0) {
        refuse(restore, r, err->message);
    } else if (!chosen) {
        snprintf(sentence, sizeof sentence, "job %llu has no such checkpoint; it has %zu%s",
                 (unsigned long long)job->id, n, n ? ", see `dpsctl checkpoints`" : "");
        refuse(restore, -ENOENT, sentence);
    } else if (!chosen->valid) {
        snprintf(sentence, sizeof sentence, "checkpoint %llu is not valid: %.300s",
                 (unsigned long long)chosen->id, chosen->problem ? chosen->problem : "corrupt");
        refuse(restore, -EBADMSG, sentence);
    } else if (!may_be_restored(job, restore->asked_in)) {
        snprintf(sentence, sizeof sentence, "job %llu is %s and cannot be restored now",
                 (unsigned long long)job->id, job_state_name(job->state));
        refuse(restore, -ESTALE, sentence);
    } else {
        go(restore, chosen->id);
    }
    free(restore);
    job_advance(job);
}

void job_restore(Job *job, uint64_t checkpoint, const char *who, JobDone done, void *data)
{
    Restore *restore = calloc(1, sizeof *restore);
    Error err;
    if (!restore) {
        done(data, -ENOMEM, (error_set(&err, -ENOMEM, "out of memory"), &err));
        return;
    }
    *restore = (Restore){
        .job = job, .checkpoint = checkpoint, .asked_in = job->state, .done = done, .data = data};
    snprintf(restore->who, sizeof restore->who, "%s", who);
    job->tasks++;
    job->restores++;
    int r = store_checkpoints_list(manager_store(job->manager), job->id, true, on_listed, restore);
    if (r < 0) {
        job->tasks--;
        job->restores--;
        refuse(restore, r, "out of memory");
        free(restore);
    }
}
