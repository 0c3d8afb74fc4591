/* What policies do when ranks lag, come and go. */
#include "play.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

static JobSpec spec_for(const char *policy, uint32_t trainers, uint32_t most, uint32_t interval)
{
    JobSpec spec = world_spec(trainers, interval);
    strcpy(spec.policy, policy);
    spec.max_trainers = most;
    spec.epochs = 2;
    return spec;
}

static void setting(JobSpec *spec, const char *key, const char *value)
{
    SettingPair *pair = &spec->settings[spec->n_settings++];
    strcpy(pair->key, key);
    strcpy(pair->value, value);
}

static void finish(World *world, Job *job, Trainer *ranks, uint32_t n)
{
    unsigned seed = 5;
    play_out(world, job, ranks, n, &seed);
    JobStatus status;
    job_status(job, &status);
    assert_int_equal(status.samples, 80);
    world_check_metrics(world, job, false);
    world_stop(world);
}

static const float *params_of(const Job *job, uint32_t rank)
{
    return replica_weights(job->members[rank].replica)->params;
}

static bool same_params(const Job *job, uint32_t a, uint32_t b)
{
    return memcmp(params_of(job, a), params_of(job, b),
                  graph_params_length(job->plan.graph) * sizeof(float)) == 0;
}

/* ---- quorum ---------------------------------------------------------------------------------- */

/* The meeting goes on without the late one, whose steps count in the first that it comes to. */
static void late_rank_counts_in_the_next_meeting(void **state)
{
    (void)state;
    static const char *const names[] = {"average", "diloco", "elastic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        World world = {0};
        Trainer ranks[3];
        JobSpec spec = spec_for(names[i], 3, 3, 2);
        setting(&spec, "sync.wait", "quorum:2");
        setting(&spec, "sync.timeout", "5");
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainers_join(&world, job, ranks, 3);
        trainers_run(&world, ranks, 3, 1);
        trainers_run(&world, ranks, 2, 2);
        world_wait(&world, 4900 * USEC_PER_MSEC);
        assert_int_equal(world_round(job), 1);
        world_wait(&world, 200 * USEC_PER_MSEC);
        assert_int_equal(world_round(job), 2);
        assert_int_equal(world_events(&world, job, "trainer", "rank 2 is not waited for"), 1);
        assert_int_equal(job->members[2].account.samples, 4);
        trainers_run(&world, ranks, 3, 4);
        assert_int_equal(job->members[2].round.number, 3);
        assert_int_equal(world_round(job), 3);
        finish(&world, job, ranks, 3);
    }
}

/* In each step anew: who was late once is waited for again. */
static void late_rank_is_waited_for_in_each_step_of_barrier(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[3];
    JobSpec spec = spec_for("barrier", 3, 3, 4);
    setting(&spec, "sync.wait", "quorum:2");
    setting(&spec, "sync.timeout", "5");
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 3);
    trainers_run(&world, ranks, 2, 1);
    assert_int_equal(trainer_step(&ranks[0]), 0);
    world_wait(&world, 5100 * USEC_PER_MSEC);
    assert_int_equal(trainer_step(&ranks[0]), 1);
    trainers_run(&world, ranks, 1, 2); /* alone it does not step */
    assert_int_equal(trainer_step(&ranks[0]), 1);
    trainers_run(&world, ranks, 3, 2);
    finish(&world, job, ranks, 3);
}

/* The patience of a meeting is not used up while the job is paused. */
static void pause_does_not_count_as_waiting(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    Answer answer = {0};
    JobSpec spec = spec_for("average", 2, 2, 2);
    setting(&spec, "sync.wait", "quorum:1");
    setting(&spec, "sync.timeout", "5");
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 2);
    trainers_run(&world, ranks, 1, 2);
    job_pause(job, "uid=0", answer_done, &answer);
    world_wait(&world, 60 * USEC_PER_SEC);
    job_resume(job, "uid=0", answer_done, &answer);
    world_settle(&world);
    assert_int_equal(world_round(job), 1);
    assert_int_equal(world_events(&world, job, "trainer", "not waited for"), 0);
    world_wait(&world, 6 * USEC_PER_SEC);
    assert_int_equal(world_round(job), 2);
    finish(&world, job, ranks, 2);
}

/* ---- coming ---------------------------------------------------------------------------------- */

static void expect_newcomer(const Job *job, const char *policy)
{
    assert_true(job->members[2].place == MEMBER_LIVE);
    if (job->policy->shared)
        return;
    if (strcmp(policy, "elastic") != 0) {
        assert_true(same_params(job, 2, 0));
        return;
    }
    Snapshot *centre;
    assert_int_equal(centre_snapshot_new(job->plan.graph, true, &centre), 0);
    assert_int_equal(centre_snapshot(job->common.centre, centre), 0);
    assert_memory_equal(params_of(job, 2), centre->params, centre->n_params * sizeof(float));
    snapshot_free(centre);
}

/* Managed trainers: dpsctl set JOB trainers=3, then 2. */
static void trainers_grow_and_shrink_at_a_round_boundary(void **state)
{
    (void)state;
    static const char *const names[] = {"average", "elastic", "diloco", "barrier"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        World world = {0};
        Trainer ranks[3] = {0};
        JobSpec spec = spec_for(names[i], 2, 3, 3);
        spec.external_trainers = false;
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        assert_int_equal(world.n_launches, 2);
        for (uint32_t r = 0; r < 2; r++)
            trainer_join_managed(&world, job, r, &ranks[r]);
        trainers_run(&world, ranks, 2, 2);
        assert_int_equal(world_set(&world, job, "trainers", "3").value, 2);
        assert_int_equal(world.n_launches, 2);
        trainers_run(&world, ranks, 2, 3);
        assert_int_equal(world_round(job), 2);
        assert_int_equal(world.n_launches, 3);
        expect_newcomer(job, names[i]);
        trainer_join_managed(&world, job, 2, &ranks[2]);
        trainers_run(&world, ranks, 3, 5);
        assert_int_equal(world_set(&world, job, "trainers", "2").value, 3);
        trainers_run(&world, ranks, 3, 6);
        assert_true(job->members[2].place == MEMBER_DROPPED);
        assert_int_equal(world.lost_launches, 1);
        trainer_die(&ranks[2]);
        finish(&world, job, ranks, 2);
    }
}

/* One that dpsd does not start may come to a job that has a place for it. */
static void late_joiner_begins_with_the_mean(void **state)
{
    (void)state;
    static const char *const names[] = {"average", "elastic", "diloco", "barrier"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        World world = {0};
        Trainer ranks[3] = {0};
        Error err;
        JobSpec spec = spec_for(names[i], 2, 3, 3);
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainers_join(&world, job, ranks, 2);
        trainers_run(&world, ranks, 2, 2);
        assert_int_equal(trainer_try_join(&world, job, 2, &ranks[2], &err), -EAGAIN);
        trainers_run(&world, ranks, 2, 3);
        expect_newcomer(job, names[i]);
        trainer_join(&world, job, 2, &ranks[2]);
        assert_int_equal(trainer_step(&ranks[2]), 3);
        finish(&world, job, ranks, 3);
    }
}

/* It must not bring the seed's weights into the mean. */
static void late_joiner_of_average_async_takes_the_mean_first(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2] = {0};
    JobSpec spec = spec_for("average-async", 1, 2, 3);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainer_join(&world, job, 0, &ranks[0]);
    trainers_run(&world, ranks, 1, 5);
    trainer_join(&world, job, 1, &ranks[1]);
    world_settle(&world);
    assert_true(same_params(job, 0, 1));
    finish(&world, job, ranks, 2);
}

/* ---- going ----------------------------------------------------------------------------------- */

static const char *const policies[] = {"average", "elastic",       "diloco",
                                       "barrier", "average-async", "async"};
enum { POLICIES = sizeof policies / sizeof *policies };

/* In the middle of whatever it does; the others go on after trainer.rejoin and use its samples. */
static void rank_that_dies_is_dropped_under_each_policy(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned ticks = 0; ticks < 24; ticks += 3) {
            World world = {0};
            Trainer ranks[3];
            unsigned seed = ticks + 1;
            JobSpec spec = spec_for(policies[p], 3, 3, 2);
            world_start(&world);
            Job *job = world_submit(&world, &spec);
            trainers_join(&world, job, ranks, 3);
            for (uint32_t r = 0; r < 3; r++)
                ranks[r].accumulate = ticks % 2 ? 2 : 1;
            play_for(&world, ranks, 3, &seed, ticks);
            trainer_die(&ranks[1]);
            play_for(&world, ranks, 3, &seed, 1000);
            world_wait(&world, 31 * USEC_PER_SEC);
            finish(&world, job, ranks, 3);
        }
}

static void rank_that_leaves_is_not_waited_for(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned ticks = 0; ticks < 24; ticks += 3) {
            World world = {0};
            Trainer ranks[3];
            unsigned seed = ticks + 1;
            JobSpec spec = spec_for(policies[p], 3, 3, 5);
            world_start(&world);
            Job *job = world_submit(&world, &spec);
            trainers_join(&world, job, ranks, 3);
            for (uint32_t r = 0; r < 3; r++)
                ranks[r].accumulate = ticks % 2 ? 2 : 1;
            play_for(&world, ranks, 3, &seed, ticks);
            session_leave(ranks[1].session);
            finish(&world, job, ranks, 3); /* time stands still */
        }
}

static void dropped_rank_comes_back_under_each_policy(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned ticks = 4; ticks < 20; ticks += 3) {
            World world = {0};
            Trainer ranks[3];
            Error err;
            unsigned seed = ticks + 1;
            JobSpec spec = spec_for(policies[p], 3, 3, 2);
            world_start(&world);
            Job *job = world_submit(&world, &spec);
            trainers_join(&world, job, ranks, 3);
            play_for(&world, ranks, 3, &seed, ticks);
            trainer_die(&ranks[1]);
            world_wait(&world, 31 * USEC_PER_SEC);
            for (int i = 0; i < 100 && !ranks[1].session && world_state(job) == JOB_RUNNING; i++)
                if (trainer_try_join(&world, job, 1, &ranks[1], &err) < 0)
                    play_for(&world, ranks, 3, &seed, 2);
            finish(&world, job, ranks, 3);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_rank_counts_in_the_next_meeting),
        cmocka_unit_test(late_rank_is_waited_for_in_each_step_of_barrier),
        cmocka_unit_test(pause_does_not_count_as_waiting),
        cmocka_unit_test(trainers_grow_and_shrink_at_a_round_boundary),
        cmocka_unit_test(late_joiner_begins_with_the_mean),
        cmocka_unit_test(late_joiner_of_average_async_takes_the_mean_first),
        cmocka_unit_test(rank_that_dies_is_dropped_under_each_policy),
        cmocka_unit_test(rank_that_leaves_is_not_waited_for),
        cmocka_unit_test(dropped_rank_comes_back_under_each_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
