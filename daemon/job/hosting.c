/* Engines and replicas on lanes: made when a job is loaded, freed when it leaves memory. */
#include "job/job_internal.h"

#include <string.h>

#define LEAVE_RETRY_US USEC_PER_SEC

/* One message a lane: everything of the job that lives there. */
typedef struct HostTask {
    LaneTask lane_task; /* first */
    Lane *lane;
    EngineSpec spec;
    const SyncPolicy *policy;
    Engine *engine;
    bool is_home;               /* of what the job has once */
    Common common;              /* made there */
    const Snapshot *common_cut; /* to restore it from; NULL: it begins at the seed */
    bool restore;
    uint32_t n;
    JobHosted hosted;
    struct {
        Member *member; /* for the loop only */
        uint32_t rank;
        const Snapshot *cut; /* the loop does not touch it while the task runs */
        Replica *replica;
    } items[];
} HostTask;

/* ---- LaneTask -------------------------------------------------------------------------------- */

static void lane_work(Task *task)
{
    LaneTask *lane_task = (LaneTask *)task;
    lane_task->work(lane_task);
}

static void lane_done(Task *task)
{
    LaneTask *lane_task = (LaneTask *)task;
    lane_task->job->tasks--;
    lane_task->done(lane_task);
}

void job_post(Job *job, Lane *lane, LaneTask *task)
{
    task->job = job;
    task->task = (Task){.work = lane_work, .done = lane_done};
    job->tasks++;
    lane_post(lane, &task->task);
}

/* ---- making them ----------------------------------------------------------------------------- */

static int host_one(HostTask *host, uint32_t i)
{
    Error *err = &host->lane_task.err;
    int rank = (int)host->items[i].rank;
    int r = host->policy->shared
                ? replica_new_shared(host->engine, rank, &host->items[i].replica, err)
                : replica_new(host->engine, rank, &host->items[i].replica, err);
    if (r == 0 && host->restore) {
        r = replica_restore(host->items[i].replica, host->items[i].cut);
        if (r < 0)
            error_set(err, r, "the checkpoint of rank %d does not fit the model", rank);
    }
    return r;
}

static int host_common(HostTask *host)
{
    Error *err = &host->lane_task.err;
    int r = common_make(host->engine, host->policy, &host->common, err);
    if (r == 0 && host->restore && host->common_cut && common_is_there(&host->common)) {
        r = common_restore(&host->common, host->common_cut);
        if (r < 0)
            error_set(err, r, "the checkpoint of what the ranks share does not fit the model");
    }
    return r;
}

static void host_work(LaneTask *task)
{
    HostTask *host = (HostTask *)task;
    task->r = engine_new(&host->spec, &host->engine, &task->err);
    if (task->r < 0)
        return;
    engine_bind(host->engine);
    if (host->is_home)
        task->r = host_common(host);
    for (uint32_t i = 0; i < host->n && task->r == 0; i++)
        task->r = host_one(host, i);
    if (task->r == -ENOMEM && !task->err.code)
        error_set(&task->err, -ENOMEM, "not enough memory for %u replicas on %s", host->n,
                  lane_name(host->lane));
}

static void host_done(LaneTask *task)
{
    HostTask *host = (HostTask *)task;
    Job *job = task->job;
    job->hosting--;
    job->engines[lane_index(host->lane)] = host->engine;
    if (host->is_home)
        job->common = host->common;
    for (uint32_t i = 0; i < host->n; i++)
        host->items[i].member->replica = host->items[i].replica;
    if (task->r < 0 && !job_state_is_final(job->state))
        job_fail(job, "cannot host its replicas: %s", task->err.message);
    JobHosted hosted = host->hosted;
    free(host);
    if (job->hosting == 0 && job->phase == PHASE_HOSTING)
        hosted(job, 0, NULL);
    else if (job->phase == PHASE_LEAVING)
        job_advance(job);
}

int job_engine_spec(const Job *job, EngineSpec *ret, Error *err)
{
    const ModelDefaults *defaults = &job->plan.model->defaults;
    EngineSpec spec = {.graph = job->plan.graph,
                       .device_index = 0, /* a CPU backend has one device, which its lanes share */
                       .threads = (int)job->spec.threads,
                       .loss = job->plan.loss,
                       .optimizer = job->plan.optimizer,
                       .seed = job->spec.seed,
                       .scale = defaults->scale,
                       .channels = defaults->channels};
    int r = backend_find(job->spec.backend, &spec.backend, err);
    if (r < 0)
        return r;
    memcpy(spec.mean, defaults->mean, sizeof spec.mean);
    memcpy(spec.deviation, defaults->deviation, sizeof spec.deviation);
    *ret = spec;
    return 0;
}

static HostTask *host_task_for(Job *job, Lane *lane, bool cuts)
{
    HostTask *host = calloc(1, sizeof *host + job->spec.max_trainers * sizeof host->items[0]);
    if (!host)
        return NULL;
    host->lane = lane;
    host->policy = job->policy;
    host->is_home = job->members[0].lane == lane;
    host->common_cut = job->common_cut;
    host->restore = cuts;
    host->lane_task.work = host_work;
    host->lane_task.done = host_done;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        if (job->members[r].lane != lane)
            continue;
        host->items[host->n].member = &job->members[r];
        host->items[host->n].rank = r;
        host->items[host->n].cut = job->members[r].cut;
        host->n++;
    }
    return host;
}

static void place_members(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        job->members[r].lane = manager_place(job->manager, &job->spec);
}

void job_host(Job *job, bool cuts, JobHosted done)
{
    unsigned n_lanes;
    Lane *const *lanes = manager_lanes(job->manager, &n_lanes);
    place_members(job);
    job->phase = PHASE_HOSTING;
    for (unsigned i = 0; i < n_lanes; i++) {
        HostTask *host = host_task_for(job, lanes[i], cuts);
        Error err = {0};
        int r = host ? job_engine_spec(job, &host->spec, &err) : -ENOMEM;
        if (r < 0) {
            job_fail(job, "cannot host its replicas: %s", host ? err.message : "out of memory");
            free(host);
            return;
        }
        if (host->n == 0) {
            free(host);
            continue;
        }
        host->hosted = done;
        job->hosting++;
        job_post(job, lanes[i], &host->lane_task);
    }
}

/* ---- freeing them ---------------------------------------------------------------------------- */

typedef struct LeaveTask {
    LaneTask lane_task; /* first */
    Engine *engine;
    uint32_t n;
    Replica *replicas[];
} LeaveTask;

static void leave_work(LaneTask *task)
{
    LeaveTask *leave = (LeaveTask *)task;
    if (leave->engine)
        engine_bind(leave->engine);
    for (uint32_t i = 0; i < leave->n; i++)
        replica_free(leave->replicas[i]);
    engine_free(leave->engine);
}

/* What the phase LEAVING was for: nothing, or a load that waited for it. */
static void job_left(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        manager_unplace(job->manager, job->members[r].lane);
    (void)result_summarise(job); /* without it status tells less */
    quorum_reset(job);
    timer_cancel(manager_spec(job->manager)->timers, &job->straggler_timer);
    members_free(job);
    job->common_cut = snapshot_free(job->common_cut);
    job->dealer = dealer_free(job->dealer);
    free(job->engines);
    job->engines = NULL;
    job->exclusive = job->stepping = job->stepping_in_place = false;
    job->refreshing = NULL;
    job->phase = PHASE_IDLE;
    job_touch(job);
    if (job_state_is_final(job->state) || job->stopping)
        job_load_answer(job, -ECANCELED,
                        job->stopping  ? "dpsd is stopping"
                        : *job->reason ? job->reason
                                       : "the job was ended meanwhile");
    if (job->state == JOB_RECOVERING && !job->stopping)
        job_load(job, job->restore_id);
    manager_job_changed(job->manager, job);
}

static void leave_done(LaneTask *task)
{
    Job *job = task->job;
    free(task);
    if (job->tasks == 0)
        job_leave_lanes(job); /* what there was no memory for, or the end */
}

static LeaveTask *leave_task_for(Job *job, unsigned lane)
{
    LeaveTask *leave = calloc(1, sizeof *leave + job->spec.max_trainers * sizeof(Replica *));
    if (!leave)
        return NULL;
    leave->engine = job->engines[lane];
    leave->lane_task.work = leave_work;
    leave->lane_task.done = leave_done;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].replica && lane_index(job->members[r].lane) == (int)lane) {
            leave->replicas[leave->n++] = job->members[r].replica;
            job->members[r].replica = NULL;
        }
    job->engines[lane] = NULL;
    return leave;
}

void job_leave_later(Job *job)
{
    log_job(LOG_ERR, job->id, -1, "out of memory while it leaves memory; trying again");
    timer_arm(manager_spec(job->manager)->timers, &job->retry, LEAVE_RETRY_US);
}

void job_leave_lanes(Job *job)
{
    unsigned n_lanes;
    Lane *const *lanes = manager_lanes(job->manager, &n_lanes);
    if (common_is_there(&job->common)) { /* its arrays may be of any of the engines */
        common_leave(job);
        return;
    }
    for (unsigned i = 0; i < n_lanes; i++) {
        if (!job->engines[i])
            continue;
        LeaveTask *leave = leave_task_for(job, i);
        if (!leave) {
            job_leave_later(job);
            return;
        }
        job_post(job, lanes[i], &leave->lane_task);
    }
    if (job->tasks == 0)
        job_left(job);
}

void job_unload(Job *job, const char *reason)
{
    if (job->phase != PHASE_LIVE && job->phase != PHASE_HOSTING)
        return;
    JobPhase was = job->phase;
    job->phase = PHASE_LEAVING;
    if (was == PHASE_LIVE) {
        members_end(job, reason);
        managed_stop_all(job);
    }
    evaluation_stop(job);
    checkpoint_drop(job);
    mean_drop(job);
    job_advance(job); /* at once if nothing is on a lane, else with the last task's return */
}
