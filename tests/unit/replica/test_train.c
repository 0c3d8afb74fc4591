/* The fast path: it learns, repeats itself, and leaves the weights alone when data is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static const char *const optimizers[] = {"sgd", "sgd,momentum=0.9,nesterov=true", "adam"};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static void training_reduces_the_loss(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd,momentum=0.9");
    float first = fixture_train(&fixture, fixture.replica, 0), last = first;
    for (uint64_t step = 1; step < 60; step++) {
        fixture_fill(&fixture, (int)step % 8);
        last = fixture_train(&fixture, fixture.replica, step);
    }
    assert_true(last < 0.3F * first);

    Evaluation total = {0};
    fixture_fill(&fixture, 99);
    assert_int_equal(replica_evaluate(fixture.replica, &fixture.batch, &total, NULL), 0);
    assert_int_equal(replica_evaluate(fixture.replica, &fixture.batch, &total, NULL), 0);
    assert_int_equal(total.samples, 2 * FIXTURE_BATCH);
    assert_int_equal(total.correct, 2 * FIXTURE_BATCH);
    assert_true(total.loss_sum < 0.5 * (double)total.samples);
    fixture_stop(&fixture);
}

/* forward, gradient of the loss on the caller's side, backward, step */
static void step_by_calls(Fixture *fixture, uint64_t step)
{
    float output[FIXTURE_BATCH * FIXTURE_CLASSES], gradient[FIXTURE_BATCH * FIXTURE_CLASSES];
    Context *context;
    double norm = 0;
    Batch batch = fixture->batch;
    batch.y = NULL;
    assert_int_equal(replica_forward(fixture->replica, &batch, step, 0, output, &context, NULL), 0);
    assert_int_equal(replica_output_elements(fixture->replica, batch.samples),
                     batch.samples * FIXTURE_CLASSES);
    fixture_nll_gradient(fixture->batch.y, batch.samples, gradient);
    assert_int_equal(replica_backward(fixture->replica, context, gradient, &norm, NULL), 0);
    assert_true(norm > 0 && isfinite(norm));
    assert_int_equal(replica_step(fixture->replica, context, &(StepRule){.lr = 0.1F}, NULL, NULL),
                     0);
    context_free(context);
}

static void train_equals_its_calls_bit_for_bit(void **state)
{
    (void)state;
    for (int o = 0; o < N_OPTIMIZERS; o++) {
        Fixture a, b;
        fixture_start(&a, optimizers[o]);
        fixture_start(&b, optimizers[o]);
        for (uint64_t step = 0; step < 5; step++) {
            fixture_fill(&a, (int)step);
            fixture_fill(&b, (int)step);
            a.batch.samples = b.batch.samples = step == 4 ? 2 : FIXTURE_BATCH;
            (void)fixture_train(&a, a.replica, step);
            step_by_calls(&b, step);
        }
        Snapshot *x = fixture_snapshot(&a, a.replica), *y = fixture_snapshot(&b, b.replica);
        fixture_assert_same(x, y);
        assert_int_equal(x->updates, 5);
        snapshot_free(x);
        snapshot_free(y);
        fixture_stop(&a);
        fixture_stop(&b);
    }
}

static void same_seed_gives_the_same_bits_and_ranks_draw_apart(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Replica *same, *other;
    assert_int_equal(replica_new(fixture.engine, 0, &same, NULL), 0);
    assert_int_equal(replica_new(fixture.engine, 1, &other, NULL), 0);
    assert_int_equal(replica_rank(other), 1);
    Snapshot *first = fixture_snapshot(&fixture, fixture.replica);
    Snapshot *third = fixture_snapshot(&fixture, other);
    fixture_assert_same(first, third); /* ranks begin alike */
    snapshot_free(first);
    snapshot_free(third);
    for (uint64_t step = 0; step < 4; step++) {
        float loss = fixture_train(&fixture, fixture.replica, step);
        assert_true(loss == fixture_train(&fixture, same, step));
        (void)fixture_train(&fixture, other, step);
    }
    first = fixture_snapshot(&fixture, fixture.replica);
    Snapshot *second = fixture_snapshot(&fixture, same);
    third = fixture_snapshot(&fixture, other);
    fixture_assert_same(first, second);
    assert_memory_not_equal(first->params, third->params, first->n_params * sizeof(float));
    snapshot_free(first);
    snapshot_free(second);
    snapshot_free(third);
    replica_free(same);
    replica_free(other);
    fixture_stop(&fixture);
}

/* replica_train refuses with these words and nothing has changed. */
static void refused(Fixture *fixture, const Batch *batch, const char *words)
{
    Snapshot *before = fixture_snapshot(fixture, fixture->replica);
    StepResult result;
    Error err = {0};
    assert_int_equal(
        replica_train(fixture->replica, batch, 1, &(StepRule){.lr = 0.1F}, &result, &err), -EINVAL);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
    Snapshot *after = fixture_snapshot(fixture, fixture->replica);
    fixture_assert_same(before, after);
    assert_int_equal(before->version, after->version);
    snapshot_free(before);
    snapshot_free(after);
}

static void wrong_data_leaves_the_weights_untouched(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd,momentum=0.9");
    (void)fixture_train(&fixture, fixture.replica, 0);
    fixture.y[4] = FIXTURE_CLASSES;
    refused(&fixture, &fixture.batch,
            "the label of sample 4 is 3, but the model has classes 0 to 2");
    fixture.y[4] = -1;
    refused(&fixture, &fixture.batch, "the label of sample 4 is -1");
    fixture.y[4] = 0;
    Batch batch = fixture.batch;
    batch.samples = 0;
    refused(&fixture, &batch, "1 to 16384 samples, not 0");
    batch.samples = INT64_MAX;
    refused(&fixture, &batch, "1 to 16384 samples");
    batch = fixture.batch;
    batch.y = NULL;
    refused(&fixture, &batch, "no labels");
    batch = fixture.batch;
    batch.x = NULL;
    refused(&fixture, &batch, "no input");
    fixture_stop(&fixture);
}

static void smaller_last_batch_is_its_own_mean(void **state)
{
    (void)state;
    Fixture a, b;
    fixture_start(&a, "sgd");
    fixture_start(&b, "sgd");
    (void)fixture_train(&a, a.replica, 0);
    (void)fixture_train(&b, b.replica, 0);
    a.batch.samples = b.batch.samples = 1;
    float loss = fixture_train(&a, a.replica, 1);
    memset(b.x + FIXTURE_WIDTH, 0x7f, 5 * FIXTURE_WIDTH * sizeof(float)); /* must not be read */
    assert_true(fixture_train(&b, b.replica, 1) == loss);
    a.batch.samples = 2 * FIXTURE_BATCH;
    assert_true(isfinite(fixture_train(&a, a.replica, 2)));
    fixture_stop(&a);
    fixture_stop(&b);
}

static void u8_pixels_are_normalised(void **state)
{
    (void)state;
    Fixture a, b;
    fixture_start(&a, "sgd");
    fixture_start(&b, "sgd");
    uint8_t pixels[FIXTURE_BATCH * FIXTURE_WIDTH];
    const EngineSpec *spec = engine_spec(a.engine);
    for (int i = 0; i < FIXTURE_BATCH * FIXTURE_WIDTH; i++) {
        pixels[i] = (uint8_t)(i * 7);
        a.x[i] = ((float)pixels[i] * spec->scale - spec->mean[0]) / spec->deviation[0];
    }
    b.batch.x_is_u8 = true;
    b.batch.x = pixels;
    assert_true(fixture_train(&a, a.replica, 0) == fixture_train(&b, b.replica, 0));
    fixture_stop(&a);
    fixture_stop(&b);
}

/* Data straight out of a message lies at any address. */
static void unaligned_data_is_read(void **state)
{
    (void)state;
    Fixture a, b;
    fixture_start(&a, "sgd");
    fixture_start(&b, "sgd");
    char *x = malloc(sizeof b.x + 1), *y = malloc(sizeof b.y + 3);
    memcpy(x + 1, b.x, sizeof b.x);
    memcpy(y + 3, b.y, sizeof b.y);
    b.batch.x = x + 1;
    b.batch.y = y + 3;
    assert_true(fixture_train(&a, a.replica, 0) == fixture_train(&b, b.replica, 0));
    free(x);
    free(y);
    fixture_stop(&a);
    fixture_stop(&b);
}

static void batchnorm_counts_its_batches(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    for (uint64_t step = 0; step < 3; step++)
        (void)fixture_train(&fixture, fixture.replica, step);
    Evaluation total = {0};
    Snapshot *before = fixture_snapshot(&fixture, fixture.replica);
    assert_int_equal(replica_evaluate(fixture.replica, &fixture.batch, &total, NULL), 0);
    Snapshot *after = fixture_snapshot(&fixture, fixture.replica);
    assert_int_equal(before->counters[0], 3);
    fixture_assert_same(before, after); /* evaluation changes nothing */
    assert_int_equal(replica_version(fixture.replica), 3);
    snapshot_free(before);
    snapshot_free(after);
    fixture_stop(&fixture);
}

static void gaps_between_parameters_stay_zero(void **state)
{
    (void)state;
    for (int o = 0; o < N_OPTIMIZERS; o++) {
        Fixture fixture;
        fixture_start(&fixture, optimizers[o]);
        for (uint64_t step = 0; step < 3; step++)
            (void)fixture_train(&fixture, fixture.replica, step);
        Snapshot *now = fixture_snapshot(&fixture, fixture.replica);
        size_t at = 0;
        for (int i = 0; i < graph_param_count(fixture.graph); i++) {
            const ParamInfo *info = graph_param(fixture.graph, i);
            for (; at < info->offset; at++)
                assert_true(now->params[at] == 0);
            at += (size_t)info->elements;
        }
        snapshot_free(now);
        fixture_stop(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_reduces_the_loss),
        cmocka_unit_test(train_equals_its_calls_bit_for_bit),
        cmocka_unit_test(same_seed_gives_the_same_bits_and_ranks_draw_apart),
        cmocka_unit_test(wrong_data_leaves_the_weights_untouched),
        cmocka_unit_test(smaller_last_batch_is_its_own_mean),
        cmocka_unit_test(u8_pixels_are_normalised),
        cmocka_unit_test(unaligned_data_is_read),
        cmocka_unit_test(batchnorm_counts_its_batches),
        cmocka_unit_test(gaps_between_parameters_stay_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
