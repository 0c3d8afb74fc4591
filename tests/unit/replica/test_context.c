/* Contexts: each forward's backward belongs to it alone, and stale ones are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "fixture.h"

enum { OUTPUT = FIXTURE_BATCH * FIXTURE_CLASSES };

static Context *forward(Fixture *fixture, uint64_t step, uint32_t draw, float *output)
{
    Context *context;
    Error err = {0};
    int r = replica_forward(fixture->replica, &fixture->batch, step, draw, output, &context, &err);
    if (r < 0)
        fail_msg("%s", err.message);
    return context;
}

static void stale_context_is_refused_with_name_and_versions(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float output[OUTPUT], gradient[OUTPUT];
    double norm = 0;
    Error err = {0};
    fixture_nll_gradient(fixture.y, FIXTURE_BATCH, gradient);
    (void)fixture_train(&fixture, fixture.replica, 0);
    Context *before = forward(&fixture, 1, 0, output);
    Context *with_gradients = forward(&fixture, 1, 1, output);
    assert_int_equal(replica_backward(fixture.replica, with_gradients, gradient, &norm, &err), 0);
    (void)fixture_train(&fixture, fixture.replica, 1);

    Snapshot *weights = fixture_snapshot(&fixture, fixture.replica);
    assert_int_equal(replica_backward(fixture.replica, before, gradient, &norm, &err), -ESTALE);
    assert_string_equal(err.message,
                        "conv1.weight is at version 2; the context's forward read version 1");
    assert_int_equal(
        replica_step(fixture.replica, with_gradients, &(StepRule){.lr = 0.1F}, NULL, &err),
        -ESTALE);
    Snapshot *after = fixture_snapshot(&fixture, fixture.replica);
    fixture_assert_same(weights, after);
    assert_int_equal(context_version(before), 1);
    snapshot_free(weights);
    snapshot_free(after);
    context_free(before);
    context_free(with_gradients);
    fixture_stop(&fixture);
}

static void calls_out_of_order_are_refused(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float output[OUTPUT], gradient[OUTPUT], host[64];
    double norm = 0;
    Error err = {0};
    fixture_nll_gradient(fixture.y, FIXTURE_BATCH, gradient);
    Context *context = forward(&fixture, 0, 0, output);
    assert_int_equal(replica_read_gradient(fixture.replica, context, 0, host, &err), -ENODATA);
    assert_int_equal(replica_step(fixture.replica, context, &(StepRule){.lr = 0.1F}, NULL, &err),
                     -ENODATA);
    assert_non_null(strstr(err.message, "run its backward first"));
    assert_int_equal(replica_backward(fixture.replica, context, gradient, &norm, &err), 0);
    assert_int_equal(replica_backward(fixture.replica, context, gradient, &norm, &err), -EALREADY);
    assert_int_equal(replica_read_gradient(fixture.replica, context, -1, host, &err), -EINVAL);
    assert_int_equal(replica_read_gradient(fixture.replica, context, 8, host, &err), -EINVAL);
    assert_int_equal(replica_step(fixture.replica, context, &(StepRule){.lr = 0.1F}, NULL, &err),
                     0);
    assert_int_equal(replica_step(fixture.replica, context, &(StepRule){.lr = 0.1F}, NULL, &err),
                     -ESTALE);
    context_free(context);
    assert_null(context_free(NULL));
    fixture_stop(&fixture);
}

/* Forwards of several contexts, then their backwards in another order, are those of each alone. */
static void contexts_do_not_disturb_each_other(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float output[OUTPUT], gradient[OUTPUT], alone[3][64], together[64];
    double norm = 0;
    fixture_nll_gradient(fixture.y, FIXTURE_BATCH, gradient);
    Context *contexts[3];
    for (uint32_t i = 0; i < 3; i++) {
        fixture_fill(&fixture, (int)i * 3);
        Context *context = forward(&fixture, 7, i, output);
        assert_int_equal(replica_backward(fixture.replica, context, gradient, &norm, NULL), 0);
        assert_int_equal(replica_read_gradient(fixture.replica, context, 0, alone[i], NULL), 0);
        context_free(context);
    }
    for (uint32_t i = 0; i < 3; i++) {
        fixture_fill(&fixture, (int)i * 3);
        contexts[i] = forward(&fixture, 7, i, output);
    }
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(replica_backward(fixture.replica, contexts[i], gradient, &norm, NULL), 0);
        assert_int_equal(replica_read_gradient(fixture.replica, contexts[i], 0, together, NULL), 0);
        assert_memory_equal(together, alone[i], 36 * sizeof(float));
    }
    for (int i = 0; i < 3; i++)
        context_free(contexts[i]);
    fixture_stop(&fixture);
}

static void draws_of_one_step_differ(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float first[OUTPUT], again[OUTPUT], other[OUTPUT];
    context_free(forward(&fixture, 3, 0, first));
    context_free(forward(&fixture, 3, 0, again));
    context_free(forward(&fixture, 3, 1, other));
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    fixture_stop(&fixture);
}

/* The gradient read back points downhill: a numerical derivative along it gives its square. */
static void gradients_are_those_of_the_loss(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float output[OUTPUT], gradient[OUTPUT];
    double norm = 0, loss[2] = {0, 0}, sum = 0;
    fixture_nll_gradient(fixture.y, FIXTURE_BATCH, gradient);
    for (int side = 0; side < 2; side++) {
        Snapshot *start = fixture_snapshot(&fixture, fixture.replica);
        Context *context = forward(&fixture, 0, 0, output);
        assert_int_equal(replica_backward(fixture.replica, context, gradient, &norm, NULL), 0);
        const float h = 1e-2F / (float)norm;
        assert_int_equal(replica_step(fixture.replica, context,
                                      &(StepRule){.lr = side == 0 ? h : -h}, NULL, NULL),
                         0);
        context_free(context);
        context_free(forward(&fixture, 0, 0, output));
        for (int i = 0; i < FIXTURE_BATCH; i++)
            loss[side] -= (double)output[i * FIXTURE_CLASSES + fixture.y[i]] / FIXTURE_BATCH;
        assert_int_equal(replica_restore(fixture.replica, start), 0);
        snapshot_free(start);
        sum = (double)h;
    }
    double slope = (loss[1] - loss[0]) / (2 * sum);
    assert_true(fabs(slope - norm * norm) < 0.03 * norm * norm);

    double squares = 0;
    Context *context = forward(&fixture, 0, 0, output);
    assert_int_equal(replica_backward(fixture.replica, context, gradient, &norm, NULL), 0);
    for (int i = 0; i < graph_param_count(fixture.graph); i++) {
        float host[256];
        assert_int_equal(replica_read_gradient(fixture.replica, context, i, host, NULL), 0);
        for (int64_t k = 0; k < graph_param(fixture.graph, i)->elements; k++)
            squares += (double)host[k] * (double)host[k];
    }
    assert_true(fabs(sqrt(squares) - norm) < 1e-5 * norm);
    context_free(context);
    fixture_stop(&fixture);
}

static void context_tells_its_size(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float output[OUTPUT], gradient[OUTPUT];
    double norm;
    fixture_nll_gradient(fixture.y, FIXTURE_BATCH, gradient);
    Context *context = forward(&fixture, 0, 0, output);
    size_t with_activations = context_bytes(context);
    assert_int_equal(context_samples(context), FIXTURE_BATCH);
    assert_true(with_activations > FIXTURE_BATCH * FIXTURE_WIDTH * 4 * sizeof(float));
    assert_int_equal(replica_backward(fixture.replica, context, gradient, &norm, NULL), 0);
    size_t gradients = graph_params_length(fixture.graph) * sizeof(float);
    assert_true(context_bytes(context) >= gradients);
    assert_true(context_bytes(context) < gradients + 256); /* the activations are back */
    context_free(context);
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stale_context_is_refused_with_name_and_versions),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(contexts_do_not_disturb_each_other),
        cmocka_unit_test(draws_of_one_step_differ),
        cmocka_unit_test(gradients_are_those_of_the_loss),
        cmocka_unit_test(context_tells_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
