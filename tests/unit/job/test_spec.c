/* Specs, settings, states and policies: what is taken, what is refused, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_spec.h"
#include "job/job_state.h"
#include "job/policy.h"
#include "job/settings.h"

static const JobDefaults defaults = {.checkpoint_rounds = 10, .checkpoint_keep = 3};

static JobSpec good(void)
{
    return (JobSpec){.model = "mnist-cnn", .data = "/data/mnist", .samples = 8000};
}

static void silent_spec_gets_the_examples_defaults(void **state)
{
    (void)state;
    JobPlan plan;
    Error err;
    JobSpec spec = good();
    assert_int_equal(job_spec_resolve(&spec, &defaults, &plan, &err), 0);
    assert_string_equal(spec.name, "mnist-cnn");
    assert_string_equal(spec.policy, "average");
    assert_string_equal(spec.optimizer, "sgd");
    assert_string_equal(spec.loss, "nll");
    assert_int_equal(spec.trainers, 1);
    assert_int_equal(spec.interval, 25);
    assert_int_equal(spec.batch, 32);
    assert_int_equal(spec.epochs, 1);
    assert_int_equal(spec.threads, 1);
    assert_int_equal(spec.checkpoint_rounds, 10);
    assert_int_equal(spec.checkpoint_keep, 3);
    assert_true(spec.lr == 0.03F);
    assert_non_null(plan.graph);
    job_plan_free(&plan);
}

typedef struct BadSpec {
    void (*spoil)(JobSpec *spec);
    const char *sentence;
} BadSpec;

#define SPOIL(name, statement)                                                                     \
    static void name(JobSpec *spec)                                                                \
    {                                                                                              \
        statement;                                                                                 \
    }

SPOIL(too_many_trainers, spec->trainers = 65)
SPOIL(huge_batch, spec->batch = JOB_MAX_BATCH + 1)
SPOIL(huge_interval, spec->interval = 1000001)
SPOIL(huge_epochs, spec->epochs = 1000001)
SPOIL(huge_steps, spec->steps = JOB_MAX_STEPS + 1)
SPOIL(huge_threads, spec->threads = 257)
SPOIL(huge_samples, spec->samples = JOB_MAX_SAMPLES + UINT64_C(1))
SPOIL(huge_rounds, spec->checkpoint_rounds = 1000001)
SPOIL(huge_keep, spec->checkpoint_keep = 1001)
SPOIL(both_ends, spec->epochs = spec->steps = 3)
SPOIL(no_samples, spec->samples = 0)
SPOIL(no_samples_for_steps, (spec->samples = 0, spec->steps = 5))
SPOIL(no_data, spec->data[0] = '\0')
SPOIL(nan_lr, spec->lr = NAN)
SPOIL(negative_lr, spec->lr = -1)
SPOIL(unknown_model, strcpy(spec->model, "oracle"))
SPOIL(unknown_policy, strcpy(spec->policy, "anarchy"))
SPOIL(unknown_loss, strcpy(spec->loss, "grief"))
SPOIL(unknown_backend, strcpy(spec->backend, "abacus"))
SPOIL(unknown_optimizer, strcpy(spec->optimizer, "luck"))
SPOIL(control_in_name, strcpy(spec->name, "a\nb"))
SPOIL(control_in_data, strcpy(spec->data, "\x1b[2J"))
SPOIL(unknown_option, (spec->n_options = 1, strcpy(spec->options[0].key, "depth")))

static const BadSpec bad_specs[] = {
    {too_many_trainers, "trainers is 65; the most is 64 (one meeting takes no more replicas)"},
    {huge_batch, "the most is"},
    {huge_interval, "interval is 1000001; the most is 1000000"},
    {huge_epochs, "epochs is 1000001; the most is 1000000 (use --steps for an open end)"},
    {huge_steps, "steps is 1000000000001; the most is 1000000000000"},
    {huge_threads, "threads is 257; the most is 256"},
    {huge_samples, "samples is 67108865; the most is 67108864"},
    {huge_rounds, "checkpoint.rounds is 1000001; the most is 1000000"},
    {huge_keep, "checkpoint.keep is 1001; the most is 1000 (the disk would fill)"},
    {both_ends, "epochs and steps are both given; a job ends by one of them"},
    {no_samples, "epochs need the number of samples"},
    {no_samples_for_steps, "the data set '/data/mnist' has no samples"},
    {no_data, "no data: give --data DIR"},
    {nan_lr, "it must be a positive number"},
    {negative_lr, "lr is -1; it must be a positive number"},
    {unknown_model, "oracle"},
    {unknown_policy, "there is no sync policy 'anarchy'; this version has: average"},
    {unknown_loss, "grief"},
    {unknown_backend, "abacus"},
    {unknown_optimizer, "luck"},
    {control_in_name, "name has a control character (0x0a) at byte 1"},
    {control_in_data, "data has a control character (0x1b) at byte 0"},
    {unknown_option, "depth"},
};

static void each_limit_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_specs / sizeof *bad_specs; i++) {
        JobPlan plan;
        Error err = {0};
        JobSpec spec = good();
        bad_specs[i].spoil(&spec);
        int r = job_spec_resolve(&spec, &defaults, &plan, &err);
        if (r != -EINVAL || !strstr(err.message, bad_specs[i].sentence))
            fail_msg("%zu: %d '%s' instead of '%s'", i, r, err.message, bad_specs[i].sentence);
    }
}

static void largest_values_are_taken(void **state)
{
    (void)state;
    JobPlan plan;
    Error err = {0};
    JobSpec spec = good();
    spec.trainers = 64;
    spec.batch = JOB_MAX_BATCH;
    spec.interval = 1000000;
    spec.steps = JOB_MAX_STEPS;
    spec.samples = JOB_MAX_SAMPLES;
    spec.checkpoint_keep = 1000;
    if (job_spec_resolve(&spec, &defaults, &plan, &err) < 0)
        fail_msg("%s", err.message);
    job_plan_free(&plan);
}

static void comes_back_from_json_bit_for_bit(void **state)
{
    (void)state;
    char *json;
    Error err;
    JobSpec back, spec = {.name = "näme \"quoted\"",
                          .model = "mlp",
                          .data = "/data/it's",
                          .policy = "average",
                          .optimizer = "adam,beta1=0.8",
                          .loss = "nll",
                          .device = "cpu:1",
                          .backend = "ref",
                          .samples = JOB_MAX_SAMPLES,
                          .steps = JOB_MAX_STEPS,
                          .seed = UINT64_MAX,
                          .trainers = 64,
                          .interval = 1,
                          .epochs = 2,
                          .batch = 3,
                          .threads = 4,
                          .checkpoint_rounds = 5,
                          .checkpoint_keep = 6,
                          .lr = 0.1F,
                          .external_trainers = true,
                          .max_trainers = 64,
                          .eval_data = "/data/held-out",
                          .stop_when = "accuracy>=0.98",
                          .n_options = 2,
                          .options = {{"hidden", "7"}, {"layers", "2"}},
                          .n_settings = 1,
                          .settings = {{"sync.wait", "quorum:3"}}};
    assert_int_equal(job_spec_to_json(&spec, &json), 0);
    assert_int_equal(job_spec_from_json(json, &back, &err), 0);
    free(json);
    assert_memory_equal(&back, &spec, sizeof spec);
    spec.seed = (UINT64_C(1) << 53) + 1;
    spec.lr = 1e-45F;
    assert_int_equal(job_spec_to_json(&spec, &json), 0);
    assert_int_equal(job_spec_from_json(json, &back, &err), 0);
    free(json);
    assert_true(back.seed == spec.seed && back.lr == spec.lr);
    assert_int_equal(job_spec_from_json("[1]", &back, &err), -EBADMSG);
    assert_int_equal(job_spec_from_json("{", &back, &err), -EBADMSG);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void settings_take_what_is_in_range(void **state)
{
    (void)state;
    Error err;
    JobSettings settings = {.interval = 25, .lr = 0.1F};
    assert_int_equal(settings_apply(&settings, "sync.interval", "1000000", &err), 0);
    assert_int_equal(settings.interval, 1000000);
    assert_int_equal(settings_apply(&settings, "optimizer.lr", "1e-3", &err), 0);
    assert_true(settings.lr == 1e-3F);
    assert_int_equal(settings_apply(&settings, "optimizer.lr", ".5", &err), 0);
    assert_int_equal(settings_apply(&settings, "checkpoint.rounds", "7", &err), 0);
    assert_int_equal(settings_apply(&settings, "checkpoint.keep", "8", &err), 0);
    assert_int_equal(settings.checkpoint_rounds, 7);
    assert_int_equal(settings.checkpoint_keep, 8);
}

#define LONG_ZERO                                                                                  \
    "0000000000000000000000000000000000000000"                                                     \
    "0000000000000000000000000000000000000000"

static void settings_refuse_the_rest(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"sync.interval", ""},
        {"sync.interval", "0"},
        {"sync.interval", "-1"},
        {"sync.interval", "1000001"},
        {"sync.interval", "99999999999999999999999"},
        {"sync.interval", "25x"},
        {"sync.interval", " 25"},
        {"sync.interval", "+25"},
        {"sync.interval", "\n25"},
        {"sync.interval", LONG_ZERO "25"}, /* is kept in 80 bytes */
        {"optimizer.lr", ""},
        {"optimizer.lr", "nan"},
        {"optimizer.lr", "inf"},
        {"optimizer.lr", "-0.1"},
        {"optimizer.lr", " 0.1"},
        {"optimizer.lr", "0.1e"},
        {"optimizer.lr", "1e99"},
        {"optimizer.lr", "0.1" LONG_ZERO},
        {"checkpoint.rounds", "0"},
        {"checkpoint.keep", "1001"},
        {"sync.policy", "anarchy"},
        {"sync.wait", "quorum:"},
        {"sync.wait", "quorum:0"},
        {"sync.wait", "quorum:65"},
        {"sync.wait", "some"},
        {"sync.timeout", "0"},
        {"sync.weights", "size"},
        {"sync.alpha", "1.1"},
        {"optimizer.schedule", "whim"},
        {"trainers", "0"},
        {"trainers", "65"},
        {"guard.strikes", "0"},
        {"", "1"},
        {"sync", "1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Error err = {0};
        JobSettings settings = {.interval = 25, .lr = 0.1F}, before = settings;
        if (settings_apply(&settings, bad[i][0], bad[i][1], &err) != -EINVAL)
            fail_msg("%s='%s' was taken", bad[i][0], bad[i][1]);
        assert_memory_equal(&settings, &before, sizeof before);
    }
    Error err;
    JobSettings settings = {0};
    settings_apply(&settings, "colour", "red", &err);
    assert_non_null(strstr(err.message, "there is no setting 'colour'; a job has: sync.policy, "));
    for (int i = 0; i < settings_count(); i++)
        assert_non_null(strstr(err.message, settings_key(i)));
}

/* As a checkpoint keeps them. */
static void settings_come_back_from_their_texts(void **state)
{
    (void)state;
    static const char *const values[][2] = {
        {"sync.policy", "diloco"},    {"sync.interval", "3"},
        {"sync.weights", "samples"},  {"sync.state", "reset"},
        {"sync.wait", "quorum:2"},    {"sync.timeout", "7"},
        {"sync.max_staleness", "0"},  {"sync.on_stale", "apply"},
        {"sync.alpha", "0.125"},      {"sync.outer_lr", "0.1"},
        {"sync.outer_momentum", "1"}, {"optimizer.lr", "1e-45"},
        {"optimizer.clip", "0.3"},    {"optimizer.schedule", "step,every=10,gamma=0.5"},
        {"guard.norm", "10"},         {"guard.strikes", "1"},
        {"trainers", "64"},           {"checkpoint.rounds", "9"},
        {"checkpoint.keep", "8"},     {"eval.every", "5"},
    };
    Error err = {0};
    JobSettings settings, back;
    settings_defaults(&settings);
    settings_defaults(&back);
    assert_int_equal(sizeof values / sizeof *values, settings_count());
    for (int i = 0; i < settings_count(); i++)
        if (settings_apply(&settings, values[i][0], values[i][1], &err) < 0)
            fail_msg("%s", err.message);
    for (int i = 0; i < settings_count(); i++) {
        char text[SETTING_VALUE_MAX];
        const char *value = settings_format(&settings, i, text, sizeof text);
        assert_int_equal(settings_apply(&back, settings_key(i), value, &err), 0);
    }
    assert_memory_equal(&back, &settings, sizeof back);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void states_move_only_as_the_table_says(void **state)
{
    (void)state;
    /* rows: from; columns: to QUEUED RUNNING PAUSED RECOVERING COMPLETED FAILED CANCELLED */
    static const char *const moves[] = {
        ".x.x.xx", /* QUEUED */
        "..xxxxx", /* RUNNING */
        ".x.xxxx", /* PAUSED */
        ".xx..xx", /* RECOVERING */
        "...x...", /* COMPLETED */
        "...x...", /* FAILED */
        "...x...", /* CANCELLED */
    };
    for (int from = JOB_QUEUED; from < JOB_STATE_COUNT; from++)
        for (int to = JOB_QUEUED; to < JOB_STATE_COUNT; to++)
            if (job_state_may_move((JobState)from, (JobState)to) !=
                (moves[from - 1][to - 1] == 'x'))
                fail_msg("%s to %s", job_state_name((JobState)from), job_state_name((JobState)to));
    assert_false(job_state_may_move((JobState)0, JOB_RUNNING));
    assert_false(job_state_may_move(JOB_RUNNING, (JobState)77));
    assert_string_equal(job_state_name((JobState)77), "UNKNOWN");
    assert_string_equal(job_state_name(JOB_RECOVERING), "RECOVERING");
    for (int s = JOB_QUEUED; s < JOB_STATE_COUNT; s++)
        assert_int_equal(job_state_is_final((JobState)s), s >= JOB_COMPLETED);
}

static void policies_are_found_by_name(void **state)
{
    (void)state;
    const SyncPolicy *policy = NULL;
    Error err;
    for (int i = 0; i < policy_count(); i++) {
        assert_int_equal(policy_find(policy_entry(i)->name, &policy, &err), 0);
        assert_ptr_equal(policy, policy_entry(i));
    }
    assert_int_equal(policy_find("", &policy, &err), -ENOENT);
    for (int i = 0; i < policy_count(); i++) {
        policy = policy_entry(i);
        assert_true(policy->shared ? !policy->combine : policy->combine != NULL);
        assert_false(policy->centre_is_result && !policy->centre);
        assert_false(policy->refreshes && policy->pace != PACE_FREE);
    }
}

/* rows: now; columns: next; in the order of policy_entry */
static void policies_follow_each_other_only_where_the_replicas_allow_it(void **state)
{
    (void)state;
    static const char *const moves[] = {
        "xxxx..", /* average */
        ".x....", /* average-async */
        "xxxx..", /* elastic */
        "xxxx..", /* diloco */
        "....xx", /* barrier */
        ".....x", /* async */
    };
    assert_int_equal(policy_count(), 6);
    for (int now = 0; now < 6; now++)
        for (int next = 0; next < 6; next++) {
            Error err = {0};
            int r = policy_may_follow(policy_entry(now), policy_entry(next), &err);
            if (r != (moves[now][next] == 'x' ? 0 : -EINVAL))
                fail_msg("%s to %s", policy_entry(now)->name, policy_entry(next)->name);
            assert_true(r == 0 || strstr(err.message, policy_entry(next)->name));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_spec_gets_the_examples_defaults),
        cmocka_unit_test(each_limit_is_named),
        cmocka_unit_test(largest_values_are_taken),
        cmocka_unit_test(comes_back_from_json_bit_for_bit),
        cmocka_unit_test(settings_take_what_is_in_range),
        cmocka_unit_test(settings_refuse_the_rest),
        cmocka_unit_test(settings_come_back_from_their_texts),
        cmocka_unit_test(states_move_only_as_the_table_says),
        cmocka_unit_test(policies_are_found_by_name),
        cmocka_unit_test(policies_follow_each_other_only_where_the_replicas_allow_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
