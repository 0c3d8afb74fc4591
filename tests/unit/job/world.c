#include "world.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "session/session_internal.h"

static uint64_t now_us = USEC_PER_SEC;

static uint64_t virtual_now(void)
{
    return now_us;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static int launch(void *self, const LaunchSpec *spec,
                  void (*on_exit)(void *data, bool clean, const char *how), void *data,
                  LaunchedTrainer **ret, Error *err)
{
    World *world = self;
    if (world->launching_fails)
        return error_set(err, -EACCES, "no such program");
    assert_true(world->n_launches < WORLD_LAUNCHES);
    Launch *entry = &world->launches[world->n_launches++];
    *entry = (Launch){.rank = spec->rank, .on_exit = on_exit, .data = data, .running = true};
    snprintf(entry->token, sizeof entry->token, "%s", spec->token);
    *ret = (LaunchedTrainer *)(void *)entry;
    return 0;
}

static void stop_launch(void *self, LaunchedTrainer *trainer)
{
    Launch *entry = (Launch *)(void *)trainer;
    assert_true(entry->running);
    entry->running = false;
    ((World *)self)->lost_launches++;
}

/* ---- the connection -------------------------------------------------------------------------- */

static uint64_t silence(void *data, uint64_t connection)
{
    (void)connection;
    return ((World *)data)->silence_us;
}

static void close_connection(void *data, uint64_t connection)
{
    World *world = data;
    world->closed++;
    session_table_disconnected(world->sessions, connection);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* In memory where there is such a place: a world's disk never fails, and need not be waited for. */
static void make_dir(char dir[64])
{
    snprintf(dir, 64, "%s/dps-world-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(dir));
}

void world_remove_dir(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

void world_copy_dir(World *world, char dir[64])
{
    char command[200];
    world_settle(world);
    make_dir(dir);
    snprintf(command, sizeof command, "cp '%s'/dps.db* '%s'", world->dir, dir);
    assert_int_equal(system(command), 0);
}

static void start_jobs(World *world)
{
    SessionTransport transport = {.silence_us = silence, .close = close_connection, .data = world};
    JobManagerSpec spec = {
        .store = world->store,
        .timers = world->timers,
        .loop = world->loop,
        .lanes = world->lanes,
        .n_lanes = WORLD_LANES,
        .launcher = {.start = launch, .stop = stop_launch, .self = world},
        .defaults = {.checkpoint_rounds = 1000, .checkpoint_keep = 3},
        .max_running = world->max_running ? world->max_running : 8,
        .max_jobs = 100,
        .rejoin_us = world->rejoin_us ? world->rejoin_us : 30 * USEC_PER_SEC,
        .trainer_restarts = world->trainer_restarts ? world->trainer_restarts : 2,
    };
    assert_int_equal(manager_new(&spec, &world->jobs), 0);
    if (!world->limits.sessions)
        world->limits = session_default_limits;
    assert_int_equal(
        session_table_new(world->jobs, world->timers, &world->limits, &transport, &world->sessions),
        0);
}

void world_start(World *world)
{
    Error err = {0};
    Answer loaded = {0};
    if (!*world->dir)
        make_dir(world->dir);
    assert_int_equal(mailbox_new(&world->loop), 0);
    assert_int_equal(timers_new(virtual_now, &world->timers), 0);
    if (store_open(world->dir, world->loop, &world->store, &err) < 0)
        fail_msg("%s", err.message);
    for (int i = 0; i < WORLD_LANES; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        assert_int_equal(lane_new(name, i, world->loop, &world->lanes[i]), 0);
    }
    start_jobs(world);
    manager_load(world->jobs, answer_done, &loaded);
    world_settle(world);
    assert_int_equal(loaded.called, 1);
    assert_int_equal(loaded.r, 0);
}

static void run_finished(World *world)
{
    Task *task;
    while ((task = mailbox_take(world->loop)))
        task->done(task);
}

void world_stop(World *world)
{
    Answer stopped = {0};
    manager_stop(world->jobs, NULL, answer_done, &stopped);
    world_settle(world);
    assert_int_equal(stopped.called, 1);
    session_table_free(world->sessions);
    for (int i = 0; i < WORLD_LANES; i++)
        lane_free(world->lanes[i]);
    run_finished(world);
    store_close(world->store);
    run_finished(world);
    manager_free(world->jobs);
    timers_free(world->timers);
    mailbox_free(world->loop);
    if (!world->keeps_dir)
        world_remove_dir(world->dir);
}

/* ---- the loop -------------------------------------------------------------------------------- */

bool world_step(World *world)
{
    Task *task = mailbox_take(world->loop);
    if (!task) {
        struct pollfd fd = {.fd = mailbox_fd(world->loop), .events = POLLIN};
        (void)poll(&fd, 1, 10);
        mailbox_clear_fd(world->loop);
        task = mailbox_take(world->loop);
    }
    if (task)
        task->done(task);
    timers_run(world->timers);
    return task;
}

static void pass(Task *task)
{
    (void)task;
}

static void passed(Task *task)
{
    ((Barrier *)task)->out = false;
}

static unsigned count_out(const World *world)
{
    unsigned out = 0;
    for (int i = 0; i < WORLD_LANES; i++)
        out += world->beats[i].out;
    return out;
}

static void post_barriers(World *world)
{
    for (int i = 0; i < WORLD_LANES; i++) {
        Barrier *barrier = &world->beats[i];
        if (barrier->out)
            continue;
        *barrier = (Barrier){.task = {.work = pass, .done = passed}, .out = true};
        lane_post(world->lanes[i], &barrier->task);
    }
}

/* All is quiet when nothing but the barriers came back and the store has answered all. Barriers
 * that an earlier call has left out say nothing about what was posted since. */
bool world_beat(World *world)
{
    bool fresh;
    do {
        unsigned out;
        fresh = count_out(world) == 0;
        post_barriers(world);
        while ((out = count_out(world)) || store_pending(world->store))
            if (world_step(world) && count_out(world) == out)
                return true;
    } while (!fresh);
    return false;
}

void world_settle(World *world)
{
    while (world_beat(world))
        ;
}

void world_wait(World *world, uint64_t us)
{
    world_settle(world);
    uint64_t end = now_us + us;
    while (now_us < end) {
        uint64_t next = timers_next_us(world->timers);
        now_us = next < end - now_us ? now_us + next : end;
        timers_run(world->timers);
        world_settle(world);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

void answer_done(void *data, int r, const Error *err)
{
    Answer *answer = data;
    answer->called++;
    answer->r = r;
    if (r < 0)
        snprintf(answer->message, sizeof answer->message, "%s", err->message);
}

void answer_round(void *data, int r, const Error *err, uint64_t round)
{
    answer_done(data, r, err);
    ((Answer *)data)->value = round;
}

void answer_checkpoint(void *data, int r, const Error *err, const CheckpointRecord *record)
{
    answer_done(data, r, err);
    ((Answer *)data)->value = r == 0 ? record->id : 0;
}

JobSpec world_spec(uint32_t trainers, uint32_t interval)
{
    return (JobSpec){.model = "mlp",
                     .backend = "ref",
                     .data = "synthetic",
                     .n_options = 1,
                     .options = {{"hidden", "4"}},
                     .trainers = trainers,
                     .interval = interval,
                     .batch = 4,
                     .samples = 40,
                     .epochs = 1,
                     .seed = 7,
                     .external_trainers = true};
}

typedef struct Submitted {
    int r;
    Job *job;
    char message[480];
} Submitted;

static void on_submitted(void *data, int r, const Error *err, Job *job)
{
    Submitted *submitted = data;
    submitted->r = r;
    submitted->job = job;
    if (r < 0)
        snprintf(submitted->message, sizeof submitted->message, "%s", err->message);
}

Job *world_submit(World *world, const JobSpec *spec)
{
    Submitted submitted = {.r = 1};
    manager_submit(world->jobs, spec, "uid=0 (root)", on_submitted, &submitted);
    world_settle(world);
    if (submitted.r != 0)
        fail_msg("submit: %d %s", submitted.r, submitted.message);
    return submitted.job;
}

Job *world_again(World *world, const char *dir, uint64_t id)
{
    snprintf(world->dir, sizeof world->dir, "%s", dir);
    world_start(world);
    Job *job = manager_find(world->jobs, id);
    assert_non_null(job);
    return job;
}

JobState world_state(const Job *job)
{
    return job_state(job);
}

uint64_t world_checksum(Job *job)
{
    JobStatus status;
    job_status(job, &status);
    return status.checksum;
}

uint64_t world_round(Job *job)
{
    JobStatus status;
    job_status(job, &status);
    return status.round;
}

typedef struct EventSearch {
    const char *kind, *words;
    unsigned n;
} EventSearch;

static void on_events(void *data, int r, const Error *err, const EventRecord *events, size_t n)
{
    EventSearch *search = data;
    (void)err;
    assert_int_equal(r, 0);
    for (size_t i = 0; i < n; i++)
        search->n +=
            strcmp(events[i].kind, search->kind) == 0 && strstr(events[i].text, search->words);
}

unsigned world_events(World *world, const Job *job, const char *kind, const char *words)
{
    EventSearch search = {.kind = kind, .words = words};
    assert_int_equal(store_events_load(world->store, job_id(job), 0, 1000, on_events, &search), 0);
    world_settle(world);
    return search.n;
}

Answer world_set(World *world, Job *job, const char *key, const char *value)
{
    Answer answer = {0};
    SettingText setting = {key, value};
    job_update(job, &setting, 1, "uid=0 (root)", answer_round, &answer);
    world_settle(world);
    assert_int_equal(answer.called, 1);
    return answer;
}

uint64_t world_checkpoint(World *world, Job *job)
{
    Answer answer = {0};
    job_checkpoint(job, answer_checkpoint, &answer);
    world_settle(world);
    assert_int_equal(answer.called, 1);
    if (answer.r < 0)
        fail_msg("checkpoint: %s", answer.message);
    return answer.value;
}

Answer world_restore(World *world, Job *job, uint64_t checkpoint)
{
    Answer answer = {0};
    job_restore(job, checkpoint, "uid=0 (root)", answer_done, &answer);
    world_settle(world);
    assert_int_equal(answer.called, 1);
    return answer;
}

/* ---- trainers -------------------------------------------------------------------------------- */

typedef struct Memory {
    float *x;
    int64_t *y;
} Memory;

static void release_memory(void *owner)
{
    Memory *memory = owner;
    free(memory->x);
    free(memory->y);
    free(memory);
}

void world_batch(const uint64_t *indices, uint32_t samples, OwnedBatch *ret)
{
    Memory *memory = calloc(1, sizeof *memory);
    memory->x = calloc((size_t)samples * WORLD_WIDTH, sizeof(float));
    memory->y = calloc(samples, sizeof(int64_t));
    for (uint32_t i = 0; i < samples; i++) {
        uint64_t index = indices ? indices[i] : i;
        memory->y[i] = (int64_t)(index % 10);
        for (size_t j = 0; j < WORLD_WIDTH; j++)
            memory->x[i * WORLD_WIDTH + j] = sinf((float)(index * 31 + j));
    }
    *ret = (OwnedBatch){.batch = {.samples = samples, .x = memory->x, .y = memory->y},
                        .owner = memory,
                        .release = release_memory};
}

static void on_ready(void *data)
{
    (void)data;
}

static void on_end(void *data, const char *reason)
{
    Trainer *trainer = data;
    trainer->session = NULL;
    snprintf(trainer->end, sizeof trainer->end, "%s", reason);
}

static const StreamEvents stream_events = {.on_ready = on_ready, .on_end = on_end};

static int join(World *world, Job *job, uint32_t rank, const char *token, Trainer *trainer,
                Error *err)
{
    static uint64_t connection;
    JoinWant want = {.rank = rank, .token = token, .client = "a test"};
    *trainer = (Trainer){.world = world, .job = job, .rank = rank};
    int r = session_open(world->sessions, job, &want, ++connection, &trainer->session, err);
    if (r == 0)
        assert_int_equal(session_attach_stream(trainer->session, &stream_events, trainer, err), 0);
    else
        trainer->session = NULL;
    return r;
}

int trainer_try_join(World *world, Job *job, uint32_t rank, Trainer *trainer, Error *err)
{
    return join(world, job, rank, "", trainer, err);
}

/* The last one that was started for the rank. */
void trainer_join_managed(World *world, Job *job, uint32_t rank, Trainer *trainer)
{
    Error err = {0};
    const char *token = "";
    for (unsigned i = 0; i < world->n_launches; i++)
        if (world->launches[i].rank == rank)
            token = world->launches[i].token;
    if (join(world, job, rank, token, trainer, &err) < 0)
        fail_msg("join of rank %u: %s", rank, err.message);
}

void trainer_join(World *world, Job *job, uint32_t rank, Trainer *trainer)
{
    Error err = {0};
    if (trainer_try_join(world, job, rank, trainer, &err) < 0)
        fail_msg("join of rank %u: %s", rank, err.message);
}

void trainers_join(World *world, Job *job, Trainer *trainers, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        trainer_join(world, job, r, &trainers[r]);
}

Job *world_with_job(World *world, const JobSpec *spec, Trainer *trainers)
{
    world_start(world);
    Job *job = world_submit(world, spec);
    trainers_join(world, job, trainers, spec->trainers);
    return job;
}

static void use(World *world, uint64_t epoch, uint64_t index)
{
    if (epoch < WORLD_EPOCHS && index < WORLD_SAMPLES)
        world->used[epoch][index]++;
}

static void on_held(void *data, int r, const Error *err, const TrainResult *result)
{
    Trainer *trainer = data;
    (void)result;
    trainer->waiting--;
    trainer->last_r = r;
    if (r < 0)
        snprintf(trainer->message, sizeof trainer->message, "%s", err->message);
    for (uint32_t i = 0; r == 0 && i < trainer->lease.samples; i++) {
        trainer->held_epochs[trainer->n_held] = trainer->lease.epoch;
        trainer->held_indices[trainer->n_held++] = trainer->indices[i];
    }
}

static void on_trained(void *data, int r, const Error *err, const TrainResult *result)
{
    Trainer *trainer = data;
    on_held(data, r, err, result);
    for (unsigned i = 0; r == 0 && i < trainer->n_held; i++)
        use(trainer->world, trainer->held_epochs[i], trainer->held_indices[i]);
    trainer->n_held = 0;
}

/* By its number, so that the same batches go together however often it is started again. */
static bool is_held(const Trainer *trainer, uint64_t step)
{
    DealerBatch next;
    return trainer->accumulate > 1 && (step + 1) % trainer->accumulate != 0 &&
           member_batch(session_member(trainer->session), step + 1, &next) == 0;
}

bool trainer_feed(Trainer *trainer)
{
    uint64_t step;
    OwnedBatch batch;
    if (!trainer->session || trainer->waiting ||
        session_current_lease(trainer->session, &trainer->lease, &step) < 0)
        return false;
    memcpy(trainer->indices, trainer->lease.indices,
           trainer->lease.samples * sizeof *trainer->indices);
    world_batch(trainer->indices, trainer->lease.samples, &batch);
    if (trainer->poisoned)
        ((Memory *)batch.owner)->x[0] = INFINITY;
    trainer->poisoned = false;
    trainer->waiting++;
    bool hold = is_held(trainer, step);
    session_train(trainer->session, step, &batch, hold, hold ? on_held : on_trained, trainer);
    return true;
}

void trainer_die(Trainer *trainer)
{
    World *world = trainer->world;
    session_table_disconnected(world->sessions, trainer->session->connection);
    assert_null(trainer->session);
}

uint64_t trainer_step(const Trainer *trainer)
{
    return member_step(session_member(trainer->session));
}

void trainers_run(World *world, Trainer *trainers, uint32_t n, uint64_t step)
{
    unsigned idle = 0;
    while (idle < 3) {
        bool fed = false;
        for (uint32_t r = 0; r < n; r++)
            if (trainers[r].session && trainer_step(&trainers[r]) < step)
                fed |= trainer_feed(&trainers[r]);
        for (uint32_t r = 0; r < n; r++) /* one step at a time */
            while (trainers[r].waiting && world_step(world))
                ;
        idle = fed ? 0 : idle + 1;
        if (!fed)
            world_settle(world);
    }
}

void trainers_finish(World *world, Job *job, Trainer *trainers, uint32_t n)
{
    trainers_run(world, trainers, n, UINT64_MAX);
    assert_int_equal(world_state(job), JOB_COMPLETED);
}

void world_assert_used_once(const World *world, uint64_t epochs, uint64_t samples)
{
    for (uint64_t epoch = 0; epoch < epochs; epoch++)
        for (uint64_t i = 0; i < samples; i++)
            if (world->used[epoch][i] != 1)
                fail_msg("sample %" PRIu64 " of epoch %" PRIu64 " was used %u times", i, epoch,
                         world->used[epoch][i]);
}
