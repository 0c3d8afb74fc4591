/* The engine's plans and arenas: made once, recycled, bounded; and every way of losing and mse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "fixture.h"
#include "model/zoo.h"

static void plans_are_made_once_a_batch_size(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Plan *first, *again, *other, *evaluation;
    assert_int_equal(engine_plan(fixture.engine, 4, true, &first, NULL), 0);
    assert_int_equal(engine_plan(fixture.engine, 4, true, &again, NULL), 0);
    assert_int_equal(engine_plan(fixture.engine, 5, true, &other, NULL), 0);
    assert_int_equal(engine_plan(fixture.engine, 4, false, &evaluation, NULL), 0);
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    assert_ptr_not_equal(first, evaluation);
    assert_int_equal(plan_batch(other), 5);
    Error err = {0};
    assert_int_equal(engine_plan(fixture.engine, 0, true, &first, &err), -EINVAL);
    assert_int_equal(engine_plan(fixture.engine, ENGINE_MAX_BATCH + 1, true, &first, &err),
                     -EINVAL);
    fixture_stop(&fixture);
}

static void arenas_are_recycled_and_bounded(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Plan *plan;
    Activations *arenas[2 * ENGINE_MAX_IDLE], *again;
    assert_int_equal(engine_plan(fixture.engine, 4, true, &plan, NULL), 0);
    size_t before = engine_bytes(fixture.engine);
    for (int i = 0; i < 2 * ENGINE_MAX_IDLE; i++)
        assert_int_equal(engine_activations(fixture.engine, plan, &arenas[i]), 0);
    size_t one = activations_bytes(arenas[0]);
    assert_int_equal(engine_bytes(fixture.engine) - before, 2 * ENGINE_MAX_IDLE * one);
    for (int i = 0; i < 2 * ENGINE_MAX_IDLE; i++)
        engine_recycle(fixture.engine, plan, arenas[i]);
    assert_int_equal(engine_bytes(fixture.engine) - before, ENGINE_MAX_IDLE * one);
    assert_int_equal(engine_activations(fixture.engine, plan, &again), 0);
    assert_ptr_equal(again, arenas[ENGINE_MAX_IDLE - 1]);
    assert_int_equal(engine_bytes(fixture.engine) - before, ENGINE_MAX_IDLE * one);
    engine_recycle(fixture.engine, plan, again);
    fixture_stop(&fixture);
}

static void least_recently_used_plan_goes(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    Plan *plan, *kept;
    Activations *arena;
    assert_int_equal(engine_plan(fixture.engine, 1, true, &kept, NULL), 0); /* oldest, in use */
    assert_int_equal(engine_activations(fixture.engine, kept, &arena), 0);
    size_t bytes = 0;
    for (int64_t batch = 2; batch <= 4 * ENGINE_MAX_PLANS; batch++) {
        assert_int_equal(engine_plan(fixture.engine, batch, true, &plan, NULL), 0);
        if (batch == ENGINE_MAX_PLANS)
            bytes = engine_bytes(fixture.engine);
    }
    assert_true(engine_bytes(fixture.engine) < 6 * bytes); /* of larger batches, but not more */
    assert_int_equal(engine_plan(fixture.engine, 1, true, &plan, NULL), 0);
    assert_ptr_equal(plan, kept);
    engine_recycle(fixture.engine, kept, arena);
    fixture_stop(&fixture);
}

static void open_contexts_of_too_many_sizes_are_refused(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float x[(ENGINE_MAX_PLANS + 1) * FIXTURE_WIDTH] = {0};
    float output[(ENGINE_MAX_PLANS + 1) * FIXTURE_CLASSES];
    Context *contexts[ENGINE_MAX_PLANS], *more;
    Error err = {0};
    Batch batch = {.x = x};
    for (int i = 0; i < ENGINE_MAX_PLANS; i++) {
        batch.samples = i + 1;
        assert_int_equal(replica_forward(fixture.replica, &batch, 0, 0, output, &contexts[i], NULL),
                         0);
    }
    batch.samples = ENGINE_MAX_PLANS + 1;
    assert_int_equal(replica_forward(fixture.replica, &batch, 0, 0, output, &more, &err), -ENOMEM);
    assert_non_null(strstr(err.message, "step or discard some"));
    context_free(contexts[3]);
    assert_int_equal(replica_forward(fixture.replica, &batch, 0, 0, output, &more, &err), 0);
    context_free(more);
    for (int i = 0; i < ENGINE_MAX_PLANS; i++)
        if (i != 3)
            context_free(contexts[i]);
    fixture_stop(&fixture);
}

static void abandoned_contexts_leave_no_memory(void **state)
{
    (void)state;
    Fixture fixture;
    fixture_start(&fixture, "sgd");
    float output[FIXTURE_BATCH * FIXTURE_CLASSES];
    size_t bytes = 0;
    for (int i = 0; i < 200; i++) {
        Context *contexts[3];
        for (int k = 0; k < 3; k++)
            assert_int_equal(
                replica_forward(fixture.replica, &fixture.batch, 0, 0, output, &contexts[k], NULL),
                0);
        for (int k = 0; k < 3; k++)
            context_free(contexts[k]);
        if (i == 0)
            bytes = engine_bytes(fixture.engine);
        assert_int_equal(engine_bytes(fixture.engine), bytes);
    }
    fixture_stop(&fixture);
}

static void training_arena_is_smaller_than_all_values(void **state)
{
    (void)state;
    Graph *graph = fixture_graph();
    Engine *engine;
    fixture_engine(graph, "sgd", &engine);
    Plan *training, *evaluation;
    Activations *a, *b;
    assert_int_equal(engine_plan(engine, 8, true, &training, NULL), 0);
    assert_int_equal(engine_plan(engine, 8, false, &evaluation, NULL), 0);
    assert_int_equal(engine_activations(engine, training, &a), 0);
    assert_int_equal(engine_activations(engine, evaluation, &b), 0);
    assert_true(activations_bytes(b) < activations_bytes(a));
    engine_recycle(engine, training, a);
    engine_recycle(engine, evaluation, b);
    engine_free(engine);
    graph_free(graph);
}

/* A linear model with mse: y = 2x − 1 in each of two outputs. */
static void mse_takes_numbers(void **state)
{
    (void)state;
    Shape input = {2, {DIM_BATCH, 2}};
    Graph *graph;
    Engine *engine;
    Replica *replica;
    assert_int_equal(graph_new(&input, &graph), 0);
    assert_int_equal(graph_finish(graph, graph_linear(graph, "l", 0, 2, true), NULL), 0);
    EngineSpec spec = {.graph = graph, .threads = 1, .loss = LOSS_MSE, .seed = 1};
    assert_int_equal(backend_find("ref", &spec.backend, NULL), 0);
    assert_int_equal(optimizer_parse("sgd,momentum=0.9", 0.1F, &spec.optimizer, NULL), 0);
    assert_int_equal(engine_new(&spec, &engine, NULL), 0);
    assert_int_equal(replica_new(engine, 0, &replica, NULL), 0);
    float x[] = {0, 1, 1, 0, 0.5F, -1, -1, 0.25F}, y[8];
    for (int i = 0; i < 8; i++)
        y[i] = 2 * x[i] - 1;
    Batch batch = {.samples = 4, .x = x, .y = y};
    StepResult result = {0};
    for (uint64_t step = 0; step < 300; step++)
        assert_int_equal(
            replica_train(replica, &batch, step, &(StepRule){.lr = 0.1F}, &result, NULL), 0);
    assert_true(result.loss < 1e-6F);
    Evaluation total = {0};
    assert_int_equal(replica_evaluate(replica, &batch, &total, NULL), 0);
    assert_true(total.loss_sum < 1e-5 && total.samples == 4 && total.correct == 0);
    Error err = {0};
    batch.x_is_u8 = true; /* the job has no mean and deviation for it */
    assert_int_equal(replica_train(replica, &batch, 0, &(StepRule){.lr = 0.1F}, &result, &err),
                     -EINVAL);
    assert_non_null(strstr(err.message, "send F32"));
    replica_free(replica);
    engine_free(engine);
    graph_free(graph);
}

static void models_that_cannot_be_trained_are_refused(void **state)
{
    (void)state;
    Shape input = {4, {DIM_BATCH, 1, 4, 4}};
    ConvAttrs conv = {1, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, true};
    EngineSpec spec = {.threads = 1, .loss = LOSS_NLL};
    Engine *engine;
    Error err = {0};
    Graph *graph;
    assert_int_equal(backend_find("ref", &spec.backend, NULL), 0);
    assert_int_equal(graph_new(&input, &graph), 0);
    assert_int_equal(graph_finish(graph, graph_relu(graph, "r", 0), NULL), 0);
    spec.graph = graph;
    assert_int_equal(engine_new(&spec, &engine, &err), -EINVAL);
    assert_non_null(strstr(err.message, "no parameters"));
    graph_free(graph);
    assert_int_equal(graph_new(&input, &graph), 0);
    assert_int_equal(graph_finish(graph, graph_conv2d(graph, "c", 0, &conv), NULL), 0);
    spec.graph = graph;
    assert_int_equal(engine_new(&spec, &engine, &err), -EINVAL);
    assert_non_null(strstr(err.message, "(B, 1, 2, 2)"));
    spec.loss = LOSS_MSE;
    spec.channels = ENGINE_MAX_CHANNELS + 1;
    assert_int_equal(engine_new(&spec, &engine, &err), -EINVAL);
    graph_free(graph);
}

/* Every model of the zoo on every backend of this build: one step gives the same loss. */
static void zoo_models_train_on_every_backend(void **state)
{
    (void)state;
    for (int m = 0; m < zoo_count(); m++) {
        const ModelEntry *entry = zoo_entry(m);
        Graph *graph;
        uint8_t x[2 * 784];
        int64_t y[] = {3, 7};
        float first = 0;
        assert_int_equal(entry->build(NULL, 0, &graph, NULL), 0);
        for (size_t i = 0; i < sizeof x; i++)
            x[i] = (uint8_t)(i * 31);
        for (int b = 0; b < backend_count(); b++) {
            EngineSpec spec = {.graph = graph,
                               .backend = backend_entry(b),
                               .threads = 1,
                               .loss = entry->defaults.loss,
                               .seed = 3,
                               .scale = entry->defaults.scale,
                               .mean = {entry->defaults.mean[0]},
                               .deviation = {entry->defaults.deviation[0]},
                               .channels = 1};
            Engine *engine;
            Replica *replica;
            StepResult result = {0};
            Error err = {0};
            Batch batch = {.samples = 2, .x_is_u8 = true, .x = x, .y = y};
            assert_int_equal(optimizer_parse("sgd", 0.01F, &spec.optimizer, NULL), 0);
            assert_int_equal(engine_new(&spec, &engine, &err), 0);
            engine_bind(engine);
            assert_int_equal(replica_new(engine, 0, &replica, &err), 0);
            for (uint64_t step = 0; step < 2; step++) {
                if (replica_train(replica, &batch, step, &(StepRule){.lr = 0.01F}, &result, &err) <
                    0)
                    fail_msg("%s on %s: %s", entry->name, spec.backend->name, err.message);
            }
            if (b == 0)
                first = result.loss;
            if (!(fabsf(result.loss - first) <= 1e-3F * fabsf(first)))
                fail_msg("%s on %s: loss %g, not %g", entry->name, spec.backend->name,
                         (double)result.loss, (double)first);
            replica_free(replica);
            engine_free(engine);
        }
        graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_made_once_a_batch_size),
        cmocka_unit_test(arenas_are_recycled_and_bounded),
        cmocka_unit_test(least_recently_used_plan_goes),
        cmocka_unit_test(open_contexts_of_too_many_sizes_are_refused),
        cmocka_unit_test(abandoned_contexts_leave_no_memory),
        cmocka_unit_test(training_arena_is_smaller_than_all_values),
        cmocka_unit_test(mse_takes_numbers),
        cmocka_unit_test(models_that_cannot_be_trained_are_refused),
        cmocka_unit_test(zoo_models_train_on_every_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
