#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fixture.h"

Graph *fixture_graph(void)
{
    static const ConvAttrs conv = {4, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true};
    static const BatchNormAttrs norm = {1e-5F, 0.1F};
    static const PoolAttrs pool = {{2, 2}, {2, 2}, {0, 0}, true};
    Shape input = {4, {DIM_BATCH, 1, 6, 6}};
    Graph *graph;
    Error err = {0};
    assert_int_equal(graph_new(&input, &graph), 0);
    ValueId v = graph_conv2d(graph, "conv1", 0, &conv);
    ValueId shared = graph_relu(graph, "relu1", v); /* read twice */
    v = graph_conv2d(graph, "conv2", shared, &conv);
    v = graph_batchnorm2d(graph, "bn", v, &norm);
    v = graph_add(graph, "add", v, shared);
    v = graph_relu(graph, "relu2", v);
    v = graph_maxpool2d(graph, "pool", v, &pool);
    v = graph_dropout2d(graph, "dropout", v, 0.2F);
    v = graph_flatten(graph, "flatten", v);
    v = graph_linear(graph, "fc", v, FIXTURE_CLASSES, true);
    v = graph_logsoftmax(graph, "out", v);
    if (graph_finish(graph, v, &err) < 0)
        fail_msg("%s", err.message);
    return graph;
}

void fixture_engine(const Graph *graph, const char *optimizer, Engine **ret)
{
    Error err = {0};
    EngineSpec spec = {.graph = graph,
                       .threads = 1,
                       .loss = LOSS_NLL,
                       .seed = 9,
                       .scale = 1.0F / 255,
                       .mean = {0.25F},
                       .deviation = {0.5F},
                       .channels = 1};
    assert_int_equal(backend_find("ref", &spec.backend, &err), 0);
    assert_int_equal(optimizer_parse(optimizer, 0.1F, &spec.optimizer, &err), 0);
    if (engine_new(&spec, ret, &err) < 0)
        fail_msg("%s", err.message);
    engine_bind(*ret);
}

void fixture_start(Fixture *fixture, const char *optimizer)
{
    Error err = {0};
    memset(fixture, 0, sizeof *fixture);
    fixture->graph = fixture_graph();
    fixture_engine(fixture->graph, optimizer, &fixture->engine);
    if (replica_new(fixture->engine, 0, &fixture->replica, &err) < 0)
        fail_msg("%s", err.message);
    fixture_fill(fixture, 0);
}

void fixture_stop(Fixture *fixture)
{
    replica_free(fixture->replica);
    engine_free(fixture->engine);
    graph_free(fixture->graph);
}

/* Class c has its third of the rows bright, the rest is noise. */
void fixture_fill(Fixture *fixture, int number)
{
    RngKey key = {.seed = 4, .a = (uint32_t)number};
    for (int i = 0; i < 2 * FIXTURE_BATCH; i++) {
        int64_t class = (i + number) % FIXTURE_CLASSES;
        fixture->y[i] = class;
        for (int p = 0; p < FIXTURE_WIDTH; p++) {
            float noise = rng_to_unit(rng_word(&key, (uint64_t)i * FIXTURE_WIDTH + (uint64_t)p));
            bool bright = p / (FIXTURE_WIDTH / FIXTURE_CLASSES) == class;
            fixture->x[i * FIXTURE_WIDTH + p] = 0.5F * noise + (bright ? 1.0F : 0.0F);
        }
    }
    fixture->batch = (Batch){.samples = FIXTURE_BATCH, .x = fixture->x, .y = fixture->y};
}

float fixture_train(Fixture *fixture, Replica *replica, uint64_t step)
{
    StepResult result = {0};
    Error err = {0};
    if (replica_train(replica, &fixture->batch, step, &(StepRule){.lr = 0.1F}, &result, &err) < 0)
        fail_msg("%s", err.message);
    return result.loss;
}

void fixture_nll_gradient(const int64_t *y, int64_t samples, float *gradient)
{
    memset(gradient, 0, (size_t)samples * FIXTURE_CLASSES * sizeof *gradient);
    for (int64_t i = 0; i < samples; i++)
        gradient[i * FIXTURE_CLASSES + y[i]] = -1.0F / (float)samples;
}

Snapshot *fixture_snapshot(const Fixture *fixture, Replica *replica)
{
    Snapshot *snapshot;
    const Optimizer *optimizer = &engine_spec(fixture->engine)->optimizer;
    assert_int_equal(snapshot_new(fixture->graph, optimizer, &snapshot), 0);
    assert_int_equal(replica_snapshot(replica, snapshot), 0);
    return snapshot;
}

void fixture_assert_same(const Snapshot *a, const Snapshot *b)
{
    assert_memory_equal(a->params, b->params, a->n_params * sizeof(float));
    assert_memory_equal(a->buffers, b->buffers, a->n_buffers * sizeof(float));
    assert_memory_equal(a->counters, b->counters, a->n_counters * sizeof(int64_t));
    for (int i = 0; i < a->n_states; i++)
        assert_memory_equal(a->states[i], b->states[i], a->n_params * sizeof(float));
    assert_int_equal(a->updates, b->updates);
}
