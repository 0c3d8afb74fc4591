/* Whatever is asked for at any moment, under each policy: it is answered, and the job ends well. */
#include "play.h"

#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

static const char *const policies[] = {"average", "elastic",       "diloco",
                                       "barrier", "average-async", "async"};
enum { POLICIES = sizeof policies / sizeof *policies, TICKS = 40, RANKS = 3 };

typedef struct Scene {
    World world;
    Job *job;
    Trainer ranks[RANKS];
    unsigned seed;
} Scene;

/* A job that has gone on for so many ticks, with batches that are held. */
static void begin(Scene *scene, const char *policy, unsigned ticks)
{
    JobSpec spec = world_spec(RANKS, 1);
    strcpy(spec.policy, policy);
    spec.checkpoint_rounds = 2;
    *scene = (Scene){.seed = ticks + 1};
    world_start(&scene->world);
    scene->job = world_submit(&scene->world, &spec);
    trainers_join(&scene->world, scene->job, scene->ranks, RANKS);
    for (uint32_t r = 0; r < RANKS; r++)
        scene->ranks[r].accumulate = ticks % 3;
    play_for(&scene->world, scene->ranks, RANKS, &scene->seed, ticks);
}

static void cancelled_at_any_moment(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned ticks = 0; ticks < TICKS; ticks++) {
            Scene scene;
            Answer answer = {0};
            begin(&scene, policies[p], ticks);
            job_cancel(scene.job, "uid=0", answer_done, &answer);
            world_settle(&scene.world);
            assert_int_equal(answer.called, 1);
            assert_true(job_state_is_final(world_state(scene.job)));
            assert_null(scene.job->members);
            world_stop(&scene.world);
        }
}

static void stopped_at_any_moment(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned ticks = 0; ticks < TICKS; ticks++) {
            Scene scene;
            begin(&scene, policies[p], ticks);
            world_stop(&scene.world); /* which ends */
        }
}

static void restored_at_any_moment(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned ticks = 4; ticks < TICKS; ticks++) {
            Scene scene;
            Answer saved = {0}, restored = {0};
            begin(&scene, policies[p], ticks);
            job_checkpoint(scene.job, answer_checkpoint, &saved);
            play_for(&scene.world, scene.ranks, RANKS, &scene.seed, ticks % 5);
            job_restore(scene.job, 0, "uid=0", answer_done, &restored);
            play_for(&scene.world, scene.ranks, RANKS, &scene.seed, 1000);
            assert_int_equal(saved.called, 1);
            assert_int_equal(restored.called, 1);
            for (uint32_t r = 0; r < RANKS && world_state(scene.job) == JOB_RUNNING; r++)
                if (!scene.ranks[r].session)
                    trainer_join(&scene.world, scene.job, r, &scene.ranks[r]);
            play_out(&scene.world, scene.job, scene.ranks, RANKS, &scene.seed);
            world_check_metrics(&scene.world, scene.job, true);
            world_stop(&scene.world);
        }
}

/* Both answers come, though nobody feeds the job meanwhile and gradients wait. */
static void looked_at_and_saved_while_paused(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned ticks = 0; ticks < TICKS; ticks += 3) {
            Scene scene;
            Answer answer = {0};
            begin(&scene, policies[p], ticks);
            job_pause(scene.job, "uid=0", answer_done, &answer);
            world_settle(&scene.world);
            if (world_state(scene.job) == JOB_PAUSED) {
                (void)world_model(&scene.world, scene.job);
                world_checkpoint(&scene.world, scene.job);
                job_resume(scene.job, "uid=0", answer_done, &answer);
            }
            play_out(&scene.world, scene.job, scene.ranks, RANKS, &scene.seed);
            world_stop(&scene.world);
        }
}

/* Its task is under way, and others may have given it their copies. */
static void rank_that_takes_the_mean_goes(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 3; way++)
        for (int delay = 0; delay < 6; delay++) {
            Scene scene;
            begin(&scene, "average-async", 0);
            Job *job = scene.job;
            for (int i = 0; i < 1000 && !job->refreshing; i++)
                play(&scene.world, scene.ranks, RANKS, &scene.seed);
            assert_non_null(job->refreshing);
            Trainer *trainer = &scene.ranks[job->refreshing->rank];
            for (int i = 0; i < delay; i++)
                world_step(&scene.world);
            if (way == 0)
                trainer_die(trainer);
            else if (way == 1)
                session_leave(trainer->session);
            else
                member_drop(&job->members[trainer->rank], "a test");
            play_for(&scene.world, scene.ranks, RANKS, &scene.seed, 1000);
            world_wait(&scene.world, 31 * USEC_PER_SEC);
            play_out(&scene.world, job, scene.ranks, RANKS, &scene.seed);
            JobStatus status;
            job_status(job, &status);
            assert_int_equal(status.samples, 40);
            world_stop(&scene.world);
        }
}

/* A change holds from a round that no rank has begun when it is on disk. */
static void change_while_a_rank_takes_the_mean_holds_from_the_round_that_is_told(void **state)
{
    (void)state;
    Scene scene;
    Answer answer = {0};
    SettingText lr = {"optimizer.lr", "0.5"};
    begin(&scene, "average-async", 0);
    Job *job = scene.job;
    for (int i = 0; i < 1000 && !job->refreshing; i++)
        play(&scene.world, scene.ranks, RANKS, &scene.seed);
    assert_non_null(job->refreshing);
    job_update(job, &lr, 1, "uid=0", answer_round, &answer);
    play_for(&scene.world, scene.ranks, RANKS, &scene.seed, 12);
    world_settle(&scene.world);
    assert_int_equal(answer.r, 0);
    for (uint32_t r = 0; r < RANKS && job->members; r++) {
        const Member *member = &job->members[r];
        assert_int_equal(member->settings.lr == 0.5F, member->round.number >= answer.value);
    }
    play_out(&scene.world, job, scene.ranks, RANKS, &scene.seed);
    world_stop(&scene.world);
}

/* Before it has taken the mean, or while it does. */
static void newcomer_leaves_at_once(void **state)
{
    (void)state;
    for (int delay = 0; delay < 6; delay++) {
        World world = {0};
        Trainer ranks[2];
        unsigned seed = 3;
        JobSpec spec = world_spec(1, 2);
        spec.max_trainers = 2;
        strcpy(spec.policy, "average-async");
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainer_join(&world, job, 0, &ranks[0]);
        trainers_run(&world, ranks, 1, 3);
        trainer_join(&world, job, 1, &ranks[1]);
        for (int i = 0; i < delay; i++)
            world_step(&world);
        session_leave(ranks[1].session);
        play_out(&world, job, ranks, 2, &seed);
        world_assert_used_once(&world, 1, 40);
        world_stop(&world);
    }
}

/* Rank 0 is late when the policy begins: its replica is not the mean. */
static void centre_begins_with_the_mean_though_a_rank_is_late(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[3];
    unsigned seed = 3;
    Snapshot *centre;
    JobSpec spec = world_spec(3, 2);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 3);
    trainers_run(&world, ranks, 3, 1);
    trainer_die(&ranks[0]);
    assert_int_equal(world_set(&world, job, "sync.wait", "quorum:2").r, 0);
    assert_int_equal(world_set(&world, job, "sync.timeout", "1").r, 0);
    trainer_join(&world, job, 0, &ranks[0]);
    trainers_run(&world, ranks, 3, 2);
    assert_int_equal(world_set(&world, job, "sync.policy", "diloco").r, 0);
    trainers_run(&world, &ranks[1], 2, 4);
    world_wait(&world, 2 * USEC_PER_SEC);
    assert_string_equal(job->policy->name, "diloco");
    assert_int_equal(centre_snapshot_new(job->plan.graph, true, &centre), 0);
    assert_int_equal(centre_snapshot(job->common.centre, centre), 0);
    assert_memory_equal(centre->params, replica_weights(job->members[1].replica)->params,
                        centre->n_params * sizeof(float));
    snapshot_free(centre);
    play_out(&world, job, ranks, 3, &seed);
    world_stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelled_at_any_moment),
        cmocka_unit_test(stopped_at_any_moment),
        cmocka_unit_test(restored_at_any_moment),
        cmocka_unit_test(looked_at_and_saved_while_paused),
        cmocka_unit_test(rank_that_takes_the_mean_goes),
        cmocka_unit_test(change_while_a_rank_takes_the_mean_holds_from_the_round_that_is_told),
        cmocka_unit_test(newcomer_leaves_at_once),
        cmocka_unit_test(centre_begins_with_the_mean_though_a_rank_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
