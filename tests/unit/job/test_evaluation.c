/* Evaluation while training: when it begins, what it finds, what ends it, and what comes after. Its
 * process is played by the test. */
#include "world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

/* One trainer, K=1, ten batches: ten rounds. */
static JobSpec evaluated(const char *every, const char *stop_when)
{
    JobSpec spec = world_spec(1, 1);
    snprintf(spec.eval_data, sizeof spec.eval_data, "synthetic");
    snprintf(spec.stop_when, sizeof spec.stop_when, "%s", stop_when);
    spec.n_settings = 1;
    snprintf(spec.settings[0].key, sizeof spec.settings[0].key, "eval.every");
    snprintf(spec.settings[0].value, sizeof spec.settings[0].value, "%s", every);
    return spec;
}

static void refused(const JobSpec *spec, const char *says)
{
    static const JobDefaults defaults = {.checkpoint_rounds = 10, .checkpoint_keep = 3};
    JobSpec copy = *spec;
    JobPlan plan = {0};
    Error err = {0};
    int r = job_spec_resolve(&copy, &defaults, &plan, &err);
    if (r != -EINVAL || !strstr(err.message, says))
        fail_msg("%d %s", r, err.message);
}

static void a_spec_has_what_its_evaluations_need(void **state)
{
    (void)state;
    JobSpec no_data = evaluated("2", ""), never = evaluated("0", "accuracy>=0.5");
    JobSpec no_accuracy = evaluated("2", "accuracy>=0.5"), slip = evaluated("2", "accuracy>=50");
    no_data.eval_data[0] = '\0';
    snprintf(no_accuracy.loss, sizeof no_accuracy.loss, "mse");
    refused(&no_data, "nothing to evaluate on");
    refused(&never, "no evaluation would decide it");
    refused(&no_accuracy, "there is no accuracy; write loss<=X");
    refused(&slip, "98 % is 0.98");
}

/* ---- a job whose evaluator is played --------------------------------------------------------- */

typedef struct Play {
    World world;
    Job *job;
    Trainer trainer;
} Play;

static void play_start(Play *play, const JobSpec *spec)
{
    world_start(&play->world);
    play->job = world_submit(&play->world, spec);
    trainer_join(&play->world, play->job, 0, &play->trainer);
}

static void train_to(Play *play, uint64_t step)
{
    trainers_run(&play->world, &play->trainer, 1, step);
}

/* The evaluator that runs, or NULL. */
static Launch *evaluator(Play *play)
{
    World *world = &play->world;
    for (unsigned i = 0; i < world->n_launches; i++)
        if (world->launches[i].running)
            return &world->launches[i];
    return NULL;
}

static Answer record(Play *play, const char *token, uint64_t checkpoint, int correct, double loss)
{
    Answer answer = {0};
    Evaluation total = {.correct = correct, .samples = 10, .loss_sum = 10 * loss};
    job_evaluation_record(play->job, checkpoint, token, &total, answer_done, &answer);
    world_settle(&play->world);
    assert_int_equal(answer.called, 1);
    return answer;
}

static void evaluator_exits(Play *play, const char *how)
{
    Launch *launch = evaluator(play);
    assert_non_null(launch);
    launch->running = false;
    launch->on_exit(launch->data, strcmp(how, "exit status 0") == 0, how);
    world_settle(&play->world);
}

/* Of ten samples; then the process ends. */
static void finds(Play *play, int correct, double loss)
{
    const Launch *launch = evaluator(play);
    assert_non_null(launch);
    Answer answer = record(play, launch->token, play->job->evaluation.checkpoint, correct, loss);
    if (answer.r < 0)
        fail_msg("not recorded: %s", answer.message);
    evaluator_exits(play, "exit status 0");
}

static JobStatus status_of(const Play *play)
{
    JobStatus status;
    job_status(play->job, &status);
    return status;
}

typedef struct Best {
    uint64_t checkpoint;
    size_t in_use;
} Best;

static void on_list(void *data, int r, const Error *err, const CheckpointRecord *checkpoints,
                    size_t n)
{
    Best *best = data;
    (void)err;
    assert_int_equal(r, 0);
    for (size_t i = 0; i < n; i++) {
        best->in_use += checkpoints[i].in_use;
        if (checkpoints[i].best)
            best->checkpoint = checkpoints[i].id;
    }
}

static uint64_t best_checkpoint(Play *play)
{
    Best best = {0};
    assert_int_equal(
        store_checkpoints_list(play->world.store, job_id(play->job), false, on_list, &best), 0);
    world_settle(&play->world);
    assert_int_equal(best.in_use, evaluator(play) != NULL);
    return best.checkpoint;
}

/* ---- a store that takes its time ------------------------------------------------------------- */

int __real_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data);
int __wrap_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data);

typedef struct Save {
    Store *store;
    CheckpointRecord record;
    const CheckpointPart *parts;
    size_t n;
    StoreCheckpointSaved done;
    void *data;
} Save;

static bool hold_saves;
static Save held; /* store: NULL where there is none */

int __wrap_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data)
{
    if (!hold_saves)
        return __real_store_checkpoint_save(store, checkpoint, parts, n, keep, done, data);
    assert_null(held.store);
    held = (Save){store, *checkpoint, parts, n, done, data};
    return 0;
}

static void let_saves_go(Play *play)
{
    hold_saves = false;
    assert_int_equal(__real_store_checkpoint_save(held.store, &held.record, held.parts, held.n, 0,
                                                  held.done, held.data),
                     0);
    held.store = NULL;
    world_settle(&play->world);
}

/* ---- when ------------------------------------------------------------------------------------ */

static void every_second_round_is_evaluated(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    train_to(&play, 1);
    assert_null(evaluator(&play));
    for (uint64_t round = 2; round <= 10; round += 2) {
        train_to(&play, round);
        assert_non_null(evaluator(&play));
        assert_int_equal(play.job->evaluation.round, round);
        assert_int_equal(play.job->evaluation.checkpoint, status_of(&play).checkpoint);
        finds(&play, 5, 1);
        JobStatus status = status_of(&play);
        assert_true(status.accuracy == 0.5);
        assert_int_equal(status.accuracy_round, round);
    }
    assert_int_equal(world_state(play.job), JOB_COMPLETED);
    assert_int_equal(world_events(&play.world, play.job, "evaluation", "accuracy 0.5000"), 5);
    world_stop(&play.world);
}

static void one_at_a_time_and_what_is_skipped_is_told_once(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("1", "");
    play_start(&play, &spec);
    train_to(&play, 5);
    assert_int_equal(play.world.n_launches, 1);
    assert_int_equal(play.job->evaluation.round, 1);
    assert_int_equal(world_events(&play.world, play.job, "evaluation", "is not evaluated"), 1);
    finds(&play, 5, 1);
    assert_int_equal(
        world_events(&play.world, play.job, "evaluation", "4 evaluations were due while"), 1);
    train_to(&play, 6);
    assert_int_equal(play.job->evaluation.round, 6);
    finds(&play, 5, 1);
    world_stop(&play.world);
}

static void the_last_round_is_not_skipped_and_the_end_waits(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("5", "");
    play_start(&play, &spec);
    train_to(&play, UINT64_MAX);
    assert_int_equal(play.job->evaluation.round, 5);
    assert_int_equal(world_state(play.job), JOB_RUNNING);
    finds(&play, 5, 1);
    assert_int_equal(play.job->evaluation.round, 10);
    assert_int_equal(world_state(play.job), JOB_RUNNING);
    finds(&play, 6, 1);
    assert_int_equal(world_state(play.job), JOB_COMPLETED);
    assert_true(status_of(&play).accuracy == 0.6);
    world_stop(&play.world);
}

/* Training does not wait for the disk, and what is evaluated is the mean at the end of a round. */
static void while_a_checkpoint_is_written_the_next_round_is_taken(void **state)
{
    (void)state;
    Play play = {0};
    Answer asked = {0};
    JobSpec spec = evaluated("4", "");
    spec.interval = 2;
    spec.samples = 80;
    play_start(&play, &spec);
    train_to(&play, 7);
    hold_saves = true;
    job_checkpoint(play.job, answer_checkpoint, &asked);
    world_settle(&play.world);
    train_to(&play, 9); /* past the end of round 4 */
    assert_int_equal(trainer_step(&play.trainer), 9);
    let_saves_go(&play);
    assert_null(evaluator(&play)); /* in the middle of round 5 */
    train_to(&play, 10);
    assert_non_null(evaluator(&play));
    assert_int_equal(play.job->evaluation.round, 5);
    finds(&play, 5, 1);
    world_stop(&play.world);
}

static void a_change_of_the_interval_holds(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("0", "");
    play_start(&play, &spec);
    train_to(&play, 3);
    assert_int_equal(world_set(&play.world, play.job, "eval.every", "4").r, 0);
    train_to(&play, 4);
    assert_non_null(evaluator(&play));
    finds(&play, 5, 1);
    world_stop(&play.world);
}

static void without_data_no_interval_is_taken(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = world_spec(1, 1);
    play_start(&play, &spec);
    Answer answer = world_set(&play.world, play.job, "eval.every", "4");
    assert_int_equal(answer.r, -EINVAL);
    assert_non_null(strstr(answer.message, "--eval-data"));
    world_stop(&play.world);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void an_evaluator_that_dies_is_a_warning(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    train_to(&play, 2);
    evaluator_exits(&play, "killed by signal 9 (Killed)");
    assert_int_equal(
        world_events(&play.world, play.job, "evaluation", "killed by signal 9 (Killed)"), 1);
    train_to(&play, 4);
    evaluator_exits(&play, "exit status 0"); /* and nothing recorded */
    assert_int_equal(world_events(&play.world, play.job, "evaluation", "has recorded nothing"), 1);
    train_to(&play, 6);
    finds(&play, 5, 1);
    assert_true(status_of(&play).accuracy == 0.5);
    world_stop(&play.world);
}

static void an_evaluator_that_cannot_start_holds_nothing_up(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("5", "");
    play_start(&play, &spec);
    play.world.launching_fails = true;
    train_to(&play, UINT64_MAX);
    world_wait(&play.world, 1);
    world_wait(&play.world, 1);
    assert_int_equal(world_state(play.job), JOB_COMPLETED);
    assert_int_equal(world_events(&play.world, play.job, "evaluation", "no such program"), 2);
    world_stop(&play.world);
}

static void an_evaluator_that_is_silent_is_ended(void **state)
{
    (void)state;
    Play play = {0};
    Error err;
    JobSpec spec = evaluated("10", "");
    play_start(&play, &spec);
    train_to(&play, UINT64_MAX);
    const Launch *launch = evaluator(&play);
    world_wait(&play.world, 50 * USEC_PER_SEC);
    assert_int_equal(
        job_evaluation_admit(play.job, play.job->evaluation.checkpoint, launch->token, &err),
        0); /* a batch */
    world_wait(&play.world, 50 * USEC_PER_SEC);
    assert_true(launch->running);
    world_wait(&play.world, 20 * USEC_PER_SEC);
    assert_false(launch->running);
    assert_int_equal(play.world.lost_launches, 1);
    assert_int_equal(world_events(&play.world, play.job, "evaluation", "sent nothing for 60 s"), 1);
    assert_int_equal(world_state(play.job), JOB_COMPLETED);
    world_stop(&play.world);
}

static void only_the_process_that_was_started_records(void **state)
{
    (void)state;
    Play play = {0};
    Error err;
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    assert_int_equal(job_evaluation_admit(play.job, 0, "", &err), -EPERM);
    train_to(&play, 2);
    const Launch *launch = evaluator(&play);
    uint64_t checkpoint = play.job->evaluation.checkpoint;
    assert_int_equal(record(&play, "", checkpoint, 10, 0).r, -EPERM);
    assert_int_equal(record(&play, "0123456789abcdef0123456789abcdef", checkpoint, 10, 0).r,
                     -EPERM);
    assert_int_equal(record(&play, launch->token, checkpoint + 1, 10, 0).r, -EPERM);
    assert_int_equal(record(&play, launch->token, checkpoint, 1, 0).r, 0);
    assert_int_equal(record(&play, launch->token, checkpoint, 10, 0).r, -EPERM); /* again */
    assert_true(status_of(&play).accuracy == 0.1);
    evaluator_exits(&play, "exit status 0");
    world_stop(&play.world);
}

/* The process ends before it has its answer: what it found counts. */
static void what_is_on_its_way_to_the_disk_counts(void **state)
{
    (void)state;
    Play play = {0};
    Answer answer = {0};
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    train_to(&play, 2);
    Launch *launch = evaluator(&play);
    Evaluation total = {.correct = 7, .samples = 10};
    job_evaluation_record(play.job, play.job->evaluation.checkpoint, launch->token, &total,
                          answer_done, &answer);
    launch->running = false;
    launch->on_exit(launch->data, false, "killed by signal 9");
    world_settle(&play.world);
    assert_int_equal(answer.r, 0);
    assert_true(status_of(&play).accuracy == 0.7);
    assert_int_equal(world_events(&play.world, play.job, "evaluation", "is not evaluated"), 0);
    assert_int_equal(play.job->evaluation.phase, EVALUATION_NONE);
    world_stop(&play.world);
}

static void cancelling_ends_the_evaluator(void **state)
{
    (void)state;
    Play play = {0};
    Answer answer = {0};
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    train_to(&play, 2);
    job_cancel(play.job, "uid=0 (root)", answer_done, &answer);
    world_settle(&play.world);
    assert_null(evaluator(&play));
    assert_int_equal(play.world.lost_launches, 1);
    assert_int_equal(world_state(play.job), JOB_CANCELLED);
    world_stop(&play.world);
}

static void a_cancelled_job_pins_nothing(void **state)
{
    (void)state;
    Play play = {0};
    Answer answer = {0};
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    train_to(&play, 2);
    job_cancel(play.job, "uid=0 (root)", answer_done, &answer);
    world_settle(&play.world);
    assert_int_equal(best_checkpoint(&play), 0);
    world_stop(&play.world);
}

/* ---- the best and the end -------------------------------------------------------------------- */

static void the_best_is_that_of_the_highest_accuracy(void **state)
{
    (void)state;
    static const int correct[] = {3, 7, 5, 7};
    Play play = {0};
    uint64_t second = 0;
    JobSpec spec = evaluated("2", "");
    spec.checkpoint_keep = 1;
    play_start(&play, &spec);
    for (int i = 0; i < 4; i++) {
        train_to(&play, 2 * (uint64_t)(i + 1));
        if (i == 1)
            second = play.job->evaluation.checkpoint;
        finds(&play, correct[i], 1);
        assert_int_equal(best_checkpoint(&play), i == 0 ? play.job->evaluation.checkpoint : second);
    }
    assert_int_equal(world_restore(&play.world, play.job, second).r, 0);
    assert_int_equal(best_checkpoint(&play), second);
    assert_true(status_of(&play).accuracy == 0.7);
    assert_int_equal(status_of(&play).accuracy_round, 4);
    world_stop(&play.world);
}

typedef struct Listed {
    uint64_t ids[8];
    size_t n;
} Listed;

static void on_ids(void *data, int r, const Error *err, const CheckpointRecord *checkpoints,
                   size_t n)
{
    Listed *listed = data;
    (void)err;
    assert_int_equal(r, 0);
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++)
        listed->ids[i] = checkpoints[i].id;
    listed->n = n;
}

/* From the moment it is saved: whatever ends dpsd then, it is known what was to be evaluated. */
static void what_is_to_be_evaluated_does_not_count_as_kept(void **state)
{
    (void)state;
    Play play = {0};
    Listed listed = {0};
    JobSpec spec = evaluated("2", "");
    spec.checkpoint_keep = 1;
    play_start(&play, &spec);
    train_to(&play, 1);
    uint64_t other = world_checkpoint(&play.world, play.job);
    train_to(&play, 2);
    assert_int_equal(
        store_checkpoints_list(play.world.store, job_id(play.job), false, on_ids, &listed), 0);
    world_settle(&play.world);
    assert_int_equal(listed.n, 2);
    assert_int_equal(listed.ids[0], play.job->evaluation.checkpoint);
    assert_int_equal(listed.ids[1], other);
    finds(&play, 5, 1);
    world_stop(&play.world);
}

static void a_stop_by_loss_makes_the_lowest_loss_the_best(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("2", "loss<=0.1");
    play_start(&play, &spec);
    train_to(&play, 2);
    uint64_t first = play.job->evaluation.checkpoint;
    finds(&play, 3, 0.5);
    train_to(&play, 4);
    finds(&play, 9, 0.7);
    assert_int_equal(best_checkpoint(&play), first);
    train_to(&play, 6);
    finds(&play, 9, (double)NAN);
    assert_int_equal(best_checkpoint(&play), first);
    assert_int_equal(world_state(play.job), JOB_RUNNING);
    world_stop(&play.world);
}

static void a_stop_ends_the_job_with_the_next_meeting(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("2", "accuracy>=0.9");
    spec.interval = 2;
    spec.samples = 200;
    play_start(&play, &spec);
    train_to(&play, 4);
    finds(&play, 8, 1);
    train_to(&play, 8);
    assert_int_equal(play.job->evaluation.round, 4);
    train_to(&play, 9); /* in the middle of round 5 */
    finds(&play, 9, 1);
    assert_int_equal(world_state(play.job), JOB_RUNNING);
    train_to(&play, UINT64_MAX);
    JobStatus status = status_of(&play);
    assert_int_equal(status.state, JOB_COMPLETED);
    assert_string_equal(status.reason, "accuracy 0.9 at round 4: >= 0.9");
    assert_int_equal(status.step, 10);
    assert_string_equal(play.trainer.end, "completed");
    world_stop(&play.world);
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

/* As dpsd finds it after a kill at this moment. */
static void kill_and_start(Play *play, Play *after)
{
    *after = (Play){0};
    world_copy_dir(&play->world, after->world.dir);
    world_stop(&play->world);
    world_start(&after->world);
    after->job = manager_find(after->world.jobs, 1);
    assert_non_null(after->job);
}

static void an_evaluation_cut_off_is_made_again(void **state)
{
    (void)state;
    Play play = {0}, after;
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    train_to(&play, 2);
    finds(&play, 4, 1);
    train_to(&play, 4);
    uint64_t checkpoint = play.job->evaluation.checkpoint;
    train_to(&play, 5);
    world_checkpoint(&play.world, play.job); /* a later one, from which it goes on */
    kill_and_start(&play, &after);
    assert_int_equal(world_state(after.job), JOB_RUNNING);
    assert_non_null(evaluator(&after));
    assert_int_equal(after.job->evaluation.checkpoint, checkpoint);
    assert_int_equal(after.job->evaluation.round, 4);
    assert_true(status_of(&after).accuracy == 0.4);
    finds(&after, 6, 1);
    assert_int_equal(best_checkpoint(&after), checkpoint);
    world_stop(&after.world);
}

static void a_stop_that_has_held_holds_after_a_kill(void **state)
{
    (void)state;
    Play play = {0}, after;
    JobSpec spec = evaluated("2", "accuracy>=0.9");
    play_start(&play, &spec);
    train_to(&play, 2);
    finds(&play, 9, 1);
    kill_and_start(&play, &after);
    JobStatus status = status_of(&after);
    assert_int_equal(status.state, JOB_COMPLETED);
    assert_string_equal(status.reason, "accuracy 0.9 at round 2: >= 0.9");
    world_stop(&after.world);
}

static void a_restore_forgets_what_came_after(void **state)
{
    (void)state;
    Play play = {0};
    JobSpec spec = evaluated("2", "");
    play_start(&play, &spec);
    train_to(&play, 2);
    uint64_t first = play.job->evaluation.checkpoint;
    finds(&play, 4, 1);
    train_to(&play, 4);
    finds(&play, 8, 1);
    train_to(&play, 6);
    assert_non_null(evaluator(&play)); /* its checkpoint is about to go */
    assert_int_equal(world_restore(&play.world, play.job, first).r, 0);
    assert_null(evaluator(&play));
    assert_int_equal(best_checkpoint(&play), first);
    assert_true(status_of(&play).accuracy == 0.4);
    trainer_join(&play.world, play.job, 0, &play.trainer);
    train_to(&play, 4);
    assert_int_equal(play.job->evaluation.round, 4); /* its round has come again */
    finds(&play, 5, 1);
    world_stop(&play.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_has_what_its_evaluations_need),
        cmocka_unit_test(every_second_round_is_evaluated),
        cmocka_unit_test(one_at_a_time_and_what_is_skipped_is_told_once),
        cmocka_unit_test(the_last_round_is_not_skipped_and_the_end_waits),
        cmocka_unit_test(while_a_checkpoint_is_written_the_next_round_is_taken),
        cmocka_unit_test(a_change_of_the_interval_holds),
        cmocka_unit_test(without_data_no_interval_is_taken),
        cmocka_unit_test(an_evaluator_that_dies_is_a_warning),
        cmocka_unit_test(an_evaluator_that_cannot_start_holds_nothing_up),
        cmocka_unit_test(an_evaluator_that_is_silent_is_ended),
        cmocka_unit_test(only_the_process_that_was_started_records),
        cmocka_unit_test(what_is_on_its_way_to_the_disk_counts),
        cmocka_unit_test(cancelling_ends_the_evaluator),
        cmocka_unit_test(a_cancelled_job_pins_nothing),
        cmocka_unit_test(the_best_is_that_of_the_highest_accuracy),
        cmocka_unit_test(what_is_to_be_evaluated_does_not_count_as_kept),
        cmocka_unit_test(a_stop_by_loss_makes_the_lowest_loss_the_best),
        cmocka_unit_test(a_stop_ends_the_job_with_the_next_meeting),
        cmocka_unit_test(an_evaluation_cut_off_is_made_again),
        cmocka_unit_test(a_stop_that_has_held_holds_after_a_kill),
        cmocka_unit_test(a_restore_forgets_what_came_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
