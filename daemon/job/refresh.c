/* average-async: at the end of its round a rank takes the mean of all replicas as they stand. Each
 * lane copies its replicas between two of its tasks, so that no copy is half-written; nobody is
 * waited for but a step that is on its lane already. One rank at a time. A rank that has just been
 * taken in does so before its first step. */
#include "job/job_internal.h"

typedef struct CopyTask {
    LaneTask lane_task; /* first */
    Engine *engine;
    int n;
    Replica *replicas[JOB_MAX_TRAINERS];
    Snapshot *copies[JOB_MAX_TRAINERS];
} CopyTask;

typedef struct TakeTask {
    LaneTask lane_task; /* first */
    Member *member;
    Replica *replica;
    bool weighted;
    int n;
    uint32_t ranks[JOB_MAX_TRAINERS];
    const Snapshot *copies[JOB_MAX_TRAINERS];
    uint64_t samples[JOB_MAX_TRAINERS];
    MeanResult result;
} TakeTask;

/* ---- taking the mean
 * ------------------------------------------------------------------------------ */

static void take_work(LaneTask *task)
{
    TakeTask *take = (TakeTask *)task;
    engine_bind(replica_engine(take->replica));
    task->r = replica_take_mean(take->replica, take->copies, take->weighted ? take->samples : NULL,
                                take->n, &take->result, &task->err);
}

static void end(Job *job, Member *member)
{
    member->busy = false;
    job->refreshing = NULL;
    job->refreshes++;
}

/* Those of others are judged when they take a mean themselves. */
static void refreshed(const TakeTask *take)
{
    Member *member = take->member;
    bool contributed = false;
    for (int i = 0; i < take->n; i++)
        if (take->ranks[i] == member->rank) {
            contributed = take->result.finite[i];
            guard_judge_replica(member, contributed);
        }
    if (member->behind)
        member->behind = false;
    else
        member_end_free_round(member, contributed);
}

static void take_done(LaneTask *task)
{
    TakeTask *take = (TakeTask *)task;
    Job *job = task->job;
    Member *member = take->member;
    end(job, member);
    if (task->r < 0 && job->phase == PHASE_LIVE)
        job_fail(job, "rank %u cannot take the mean: %s", member->rank, task->err.message);
    if (job->phase == PHASE_LIVE) {
        job->checksum = take->result.checksum;
        refreshed(take);
    }
    free(take);
    if (member->drops && !member_is_in_step(member))
        drop_after_step(member);
    job_advance(job);
}

static void take_mean(Job *job)
{
    Member *member = job->refreshing;
    TakeTask *take = calloc(1, sizeof *take);
    if (!take || job->copy_error || job->phase != PHASE_LIVE) {
        free(take);
        end(job, member);
        if (job->phase == PHASE_LIVE)
            job_fail(job, "rank %u cannot take the mean: %s", member->rank,
                     job->copy_error == -EIO ? "the device failed" : "out of memory");
        job_advance(job);
        return;
    }
    take->lane_task.work = take_work;
    take->lane_task.done = take_done;
    take->member = member;
    take->replica = member->replica;
    take->weighted = member->settings.weights == WEIGHTS_SAMPLES;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        if (!member_has_model(&job->members[r]) || !job->members[r].copied)
            continue;
        take->ranks[take->n] = r;
        take->samples[take->n] = job->members[r].account.samples;
        take->copies[take->n++] = job->members[r].copy;
    }
    job_post(job, member->lane, &take->lane_task);
}

/* ---- copying
 * -------------------------------------------------------------------------------------- */

static void copy_work(LaneTask *task)
{
    CopyTask *copy = (CopyTask *)task;
    engine_bind(copy->engine);
    task->r = gather_copies(copy->replicas, copy->copies, copy->n, &task->err);
}

static void one_less(Job *job)
{
    if (--job->refresh_copies == 0)
        take_mean(job);
}

static void copy_done(LaneTask *task)
{
    Job *job = task->job;
    if (task->r < 0)
        job->copy_error = task->r;
    free(task);
    one_less(job);
}

static CopyTask *copy_task_for(Job *job, const Lane *lane)
{
    CopyTask *copy = calloc(1, sizeof *copy);
    if (!copy)
        return NULL;
    copy->lane_task.work = copy_work;
    copy->lane_task.done = copy_done;
    copy->engine = job->engines[lane_index(lane)];
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->lane != lane || !member_has_model(member))
            continue;
        member->copied = true;
        copy->replicas[copy->n] = member->replica;
        copy->copies[copy->n++] = member->copy;
    }
    return copy;
}

static int prepare_copies(Job *job)
{
    int result = 0;
    for (uint32_t r = 0; r < job->spec.max_trainers && result == 0; r++)
        if (member_has_model(&job->members[r]) && !job->members[r].copy)
            result = gather_copy_new(job->plan.graph, &job->members[r].copy);
    return result;
}

void refresh_begin(Member *member)
{
    Job *job = member->job;
    unsigned n_lanes;
    Lane *const *lanes = manager_lanes(job->manager, &n_lanes);
    job->refreshing = member;
    member->busy = true;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        job->members[r].copied = false;
    job->refresh_copies = 1; /* this function itself */
    job->copy_error = prepare_copies(job);
    for (unsigned i = 0; i < n_lanes && job->copy_error == 0; i++) {
        CopyTask *copy = job->engines[i] ? copy_task_for(job, lanes[i]) : NULL;
        if (job->engines[i] && !copy)
            job->copy_error = -ENOMEM;
        if (!copy)
            continue;
        job->refresh_copies++;
        job_post(job, lanes[i], &copy->lane_task);
    }
    one_less(job);
}
