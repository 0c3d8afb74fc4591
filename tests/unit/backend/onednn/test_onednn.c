/* The onednn backend from inside: layouts that flow, failures while compiling, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/onednn/layout.h"
#include "model/init.h"
#include "replica/plan.h"

/* ---- allocations that fail ------------------------------------------------------------------- */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static int callocs_until_failure; /* 0: never */

void *__wrap_calloc(size_t n, size_t size)
{
    if (callocs_until_failure > 0 && --callocs_until_failure == 0)
        return NULL;
    return __real_calloc(n, size);
}

/* ---- a small net ----------------------------------------------------------------------------- */

enum { CHANNELS = 10, BATCH = 3, SIDE = 9 };

/* (B,3,9,9): conv → relu → dropout2d → pool → conv + conv → batchnorm → flatten → linear */
static Graph *small_net(void)
{
    static const ConvAttrs conv = {CHANNELS, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true};
    static const ConvAttrs point = {CHANNELS, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, true};
    static const PoolAttrs pool = {{2, 2}, {2, 2}, {0, 0}, true};
    static const BatchNormAttrs norm = {1e-5F, 0.1F};
    Shape input = {4, {DIM_BATCH, 3, SIDE, SIDE}};
    Error err = {0};
    Graph *graph = NULL;
    assert_int_equal(graph_new(&input, &graph), 0);
    ValueId v = graph_conv2d(graph, "conv1", 0, &conv);
    v = graph_relu(graph, "relu", v);
    v = graph_dropout2d(graph, "dropout", v, 0.25F);
    v = graph_maxpool2d(graph, "pool", v, &pool);
    ValueId a = graph_conv2d(graph, "conv2", v, &conv), b = graph_conv2d(graph, "skip", v, &point);
    v = graph_add(graph, "add", a, b);
    v = graph_batchnorm2d(graph, "norm", v, &norm);
    v = graph_flatten(graph, "flatten", v);
    v = graph_linear(graph, "fc", v, 5, true);
    v = graph_logsoftmax(graph, "out", v);
    assert_int_equal(graph_finish(graph, v, &err), 0);
    return graph;
}

static const Optimizer sgd = {.kind = OPTIMIZER_SGD, .lr = 0.1F};

/* One forward and backward; the gradients, owned by the caller. */
static float *train_once(const Graph *graph, int threads, size_t *n)
{
    RngKey rng = {.seed = 1, .a = 2, .b = 3};
    Accelerator accelerator;
    Plan *plan = NULL;
    Activations *activations = NULL;
    Weights weights;
    Error err = {0};
    assert_int_equal(accelerator_open(&backend_onednn, 0, threads, &accelerator, &err), 0);
    accelerator_bind(&accelerator);
    assert_int_equal(plan_new(&accelerator, graph, BATCH, true, &plan, &err), 0);
    assert_int_equal(activations_new(plan, &activations), 0);
    assert_int_equal(weights_new(&accelerator, graph, &sgd, &weights), 0);
    init_weights(graph, 1, weights.params, weights.buffers, weights.counters);
    for (int i = 0; i < BATCH * 3 * SIDE * SIDE; i++)
        activations_input(activations)[i] = (float)(i * 37 % 101) / 101 - 0.5F;
    assert_int_equal(plan_forward(plan, activations, &weights, &rng), 0);
    float *output_gradient = plan_output_gradient(plan);
    for (int i = 0; i < BATCH * 5; i++)
        output_gradient[i] = (float)(i % 7) - 3;
    assert_int_equal(
        plan_backward(plan, activations, &weights, &rng, output_gradient, plan_gradients(plan)), 0);
    *n = weights.n_params;
    float *gradients = malloc(*n * sizeof *gradients);
    assert_non_null(gradients);
    memcpy(gradients, plan_gradients(plan), *n * sizeof *gradients);
    weights_free(&accelerator, &weights);
    activations_free(activations);
    plan_free(plan);
    accelerator_close(&accelerator);
    return gradients;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void there_is_one_device(void **state)
{
    (void)state;
    Accelerator accelerator;
    Error err = {0};
    assert_int_equal(accelerator_open(&backend_onednn, 1, 1, &accelerator, &err), -ENODEV);
    assert_non_null(strstr(err.message, "there is no 1"));
}

/* A node's kernel on its own, of a graph whose inputs are all plain. */
static int compile_first(const Accelerator *accelerator, const Graph *graph, Kernel **ret,
                         KernelInfo *info, Error *err)
{
    Shape shape = shape_at_batch(graph_value_shape(graph, 0), BATCH);
    Layout *input = NULL;
    int r = accelerator_layout_plain(accelerator, &shape, &input);
    if (r < 0)
        return r;
    KernelSpec spec = {.graph = graph,
                       .node = graph_node(graph, 0),
                       .batch = BATCH,
                       .training = true,
                       .need_input_gradient = {true},
                       .inputs = {input}};
    r = kernel_compile(accelerator, &spec, ret, info, err);
    accelerator_layout_free(accelerator, input);
    return r;
}

static void a_convolution_chooses_a_layout_that_our_loops_can_walk(void **state)
{
    (void)state;
    Graph *graph = small_net();
    Accelerator accelerator;
    Kernel *kernel = NULL;
    KernelInfo info = {0};
    Error err = {0};
    assert_int_equal(accelerator_open(&backend_onednn, 0, 1, &accelerator, &err), 0);
    assert_int_equal(compile_first(&accelerator, graph, &kernel, &info, &err), 0);
    const Layout *layout = info.output;
    assert_non_null(layout);
    assert_true(layout->simple);
    assert_int_equal(layout->dims[1], CHANNELS);
    assert_int_equal(layout->padded_channels % layout->block, 0);
    assert_int_equal(info.output_bytes,
                     (size_t)(BATCH * layout->padded_channels * SIDE * SIDE) * sizeof(float));
    kernel_free(&accelerator, kernel);
    accelerator_close(&accelerator);
    graph_free(graph);
}

static void compiling_survives_every_allocation_that_fails(void **state)
{
    (void)state;
    Graph *graph = small_net();
    Accelerator accelerator;
    Error err = {0};
    int failures = 0, r = -ENOMEM;
    assert_int_equal(accelerator_open(&backend_onednn, 0, 1, &accelerator, &err), 0);
    for (int n = 1; r < 0; n++) {
        Plan *plan = NULL;
        callocs_until_failure = n;
        r = plan_new(&accelerator, graph, BATCH, true, &plan, &err);
        if (r < 0) {
            assert_int_equal(r, -ENOMEM);
            assert_true(strlen(err.message) > 0);
            failures++;
        }
        plan_free(plan);
        callocs_until_failure = 0;
    }
    assert_true(failures > 50);
    accelerator_close(&accelerator);
    graph_free(graph);
}

typedef struct Lane {
    pthread_t thread;
    const Graph *graph;
    float *gradients;
    size_t n;
} Lane;

static void *lane_main(void *data)
{
    Lane *lane = data;
    lane->gradients = train_once(lane->graph, 1, &lane->n);
    return NULL;
}

static void two_lanes_at_once_give_the_bits_of_one(void **state)
{
    (void)state;
    Graph *graph = small_net();
    size_t n = 0;
    float *alone = train_once(graph, 1, &n);
    Lane lanes[2];
    for (int i = 0; i < 2; i++) {
        lanes[i] = (Lane){.graph = graph};
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(lanes[i].thread, NULL);
        assert_int_equal(lanes[i].n, n);
        assert_memory_equal(lanes[i].gradients, alone, n * sizeof *alone);
        free(lanes[i].gradients);
    }
    free(alone);
    graph_free(graph);
}

static void two_threads_give_the_same_bits_every_time(void **state)
{
    (void)state;
    Graph *graph = small_net();
    size_t n = 0, m = 0;
    float *first = train_once(graph, 2, &n), *second = train_once(graph, 2, &m);
    assert_int_equal(n, m);
    assert_memory_equal(first, second, n * sizeof *first);
    free(first);
    free(second);
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_one_device),
        cmocka_unit_test(a_convolution_chooses_a_layout_that_our_loops_can_walk),
        cmocka_unit_test(compiling_survives_every_allocation_that_fails),
        cmocka_unit_test(two_lanes_at_once_give_the_bits_of_one),
        cmocka_unit_test(two_threads_give_the_same_bits_every_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
