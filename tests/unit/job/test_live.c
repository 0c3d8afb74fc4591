/* What is changed, looked at and guarded while a job runs, under the policies where it matters. */
#include "play.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

static const char *const policies[] = {"average", "elastic",       "diloco",
                                       "barrier", "average-async", "async"};
enum { POLICIES = sizeof policies / sizeof *policies };

static JobSpec spec_for(const char *policy, uint32_t trainers, uint32_t interval)
{
    JobSpec spec = world_spec(trainers, interval);
    strcpy(spec.policy, policy);
    spec.epochs = 2;
    return spec;
}

static void setting(JobSpec *spec, const char *key, const char *value)
{
    SettingPair *pair = &spec->settings[spec->n_settings++];
    strcpy(pair->key, key);
    strcpy(pair->value, value);
}

/* ---- policies that follow each other --------------------------------------------------------- */

/* A stop between any two of them changes no bit: also of what a policy keeps besides. */
static uint64_t change_policies(bool stops, bool checkpoints)
{
    static const char *const order[] = {"average", "diloco", "average", "elastic", "diloco"};
    World world = {0};
    Trainer ranks[2];
    unsigned seed = 3;
    JobSpec spec = spec_for("diloco", 2, 2);
    spec.epochs = 3;
    spec.checkpoint_rounds = checkpoints ? 1 : 1000;
    strcpy(spec.optimizer, "sgd,momentum=0.9");
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 2);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        trainers_run(&world, ranks, 2, 2 * i + 1);
        Answer answer = world_set(&world, job, "sync.policy", order[i]);
        assert_int_equal(answer.r, 0);
        assert_int_equal(answer.value, i + 2);
        trainers_run(&world, ranks, 2, 2 * i + 2);
        assert_string_equal(job->policy->name, order[i]);
        if (!stops)
            continue;
        job = world_restart(&world, job);
        assert_string_equal(job->policy->name, order[i]);
        trainers_join(&world, job, ranks, 2);
    }
    play_out(&world, job, ranks, 2, &seed);
    uint64_t model = world_model(&world, job);
    world_stop(&world);
    return model;
}

static void policies_follow_each_other_at_round_boundaries(void **state)
{
    (void)state;
    uint64_t model = change_policies(false, false);
    assert_int_equal(change_policies(false, true), model);
    assert_int_equal(change_policies(true, false), model);
}

static void policies_that_cannot_follow_are_refused(void **state)
{
    (void)state;
    static const char *const refused[][2] = {
        {"average", "barrier"},       {"barrier", "average"},     {"async", "barrier"},
        {"average-async", "average"}, {"async", "average-async"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        World world = {0};
        JobSpec spec = spec_for(refused[i][0], 2, 2);
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        Answer answer = world_set(&world, job, "sync.policy", refused[i][1]);
        assert_int_equal(answer.r, -EINVAL);
        assert_non_null(strstr(answer.message, "cannot go from"));
        world_stop(&world);
    }
}

static void meeting_policies_go_over_to_free_ones(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"average", "average-async"}, {"barrier", "async"}};
    for (size_t i = 0; i < 2; i++)
        for (int stops = 0; stops < 2; stops++) {
            World world = {0};
            Trainer ranks[2];
            unsigned seed = 3;
            JobSpec spec = spec_for(pairs[i][0], 2, 2);
            world_start(&world);
            Job *job = world_submit(&world, &spec);
            trainers_join(&world, job, ranks, 2);
            trainers_run(&world, ranks, 2, 1);
            assert_int_equal(world_set(&world, job, "sync.policy", pairs[i][1]).r, 0);
            trainers_run(&world, ranks, 2, 2);
            trainers_run(&world, ranks, 1, 7); /* alone: nobody is waited for */
            assert_int_equal(trainer_step(&ranks[0]), 7);
            if (stops) {
                job = world_restart(&world, job);
                trainers_join(&world, job, ranks, 2);
                assert_int_equal(trainer_step(&ranks[0]), 7);
                assert_int_equal(trainer_step(&ranks[1]), 2);
            }
            play_out(&world, job, ranks, 2, &seed);
            JobStatus status;
            job_status(job, &status);
            assert_int_equal(status.samples, 80);
            world_check_metrics(&world, job, true);
            world_stop(&world);
        }
}

/* ---- settings where ranks do not meet -------------------------------------------------------- */

/* Each rank changes with the same round, whenever it gets there, and after a new start too. */
static void settings_hold_by_round_where_ranks_do_not_meet(void **state)
{
    (void)state;
    static const char *const names[] = {"average-async", "async"};
    for (int i = 0; i < 4; i++) {
        World world = {0};
        Trainer ranks[2];
        unsigned seed = 3;
        JobSpec spec = spec_for(names[i % 2], 2, 2);
        spec.epochs = 4;
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainers_join(&world, job, ranks, 2);
        trainers_run(&world, ranks, 1, 5); /* in its third round; the other in its first */
        assert_int_equal(world_set(&world, job, "sync.interval", "1").value, 4);
        assert_int_equal(world_set(&world, job, "optimizer.lr", "0.5").value, 4);
        trainers_run(&world, ranks, 1, 7);
        assert_int_equal(job->members[0].round.number, 5); /* 2, 2, 2, 1 */
        assert_true(job->members[0].settings.lr == 0.5F);
        if (i >= 2) {
            job = world_restart(&world, job);
            trainers_join(&world, job, ranks, 2);
            assert_int_equal(job->members[0].round.number, 5);
            assert_true(job->members[0].settings.lr == 0.5F);
        }
        assert_int_equal(job->members[1].round.number, 1);
        assert_true(job->members[1].settings.lr != 0.5F);
        trainers_run(&world, &ranks[1], 1, 6);
        assert_int_equal(job->members[1].round.number, 4);
        assert_int_equal(job->members[1].settings.interval, 1);
        assert_true(job->members[1].settings.lr == 0.5F);
        play_out(&world, job, ranks, 2, &seed);
        world_check_metrics(&world, job, true);
        world_stop(&world);
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct Model {
    int called;
    Snapshot *snapshot;
} Model;

static void on_mean(void *data, int r, const Error *err, Snapshot *mean)
{
    Model *model = data;
    model->called++;
    if (r < 0)
        fail_msg("%s", err->message);
    model->snapshot = mean;
}

static Snapshot *model_of(World *world, Job *job, uint64_t checkpoint)
{
    Model model = {0};
    job_mean(job, checkpoint, on_mean, &model);
    world_settle(world);
    assert_int_equal(model.called, 1);
    return model.snapshot;
}

static const float *expected_params(const Job *job, Snapshot *common)
{
    if (job->policy->shared)
        assert_int_equal(shared_params_snapshot(job->common.shared, common), 0);
    else
        assert_int_equal(centre_snapshot(job->common.centre, common), 0);
    return common->params;
}

/* In the middle of a round, of the job and of a checkpoint of that moment. */
static void model_is_what_the_policy_says(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++) {
        World world = {0};
        Trainer ranks[3];
        Snapshot *common;
        JobSpec spec = spec_for(policies[p], 3, 2);
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainers_join(&world, job, ranks, 3);
        trainers_run(&world, ranks, 3, 3);
        trainer_feed(&ranks[1]); /* with barrier its gradient waits */
        world_settle(&world);
        uint64_t id = world_checkpoint(&world, job);
        Snapshot *live = model_of(&world, job, 0), *stored = model_of(&world, job, id);
        assert_memory_equal(live->params, stored->params, live->n_params * sizeof(float));
        assert_int_equal(common_cut_new(&job->plan, job->policy, &common), 0);
        if (job->policy->shared || job->policy->centre_is_result)
            assert_memory_equal(live->params, expected_params(job, common),
                                live->n_params * sizeof(float));
        else
            for (size_t i = 0; i < live->n_params; i++) {
                float sum = 0;
                for (int r = 0; r < 3; r++)
                    sum += replica_weights(job->members[r].replica)->params[i];
                assert_true(fabsf(sum / 3 - live->params[i]) < 1e-6F);
            }
        snapshot_free(common);
        snapshot_free(live);
        snapshot_free(stored);
        world_stop(&world);
    }
}

/* Places that nobody has ever taken are no part of it, wherever it is read from. */
static void model_leaves_places_out_that_were_never_taken(void **state)
{
    (void)state;
    static const char *const names[] = {"average", "average-async"};
    for (size_t i = 0; i < 2; i++) {
        World world = {.rejoin_us = USEC_PER_SEC};
        Trainer rank;
        JobSpec spec = spec_for(names[i], 1, 4);
        spec.max_trainers = 3;
        world_start(&world);
        Job *job = world_submit(&world, &spec);
        trainer_join(&world, job, 0, &rank);
        trainers_run(&world, &rank, 1, 3);
        for (int gone = 0; gone < 2; gone++) {
            uint64_t id = world_checkpoint(&world, job);
            Snapshot *live = model_of(&world, job, 0), *stored = model_of(&world, job, id);
            const float *own = replica_weights(job->members[0].replica)->params;
            assert_memory_equal(live->params, own, live->n_params * sizeof(float));
            assert_memory_equal(stored->params, own, live->n_params * sizeof(float));
            snapshot_free(live);
            snapshot_free(stored);
            if (!gone)
                trainer_die(&rank);
            world_wait(&world, 2 * USEC_PER_SEC);
        }
        assert_true(job->members[0].place == MEMBER_DROPPED);
        world_stop(&world);
    }
}

/* ---- the guard ------------------------------------------------------------------------------- */

static void gradients_that_are_left_out_pause_the_job_after_strikes(void **state)
{
    (void)state;
    for (int p = 0; p < POLICIES; p++)
        for (unsigned accumulate = 1; accumulate <= 2; accumulate++) {
            World world = {0};
            Trainer ranks[2];
            unsigned seed = 3;
            JobSpec spec = spec_for(policies[p], 2, 4);
            setting(&spec, "guard.norm", "10");
            setting(&spec, "guard.strikes", "2");
            world_start(&world);
            Job *job = world_submit(&world, &spec);
            trainers_join(&world, job, ranks, 2);
            ranks[0].accumulate = ranks[1].accumulate = accumulate;
            trainers_run(&world, ranks, 2, 2);
            ranks[1].poisoned = true;
            trainers_run(&world, ranks, 2, 2 + accumulate);
            trainers_run(&world, ranks, 2, 4 + accumulate); /* a good one between them */
            assert_int_equal(world_events(&world, job, "quarantine", "rank 1: its gradient"), 1);
            assert_int_equal(world_state(job), JOB_RUNNING);
            for (int i = 0; i < 2; i++) {
                ranks[1].poisoned = true;
                trainers_run(&world, ranks, 2, trainer_step(&ranks[1]) + 1);
            }
            world_settle(&world);
            assert_int_equal(world_state(job), JOB_PAUSED);
            JobStatus status;
            job_status(job, &status);
            assert_non_null(strstr(status.reason, "2 times in a row"));
            Answer answer = {0};
            job_resume(job, "uid=0", answer_done, &answer);
            play_out(&world, job, ranks, 2, &seed);
            job_status(job, &status);
            assert_int_equal(status.samples, 80);
            Snapshot *model = model_of(&world, job, 0);
            for (size_t i = 0; i < model->n_params; i++)
                assert_true(isfinite(model->params[i]));
            snapshot_free(model);
            world_stop(&world);
        }
}

/* A bad replica is judged once a round, however many others look at it. */
static void bad_replica_of_average_async_gets_one_strike_a_round(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[3];
    unsigned seed = 3;
    JobSpec spec = spec_for("average-async", 3, 2);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 3);
    ranks[2].poisoned = true;
    trainers_run(&world, &ranks[2], 1, 1);
    trainers_run(&world, ranks, 2, 8);
    assert_int_equal(world_events(&world, job, "quarantine", ""), 0);
    trainers_run(&world, ranks, 3, 8);
    assert_int_equal(world_events(&world, job, "quarantine", "rank 2: its replica"), 1);
    play_out(&world, job, ranks, 3, &seed);
    world_stop(&world);
}

/* ---- what the version before has written ----------------------------------------------------- */

int __real_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data);
int __wrap_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data);

static bool writes_as_before;

static void move_number(cJSON *from, const char *key, cJSON *to, const char *name)
{
    const char *text = cJSON_GetObjectItemCaseSensitive(from, key)->valuestring;
    assert_non_null(cJSON_AddNumberToObject(to, name, strtod(text, NULL)));
}

/* One round for all ranks, four settings, no guard. */
static char *as_before(const char *meta)
{
    cJSON *json = cJSON_Parse(meta), *member;
    cJSON *settings = cJSON_DetachItemFromObjectCaseSensitive(json, "settings");
    cJSON *members = cJSON_GetObjectItemCaseSensitive(json, "members");
    move_number(settings, "sync.interval", json, "interval");
    move_number(settings, "optimizer.lr", json, "lr");
    move_number(settings, "checkpoint.rounds", json, "checkpoint_rounds");
    move_number(settings, "checkpoint.keep", json, "checkpoint_keep");
    cJSON_Delete(settings);
    static const char *const rounds[] = {"round_start", "round_end"};
    for (int i = 0; i < 2; i++)
        cJSON_AddItemToObject(
            json, rounds[i],
            cJSON_Duplicate(
                cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(members, 0), rounds[i]), true));
    static const char *const unknown[] = {"round",      "round_start", "round_end",
                                          "spare",      "behind",      "norms",
                                          "norms_seen", "strikes",     "replica_strikes"};
    cJSON_ArrayForEach(member, members)
    {
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
            cJSON_DeleteItemFromObjectCaseSensitive(member, unknown[i]);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(json, "common_updates");
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

int __wrap_store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                                 const CheckpointPart *parts, size_t n, unsigned keep,
                                 StoreCheckpointSaved done, void *data)
{
    CheckpointRecord record = *checkpoint;
    char *meta = writes_as_before ? as_before(checkpoint->meta) : NULL;
    if (meta)
        record.meta = meta;
    int r = __real_store_checkpoint_save(store, &record, parts, n, keep, done, data);
    free(meta);
    return r;
}

static uint64_t run_from_before(bool stops)
{
    World world = {0};
    Trainer ranks[2];
    unsigned seed = 3;
    JobSpec spec = spec_for("average", 2, 3);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 2);
    trainers_run(&world, ranks, 2, 4);
    writes_as_before = stops;
    if (stops) {
        job = world_restart(&world, job);
        writes_as_before = false;
        assert_int_equal(world_state(job), JOB_RUNNING);
        trainers_join(&world, job, ranks, 2);
        assert_int_equal(trainer_step(&ranks[0]), 4);
        assert_int_equal(job->members[1].round.number, 2);
        assert_int_equal(job->members[1].round.end, 6);
        assert_int_equal(job->settings.guard_strikes, 3);
    }
    play_out(&world, job, ranks, 2, &seed);
    uint64_t model = world_model(&world, job);
    world_check_metrics(&world, job, true);
    world_stop(&world);
    return model;
}

static void job_of_the_version_before_goes_on(void **state)
{
    (void)state;
    assert_int_equal(run_from_before(true), run_from_before(false));
}

/* Back to a checkpoint that knows no policy, from a job that has changed its own since. */
static void checkpoint_of_the_version_before_is_restored(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    unsigned seed = 3;
    JobSpec spec = spec_for("average", 2, 2);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    trainers_join(&world, job, ranks, 2);
    writes_as_before = true;
    uint64_t id = world_checkpoint(&world, job);
    writes_as_before = false;
    assert_int_equal(world_set(&world, job, "sync.policy", "diloco").r, 0);
    trainers_run(&world, ranks, 2, 3);
    assert_string_equal(job->policy->name, "diloco");
    snapshot_free(model_of(&world, job, id));
    Answer restored = world_restore(&world, job, id);
    if (restored.r < 0)
        fail_msg("%s", restored.message);
    assert_string_equal(job->policy->name, "average");
    trainers_join(&world, job, ranks, 2);
    play_out(&world, job, ranks, 2, &seed);
    world_stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_follow_each_other_at_round_boundaries),
        cmocka_unit_test(policies_that_cannot_follow_are_refused),
        cmocka_unit_test(meeting_policies_go_over_to_free_ones),
        cmocka_unit_test(settings_hold_by_round_where_ranks_do_not_meet),
        cmocka_unit_test(model_is_what_the_policy_says),
        cmocka_unit_test(model_leaves_places_out_that_were_never_taken),
        cmocka_unit_test(gradients_that_are_left_out_pause_the_job_after_strikes),
        cmocka_unit_test(bad_replica_of_average_async_gets_one_strike_a_round),
        cmocka_unit_test(job_of_the_version_before_goes_on),
        cmocka_unit_test(checkpoint_of_the_version_before_is_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
