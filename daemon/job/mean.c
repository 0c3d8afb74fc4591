/* The averaged model on request: for evaluation and export. A running job is copied between steps;
 * of a job that is not in memory, or for an older checkpoint, the store is read. Sums run on a
 * lane. */
#include "job/job_internal.h"

#include <string.h>

struct MeanWaiter {
    JobMean done;
    void *data;
    MeanWaiter *next;
};

/* Owns its snapshots when they come from the store; else they are the members' cuts. */
typedef struct MeanTask {
    LaneTask lane_task; /* first */
    bool owned;
    const SyncPolicy *policy;
    const Graph *graph;
    const Optimizer *optimizer;
    Snapshot *common; /* of policies that have one; owned likewise */
    int n;
    Snapshot *snapshots[JOB_MAX_TRAINERS];
    Snapshot *mean;
    MeanWaiter *waiters;
} MeanTask;

/* ---- the sum --------------------------------------------------------------------------------- */

/* After a meeting all are the same, and their mean must be it to the last bit, whatever n is. */
static bool all_same(const MeanTask *task)
{
    const Snapshot *first = task->snapshots[0];
    for (int i = 1; i < task->n; i++) {
        const Snapshot *other = task->snapshots[i];
        if (memcmp(first->params, other->params, first->n_params * sizeof(float)) != 0 ||
            (first->n_buffers &&
             memcmp(first->buffers, other->buffers, first->n_buffers * sizeof(float)) != 0))
            return false;
    }
    return true;
}

static bool is_finite(const float *array, size_t n)
{
    float sum = 0; /* of zeros, unless one is NaN or infinite */
    for (size_t i = 0; i < n; i++)
        sum += array[i] * 0;
    return sum == 0;
}

/* As in a meeting: those with NaN or infinite numbers are left out. */
static int choose_finite(const MeanTask *task, const Snapshot **chosen)
{
    int n = 0;
    for (int i = 0; i < task->n; i++) {
        const Snapshot *snapshot = task->snapshots[i];
        if (is_finite(snapshot->params, snapshot->n_params) &&
            is_finite(snapshot->buffers, snapshot->n_buffers))
            chosen[n++] = snapshot;
    }
    return n;
}

static int mean_of_replicas(MeanTask *task)
{
    const Snapshot *chosen[JOB_MAX_TRAINERS] = {task->snapshots[0]};
    int n = all_same(task) ? 1 : choose_finite(task, chosen);
    return snapshot_mean(chosen, n > 0 ? n : 1, &task->mean);
}

/* The centre's snapshot has other states than a replica's. */
static int model_of_centre(MeanTask *task)
{
    const Snapshot *centre = task->common;
    Snapshot *model = NULL;
    int r = snapshot_new(task->graph, task->optimizer, &model);
    if (r < 0)
        return r;
    memcpy(model->params, centre->params, centre->n_params * sizeof *model->params);
    if (centre->n_buffers)
        memcpy(model->buffers, centre->buffers, centre->n_buffers * sizeof *model->buffers);
    if (centre->n_counters)
        memcpy(model->counters, centre->counters, centre->n_counters * sizeof *model->counters);
    task->mean = model;
    return 0;
}

static void mean_work(LaneTask *lane_task)
{
    MeanTask *task = (MeanTask *)lane_task;
    if (task->policy->shared)
        lane_task->r = shared_snapshot_join(task->common, (const Snapshot *const *)task->snapshots,
                                            task->n, &task->mean);
    else if (task->policy->centre_is_result)
        lane_task->r = model_of_centre(task);
    else
        lane_task->r = mean_of_replicas(task);
    if (lane_task->r < 0)
        error_set(&lane_task->err, lane_task->r, "out of memory for the averaged model");
}

/* Each waiter gets a snapshot of its own: all but the last a copy (the mean of one). */
static void answer_all(MeanTask *task)
{
    MeanWaiter *waiter = task->waiters;
    while (waiter) {
        MeanWaiter *next = waiter->next;
        Snapshot *mean = NULL;
        int r = task->lane_task.r;
        Error err = task->lane_task.err;
        if (r == 0 && !next)
            mean = MOVE(task->mean);
        else if (r == 0 && (r = snapshot_mean((const Snapshot *const *)&task->mean, 1, &mean)) < 0)
            error_set(&err, r, "out of memory for the averaged model");
        waiter->done(waiter->data, r, &err, mean);
        free(waiter);
        waiter = next;
    }
    task->waiters = NULL;
}

static void task_free(MeanTask *task)
{
    for (int i = 0; task->owned && i < task->n; i++)
        snapshot_free(task->snapshots[i]);
    if (task->owned)
        snapshot_free(task->common);
    snapshot_free(task->mean);
    free(task);
}

static void mean_done(LaneTask *lane_task)
{
    MeanTask *task = (MeanTask *)lane_task;
    Job *job = lane_task->job;
    if (!task->owned)
        job->mean_under_way = false;
    answer_all(task);
    task_free(task);
    job_advance(job);
}

static void post(Job *job, MeanTask *task)
{
    unsigned n_lanes;
    Lane *const *lanes = manager_lanes(job->manager, &n_lanes);
    task->graph = job->plan.graph;
    task->optimizer = &job->plan.optimizer;
    task->lane_task.work = mean_work;
    task->lane_task.done = mean_done;
    job_post(job, lanes[job->id % n_lanes], &task->lane_task);
}

/* ---- of a job in memory ---------------------------------------------------------------------- */

/* Where nobody is left: those who were. */
static bool is_part(const Job *job, const Member *member)
{
    for (uint32_t rank = 0; rank < job->spec.max_trainers; rank++)
        if (member_has_model(&job->members[rank]))
            return member_has_model(member);
    return !member->spare;
}

static void on_copied(Job *job, int r)
{
    MeanTask *task = calloc(1, sizeof *task);
    MeanWaiter *waiters = job->mean_waiters;
    if (!task || r < 0) {
        free(task);
        job->mean_under_way = false;
        mean_drop(job);
        return;
    }
    job->mean_waiters = NULL;
    task->waiters = waiters;
    task->policy = job->policy;
    task->common = job->common_cut;
    for (uint32_t rank = 0; rank < job->spec.max_trainers; rank++)
        if (is_part(job, &job->members[rank]))
            task->snapshots[task->n++] = job->members[rank].cut;
    post(job, task);
}

void mean_begin(Job *job)
{
    job->mean_under_way = true;
    cuts_copy(job, on_copied);
}

void mean_drop(Job *job)
{
    Error err;
    error_set(&err, -EAGAIN, "job %llu left memory; try again in a moment",
              (unsigned long long)job->id);
    MeanWaiter *waiter = job->mean_waiters;
    job->mean_waiters = NULL;
    while (waiter) {
        MeanWaiter *next = waiter->next;
        waiter->done(waiter->data, -EAGAIN, &err, NULL);
        free(waiter);
        waiter = next;
    }
}

/* ---- of a checkpoint ------------------------------------------------------------------------- */

typedef struct MeanLoad {
    Job *job;
    MeanWaiter *waiter;
} MeanLoad;

static int read_ranks(Job *job, MeanTask *task, const char *meta, const CheckpointPart *parts,
                      size_t n, Error *err)
{
    bool chosen[JOB_MAX_TRAINERS] = {false};
    int r = checkpoint_meta_ranks(meta, chosen, job->spec.max_trainers);
    if (r < 0)
        return error_set(err, r, "the checkpoint does not have the job's %u ranks",
                         job->spec.max_trainers);
    for (uint32_t rank = 0; rank < job->spec.max_trainers && r == 0; rank++) {
        char whose[RANK_NAME_MAX];
        Snapshot **snapshot = &task->snapshots[task->n];
        if (!chosen[rank])
            continue;
        rank_name(rank, whose);
        r = task->policy->shared ? member_snapshot_new(job->plan.graph, snapshot)
                                 : snapshot_new(job->plan.graph, &job->plan.optimizer, snapshot);
        if (r < 0)
            return error_set(err, r, "out of memory for the checkpoint");
        task->n++;
        r = snapshot_from_parts(whose, *snapshot, parts, n, err);
    }
    return r;
}

static int read_all(Job *job, MeanTask *task, const char *meta, const CheckpointPart *parts,
                    size_t n, Error *err)
{
    int r = checkpoint_meta_policy(job, meta, &task->policy, err);
    if (r == 0)
        r = read_ranks(job, task, meta, parts, n, err);
    if (r < 0 || !(task->policy->shared || task->policy->centre_is_result))
        return r;
    if (common_cut_new(&job->plan, task->policy, &task->common) < 0)
        return error_set(err, -ENOMEM, "out of memory for the checkpoint");
    return snapshot_from_parts("common", task->common, parts, n, err);
}

static void on_loaded(void *data, int r, const Error *err, const CheckpointRecord *checkpoint,
                      const CheckpointPart *parts, size_t n)
{
    MeanLoad *load = data;
    Job *job = load->job;
    Error problem = r < 0 ? *err : (Error){0};
    MeanTask *task = calloc(1, sizeof *task);
    job->tasks--;
    if (r == 0 && !task)
        r = error_set(&problem, -ENOMEM, "out of memory");
    if (task)
        task->owned = true;
    if (r == 0 && task)
        r = read_all(job, task, checkpoint->meta, parts, n, &problem);
    if (r < 0 || !task) {
        load->waiter->done(load->waiter->data, r, &problem, NULL);
        free(load->waiter);
        if (task)
            task_free(task);
        job_advance(job);
    } else {
        task->waiters = load->waiter;
        post(job, task);
    }
    free(load);
}

static int load(Job *job, uint64_t checkpoint, MeanWaiter *waiter, Error *err)
{
    int r = job_prepare(job, err);
    if (r < 0)
        return r;
    MeanLoad *message = calloc(1, sizeof *message);
    if (!message)
        return error_set(err, -ENOMEM, "out of memory");
    *message = (MeanLoad){.job = job, .waiter = waiter};
    job->tasks++;
    r = store_checkpoint_load(manager_store(job->manager), job->id, checkpoint, on_loaded, message);
    if (r < 0) {
        job->tasks--;
        free(message);
        error_set(err, r, "out of memory");
    }
    return r;
}

void job_mean(Job *job, uint64_t checkpoint, JobMean done, void *data)
{
    Error err = {0};
    int r = 0;
    MeanWaiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter) {
        done(data, -ENOMEM, (error_set(&err, -ENOMEM, "out of memory"), &err), NULL);
        return;
    }
    *waiter = (MeanWaiter){.done = done, .data = data};
    if (checkpoint == 0 && job->phase == PHASE_LIVE) {
        waiter->next = job->mean_waiters;
        job->mean_waiters = waiter;
        job_advance(job);
        return;
    }
    if (job->phase == PHASE_LIVE || job->phase == PHASE_IDLE)
        r = load(job, checkpoint, waiter, &err);
    else
        r = error_set(&err, -EAGAIN, "job %llu is %s; try again in a moment",
                      (unsigned long long)job->id, job_state_name(job->state));
    if (r < 0) {
        done(data, r, &err, NULL);
        free(waiter);
    }
}
