/* Trainers: processes, connections, joining, and what happens to them. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_replica.h"

enum { TRAINERS = SIM_MAX_JOBS * SIM_MAX_RANKS };

static Trainer trainers[TRAINERS];
static uint64_t last_connection;

static void on_join(void *data, uint64_t life);
static void set_out(Trainer *trainer, uint64_t delay_us);

void trainers_begin(void)
{
    memset(trainers, 0, sizeof trainers);
    streams_forget();
    last_connection = 0;
}

/* ---- events of a trainer -----------------------------------------------------------------------
 */

void trainer_later(Trainer *trainer, uint64_t delay_us, const char *kind, EventFn run)
{
    event_in(delay_us, kind, run, trainer, trainer->life);
}

bool trainer_goes_on(Trainer *trainer, uint64_t life, const char *kind, EventFn run)
{
    if (life != trainer->life || !trainer->alive)
        return false;
    if (trainer->hung_until > sim_now()) {
        event_in(trainer->hung_until - sim_now(), kind, run, trainer, life);
        return false;
    }
    trace("  by rank %u of job %llu", trainer->rank, (unsigned long long)trainer->job->id);
    return true;
}

uint64_t trainer_pause(const Trainer *trainer)
{
    return sim_between(trainer->pace_us / 2, trainer->pace_us);
}

Session *trainer_session(Trainer *trainer)
{
    Session *session;
    if (!world.sessions || !trainer->session ||
        session_find(world.sessions, trainer->session, &session, NULL) < 0)
        return NULL;
    return session;
}

static void reset_work(Trainer *trainer)
{
    trainer->life++;
    trainer->session = 0;
    trainer->attached = trainer->upset = trainer->reading = trainer->waits = false;
    trainer->n_leases = trainer->under_way = 0;
    trainer->context = 0;
}

void trainer_lost_session(Trainer *trainer, bool final)
{
    reset_work(trainer);
    if (!trainer->alive)
        return;
    if (final && trainer->managed) { /* nothing is left to do */
        trainer->alive = false;
        launcher_ended(trainer, true);
        return;
    }
    set_out(trainer, final ? sim_between(2, 10) * SIM_SECOND : sim_between(1, 500) * SIM_MS);
}

/* ---- connections -------------------------------------------------------------------------------
 */

uint64_t transport_silence_us(void *data, uint64_t connection)
{
    (void)data;
    for (unsigned i = 0; i < TRAINERS; i++) {
        const Trainer *trainer = &trainers[i];
        if (trainer->job && trainer->connection == connection)
            return trainer->hung_until > sim_now() ? sim_now() - trainer->hung_since : 0;
    }
    return UINT64_MAX;
}

/* The server closes it: those who hang find out when they wake. */
void transport_close(void *data, uint64_t connection)
{
    (void)data;
    for (unsigned i = 0; i < TRAINERS; i++) {
        Trainer *trainer = &trainers[i];
        if (!trainer->job || trainer->connection != connection)
            continue;
        uint64_t sleeps = trainer->hung_until > sim_now() ? trainer->hung_until - sim_now() : 0;
        trainer->connection = 0;
        reset_work(trainer);
        if (trainer->alive)
            set_out(trainer, sleeps + sim_between(1, 100) * SIM_MS);
    }
    session_table_disconnected(world.sessions, connection);
}

static void on_hang_up(void *data, uint64_t connection)
{
    (void)data;
    if (world.sessions)
        session_table_disconnected(world.sessions, connection);
}

/* The client's end goes; the daemon hears of it a little later. */
static void hang_up(Trainer *trainer)
{
    if (trainer->connection)
        event_in(sim_between(0, 20) * SIM_MS, "connection closes", on_hang_up, NULL,
                 trainer->connection);
    trainer->connection = 0;
    reset_work(trainer);
}

void trainers_disconnect_all(void)
{
    streams_forget();
    for (unsigned i = 0; i < TRAINERS; i++) {
        Trainer *trainer = &trainers[i];
        if (!trainer->job)
            continue;
        trainer->connection = 0;
        reset_work(trainer);
        if (trainer->managed)
            trainer->alive = false;
        else if (trainer->alive)
            set_out(trainer, sim_between(1, 2000) * SIM_MS);
    }
}

/* ---- joining -----------------------------------------------------------------------------------
 */

static void set_out(Trainer *trainer, uint64_t delay_us)
{
    trainer_later(trainer, delay_us, "trainer joins", on_join);
}

static void joined(Trainer *trainer, const Session *session)
{
    const Member *member = session_member(session);
    trainer->session = session_id(session);
    trainer->rank = member_rank(member);
    trainer->next_step = member_step(member);
    trainer->final = false;
    if (trainer->unary)
        unary_begin(trainer);
    else
        stream_begin(trainer);
}

static void not_joined(Trainer *trainer, int r, const Error *err)
{
    trace("  rank %u cannot join: %s", trainer->rank, err->message);
    if (r == -EAGAIN || r == -EBUSY)
        set_out(trainer, sim_between(20, 400) * SIM_MS);
    else if (r == -ESTALE && !trainer->managed)
        set_out(trainer, sim_between(1, 5) * SIM_SECOND);
    else if (trainer->managed && (r == -EPERM || r == -ESTALE))
        trainer_die(trainer);
    else
        sim_fail("job %llu rank %u cannot join: %s", (unsigned long long)trainer->job->id,
                 trainer->rank, err->message);
}

static void on_join(void *data, uint64_t life)
{
    Trainer *trainer = data;
    Error err = {0};
    Session *session;
    if (!trainer_goes_on(trainer, life, "trainer joins", on_join))
        return;
    Job *job = world.loaded ? sim_daemon_job(trainer->job) : NULL;
    if (!job) {
        set_out(trainer, sim_between(100, 1000) * SIM_MS);
        return;
    }
    JoinWant want = {.any_rank = !trainer->managed && sim_chance(300),
                     .rank = trainer->rank,
                     .own_data = trainer->own_data,
                     .token = trainer->token,
                     .client = "trainer"};
    if (!trainer->connection)
        trainer->connection = ++last_connection;
    int r = session_open(world.sessions, job, &want, trainer->connection, &session, &err);
    if (r == 0)
        joined(trainer, session);
    else
        not_joined(trainer, r, &err);
}

/* ---- processes ---------------------------------------------------------------------------------
 */

static Trainer *place_for(SimJob *job, uint32_t rank)
{
    return &trainers[(job - world.jobs) * SIM_MAX_RANKS + rank];
}

static void be_born(Trainer *trainer)
{
    trainer->alive = true;
    trainer->hung_until = 0;
    trainer->pace_us = sim_between(world.step_us / 8 + 1, world.step_us * 2);
    trainer->unary = sim_chance(300);
    trainer->accumulate = sim_chance(700) ? 1 : (unsigned)sim_between(2, SIM_MAX_HELD + 1);
}

void trainers_for(SimJob *job)
{
    for (uint32_t rank = 0; job->spec.external_trainers && rank < job->spec.max_trainers; rank++) {
        Trainer *trainer = place_for(job, rank);
        *trainer = (Trainer){.job = job, .rank = rank, .own_data = job->spec.samples == 0};
        be_born(trainer);
        set_out(trainer, sim_between(0, rank < job->spec.trainers ? 2000 : 20000) * SIM_MS);
    }
}

Trainer *trainer_launch(SimJob *job, uint32_t rank, const char *token)
{
    Trainer *trainer = place_for(job, rank);
    if (trainer->alive)
        sim_fail("job %llu: a second trainer is started for rank %u", (unsigned long long)job->id,
                 rank);
    uint64_t life = trainer->life;
    *trainer = (Trainer){.job = job, .rank = rank, .managed = true, .life = life + 1};
    snprintf(trainer->token, sizeof trainer->token, "%s", token);
    be_born(trainer);
    set_out(trainer, sim_between(10, 500) * SIM_MS);
    return trainer;
}

/* In whatever life: the daemon may have come and gone meanwhile. */
static void on_reborn(void *data, uint64_t life)
{
    Trainer *trainer = data;
    (void)life;
    if (trainer->alive)
        return;
    be_born(trainer);
    set_out(trainer, 0);
}

void trainer_die(Trainer *trainer)
{
    hang_up(trainer);
    trainer->alive = false;
    if (trainer->managed)
        launcher_ended(trainer, false);
    else
        trainer_later(trainer, sim_between(1, world_is_calm() ? 500 : 30000) * SIM_MS,
                      "trainer is started", on_reborn);
}

/* ---- what happens to them ----------------------------------------------------------------------
 */

static void hang(Trainer *trainer)
{
    trainer->hung_since = sim_now();
    trainer->hung_until = sim_now() + sim_between(100, 40000) * SIM_MS;
}

static void leave(Trainer *trainer)
{
    Session *session = trainer_session(trainer);
    if (!session)
        return;
    bool managed = trainer->managed;
    if (trainer->attached)
        stream_detach(trainer, session);
    session_leave(session);
    reset_work(trainer);
    if (managed)
        trainer_die(trainer);
    else
        set_out(trainer, sim_between(1, 20000) * SIM_MS);
}

static void lose_connection(Trainer *trainer)
{
    hang_up(trainer);
    set_out(trainer, sim_between(0, 3000) * SIM_MS);
}

static void slow_down(Trainer *trainer)
{
    trainer->pace_us *= sim_between(2, 30);
    if (trainer->pace_us > 2 * SIM_SECOND)
        trainer->pace_us = world.step_us;
}

static const struct Mishap {
    const char *name;
    void (*happen)(Trainer *trainer);
} mishaps[] = {
    {"dies", trainer_die},       {"hangs", hang},           {"leaves", leave},
    {"is cut", lose_connection}, {"slows down", slow_down}, {"loses its stream", stream_mishap},
};

void trainers_mishap(void)
{
    Trainer *trainer = &trainers[sim_between(0, TRAINERS - 1)];
    const struct Mishap *mishap = &mishaps[sim_between(0, sizeof mishaps / sizeof *mishaps - 1)];
    if (!trainer->job || !trainer->alive)
        return;
    trace("  rank %u of job %llu %s", trainer->rank, (unsigned long long)trainer->job->id,
          mishap->name);
    if (trainer->managed)
        trainer->job->unlaunched = true;
    mishap->happen(trainer);
}

/* From now on they are well, and those who are away come back soon. */
void trainers_calm(void)
{
    for (unsigned i = 0; i < TRAINERS; i++) {
        Trainer *trainer = &trainers[i];
        if (!trainer->job)
            continue;
        if (trainer->hung_until > sim_now() + SIM_SECOND)
            trainer->hung_until = sim_now() + SIM_SECOND;
        if (trainer->pace_us > 2 * world.step_us)
            trainer->pace_us = 2 * world.step_us;
        if (!trainer->alive && !trainer->managed)
            trainer_later(trainer, sim_between(1, 500) * SIM_MS, "trainer is started", on_reborn);
    }
}

unsigned trainers_joined(const SimJob *job)
{
    unsigned n = 0;
    for (unsigned i = 0; i < TRAINERS; i++)
        n += trainers[i].job == job && trainers[i].session != 0 && trainers[i].alive &&
             trainers[i].hung_until <= sim_now();
    return n;
}

/* ---- batches -----------------------------------------------------------------------------------
 */

void trainer_batch(Trainer *trainer, const TrainerLease *lease, bool bad, OwnedBatch *ret)
{
    SimBatch *batch = calloc(1, sizeof *batch);
    bool mischief = !world_is_calm();
    *batch = (SimBatch){.magic = SIM_BATCH_MAGIC,
                        .number = lease->number,
                        .rank = trainer->rank,
                        .step = lease->step,
                        .poison = mischief && sim_chance(1) && sim_chance(100),
                        .fails = mischief && sim_chance(2),
                        .norm = (double)sim_between(1, sim_chance(20) ? 100 : 10)};
    if (batch->poison)
        trainer->job->poisoned = true;
    *ret = (OwnedBatch){.batch = {.samples = (int64_t)lease->samples + bad, .x = batch, .y = batch},
                        .owner = batch,
                        .release = free};
}
