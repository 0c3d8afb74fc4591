/* One world from its beginning to its end: the daemon comes and goes, things happen, then peace. */
#include <stdio.h>
#include <string.h>

#include "job/job_internal.h"
#include "memory.h"
#include "sim.h"

World world;

/* In peace every job ends within this, whatever was done to it before. */
#define PEACE_MAX_US (3000 * SIM_SECOND)
/* A SIGTERM is answered within this, with a slow disk. */
#define STOP_MAX_US (120 * SIM_SECOND)

static WorldResult result;

bool world_is_calm(void)
{
    return world.calm;
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

SimJob *sim_job_of_seed(uint64_t seed)
{
    return &world.jobs[seed % SIM_MAX_JOBS];
}

SimJob *sim_job_by_id(uint64_t id)
{
    for (unsigned i = 0; i < world.n_jobs; i++)
        if (world.jobs[i].id == id)
            return &world.jobs[i];
    return NULL;
}

Job *sim_daemon_job(const SimJob *job)
{
    return world.manager && job->id ? manager_find(world.manager, job->id) : NULL;
}

static void on_submitted(void *data, int r, const Error *err, Job *job)
{
    Question *question = data;
    SimJob *sim = question->owner;
    question_answered(question);
    events_mix((uint64_t)(uint32_t)r);
    if (r < 0) {
        trace("  submission refused: %s", err->message);
        sim->dead = true;
        return;
    }
    sim->id = job_id(job);
    trainers_for(sim);
}

static void random_size(JobSpec *spec, bool own_data)
{
    spec->trainers = (uint32_t)sim_between(1, sim_chance(200) ? SIM_MAX_RANKS : 4);
    spec->max_trainers =
        sim_chance(600) ? spec->trainers : (uint32_t)sim_between(spec->trainers, SIM_MAX_RANKS);
    spec->batch = (uint32_t)sim_between(1, 8);
    spec->samples = own_data ? 0 : sim_between(1, 600);
    if (own_data || sim_chance(200))
        spec->steps = sim_between(1, 60);
    else
        spec->epochs = (uint32_t)sim_between(1, 3);
    while (spec->epochs > 1 && spec->samples / spec->batch * spec->epochs > SIM_MAX_BATCHES / 2)
        spec->epochs--;
}

static void random_settings(JobSpec *spec)
{
    JobSettings settings;
    for (unsigned i = 0; i < 6 && spec->n_settings < 4; i++) {
        SettingPair *pair = &spec->settings[spec->n_settings++];
        settings_random(pair->key, sizeof pair->key, pair->value, sizeof pair->value);
        if (strcmp(pair->key, "trainers") == 0 || job_spec_settings(spec, &settings, NULL) < 0)
            spec->n_settings--;
    }
}

static void random_evaluation(JobSpec *spec)
{
    SettingPair *pair = &spec->settings[spec->n_settings++];
    snprintf(spec->eval_data, sizeof spec->eval_data, "held out");
    snprintf(pair->key, sizeof pair->key, "eval.every");
    snprintf(pair->value, sizeof pair->value, "%u", (unsigned)sim_between(1, 6));
    if (sim_chance(300))
        snprintf(spec->stop_when, sizeof spec->stop_when, "%s",
                 sim_chance(500) ? "accuracy>=0.9" : "loss<0.1");
}

static void random_spec(JobSpec *spec, unsigned number)
{
    static const char *const policies[] = {"average", "average-async", "elastic",
                                           "diloco",  "barrier",       "async"};
    bool own_data = sim_chance(100), buffers = sim_chance(50);
    *spec = (JobSpec){.data = "somewhere",
                      .lr = 0.1F,
                      .seed = (sim_random() >> 8) * SIM_MAX_JOBS + number,
                      .interval = (uint32_t)sim_between(1, sim_chance(500) ? 4 : 25),
                      .checkpoint_rounds = (uint32_t)sim_between(1, 12),
                      .checkpoint_keep = (uint32_t)sim_between(1, 4),
                      .external_trainers = own_data || sim_chance(600)};
    snprintf(spec->model, sizeof spec->model, buffers ? "resnet-small" : "mlp");
    snprintf(spec->policy, sizeof spec->policy, "%s", policies[sim_between(0, 5)]);
    snprintf(spec->optimizer, sizeof spec->optimizer, "sgd%s",
             sim_chance(500) ? ",momentum=0.9" : "");
    random_size(spec, own_data);
    if (sim_chance(300))
        random_evaluation(spec);
    if (sim_chance(500))
        random_settings(spec);
}

void sim_submit(void)
{
    if (!world.loaded || world.stopping || world.n_jobs == SIM_MAX_JOBS)
        return;
    SimJob *job = &world.jobs[world.n_jobs];
    *job = (SimJob){.changed_us = sim_now()};
    random_spec(&job->spec, world.n_jobs++);
    result.jobs++;
    trace("  %s job of %u trainers, K %u, batch %u, %llu samples, epochs %u, steps %llu, %s",
          job->spec.policy, job->spec.trainers, job->spec.interval, job->spec.batch,
          (unsigned long long)job->spec.samples, job->spec.epochs,
          (unsigned long long)job->spec.steps,
          job->spec.external_trainers ? "external" : "managed");
    manager_submit(world.manager, &job->spec, "a user", on_submitted, question_new("submit", job));
}

/* A kill may leave it open whether a submission was kept: the disk knows. */
static void settle_submissions(void)
{
    for (unsigned i = 0; i < world.n_jobs; i++) {
        SimJob *job = &world.jobs[i];
        char wanted[32];
        if (job->id || job->dead)
            continue;
        snprintf(wanted, sizeof wanted, "\"%llu\"", (unsigned long long)job->spec.seed);
        for (size_t k = 0; k < world.disk.n; k++)
            if (strstr(world.disk.jobs[k].record.spec, wanted))
                job->id = world.disk.jobs[k].record.id;
        job->dead = !job->id;
        if (job->id)
            trainers_for(job);
    }
}

/* ---- the daemon --------------------------------------------------------------------------------
 */

static void on_restart(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    daemon_start();
}

static void restart_later(void)
{
    event_in(sim_between(1, 5000) * SIM_MS, "dpsd is started", on_restart, NULL, 0);
}

static void on_loaded(void *data, int r, const Error *err)
{
    question_answered(data);
    if (r < 0) { /* as dpsd: it ends, and systemd starts it again */
        trace("  %s", err->message);
        daemon_terminate();
        return;
    }
    world.loaded = true;
    settle_submissions();
}

void daemon_start(void)
{
    char name[16];
    world.daemon++;
    timers_new(sim_now, &world.timers);
    fake_store_open(&world.store);
    for (unsigned i = 0; i < world.n_lanes; i++) {
        snprintf(name, sizeof name, "cpu:%u", i);
        lane_new(name, (int)i, NULL, &world.lanes[i]);
    }
    JobManagerSpec spec = {.store = world.store,
                           .timers = world.timers,
                           .lanes = world.lanes,
                           .n_lanes = world.n_lanes,
                           .launcher = launcher_interface(),
                           .defaults = {.checkpoint_rounds = 10, .checkpoint_keep = 3},
                           .max_running = world.max_running,
                           .max_jobs = 100,
                           .rejoin_us = world.rejoin_us,
                           .trainer_restarts = world.restarts};
    SessionTransport transport = {.silence_us = transport_silence_us, .close = transport_close};
    manager_new(&spec, &world.manager);
    session_table_new(world.manager, world.timers, &world.limits, &transport, &world.sessions);
    manager_load(world.manager, on_loaded, question_new("load", NULL));
}

static void forget_daemon(void)
{
    world.manager = NULL;
    world.sessions = NULL;
    world.timers = NULL;
    world.store = NULL;
    world.loaded = world.stopping = false;
    for (unsigned i = 0; i < world.n_jobs; i++)
        world.jobs[i].seen_live = false;
}

void daemon_kill(void)
{
    events_forget_daemon();
    forget_daemon();
    trainers_disconnect_all();
    launcher_forget();
    evaluations_daemon_killed();
    questions_forget();
    memory_drop_all();
    for (unsigned i = 0; i < world.n_jobs; i++) {
        SimJob *job = &world.jobs[i];
        job->samples = job->batches = 0;
        memset(job->done, 0, sizeof job->done);
    }
    result.kills++;
    restart_later();
}

/* In the order of daemon.c's stop_parts. */
static void on_daemon_ends(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    SessionTable *sessions = world.sessions;
    evaluations_daemon_gone();
    session_table_free(sessions);
    world.sessions = NULL;
    trainers_disconnect_all();
    launcher_forget();
    fake_lanes_drain(world.lanes, world.n_lanes);
    fake_store_drain(world.store);
    manager_free(world.manager);
    fake_store_close(world.store);
    for (unsigned i = 0; i < world.n_lanes; i++)
        lane_free(world.lanes[i]);
    timers_free(world.timers);
    forget_daemon();
    check_daemon_gone();
    if (world.last_stop)
        world.over = true;
    else
        restart_later();
}

static void on_stopped(void *data, int r, const Error *err)
{
    (void)r;
    (void)err;
    question_answered(data);
    event_of_daemon(0, "dpsd ends", on_daemon_ends, NULL, 0);
}

void daemon_terminate(void)
{
    if (world.stopping)
        return;
    world.stopping = true;
    world.stop_asked_us = sim_now();
    result.stops++;
    manager_stop(world.manager, NULL, on_stopped, question_new("stop", NULL));
}

/* ---- its course --------------------------------------------------------------------------------
 */

static void on_calm(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    trace("  ---- peace");
    world.calm = true;
    world.calm_us = sim_now();
    world.disk.full = false;
    world.disk.fail_next = 0;
    if (world.disk.slow_until > sim_now())
        world.disk.slow_until = sim_now();
    trainers_calm();
    users_calm();
}

static void on_first_job(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    if (world.loaded)
        sim_submit();
    if (!world.n_jobs)
        event_in(100 * SIM_MS, "first job", on_first_job, NULL, 0);
}

static void choose(uint64_t seed)
{
    world.seed = seed;
    world.n_lanes = (unsigned)sim_between(1, 3);
    world.max_running = (unsigned)sim_between(1, 3);
    world.restarts = (unsigned)sim_between(0, 4);
    world.rejoin_us = sim_between(500, 20000) * SIM_MS;
    world.step_us = sim_between(1, 20) * SIM_MS;
    world.store_us = sim_between(1, 8) * SIM_MS;
    world.mishaps = (unsigned)sim_between(0, 1) * (unsigned)sim_between(0, 3000);
    world.requests = (unsigned)sim_between(0, 1) * (unsigned)sim_between(0, 3000);
    world.limits = session_default_limits;
    world.limits.window = (unsigned)sim_between(1, 6);
    world.limits.contexts = (unsigned)sim_between(1, 4);
    world.limits.lease_us = sim_between(2000, 10000) * SIM_MS;
    event_in(sim_between(1, 60) * SIM_SECOND, "peace", on_calm, NULL, 0);
}

static void next_event(void)
{
    uint64_t first = events_next_at(), timer = UINT64_MAX;
    uint64_t left = world.timers ? timers_next_us(world.timers) : UINT64_MAX;
    if (left != UINT64_MAX)
        timer = sim_now() + left;
    if (first == UINT64_MAX && timer == UINT64_MAX)
        sim_fail("nothing is left to happen, and the jobs have not ended");
    if (timer < first || (timer == first && sim_chance(500))) {
        events_advance("timers", timer);
        timers_run(world.timers);
    } else {
        events_run_one();
    }
}

static void check_time(void)
{
    if (world.calm && sim_now() - world.calm_us > PEACE_MAX_US)
        sim_fail("the jobs do not end");
    if (world.stopping && sim_now() - world.stop_asked_us > STOP_MAX_US)
        sim_fail("the daemon does not stop");
}

static void on_watch(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    event_in(SIM_SECOND, "watch", on_watch, NULL, 0);
    check_progress();
}

static void live(void)
{
    event_in(SIM_SECOND, "watch", on_watch, NULL, 0);
    event_in(0, "dpsd is started", on_restart, NULL, 0);
    event_in(0, "first job", on_first_job, NULL, 0);
    evaluations_begin();
    users_begin();
    mishaps_begin();
    while (!world.over) {
        next_event();
        check_everything();
        check_time();
        if (world.calm && !world.last_stop && world.loaded && !world.stopping && world.n_jobs &&
            jobs_all_ended()) {
            world.last_stop = true;
            daemon_terminate();
        }
    }
}

static void count_ends(void)
{
    for (size_t i = 0; i < world.disk.n; i++)
        result.completed += world.disk.jobs[i].record.state == JOB_COMPLETED;
}

void world_run(uint64_t seed, bool tracing, WorldResult *ret)
{
    events_begin(seed, tracing);
    memset(&world, 0, sizeof world);
    result = (WorldResult){0};
    questions_forget();
    trainers_begin();
    launcher_begin();
    fake_lanes_begin();
    ledger_begin();
    choose(seed);
    if (setjmp(world.out) == 0)
        live();
    else
        result.broken = true;
    count_ends();
    memory_drop_all();
    disk_clear(&world.disk);
    ledger_end();
    result.events = events_count();
    result.hash = events_hash();
    *ret = result;
}
