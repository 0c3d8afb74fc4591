/* Cuts: copies of all replicas at one moment, in host memory. */
#include "job/job_internal.h"

typedef struct CutTask {
    LaneTask lane_task; /* first */
    uint32_t n;
    struct {
        Replica *replica;
        Snapshot *into;
    } items[];
} CutTask;

static void cut_work(LaneTask *task)
{
    CutTask *cut = (CutTask *)task;
    for (uint32_t i = 0; i < cut->n && task->r == 0; i++) {
        engine_bind(replica_engine(cut->items[i].replica));
        task->r = replica_snapshot(cut->items[i].replica, cut->items[i].into);
    }
}

static void one_less(Job *job)
{
    if (--job->copies > 0)
        return;
    job->copied(job, job->copy_error);
    job->exclusive = false;
    job_advance(job);
}

static void cut_done(LaneTask *task)
{
    Job *job = task->job;
    if (task->r < 0)
        job->copy_error = task->r;
    free(task);
    one_less(job);
}

int cuts_prepare(Job *job)
{
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        int result =
            member->cut ? 0 : snapshot_new(job->plan.graph, &job->plan.optimizer, &member->cut);
        if (result < 0)
            return result;
    }
    return 0;
}

static CutTask *cut_task_for(Job *job, const Lane *lane)
{
    CutTask *cut = calloc(1, sizeof *cut + job->spec.trainers * sizeof cut->items[0]);
    if (!cut)
        return NULL;
    cut->lane_task.work = cut_work;
    cut->lane_task.done = cut_done;
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        if (job->members[r].lane != lane)
            continue;
        cut->items[cut->n].replica = job->members[r].replica;
        cut->items[cut->n++].into = job->members[r].cut;
    }
    return cut;
}

void cuts_copy(Job *job, void (*done)(Job *job, int r))
{
    unsigned n_lanes;
    Lane *const *lanes = manager_lanes(job->manager, &n_lanes);
    job->copied = done;
    job->copies = 1; /* this function itself, so that it ends after all are posted */
    job->exclusive = true;
    job->copy_error = cuts_prepare(job);
    for (unsigned i = 0; i < n_lanes && job->copy_error == 0; i++) {
        if (!job->engines[i])
            continue;
        CutTask *cut = cut_task_for(job, lanes[i]);
        if (!cut) {
            job->copy_error = -ENOMEM;
            break;
        }
        job->copies++;
        job_post(job, lanes[i], &cut->lane_task);
    }
    one_less(job);
}
