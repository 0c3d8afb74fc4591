#include "job/evaluator.h"

#include <string.h>

#include "job/job_internal.h"

/* Everything that the lane touches; freed by a last task on the lane. */
typedef struct Host {
    Engine *engine;
    Replica *replica;
    Snapshot *mean;
    EngineSpec spec;
} Host;

struct Evaluator {
    Job *job;
    Lane *lane;
    Host host;
    Evaluation total;
    EvaluatorDone done;
    void *data;
    bool busy;  /* waiting for the mean, or a task is on the lane */
    bool freed; /* its user has let go; it ends when it is no longer busy */
};

typedef struct EvaluatorTask {
    LaneTask lane_task; /* first */
    Evaluator *evaluator;
    Batch batch;
    void *owner;
    void (*release)(void *owner);
    Evaluation total;
} EvaluatorTask;

/* ---- ending ---------------------------------------------------------------------------------- */

static void close_work(LaneTask *task)
{
    Host *host = &((EvaluatorTask *)task)->evaluator->host;
    if (host->engine)
        engine_bind(host->engine);
    replica_free(host->replica);
    engine_free(host->engine);
    snapshot_free(host->mean);
}

static void close_done(LaneTask *task)
{
    Job *job = task->job;
    free(((EvaluatorTask *)task)->evaluator);
    free(task);
    job_advance(job);
}

static EvaluatorTask *task_new(Evaluator *evaluator, void (*work)(LaneTask *),
                               void (*done)(LaneTask *))
{
    EvaluatorTask *task = calloc(1, sizeof *task);
    if (!task)
        return NULL;
    task->evaluator = evaluator;
    task->lane_task.work = work;
    task->lane_task.done = done;
    return task;
}

static void end(Evaluator *evaluator)
{
    EvaluatorTask *task = task_new(evaluator, close_work, close_done);
    if (task)
        job_post(evaluator->job, evaluator->lane, &task->lane_task);
    else
        log_job(LOG_ERR, evaluator->job->id, -1, "out of memory: an evaluation stays in memory");
}

void evaluator_free(Evaluator *evaluator)
{
    if (!evaluator)
        return;
    evaluator->freed = true;
    if (!evaluator->busy)
        end(evaluator);
}

/* No longer busy. True: the user is still there to be told. */
static bool settle(Evaluator *evaluator)
{
    evaluator->busy = false;
    if (evaluator->freed)
        end(evaluator);
    return !evaluator->freed;
}

/* ---- getting ready --------------------------------------------------------------------------- */

static void open_work(LaneTask *task)
{
    Host *host = &((EvaluatorTask *)task)->evaluator->host;
    task->r = engine_new(&host->spec, &host->engine, &task->err);
    if (task->r < 0)
        return;
    engine_bind(host->engine);
    task->r = replica_new(host->engine, 0, &host->replica, &task->err);
    if (task->r == 0 && (task->r = replica_restore(host->replica, host->mean)) < 0)
        error_set(&task->err, task->r, "the averaged model could not be put on the device");
    host->mean = snapshot_free(host->mean);
}

static void open_done(LaneTask *task)
{
    Evaluator *evaluator = ((EvaluatorTask *)task)->evaluator;
    Job *job = task->job;
    if (settle(evaluator))
        evaluator->done(evaluator->data, task->r, &task->err);
    free(task);
    job_advance(job);
}

static void on_mean(void *data, int r, const Error *err, Snapshot *mean)
{
    Evaluator *evaluator = data;
    Error problem = r < 0 ? *err : (Error){0};
    EvaluatorTask *task = NULL;
    if (r == 0) {
        evaluator->host.mean = mean;
        task = task_new(evaluator, open_work, open_done);
        if (!task)
            r = error_set(&problem, -ENOMEM, "out of memory");
    }
    if (r == 0)
        r = job_engine_spec(evaluator->job, &evaluator->host.spec, &problem);
    if (r == 0) {
        job_post(evaluator->job, evaluator->lane, &task->lane_task);
        return;
    }
    free(task);
    if (settle(evaluator))
        evaluator->done(evaluator->data, r, &problem);
}

static Lane *quietest_lane(const Job *job)
{
    unsigned n_lanes;
    Lane *const *lanes = manager_lanes(job->manager, &n_lanes);
    Lane *best = lanes[0];
    for (unsigned i = 1; i < n_lanes; i++)
        if (lane_queue_length(lanes[i]) < lane_queue_length(best))
            best = lanes[i];
    return best;
}

int evaluator_new(Job *job, EvaluatorDone done, void *data, Evaluator **ret)
{
    Evaluator *evaluator = calloc(1, sizeof *evaluator);
    if (!evaluator)
        return -ENOMEM;
    *evaluator = (Evaluator){
        .job = job, .lane = quietest_lane(job), .done = done, .data = data, .busy = true};
    *ret = evaluator;
    job_mean(job, 0, on_mean, evaluator);
    return 0;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static void run_work(LaneTask *lane_task)
{
    EvaluatorTask *task = (EvaluatorTask *)lane_task;
    engine_bind(task->evaluator->host.engine);
    lane_task->r = replica_evaluate(task->evaluator->host.replica, &task->batch, &task->total,
                                    &lane_task->err);
}

static void run_done(LaneTask *lane_task)
{
    EvaluatorTask *task = (EvaluatorTask *)lane_task;
    Evaluator *evaluator = task->evaluator;
    Job *job = lane_task->job;
    if (lane_task->r == 0)
        evaluator->total = task->total;
    task->release(task->owner);
    if (settle(evaluator))
        evaluator->done(evaluator->data, lane_task->r, &lane_task->err);
    free(task);
    job_advance(job);
}

void evaluator_run(Evaluator *evaluator, const Batch *batch, void *owner,
                   void (*release)(void *owner), EvaluatorDone done, void *data)
{
    EvaluatorTask *task = task_new(evaluator, run_work, run_done);
    if (!task) {
        Error err;
        release(owner);
        done(data, -ENOMEM, (error_set(&err, -ENOMEM, "out of memory"), &err));
        return;
    }
    task->batch = *batch;
    task->owner = owner;
    task->release = release;
    task->total = evaluator->total;
    evaluator->done = done;
    evaluator->data = data;
    evaluator->busy = true;
    job_post(evaluator->job, evaluator->lane, &task->lane_task);
}

const Evaluation *evaluator_total(const Evaluator *evaluator)
{
    return &evaluator->total;
}
