/* Cuts: copies of everything that a job has on its lanes, at one moment, in host memory. Of a rank
 * that is in the middle of a step, as it was before the step: its gradients are not in the cut, and
 * what their forwards did to the buffers is undone in it. */
#include "job/job_internal.h"

typedef struct CutTask {
    LaneTask lane_task; /* first */
    Common common;
    Snapshot *common_into; /* NULL: not on this lane */
    Engine *engine;
    uint32_t n;
    struct {
        Replica *replica;
        const Snapshot *undo; /* NULL: nothing */
        Snapshot *into;
    } items[];
} CutTask;

static void cut_work(LaneTask *task)
{
    CutTask *cut = (CutTask *)task;
    engine_bind(cut->engine);
    if (cut->common_into)
        task->r = common_copy(&cut->common, cut->common_into);
    for (uint32_t i = 0; i < cut->n && task->r == 0; i++) {
        task->r = replica_snapshot(cut->items[i].replica, cut->items[i].into);
        if (task->r == 0 && cut->items[i].undo)
            snapshot_undo_buffers(cut->items[i].into, cut->items[i].undo);
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

static int prepare_member(const Job *job, Member *member)
{
    if (member->cut)
        return 0;
    return job->policy->shared ? member_snapshot_new(job->plan.graph, &member->cut)
                               : snapshot_new(job->plan.graph, &job->plan.optimizer, &member->cut);
}

int cuts_prepare(Job *job)
{
    int r = 0;
    if (!job->common_cut && (job->policy->shared || job->policy->centre))
        r = common_cut_new(&job->plan, job->policy, &job->common_cut);
    for (uint32_t rank = 0; rank < job->spec.max_trainers && r == 0; rank++)
        r = prepare_member(job, &job->members[rank]);
    return r;
}

static CutTask *cut_task_for(Job *job, const Lane *lane)
{
    CutTask *cut = calloc(1, sizeof *cut + job->spec.max_trainers * sizeof cut->items[0]);
    if (!cut)
        return NULL;
    cut->lane_task.work = cut_work;
    cut->lane_task.done = cut_done;
    cut->engine = job->engines[lane_index(lane)];
    if (job->members[0].lane == lane && common_is_there(&job->common)) {
        cut->common = job->common;
        cut->common_into = job->common_cut;
    }
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->lane != lane)
            continue;
        cut->items[cut->n].replica = member->replica;
        cut->items[cut->n].undo = member_undo(member);
        cut->items[cut->n++].into = member->cut;
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
