/* What a job has once, beside its ranks: the centre of policies that keep one, or the parameters
 * that all ranks share. It lives on the lane of rank 0. */
#include "job/job_internal.h"

int common_make(Engine *engine, const SyncPolicy *policy, Common *ret, Error *err)
{
    if (policy->shared)
        return shared_params_new(engine, &ret->shared, err);
    if (policy->centre) /* with momentum, so that elastic and diloco can follow each other */
        return centre_new(engine, true, &ret->centre, err);
    return 0;
}

void common_free(Common *common)
{
    common->centre = centre_free(common->centre);
    common->shared = shared_params_free(common->shared);
}

bool common_is_there(const Common *common)
{
    return common->centre || common->shared;
}

int common_cut_new(const JobPlan *plan, const SyncPolicy *policy, Snapshot **ret)
{
    if (policy->shared)
        return shared_snapshot_new(plan->graph, &plan->optimizer, ret);
    return centre_snapshot_new(plan->graph, true, ret);
}

int common_copy(const Common *common, Snapshot *into)
{
    return common->shared ? shared_params_snapshot(common->shared, into)
                          : centre_snapshot(common->centre, into);
}

int common_restore(const Common *common, const Snapshot *from)
{
    return common->shared ? shared_params_restore(common->shared, from)
                          : centre_restore(common->centre, from);
}

/* ---- leaving -------------------------------------------------------------------------------- */

typedef struct CommonLeave {
    LaneTask lane_task; /* first */
    Engine *engine;
    Common common;
} CommonLeave;

static void leave_work(LaneTask *task)
{
    CommonLeave *leave = (CommonLeave *)task;
    engine_bind(leave->engine);
    common_free(&leave->common);
}

static void leave_done(LaneTask *task)
{
    Job *job = task->job;
    free(task);
    job_advance(job);
}

void common_leave(Job *job)
{
    CommonLeave *leave = calloc(1, sizeof *leave);
    if (!leave) {
        job_leave_later(job);
        return;
    }
    leave->lane_task.work = leave_work;
    leave->lane_task.done = leave_done;
    leave->engine = job->engines[lane_index(job->members[0].lane)];
    leave->common = job->common;
    job->common = (Common){0};
    job_post(job, job->members[0].lane, &leave->lane_task);
}

/* ---- a centre for a policy that begins in the middle of a job
 * ------------------------------------ */

typedef struct CentreTask {
    LaneTask lane_task; /* first */
    Engine *home;
    Replica *model; /* of a rank that has the mean */
    Centre *centre;
} CentreTask;

static void centre_work(LaneTask *task)
{
    CentreTask *make = (CentreTask *)task;
    engine_bind(make->home);
    task->r = centre_new(make->home, true, &make->centre, &task->err);
    if (task->r == 0)
        task->r = centre_set(make->centre, make->model, &task->err);
}

static void centre_done(LaneTask *task)
{
    CentreTask *make = (CentreTask *)task;
    Job *job = task->job;
    job->exclusive = false;
    job->common.centre = make->centre;
    if (task->r < 0 && job->phase == PHASE_LIVE)
        job_fail(job, "cannot make the centre of policy %s: %s", job->policy->name,
                 task->err.message);
    free(make);
    job_advance(job);
}

bool common_centre_is_missing(const Job *job)
{
    return job->policy->centre && !job->common.centre;
}

/* Who was late for the meeting has not got the mean. */
static Member *who_has_the_mean(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].round.number == job->round)
            return &job->members[r];
    return &job->members[0];
}

void common_make_centre(Job *job)
{
    CentreTask *make = calloc(1, sizeof *make);
    if (!make) {
        job_fail(job, "out of memory");
        return;
    }
    make->lane_task.work = centre_work;
    make->lane_task.done = centre_done;
    make->home = job->engines[lane_index(job->members[0].lane)];
    make->model = who_has_the_mean(job)->replica;
    job->exclusive = true;
    job_post(job, job->members[0].lane, &make->lane_task);
}
