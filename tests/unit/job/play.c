#include "play.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

bool play(World *world, Trainer *trainers, uint32_t n, unsigned *seed)
{
    uint32_t first = (uint32_t)rand_r(seed) % n;
    if (rand_r(seed) % 2 && world_beat(world))
        return true;
    for (uint32_t i = 0; i < n; i++)
        if (trainer_feed(&trainers[(first + i) % n]))
            return true;
    return world_beat(world);
}

void play_for(World *world, Trainer *trainers, uint32_t n, unsigned *seed, unsigned ticks)
{
    while (ticks-- > 0 && play(world, trainers, n, seed))
        ;
}

void play_out(World *world, Job *job, Trainer *trainers, uint32_t n, unsigned *seed)
{
    while (play(world, trainers, n, seed))
        ;
    if (world_state(job) != JOB_COMPLETED) {
        JobStatus status;
        job_status(job, &status);
        fail_msg("the job is %s at step %" PRIu64 ": %s", job_state_name(status.state), status.step,
                 status.reason);
    }
}

/* ---- dpsd ends ------------------------------------------------------------------------------- */

static Job *start_again(World *world, uint64_t id, const char *dir)
{
    World next = {.rejoin_us = world->rejoin_us,
                  .limits = world->limits,
                  .max_running = world->max_running,
                  .trainer_restarts = world->trainer_restarts};
    memcpy(next.used, world->used, sizeof next.used);
    memcpy(next.dir, dir, sizeof next.dir);
    *world = next;
    world_start(world);
    return manager_find(world->jobs, id);
}

Job *world_restart(World *world, Job *job)
{
    uint64_t id = job_id(job);
    char dir[sizeof world->dir];
    memcpy(dir, world->dir, sizeof dir);
    world->keeps_dir = true;
    world_stop(world);
    return start_again(world, id, dir);
}

Job *world_kill(World *world, Job *job)
{
    uint64_t id = job_id(job);
    char dir[64];
    world_copy_dir(world, dir);
    world_stop(world);
    return start_again(world, id, dir);
}

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct Hashed {
    int called;
    uint64_t hash;
} Hashed;

static uint64_t add(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

static void on_mean(void *data, int r, const Error *err, Snapshot *mean)
{
    Hashed *hashed = data;
    hashed->called++;
    if (r < 0)
        fail_msg("mean: %s", err->message);
    uint64_t hash = UINT64_C(14695981039346656037);
    hash = add(hash, mean->params, mean->n_params * sizeof *mean->params);
    hash = add(hash, mean->buffers, mean->n_buffers * sizeof *mean->buffers);
    hashed->hash = add(hash, mean->counters, mean->n_counters * sizeof *mean->counters);
    snapshot_free(mean);
}

uint64_t world_model(World *world, Job *job)
{
    Hashed hashed = {0};
    job_mean(job, 0, on_mean, &hashed);
    world_settle(world);
    assert_int_equal(hashed.called, 1);
    return hashed.hash;
}

/* ---- metrics --------------------------------------------------------------------------------- */

typedef struct Metrics {
    uint64_t last[JOB_MAX_TRAINERS], samples;
    bool gapless;
    size_t rows;
} Metrics;

static void on_rounds(void *data, int r, const Error *err, const RoundRecord *rows, size_t n)
{
    Metrics *metrics = data;
    (void)err;
    assert_int_equal(r, 0);
    for (size_t i = 0; i < n; i++) {
        uint64_t *last = &metrics->last[rows[i].rank];
        if (rows[i].round <= *last || (metrics->gapless && rows[i].round != *last + 1))
            fail_msg("rank %u has round %" PRIu64 " after %" PRIu64, rows[i].rank, rows[i].round,
                     *last);
        *last = rows[i].round;
        metrics->samples += rows[i].samples;
        metrics->rows++;
    }
}

size_t world_check_metrics(World *world, Job *job, bool gapless)
{
    Metrics metrics = {.gapless = gapless};
    JobStatus status;
    world_settle(world);
    assert_int_equal(store_rounds_load(world->store, job_id(job), 0, 100000, on_rounds, &metrics),
                     0);
    world_settle(world);
    job_status(job, &status);
    if (metrics.samples != status.samples)
        fail_msg("rounds have %" PRIu64 " samples, the job %" PRIu64, metrics.samples,
                 status.samples);
    return metrics.rows;
}
