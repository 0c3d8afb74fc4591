/* What goes wrong, and what is asked for at the wrong moment. */
#include "world.h"

#include <string.h>

#include "base/clock.h"
#include "job/evaluator.h"
#include "job/job_internal.h"

/* ---- a store that refuses checkpoints -------------------------------------------------------- */

int __real_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data);
int __wrap_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data);

static unsigned refusals; /* of saves to come */

int __wrap_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data)
{
    if (refusals > 0) {
        refusals--;
        return -EAGAIN;
    }
    return __real_store_checkpoint_save(store, checkpoint, parts, n, keep, done, data);
}

static void result_is_saved_when_the_store_can_again(void **state)
{
    (void)state;
    World world = {0};
    Trainer rank;
    Answer asked = {0};
    JobSpec spec = world_spec(1, 5);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainer_join(&world, job, 0, &rank);
    refusals = 3;
    trainers_run(&world, &rank, 1, UINT64_MAX);
    JobStatus status;
    job_status(job, &status);
    assert_int_equal(status.state, JOB_RUNNING);
    assert_non_null(strstr(status.reason, "cannot save the result, trying again"));
    job_checkpoint(job, answer_checkpoint, &asked); /* with the timer of the next attempt armed */
    world_settle(&world);
    assert_int_equal(asked.r, -EAGAIN);
    world_wait(&world, 20 * USEC_PER_SEC);
    assert_int_equal(refusals, 0);
    assert_int_equal(world_state(job), JOB_COMPLETED);
    assert_string_equal(rank.end, "completed");
    world_stop(&world);
}

static void who_asks_after_a_cut_that_fails_gets_the_next(void **state)
{
    (void)state;
    World world = {0};
    Answer first = {0}, second = {0};
    JobSpec spec = world_spec(2, 5);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    refusals = 1;
    job_checkpoint(job, answer_checkpoint, &first);
    assert_true(job->checkpoint.cutting);
    job_checkpoint(job, answer_checkpoint, &second);
    world_settle(&world);
    assert_int_equal(first.called, 1);
    assert_int_equal(first.r, -EAGAIN);
    assert_int_equal(second.called, 1);
    assert_int_equal(second.r, 0);
    world_stop(&world);
}

static void stopping_ends_though_nothing_can_be_saved(void **state)
{
    (void)state;
    World world = {0};
    JobSpec spec = world_spec(2, 5);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    job_checkpoint(job, answer_checkpoint, &(Answer){0});
    refusals = 5;
    world_stop(&world);
    refusals = 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void two_restores_at_once_leave_a_job_that_runs(void **state)
{
    (void)state;
    World world = {0};
    Answer first = {0}, second = {0};
    JobSpec spec = world_spec(2, 5);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    world_checkpoint(&world, job);
    for (int delay = 0; delay < 8; delay++) {
        first = second = (Answer){0};
        job_restore(job, 0, "uid=0 (root)", answer_done, &first);
        for (int i = 0; i < delay; i++)
            world_step(&world);
        job_restore(job, 0, "uid=0 (root)", answer_done, &second);
        world_settle(&world);
        assert_int_equal(first.called + second.called, 2);
        assert_int_equal(first.r, 0);
        assert_int_equal(world_state(job), JOB_RUNNING);
    }
    world_stop(&world);
}

static void let_go(void *owner)
{
    ++*(unsigned *)owner;
}

/* With an evaluation's task on a lane while the replicas are made. */
static void restored_during_an_evaluation_it_runs(void **state)
{
    (void)state;
    for (int delay = 0; delay < 12; delay++) {
        World world = {0};
        Trainer rank;
        Evaluator *evaluator;
        Answer ready = {0}, ran = {0}, restored = {0};
        OwnedBatch batch;
        unsigned released = 0;
        JobSpec spec = world_spec(1, 5);
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainer_join(&world, job, 0, &rank);
        trainers_run(&world, &rank, 1, UINT64_MAX);
        assert_int_equal(world_state(job), JOB_COMPLETED);
        assert_int_equal(evaluator_new(job, 0, answer_done, &ready, &evaluator), 0);
        world_settle(&world);
        assert_int_equal(ready.r, 0);
        world_batch(NULL, 8, &batch);
        job_restore(job, 0, "uid=0 (root)", answer_done, &restored);
        for (int i = 0; i < delay; i++)
            world_step(&world);
        evaluator_run(evaluator, &batch.batch, &released, let_go, answer_done, &ran);
        world_settle(&world);
        assert_int_equal(ran.r, 0);
        assert_int_equal(released, 1);
        assert_int_equal(evaluator_total(evaluator)->samples, 8);
        assert_int_equal(restored.called, 1);
        evaluator_free(evaluator);
        batch.release(batch.owner);
        world_settle(&world);
        assert_int_equal(world_state(job), JOB_COMPLETED); /* nothing was left to do */
        world_stop(&world);
    }
}

static void evaluator_ends_at_any_moment(void **state)
{
    (void)state;
    for (int delay = 0; delay < 10; delay++) {
        World world = {0};
        Evaluator *evaluator;
        Answer ready = {0}, ran = {0};
        OwnedBatch batch;
        unsigned released = 0;
        JobSpec spec = world_spec(2, 5);
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        world_batch(NULL, 8, &batch);
        assert_int_equal(evaluator_new(job, 0, answer_done, &ready, &evaluator), 0);
        for (int i = 0; i < delay && !ready.called; i++)
            world_step(&world);
        if (ready.called)
            evaluator_run(evaluator, &batch.batch, &released, let_go, answer_done, &ran);
        evaluator_free(evaluator);
        world_settle(&world);
        assert_int_equal(ran.called, 0);
        assert_int_equal(released, (unsigned)ready.called);
        batch.release(batch.owner);
        world_stop(&world);
    }
}

static uint64_t inserted;

static void on_inserted(void *data, int r, const Error *err, uint64_t id)
{
    (void)data;
    (void)err;
    assert_int_equal(r, 0);
    inserted = id;
}

static uint64_t insert(World *world, JobState job_state_, const char *backend)
{
    char *json;
    JobSpec spec = world_spec(1, 5);
    strcpy(spec.backend, backend);
    strcpy(spec.policy, "average");
    strcpy(spec.loss, "cross-entropy");
    strcpy(spec.optimizer, "sgd");
    spec.threads = spec.checkpoint_keep = spec.checkpoint_rounds = 1;
    assert_int_equal(job_spec_to_json(&spec, &json), 0);
    JobRecord record = {.name = "a job", .spec = json, .owner = "uid=0", .state = (int)job_state_};
    assert_int_equal(store_job_insert(world->store, &record, on_inserted, NULL), 0);
    world_settle(world);
    free(json);
    return inserted;
}

/* As after an update of dpsd that has a backend less. */
static void queued_job_that_cannot_be_loaded_fails(void **state)
{
    (void)state;
    World first = {.keeps_dir = true}, second = {0};
    world_start(&first);
    uint64_t bad = insert(&first, JOB_QUEUED, "abacus"), good = insert(&first, JOB_QUEUED, "ref");
    strcpy(second.dir, first.dir);
    world_stop(&first);
    world_start(&second);
    JobStatus status;
    job_status(manager_find(second.jobs, bad), &status);
    assert_int_equal(status.state, JOB_FAILED);
    assert_non_null(strstr(status.reason, "abacus"));
    assert_int_equal(world_state(manager_find(second.jobs, good)), JOB_RUNNING);
    world_stop(&second);
}

static void jobs_that_ran_come_before_queued_ones(void **state)
{
    (void)state;
    World first = {.keeps_dir = true}, second = {.max_running = 2};
    world_start(&first);
    uint64_t queued = insert(&first, JOB_QUEUED, "ref");
    insert(&first, JOB_RUNNING, "ref");
    insert(&first, JOB_RUNNING, "ref");
    strcpy(second.dir, first.dir);
    world_stop(&first);
    world_start(&second);
    assert_int_equal(manager_running(second.jobs), 2);
    assert_int_equal(world_state(manager_find(second.jobs, queued)), JOB_QUEUED);
    Answer cancelled = {0};
    job_cancel(manager_job(second.jobs, 1), "uid=0", answer_done, &cancelled);
    world_settle(&second);
    assert_int_equal(world_state(manager_find(second.jobs, queued)), JOB_RUNNING);
    world_stop(&second);
}

/* keep=1: each checkpoint prunes the one before, also the one that is about to be restored. */
static void checkpoint_to_be_restored_is_not_pruned(void **state)
{
    (void)state;
    for (int delay = 0; delay < 6; delay++) {
        World world = {0};
        Answer restored = {0}, saved = {0};
        JobSpec spec = world_spec(1, 5);
        spec.checkpoint_keep = 1;
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        uint64_t id = world_checkpoint(&world, job);
        job_restore(job, id, "uid=0 (root)", answer_done, &restored);
        for (int i = 0; i < delay; i++)
            world_step(&world);
        job_checkpoint(job, answer_checkpoint, &saved);
        world_settle(&world);
        assert_int_equal(restored.called, 1);
        assert_int_equal(restored.r, 0);
        assert_int_equal(world_state(job), JOB_RUNNING);
        world_stop(&world);
    }
}

static void stop_during_a_restore_answers_it(void **state)
{
    (void)state;
    for (int delay = 0; delay < 8; delay++) {
        World world = {0};
        Answer restored = {0};
        JobSpec spec = world_spec(2, 5);
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        world_checkpoint(&world, job);
        job_restore(job, 0, "uid=0 (root)", answer_done, &restored);
        for (int i = 0; i < delay; i++)
            world_step(&world);
        world_stop(&world);
        assert_int_equal(restored.called, 1);
    }
}

/* ---- settings -------------------------------------------------------------------------------- */

static void changes_are_bounded_by_number_not_by_requests(void **state)
{
    (void)state;
    enum { REQUESTS = 64, EACH = 32 };
    World world = {0};
    static Answer answers[REQUESTS];
    SettingText settings[EACH];
    JobSpec spec = world_spec(1, 5);
    memset(answers, 0, sizeof answers);
    for (int i = 0; i < EACH; i++)
        settings[i] = (SettingText){"sync.interval", i == EACH - 1 ? "2" : "3"};
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    for (int i = 0; i < REQUESTS; i++)
        job_update(job, settings, EACH, "uid=0 (root)", answer_round, &answers[i]);
    world_settle(&world);
    int taken = 0;
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(answers[i].called, 1);
        taken += answers[i].r == 0;
        if (answers[i].r < 0)
            assert_int_equal(answers[i].r, -ENOBUFS);
    }
    assert_int_equal(taken * EACH, JOB_MAX_PENDING_SETTINGS);
    Trainer rank;
    trainer_join(&world, job, 0, &rank);
    trainers_run(&world, &rank, 1, 7); /* 5, 2 */
    assert_int_equal(world_round(job), 3);
    assert_int_equal(world_set(&world, job, "sync.interval", "4").r, 0);
    world_stop(&world);
}

/* All or none. */
static void one_bad_change_refuses_them_all(void **state)
{
    (void)state;
    World world = {0};
    Answer answer = {0};
    SettingText settings[] = {{"sync.interval", "3"}, {"optimizer.lr", "fast"}};
    JobSpec spec = world_spec(1, 2);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    job_update(job, settings, 2, "uid=0 (root)", answer_round, &answer);
    assert_int_equal(answer.r, -EINVAL);
    assert_string_equal(answer.message, "optimizer.lr=fast: it takes a number of 0 or more");
    assert_int_equal(world_set(&world, job, "colour", "red").r, -EINVAL);
    assert_int_equal(world_events(&world, job, "setting", ""), 0);
    world_stop(&world);
}

/* ---- managed trainers ------------------------------------------------------------------------ */

static void exit_launch(World *world, unsigned i)
{
    Launch *entry = &world->launches[i];
    assert_true(entry->running);
    entry->running = false;
    entry->on_exit(entry->data, false, "killed by signal 9");
}

static JobSpec managed_spec(uint32_t trainers)
{
    JobSpec spec = world_spec(trainers, 5);
    spec.external_trainers = false;
    return spec;
}

static int join_with(World *world, Job *job, uint32_t rank, const char *token, Session **ret)
{
    Error err = {0};
    JoinWant want = {.rank = rank, .token = token, .client = "a test"};
    return session_open(world->sessions, job, &want, 1000, ret, &err);
}

static void managed_trainers_join_by_their_token_only(void **state)
{
    (void)state;
    World world = {0};
    Session *session;
    JobSpec spec = managed_spec(2);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    assert_int_equal(world.n_launches, 2);
    assert_int_equal(world.launches[1].rank, 1);
    assert_int_equal(join_with(&world, job, 0, "", &session), -EPERM);
    assert_int_equal(join_with(&world, job, 0, world.launches[1].token, &session), -EPERM);
    assert_int_equal(join_with(&world, job, 0, world.launches[0].token, &session), 0);
    assert_int_equal(join_with(&world, job, 0, world.launches[0].token, &session), -EBUSY);
    world_stop(&world);
    assert_int_equal(world.lost_launches, 2);
}

static void trainer_that_ends_is_started_again_with_growing_pauses(void **state)
{
    (void)state;
    World world = {.trainer_restarts = 3};
    JobSpec spec = managed_spec(1);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    exit_launch(&world, 0);
    world_wait(&world, 399 * USEC_PER_MSEC);
    assert_int_equal(world.n_launches, 1);
    world_wait(&world, 2 * USEC_PER_MSEC);
    assert_int_equal(world.n_launches, 2);
    exit_launch(&world, 1);
    world_wait(&world, 790 * USEC_PER_MSEC);
    assert_int_equal(world.n_launches, 2);
    world_wait(&world, 20 * USEC_PER_MSEC);
    assert_int_equal(world.n_launches, 3);
    exit_launch(&world, 2);
    world_wait(&world, 2 * USEC_PER_SEC);
    exit_launch(&world, 3);
    JobStatus status;
    job_status(job, &status);
    assert_int_equal(status.state, JOB_FAILED);
    assert_non_null(strstr(status.reason, "ended 4 times without a step"));
    assert_non_null(strstr(status.reason, "killed by signal 9"));
    world_stop(&world);
}

static void trainer_that_hangs_is_replaced(void **state)
{
    (void)state;
    World world = {0};
    Session *session;
    JobSpec spec = managed_spec(1);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    assert_int_equal(join_with(&world, job, 0, world.launches[0].token, &session), 0);
    session_table_disconnected(world.sessions, 1000);
    world_wait(&world, 4900 * USEC_PER_MSEC);
    assert_int_equal(world.lost_launches, 0);
    world_wait(&world, 1 * USEC_PER_SEC);
    assert_int_equal(world.lost_launches, 1);
    assert_int_equal(world.n_launches, 2);
    assert_int_equal(world_events(&world, job, "trainer", "hangs"), 1);
    assert_int_equal(join_with(&world, job, 0, world.launches[1].token, &session), 0);
    world_wait(&world, 60 * USEC_PER_SEC);
    assert_int_equal(world.n_launches, 2);
    world_stop(&world);
}

/* The one that hangs is not the one that came after it. */
static void trainer_that_was_started_again_is_not_taken_for_a_hanging_one(void **state)
{
    (void)state;
    World world = {0};
    Session *session;
    JobSpec spec = managed_spec(1);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    assert_int_equal(join_with(&world, job, 0, world.launches[0].token, &session), 0);
    session_table_disconnected(world.sessions, 1000);
    exit_launch(&world, 0);
    world_wait(&world, 10 * USEC_PER_SEC);
    assert_int_equal(world.n_launches, 2);
    assert_int_equal(world.lost_launches, 0);
    world_stop(&world);
}

static void job_whose_trainers_cannot_be_started_fails(void **state)
{
    (void)state;
    World world = {.launching_fails = true};
    JobSpec spec = managed_spec(3);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    world_wait(&world, 60 * USEC_PER_SEC);
    JobStatus status;
    job_status(job, &status);
    assert_int_equal(status.state, JOB_FAILED);
    assert_non_null(strstr(status.reason, "no such program"));
    world_stop(&world);
}

/* Rank 0 is given up while rank 1, dropped for being late, is on its way back. */
static void one_rank_given_up_does_not_fail_the_job(void **state)
{
    (void)state;
    World world = {.rejoin_us = 100 * USEC_PER_MSEC, .trainer_restarts = 1};
    Session *session;
    JobSpec spec = managed_spec(2);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    assert_int_equal(join_with(&world, job, 1, world.launches[1].token, &session), 0);
    session_table_disconnected(world.sessions, 1000);
    world_wait(&world, 200 * USEC_PER_MSEC);
    assert_true(job->members[1].place == MEMBER_DROPPED);
    exit_launch(&world, 0);
    world_wait(&world, 2 * USEC_PER_SEC);
    exit_launch(&world, 2);
    assert_true(job->members[0].managed.given_up);
    assert_int_equal(world_state(job), JOB_RUNNING);
    assert_int_equal(join_with(&world, job, 1, world.launches[1].token, &session), 0);
    world_stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_is_saved_when_the_store_can_again),
        cmocka_unit_test(who_asks_after_a_cut_that_fails_gets_the_next),
        cmocka_unit_test(stopping_ends_though_nothing_can_be_saved),
        cmocka_unit_test(two_restores_at_once_leave_a_job_that_runs),
        cmocka_unit_test(restored_during_an_evaluation_it_runs),
        cmocka_unit_test(evaluator_ends_at_any_moment),
        cmocka_unit_test(queued_job_that_cannot_be_loaded_fails),
        cmocka_unit_test(jobs_that_ran_come_before_queued_ones),
        cmocka_unit_test(checkpoint_to_be_restored_is_not_pruned),
        cmocka_unit_test(stop_during_a_restore_answers_it),
        cmocka_unit_test(changes_are_bounded_by_number_not_by_requests),
        cmocka_unit_test(one_bad_change_refuses_them_all),
        cmocka_unit_test(managed_trainers_join_by_their_token_only),
        cmocka_unit_test(trainer_that_ends_is_started_again_with_growing_pauses),
        cmocka_unit_test(trainer_that_hangs_is_replaced),
        cmocka_unit_test(trainer_that_was_started_again_is_not_taken_for_a_hanging_one),
        cmocka_unit_test(job_whose_trainers_cannot_be_started_fails),
        cmocka_unit_test(one_rank_given_up_does_not_fail_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
