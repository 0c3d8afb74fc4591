/* Whole jobs, from submission to the end. */
#include "world.h"

#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

/* ---- the run that nothing disturbs ----------------------------------------------------------- */

static uint64_t run_job(uint32_t trainers, uint32_t interval, bool backwards)
{
    World world = {0};
    Trainer ranks[8], reversed[8];
    JobSpec spec = world_spec(trainers, interval);
    world_start(&world);
    spec.epochs = 2;
    spec.samples = 37; /* the last batch of an epoch is smaller */
    Job *job = world_submit(&world, &spec);
    assert_int_equal(world_state(job), JOB_RUNNING);
    trainers_join(&world, job, ranks, trainers);
    if (backwards) {
        for (uint32_t r = 0; r < trainers; r++)
            trainer_die(&ranks[r]);
        for (uint32_t r = 0; r < trainers; r++)
            trainer_join(&world, job, trainers - 1 - r, &reversed[r]);
    }
    trainers_run(&world, backwards ? reversed : ranks, trainers, UINT64_MAX);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    world_assert_used_once(&world, 2, 37);
    for (uint32_t r = 0; r < trainers; r++)
        assert_string_equal((backwards ? reversed : ranks)[r].end, "completed");
    uint64_t checksum = world_checksum(job);
    world_stop(&world);
    return checksum;
}

static void completes_with_every_sample_used_once(void **state)
{
    (void)state;
    static const uint32_t trainers[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof trainers / sizeof *trainers; i++) {
        uint64_t checksum = run_job(trainers[i], 3, false);
        assert_int_not_equal(checksum, 0);
        assert_int_equal(run_job(trainers[i], 3, true), checksum);
    }
}

static void steps_mode_feeds_so_many_batches_each(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 4);
    spec.epochs = 0;
    spec.steps = 10;
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 2, UINT64_MAX);
    JobStatus status;
    job_status(job, &status);
    assert_int_equal(status.state, JOB_COMPLETED);
    assert_int_equal(status.step, 10);
    assert_int_equal(status.samples, 80);
    assert_int_equal(status.round, 3);
    world_stop(&world);
}

static void await_meeting(World *world, const Job *job)
{
    for (int i = 0; i < 1000 && !job->meeting; i++)
        (void)world_step(world);
    assert_true(job->meeting);
}

/* ---- recovery -------------------------------------------------------------------------------- */

static void goes_on_after_stop_and_kill_to_the_same_bits(void **state)
{
    (void)state;
    char killed[64];
    uint64_t id, checksum, round;
    World first = {.keeps_dir = true}, second = {0}, third = {0};
    Trainer ranks[3];
    JobSpec spec = world_spec(3, 3);
    spec.epochs = 3;
    strcpy(spec.optimizer, "sgd,momentum=0.9");
    world_start(&first);
    Job *job = world_submit(&first, &spec);
    id = job_id(job);
    trainers_join(&first, job, ranks, 3);
    trainers_run(&first, ranks, 3, 4);
    world_checkpoint(&first, job); /* in the middle of round 2 */
    assert_int_equal(world_set(&first, job, "sync.interval", "2").value, 3);
    trainers_run(&first, ranks, 3, 7);
    world_copy_dir(&first, killed);
    trainers_run(&first, ranks, 3, 8);
    world_stop(&first); /* with a checkpoint at step 8 */
    assert_string_equal(ranks[0].end, "stopping");

    job = world_again(&second, first.dir, id);
    assert_int_equal(world_state(job), JOB_RUNNING);
    trainers_join(&second, job, ranks, 3);
    assert_int_equal(trainer_step(&ranks[0]), 8);
    trainers_finish(&second, job, ranks, 3);
    checksum = world_checksum(job);
    round = world_round(job);
    world_stop(&second);

    job = world_again(&third, killed, id);
    trainers_join(&third, job, ranks, 3);
    assert_int_equal(trainer_step(&ranks[0]), 4);
    trainers_finish(&third, job, ranks, 3);
    assert_int_equal(world_checksum(job), checksum);
    assert_int_equal(world_round(job), round);
    world_stop(&third);
}

/* The meeting is on its way to the next round when the change is asked for: that round has begun
 * before the change is on disk, so it holds from the one after. */
static void change_during_a_meeting_holds_from_the_same_round_after_a_kill(void **state)
{
    (void)state;
    char killed[64];
    World first = {0}, second = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 2);
    Answer answer = {0};
    SettingText setting = {"sync.interval", "1"};
    spec.epochs = 2;
    Job *job = world_with_job(&first, &spec, ranks);
    uint64_t id = job_id(job);
    trainers_run(&first, ranks, 2, 1);
    world_checkpoint(&first, job);
    trainer_feed(&ranks[0]);
    trainer_feed(&ranks[1]);
    await_meeting(&first, job);
    job_update(job, &setting, 1, "uid=0 (root)", answer_round, &answer);
    world_settle(&first);
    assert_int_equal(answer.r, 0);
    world_copy_dir(&first, killed);
    trainers_finish(&first, job, ranks, 2);
    uint64_t round = world_round(job), checksum = world_checksum(job);
    world_stop(&first);

    job = world_again(&second, killed, id);
    trainers_join(&second, job, ranks, 2);
    trainers_run(&second, ranks, 2, UINT64_MAX);
    assert_int_equal(world_round(job), round);
    assert_int_equal(world_checksum(job), checksum);
    world_stop(&second);
}

static void killed_before_completed_is_on_disk_it_completes_again(void **state)
{
    (void)state;
    char killed[64];
    World first = {0}, second = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 2);
    Job *job = world_with_job(&first, &spec, ranks);
    uint64_t id = job_id(job);
    trainers_finish(&first, job, ranks, 2);
    uint64_t checksum = world_checksum(job), round = world_round(job);
    /* As if the word of its end had not been written. */
    JobRecord record = {.id = id, .state = JOB_RUNNING, .result = "{}"};
    assert_int_equal(store_job_update(first.store, &record, NULL, NULL), 0);
    world_copy_dir(&first, killed);
    world_stop(&first);

    job = world_again(&second, killed, id);
    world_settle(&second);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    assert_int_equal(world_checksum(job), checksum);
    assert_int_equal(world_round(job), round);
    world_stop(&second);
}

/* ---- trainers that go ------------------------------------------------------------------------ */

static void lost_trainer_is_dropped_and_the_others_use_its_samples(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[3];
    JobSpec spec = world_spec(3, 2);
    spec.epochs = 2;
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 3, 3);
    trainer_die(&ranks[1]);
    trainers_run(&world, ranks, 3, UINT64_MAX);
    assert_int_equal(world_state(job), JOB_RUNNING); /* the meeting waits for it */
    MemberStatus waiting;
    job_member_status(job, 0, &waiting);
    assert_string_equal(waiting.state, "waiting");
    assert_non_null(strstr(waiting.waiting_for, "rank 1 (no trainer: its connection was closed)"));
    world_wait(&world, 31 * USEC_PER_SEC);
    assert_int_equal(world_events(&world, job, "trainer", "rank 1 dropped"), 1);
    trainers_finish(&world, job, ranks, 3);
    world_assert_used_once(&world, 2, 40);
    world_stop(&world);
}

static void lost_trainer_that_comes_in_time_changes_nothing(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 3);
    spec.epochs = 2;
    spec.samples = 37;
    uint64_t undisturbed = run_job(2, 3, false);
    Job *job = world_with_job(&world, &spec, ranks);
    for (uint64_t step = 1; step < 8; step++) {
        trainers_run(&world, ranks, 2, step);
        trainer_feed(&ranks[1]);
        trainer_die(&ranks[1]); /* with a step in flight */
        world_wait(&world, 29 * USEC_PER_SEC);
        trainer_join(&world, job, 1, &ranks[1]);
    }
    trainers_finish(&world, job, ranks, 2);
    assert_int_equal(world_checksum(job), undisturbed);
    world_stop(&world);
}

static void dropped_rank_is_taken_back_at_the_next_round(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    Error err = {0};
    JobSpec spec = world_spec(2, 2);
    spec.epochs = 2;
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 2, 3);
    trainer_die(&ranks[1]);
    world_wait(&world, 31 * USEC_PER_SEC);
    assert_int_equal(trainer_try_join(&world, job, 1, &ranks[1], &err), -EAGAIN);
    trainers_run(&world, ranks, 1, 4);
    trainer_join(&world, job, 1, &ranks[1]);
    assert_int_equal(trainer_step(&ranks[1]), 4);
    trainers_finish(&world, job, ranks, 2);
    world_assert_used_once(&world, 2, 40);
    world_stop(&world);
}

static void last_rank_dropped_is_taken_back_at_once(void **state)
{
    (void)state;
    World world = {0};
    Trainer rank;
    JobSpec spec = world_spec(1, 4);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainer_join(&world, job, 0, &rank);
    trainers_run(&world, &rank, 1, 2);
    trainer_die(&rank);
    world_wait(&world, 31 * USEC_PER_SEC);
    JobStatus status;
    job_status(job, &status);
    assert_non_null(strstr(status.reason, "waiting for trainers"));
    trainer_join(&world, job, 0, &rank);
    trainers_run(&world, &rank, 1, UINT64_MAX);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    world_assert_used_once(&world, 1, 40);
    world_stop(&world);
}

/* What is on the lane when a trainer goes is done by it, and by nobody else. */
static void leaving_with_a_step_in_flight_uses_the_batch_once(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 5);
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 2, 1);
    assert_true(trainer_feed(&ranks[1]));
    session_leave(ranks[1].session);
    assert_null(ranks[1].session);
    trainers_finish(&world, job, ranks, 2);
    world_assert_used_once(&world, 1, 40);
    JobStatus status;
    job_status(job, &status);
    assert_int_equal(status.samples, 40);
    world_stop(&world);
}

static void silence_beyond_rejoin_with_a_step_in_flight_uses_the_batch_once(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 5);
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 2, 1);
    assert_true(trainer_feed(&ranks[1]));
    trainer_die(&ranks[1]);
    member_drop(&job->members[1], "a slow lane, a short rejoin");
    trainers_finish(&world, job, ranks, 2);
    world_assert_used_once(&world, 1, 40);
    world_stop(&world);
}

static void leaving_before_the_meeting_still_counts(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 2);
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, &ranks[1], 1, 2);
    session_leave(ranks[1].session);
    assert_true(job->members[1].place == MEMBER_LIVE);
    trainers_run(&world, ranks, 1, 2);
    assert_int_equal(world_round(job), 2);
    assert_true(job->members[1].place == MEMBER_DROPPED);
    trainers_finish(&world, job, ranks, 1);
    world_assert_used_once(&world, 1, 40);
    world_stop(&world);
}

/* A rank with nothing left to do gets what a dropped one leaves: it no longer waits. */
static void who_gets_returned_batches_no_longer_waits(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    MemberStatus status;
    JobSpec spec = world_spec(2, 100);
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 1, UINT64_MAX);
    job_member_status(job, 0, &status);
    assert_string_equal(status.state, "waiting");
    trainer_die(&ranks[1]);
    world_wait(&world, 31 * USEC_PER_SEC);
    job_member_status(job, 0, &status);
    assert_string_not_equal(status.state, "waiting");
    trainers_finish(&world, job, ranks, 1);
    world_assert_used_once(&world, 1, 40);
    world_stop(&world);
}

static void replica_with_infinite_numbers_is_kept_out_and_named(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[3];
    JobSpec spec = world_spec(3, 2);
    spec.epochs = 2;
    Job *job = world_with_job(&world, &spec, ranks);
    ranks[1].poisoned = true;
    trainers_run(&world, ranks, 3, 2);
    assert_int_equal(world_round(job), 2);
    assert_int_equal(world_events(&world, job, "quarantine", "rank 1: its replica has NaN"), 1);
    assert_int_equal(world_events(&world, job, "quarantine", ""), 1);
    trainers_finish(&world, job, ranks, 3);
    assert_int_equal(world_events(&world, job, "quarantine", ""), 1);
    world_stop(&world);
}

static void only_infinite_replicas_pause_the_job(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[1];
    JobSpec spec = world_spec(1, 2);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 1);
    uint64_t good = world_checkpoint(&world, job);
    ranks[0].poisoned = true;
    trainers_run(&world, ranks, 1, UINT64_MAX);
    JobStatus status;
    job_status(job, &status);
    assert_int_equal(status.state, JOB_PAUSED);
    assert_non_null(strstr(status.reason, "NaN or infinite"));
    assert_int_equal(world_restore(&world, job, good).r, 0);
    trainers_join(&world, job, ranks, 1);
    trainers_run(&world, ranks, 1, UINT64_MAX);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    world_stop(&world);
}

/* ---- what users do --------------------------------------------------------------------------- */

static Answer ask(World *world, Job *job, void (*verb)(Job *, const char *, JobDone, void *))
{
    Answer answer = {0};
    verb(job, "uid=0 (root)", answer_done, &answer);
    world_settle(world);
    assert_int_equal(answer.called, 1);
    return answer;
}

static void pause_and_resume_change_no_bit(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 3);
    spec.epochs = 2;
    spec.samples = 37;
    uint64_t undisturbed = run_job(2, 3, false);
    Job *job = world_with_job(&world, &spec, ranks);
    for (uint64_t step = 1; step < 7; step++) {
        trainers_run(&world, ranks, 2, step);
        assert_int_equal(ask(&world, job, job_pause).r, 0);
        assert_int_equal(world_state(job), JOB_PAUSED);
        trainers_run(&world, ranks, 2, step + 1);
        assert_int_equal(trainer_step(&ranks[0]), step);
        assert_int_equal(ask(&world, job, job_pause).r, -ESTALE);
        assert_int_equal(ask(&world, job, job_resume).r, 0);
    }
    trainers_finish(&world, job, ranks, 2);
    assert_int_equal(world_checksum(job), undisturbed);
    world_stop(&world);
}

static void stays_paused_over_a_restart(void **state)
{
    (void)state;
    World first = {.keeps_dir = true}, second = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 3);
    Job *job = world_with_job(&first, &spec, ranks);
    uint64_t id = job_id(job);
    trainers_run(&first, ranks, 2, 2);
    ask(&first, job, job_pause);
    world_stop(&first);
    job = world_again(&second, first.dir, id);
    assert_int_equal(world_state(job), JOB_PAUSED);
    assert_int_equal(world_set(&second, job, "sync.interval", "1").value, 2);
    assert_int_equal(ask(&second, job, job_resume).r, 0);
    assert_int_equal(world_state(job), JOB_RUNNING);
    trainers_join(&second, job, ranks, 2);
    assert_int_equal(trainer_step(&ranks[1]), 2);
    trainers_finish(&second, job, ranks, 2);
    assert_int_equal(world_round(job), 3); /* 3, 1, 1 steps */
    world_stop(&second);
}

/* All is done that was asked for when the pause comes: the job ends all the same. */
static void paused_during_its_last_meeting_it_completes(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    Answer answer = {0};
    JobSpec spec = world_spec(2, 5);
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 2, 4);
    trainer_feed(&ranks[0]);
    trainer_feed(&ranks[1]);
    await_meeting(&world, job);
    job_pause(job, "uid=0 (root)", answer_done, &answer);
    assert_int_equal(answer.r, 0);
    world_settle(&world);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    world_stop(&world);
}

static void cancel_ends_at_any_moment(void **state)
{
    (void)state;
    for (unsigned tasks = 0; tasks < 40; tasks++) {
        World world = {0};
        Trainer ranks[2];
        JobSpec spec = world_spec(2, 1);
        spec.checkpoint_rounds = 1;
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainers_join(&world, job, ranks, 2);
        for (unsigned i = 0; i < tasks; i++) {
            trainer_feed(&ranks[0]);
            trainer_feed(&ranks[1]);
            world_step(&world);
        }
        if (ask(&world, job, job_cancel).r == 0) {
            assert_int_equal(world_state(job), JOB_CANCELLED);
            assert_string_equal(ranks[0].end, "cancelled");
        }
        assert_null(job->members);
        world_stop(&world);
    }
}

static void cancel_while_it_is_restored_answers_both(void **state)
{
    (void)state;
    for (unsigned tasks = 0; tasks < 12; tasks++) {
        World world = {0};
        Answer restored = {0}, cancelled = {0};
        JobSpec spec = world_spec(2, 1);
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        ask(&world, job, job_pause);
        job_restore(job, 0, "uid=0 (root)", answer_done, &restored);
        for (unsigned i = 0; i < tasks; i++)
            world_step(&world);
        job_cancel(job, "uid=0 (root)", answer_done, &cancelled);
        world_settle(&world);
        assert_int_equal(restored.called, 1);
        assert_int_equal(cancelled.called, 1);
        assert_int_equal(world_state(job), JOB_CANCELLED);
        world_stop(&world);
    }
}

static void restore_goes_back_to_the_same_curve(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 2);
    spec.epochs = 2;
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 2, 3);
    uint64_t middle = world_checkpoint(&world, job);
    trainers_run(&world, ranks, 2, UINT64_MAX);
    uint64_t checksum = world_checksum(job);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    for (int i = 0; i < 2; i++) { /* of one that has ended, then of one that runs */
        assert_int_equal(world_restore(&world, job, middle).r, 0);
        assert_int_equal(world_state(job), JOB_RUNNING);
        trainers_join(&world, job, ranks, 2);
        assert_int_equal(trainer_step(&ranks[0]), 3);
        trainers_run(&world, ranks, 2, i ? UINT64_MAX : 6);
    }
    assert_int_equal(world_state(job), JOB_COMPLETED);
    assert_int_equal(world_checksum(job), checksum);
    assert_int_equal(world_restore(&world, job, middle + 100).r, -ENOENT);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    world_stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completes_with_every_sample_used_once),
        cmocka_unit_test(steps_mode_feeds_so_many_batches_each),
        cmocka_unit_test(goes_on_after_stop_and_kill_to_the_same_bits),
        cmocka_unit_test(change_during_a_meeting_holds_from_the_same_round_after_a_kill),
        cmocka_unit_test(killed_before_completed_is_on_disk_it_completes_again),
        cmocka_unit_test(lost_trainer_is_dropped_and_the_others_use_its_samples),
        cmocka_unit_test(lost_trainer_that_comes_in_time_changes_nothing),
        cmocka_unit_test(dropped_rank_is_taken_back_at_the_next_round),
        cmocka_unit_test(last_rank_dropped_is_taken_back_at_once),
        cmocka_unit_test(leaving_with_a_step_in_flight_uses_the_batch_once),
        cmocka_unit_test(silence_beyond_rejoin_with_a_step_in_flight_uses_the_batch_once),
        cmocka_unit_test(leaving_before_the_meeting_still_counts),
        cmocka_unit_test(who_gets_returned_batches_no_longer_waits),
        cmocka_unit_test(replica_with_infinite_numbers_is_kept_out_and_named),
        cmocka_unit_test(only_infinite_replicas_pause_the_job),
        cmocka_unit_test(pause_and_resume_change_no_bit),
        cmocka_unit_test(stays_paused_over_a_restart),
        cmocka_unit_test(paused_during_its_last_meeting_it_completes),
        cmocka_unit_test(cancel_ends_at_any_moment),
        cmocka_unit_test(cancel_while_it_is_restored_answers_both),
        cmocka_unit_test(restore_goes_back_to_the_same_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
