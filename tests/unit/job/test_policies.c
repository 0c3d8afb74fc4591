/* The same numbers whatever happens, under every policy but the asynchronous ones; and every sample
 * used once, under those too. */
#include "play.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

enum { RANKS = 3, SYNCHRONOUS = 4, POLICIES = 6 };

static const char *const policies[POLICIES] = {"average", "elastic",       "diloco",
                                               "barrier", "average-async", "async"};

/* What a run is like, beside what happens to it. */
typedef struct Kind {
    const char *policy;
    bool batchnorm;
    unsigned accumulate;
} Kind;

typedef struct Run {
    World world;
    Job *job;
    Kind kind;
    Trainer ranks[RANKS];
    unsigned seed;
} Run;

static JobSpec spec_of(const Kind *kind)
{
    JobSpec spec = world_spec(RANKS, 3);
    spec.epochs = 2;
    spec.samples = 37; /* the last batch of an epoch is smaller */
    if (kind->batchnorm) {
        strcpy(spec.model, "resnet-small");
        strcpy(spec.options[0].key, "width");
        strcpy(spec.options[0].value, "1");
    }
    strcpy(spec.policy, kind->policy);
    strcpy(spec.optimizer, "sgd,momentum=0.9");
    return spec;
}

static void join(Run *run, uint32_t rank)
{
    trainer_join(&run->world, run->job, rank, &run->ranks[rank]);
    run->ranks[rank].accumulate = run->kind.accumulate;
}

static void join_all(Run *run)
{
    for (uint32_t r = 0; r < RANKS; r++)
        join(run, r);
}

static void begin(Run *run, const Kind *kind, unsigned seed)
{
    JobSpec spec = spec_of(kind);
    *run = (Run){.kind = *kind, .seed = seed};
    world_start(&run->world);
    run->job = world_submit(&run->world, &spec);
    join_all(run);
}

static void play_some(Run *run)
{
    play_for(&run->world, run->ranks, RANKS, &run->seed, (unsigned)rand_r(&run->seed) % 30);
}

static uint64_t end(Run *run)
{
    play_out(&run->world, run->job, run->ranks, RANKS, &run->seed);
    uint64_t model = world_model(&run->world, run->job);
    JobStatus status;
    job_status(run->job, &status);
    assert_int_equal(status.samples, 2 * 37);
    world_check_metrics(&run->world, run->job, true);
    world_stop(&run->world);
    return model;
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void nothing(Run *run)
{
    (void)run;
}

static bool is_live(const Run *run)
{
    return world_state(run->job) == JOB_RUNNING && run->job->phase == PHASE_LIVE &&
           !run->job->finishing;
}

static void rejoin(Run *run)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (is_live(run) && !run->ranks[r].session)
            join(run, r);
}

/* It comes back in time. */
static void trainer_dies(Run *run)
{
    Trainer *trainer = &run->ranks[rand_r(&run->seed) % RANKS];
    if (!trainer->session)
        return;
    trainer_die(trainer);
    play_some(run);
    world_settle(&run->world);
    rejoin(run);
}

static void paused(Run *run)
{
    static Answer answer;
    job_pause(run->job, "uid=0 (root)", answer_done, &answer);
    play_some(run);
    world_settle(&run->world);
    if (world_state(run->job) == JOB_PAUSED)
        job_resume(run->job, "uid=0 (root)", answer_done, &answer);
}

static void checkpointed(Run *run)
{
    if (is_live(run))
        world_checkpoint(&run->world, run->job);
}

static void stopped(Run *run)
{
    run->job = world_restart(&run->world, run->job);
    rejoin(run);
}

static void killed(Run *run)
{
    checkpointed(run);
    play_some(run);
    run->job = world_kill(&run->world, run->job);
    rejoin(run);
}

static void restored(Run *run)
{
    checkpointed(run);
    play_some(run);
    if (is_live(run))
        assert_int_equal(world_restore(&run->world, run->job, 0).r, 0);
    rejoin(run);
}

static void looked_at(Run *run)
{
    if (is_live(run))
        (void)world_model(&run->world, run->job);
}

static const struct {
    const char *name;
    void (*happens)(Run *run);
    unsigned times;
} mishaps[] = {
    {"nothing", nothing, 1},    {"a trainer dies", trainer_dies, 6},
    {"a pause", paused, 4},     {"a checkpoint", checkpointed, 4},
    {"a stop", stopped, 3},     {"a kill", killed, 2},
    {"a restore", restored, 2}, {"a look at the model", looked_at, 4},
};

enum { MISHAPS = sizeof mishaps / sizeof *mishaps };

static uint64_t run_with(const Kind *kind, int mishap, unsigned seed)
{
    Run run;
    begin(&run, kind, seed);
    for (unsigned i = 0; i < mishaps[mishap].times; i++) {
        play_some(&run);
        if (is_live(&run))
            mishaps[mishap].happens(&run);
    }
    return end(&run);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A seed to look at alone, with what it happens to. */
static bool chosen(unsigned seed)
{
    const char *only = getenv("DPS_TEST_SEED");
    return !only || strtoul(only, NULL, 10) == seed;
}

static void check_kind(const Kind *kind, bool same_bits)
{
    uint64_t undisturbed = run_with(kind, 0, 1);
    for (int mishap = 0; mishap < MISHAPS; mishap++)
        for (unsigned seed = 1; seed <= 3; seed++) {
            if (!chosen(seed))
                continue;
            print_message("           %s%s, accumulate %u: %s, seed %u\n", kind->policy,
                          kind->batchnorm ? " with BatchNorm" : "", kind->accumulate,
                          mishaps[mishap].name, seed);
            uint64_t model = run_with(kind, mishap, seed);
            if (same_bits && model != undisturbed)
                fail_msg("%s changes the model", mishaps[mishap].name);
        }
}

static void synchronous_jobs_have_the_same_bits(void **state)
{
    (void)state;
    for (int p = 0; p < SYNCHRONOUS; p++)
        for (unsigned accumulate = 1; accumulate <= 3; accumulate += 2)
            check_kind(&(Kind){policies[p], false, accumulate}, true);
}

static void synchronous_jobs_with_batchnorm_have_the_same_bits(void **state)
{
    (void)state;
    for (int p = 0; p < SYNCHRONOUS; p++)
        for (unsigned accumulate = 1; accumulate <= 3; accumulate += 2)
            check_kind(&(Kind){policies[p], true, accumulate}, true);
}

static void asynchronous_jobs_use_every_sample_once(void **state)
{
    (void)state;
    for (int p = SYNCHRONOUS; p < POLICIES; p++)
        for (unsigned accumulate = 1; accumulate <= 3; accumulate += 2)
            check_kind(&(Kind){policies[p], false, accumulate}, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synchronous_jobs_have_the_same_bits),
        cmocka_unit_test(synchronous_jobs_with_batchnorm_have_the_same_bits),
        cmocka_unit_test(asynchronous_jobs_use_every_sample_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
