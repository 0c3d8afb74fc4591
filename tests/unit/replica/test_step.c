/* From a gradient to a step: its norm, clipping, what is left out, and accumulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "backend/cpu_math.h"
#include "fixture.h"
#include "replica/shared.h"

enum { MAX_PARAMS = 4096 };

/* The gradient of the mean loss of fixture->batch at the replica's parameters, by calls. */
static double gradient_of(const Fixture *fixture, Replica *replica, uint64_t step, float *gradient)
{
    static float output[2 * FIXTURE_BATCH * FIXTURE_CLASSES],
        by[2 * FIXTURE_BATCH * FIXTURE_CLASSES];
    Context *context;
    double norm;
    size_t n = replica_weights(replica)->n_params;
    assert_true(n <= MAX_PARAMS);
    fixture_nll_gradient(fixture->batch.y, fixture->batch.samples, by);
    assert_int_equal(replica_forward(replica, &fixture->batch, step, 0, output, &context, NULL), 0);
    assert_null(context_gradients(context));
    assert_int_equal(replica_backward(replica, context, by, &norm, NULL), 0);
    memcpy(gradient, context_gradients(context), n * sizeof *gradient);
    context_free(context);
    return norm;
}

static StepResult train(const Fixture *fixture, uint64_t step, const StepRule *rule)
{
    StepResult result = {0};
    Error err = {0};
    if (replica_train(fixture->replica, &fixture->batch, step, rule, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result;
}

/* One optimizer step on the numbers of a snapshot. */
static void step_snapshot(const Fixture *fixture, Snapshot *snapshot, const float *gradient,
                          float lr)
{
    Optimizer optimizer = engine_spec(fixture->engine)->optimizer;
    optimizer.lr = lr;
    cpu_optimizer_step(&optimizer, ++snapshot->updates, snapshot->params, gradient,
                       snapshot->states, snapshot->n_params);
}

/* Parameters, optimizer state and step count; buffers are the forward's. */
static void assert_at(const Fixture *fixture, const Snapshot *want)
{
    Snapshot *got = fixture_snapshot(fixture, fixture->replica);
    assert_memory_equal(got->params, want->params, want->n_params * sizeof(float));
    for (int i = 0; i < want->n_states; i++)
        assert_memory_equal(got->states[i], want->states[i], want->n_params * sizeof(float));
    assert_int_equal(got->updates, want->updates);
    snapshot_free(got);
}

static void norm_is_told_and_changes_nothing(void **state)
{
    (void)state;
    static float gradient[MAX_PARAMS];
    Fixture fixture;
    fixture_start(&fixture, "adam");
    Snapshot *start = fixture_snapshot(&fixture, fixture.replica);
    double norm = gradient_of(&fixture, fixture.replica, 3, gradient);
    StepResult silent = train(&fixture, 3, &(StepRule){.lr = 0.1F});
    assert_true(silent.gradient_norm == 0);
    assert_int_equal(silent.verdict, STEP_APPLIED);
    assert_int_equal(silent.samples, FIXTURE_BATCH);
    Snapshot *want = fixture_snapshot(&fixture, fixture.replica);
    assert_int_equal(replica_restore(fixture.replica, start), 0);
    StepResult result = train(&fixture, 3, &(StepRule){.lr = 0.1F, .want_norm = true});
    assert_true(result.gradient_norm == norm);
    assert_true(norm > 0 && result.loss == silent.loss);
    assert_at(&fixture, want);
    snapshot_free(start);
    snapshot_free(want);
    fixture_stop(&fixture);
}

/* ---- clipping ------------------------------------------------------------------------------- */

/* torch: coef = max_norm / (norm + 1e-6), gradients *= coef if it is below 1. */
static void long_gradients_are_clipped_as_torch_does(void **state)
{
    (void)state;
    static float gradient[MAX_PARAMS];
    Fixture fixture;
    fixture_start(&fixture, "sgd,momentum=0.9");
    Snapshot *want = fixture_snapshot(&fixture, fixture.replica);
    double norm = gradient_of(&fixture, fixture.replica, 0, gradient);
    const float clip = (float)(norm / 3);
    const float factor = (float)((double)clip / (norm + 1e-6));
    double squares = 0;
    for (size_t i = 0; i < want->n_params; i++) {
        gradient[i] *= factor;
        squares += (double)gradient[i] * (double)gradient[i];
    }
    assert_true(fabs(sqrt(squares) - (double)clip) < 1e-5 * (double)clip);
    step_snapshot(&fixture, want, gradient, 0.1F);
    StepResult result = train(&fixture, 0, &(StepRule){.lr = 0.1F, .clip_norm = clip});
    assert_true(result.gradient_norm == norm); /* as it was before */
    assert_at(&fixture, want);
    snapshot_free(want);
    fixture_stop(&fixture);
}

static void short_gradients_keep_every_bit(void **state)
{
    (void)state;
    static float gradient[MAX_PARAMS];
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Snapshot *want = fixture_snapshot(&fixture, fixture.replica);
    double norm = gradient_of(&fixture, fixture.replica, 0, gradient);
    step_snapshot(&fixture, want, gradient, 0.1F);
    (void)train(&fixture, 0, &(StepRule){.lr = 0.1F, .clip_norm = (float)norm * 1.01F});
    assert_at(&fixture, want);
    snapshot_free(want);
    fixture_stop(&fixture);
}

static void steps_by_calls_are_clipped_and_held_like_the_fast_path(void **state)
{
    (void)state;
    static float output[FIXTURE_BATCH * FIXTURE_CLASSES], by[FIXTURE_BATCH * FIXTURE_CLASSES];
    static const StepRule rules[] = {{.lr = 0.1F, .clip_norm = 0.01F},
                                     {.lr = 0.1F, .hold = true},
                                     {.lr = 0.1F, .clip_norm = 0.01F}};
    Fixture fixture;
    fixture_start(&fixture, "adam");
    fixture_nll_gradient(fixture.y, FIXTURE_BATCH, by);
    Snapshot *start = fixture_snapshot(&fixture, fixture.replica);
    StepResult fast[3], calls[3];
    for (uint64_t i = 0; i < 3; i++)
        fast[i] = train(&fixture, i, &rules[i]);
    Snapshot *want = fixture_snapshot(&fixture, fixture.replica);
    assert_int_equal(replica_restore(fixture.replica, start), 0);
    for (uint64_t i = 0; i < 3; i++) {
        Context *context;
        double norm;
        assert_int_equal(
            replica_forward(fixture.replica, &fixture.batch, i, 0, output, &context, NULL), 0);
        assert_int_equal(replica_backward(fixture.replica, context, by, &norm, NULL), 0);
        assert_int_equal(replica_step(fixture.replica, context, &rules[i], &calls[i], NULL), 0);
        assert_int_equal(calls[i].verdict, fast[i].verdict);
        assert_int_equal(calls[i].samples, fast[i].samples);
        assert_true(calls[i].gradient_norm == fast[i].gradient_norm);
        context_free(context);
    }
    assert_at(&fixture, want);
    snapshot_free(start);
    snapshot_free(want);
    fixture_stop(&fixture);
}

/* ---- left out ------------------------------------------------------------------------------- */

static void gradients_that_are_not_finite_are_left_out(void **state)
{
    (void)state;
    static const StepRule rules[] = {{.lr = 0.1F, .want_norm = true},
                                     {.lr = 0.1F, .clip_norm = 1},
                                     {.lr = 0.1F, .norm_limit = 1e30}};
    Fixture fixture;
    fixture_start(&fixture, "adam");
    (void)fixture_train(&fixture, fixture.replica, 0);
    Snapshot *before = fixture_snapshot(&fixture, fixture.replica);
    uint64_t version = replica_version(fixture.replica);
    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        fixture_fill(&fixture, 0);
        fixture.x[40] = k == 0 ? NAN : INFINITY;
        StepResult result = train(&fixture, 1, &rules[k]);
        assert_int_equal(result.verdict, STEP_NOT_FINITE);
        assert_false(isfinite(result.gradient_norm));
        assert_at(&fixture, before);
        assert_int_equal(replica_version(fixture.replica), version);
    }
    assert_int_equal(replica_restore(fixture.replica, before), 0); /* the buffers were spoilt */
    fixture_fill(&fixture, 0);
    assert_int_equal(train(&fixture, 1, &rules[0]).verdict, STEP_APPLIED);
    snapshot_free(before);
    fixture_stop(&fixture);
}

static void gradients_above_the_limit_are_left_out(void **state)
{
    (void)state;
    static float gradient[MAX_PARAMS];
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Snapshot *before = fixture_snapshot(&fixture, fixture.replica);
    double norm = gradient_of(&fixture, fixture.replica, 0, gradient);
    StepResult result = train(&fixture, 0, &(StepRule){.lr = 0.1F, .norm_limit = 0.99 * norm});
    assert_int_equal(result.verdict, STEP_OVER_LIMIT);
    assert_true(result.gradient_norm == norm);
    assert_at(&fixture, before);
    result = train(&fixture, 0, &(StepRule){.lr = 0.1F, .norm_limit = norm});
    assert_int_equal(result.verdict, STEP_APPLIED);
    assert_int_equal(replica_version(fixture.replica), 1);
    snapshot_free(before);
    fixture_stop(&fixture);
}

/* ---- accumulation --------------------------------------------------------------------------- */

static void held_batches_make_one_step_of_their_mean(void **state)
{
    (void)state;
    enum { BATCHES = 3 };
    static const int64_t samples[BATCHES] = {FIXTURE_BATCH, 2 * FIXTURE_BATCH, 3};
    static float gradient[MAX_PARAMS], sum[MAX_PARAMS];
    Fixture fixture;
    int64_t total = 0;
    fixture_start(&fixture, "adam");
    (void)fixture_train(&fixture, fixture.replica, 0);
    Snapshot *want = fixture_snapshot(&fixture, fixture.replica);
    for (int k = 0; k < BATCHES; k++) {
        fixture_fill(&fixture, k);
        fixture.batch.samples = samples[k];
        (void)gradient_of(&fixture, fixture.replica, (uint64_t)k, gradient);
        for (size_t i = 0; i < want->n_params; i++) {
            float part = (float)samples[k] * gradient[i];
            sum[i] = k == 0 ? part : sum[i] + part;
        }
        total += samples[k];
    }
    for (size_t i = 0; i < want->n_params; i++)
        sum[i] = (float)(1.0 / (double)total) * sum[i];
    step_snapshot(&fixture, want, sum, 0.1F);

    int64_t held = 0;
    uint64_t version = replica_version(fixture.replica);
    for (int k = 0; k < BATCHES; k++) {
        bool last = k == BATCHES - 1;
        fixture_fill(&fixture, k);
        fixture.batch.samples = samples[k];
        StepResult result = train(&fixture, (uint64_t)k, &(StepRule){.lr = 0.1F, .hold = !last});
        held += samples[k];
        assert_int_equal(result.samples, held);
        assert_int_equal(result.verdict, last ? STEP_APPLIED : STEP_HELD);
        assert_int_equal(replica_held(fixture.replica), last ? 0 : held);
        assert_int_equal(replica_version(fixture.replica), version + last);
    }
    assert_at(&fixture, want);
    /* and the step after it is a plain one again */
    (void)gradient_of(&fixture, fixture.replica, 9, gradient);
    step_snapshot(&fixture, want, gradient, 0.1F);
    (void)train(&fixture, 9, &(StepRule){.lr = 0.1F});
    assert_at(&fixture, want);
    snapshot_free(want);
    fixture_stop(&fixture);
}

static void norm_of_a_held_step_is_that_of_the_mean(void **state)
{
    (void)state;
    static float gradient[MAX_PARAMS];
    const StepRule hold = {.lr = 0.1F, .want_norm = true, .hold = true};
    const StepRule step = {.lr = 0.1F, .want_norm = true};
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    double norm = gradient_of(&fixture, fixture.replica, 0, gradient);
    assert_true(train(&fixture, 0, &hold).gradient_norm == norm);
    /* twice the same gradient: the mean is it again, but for rounding */
    assert_true(fabs(train(&fixture, 0, &step).gradient_norm - norm) < 1e-6 * norm);
    fixture_stop(&fixture);
}

static void what_is_left_out_is_not_held(void **state)
{
    (void)state;
    const StepRule hold = {.lr = 0.1F, .want_norm = true, .hold = true};
    const StepRule step = {.lr = 0.1F, .want_norm = true};
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Snapshot *start = fixture_snapshot(&fixture, fixture.replica);
    (void)train(&fixture, 0, &hold);
    (void)train(&fixture, 1, &step);
    Snapshot *want = fixture_snapshot(&fixture, fixture.replica);
    assert_int_equal(replica_restore(fixture.replica, start), 0);
    assert_int_equal(train(&fixture, 0, &hold).verdict, STEP_HELD);
    float kept = fixture.x[0];
    fixture.x[0] = NAN;
    assert_int_equal(train(&fixture, 5, &hold).verdict, STEP_NOT_FINITE);
    assert_int_equal(replica_held(fixture.replica), FIXTURE_BATCH);
    fixture.x[0] = kept;
    assert_int_equal(train(&fixture, 1, &step).verdict, STEP_APPLIED);
    assert_at(&fixture, want);

    /* a step that is left out takes what is held with it */
    assert_int_equal(replica_restore(fixture.replica, start), 0);
    (void)train(&fixture, 0, &hold);
    fixture.x[0] = NAN;
    assert_int_equal(train(&fixture, 1, &step).verdict, STEP_NOT_FINITE);
    assert_int_equal(replica_held(fixture.replica), 0);
    assert_at(&fixture, start);
    snapshot_free(start);
    snapshot_free(want);
    fixture_stop(&fixture);
}

static void restoring_and_dropping_forget_what_is_held(void **state)
{
    (void)state;
    const StepRule hold = {.lr = 0.1F, .hold = true};
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Snapshot *start = fixture_snapshot(&fixture, fixture.replica);
    (void)fixture_train(&fixture, fixture.replica, 1);
    Snapshot *want = fixture_snapshot(&fixture, fixture.replica);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(replica_restore(fixture.replica, start), 0);
        (void)train(&fixture, 0, &hold);
        if (k == 0)
            replica_drop_held(fixture.replica);
        else
            assert_int_equal(replica_restore(fixture.replica, start), 0);
        assert_int_equal(replica_held(fixture.replica), 0);
        (void)fixture_train(&fixture, fixture.replica, 1);
        assert_at(&fixture, want);
    }
    snapshot_free(start);
    snapshot_free(want);
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_is_told_and_changes_nothing),
        cmocka_unit_test(long_gradients_are_clipped_as_torch_does),
        cmocka_unit_test(short_gradients_keep_every_bit),
        cmocka_unit_test(steps_by_calls_are_clipped_and_held_like_the_fast_path),
        cmocka_unit_test(gradients_that_are_not_finite_are_left_out),
        cmocka_unit_test(gradients_above_the_limit_are_left_out),
        cmocka_unit_test(held_batches_make_one_step_of_their_mean),
        cmocka_unit_test(norm_of_a_held_step_is_that_of_the_mean),
        cmocka_unit_test(what_is_left_out_is_not_held),
        cmocka_unit_test(restoring_and_dropping_forget_what_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
