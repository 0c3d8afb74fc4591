/* Initial weights: ranges, moments, determinism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/init.h"
#include "model/zoo.h"

typedef struct Arrays {
    Graph *graph;
    float *params, *buffers;
    int64_t *counters;
} Arrays;

static Arrays make(const char *model, uint64_t seed)
{
    const ModelEntry *entry;
    Arrays arrays;
    assert_int_equal(zoo_find(model, &entry, NULL), 0);
    assert_int_equal(entry->build(NULL, 0, &arrays.graph, NULL), 0);
    size_t n = graph_params_length(arrays.graph);
    arrays.params = malloc(n * sizeof(float));
    arrays.buffers = malloc((graph_float_buffers_length(arrays.graph) + 1) * sizeof(float));
    arrays.counters = malloc((graph_counters_length(arrays.graph) + 1) * sizeof(int64_t));
    memset(arrays.params, 0xff, n * sizeof(float)); /* NaN where nothing is written */
    init_weights(arrays.graph, seed, arrays.params, arrays.buffers, arrays.counters);
    return arrays;
}

static void drop(Arrays *arrays)
{
    graph_free(arrays->graph);
    free(arrays->params);
    free(arrays->buffers);
    free(arrays->counters);
}

/* Uniform in ±bound: within it, mean near 0, deviation near bound/√3. */
static void assert_uniform(const float *values, int64_t n, double bound)
{
    double sum = 0, squares = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        largest = fmax(largest, fabs((double)values[i]));
    }
    double deviation = sqrt(squares / (double)n), expected = bound / sqrt(3);
    assert_true(largest <= bound * (1 + 1e-6));
    if (n < 100)
        return;
    assert_true(largest > 0.9 * bound);
    assert_true(fabs(sum / (double)n) < 5 * expected / sqrt((double)n));
    assert_true(fabs(deviation - expected) < 0.2 * expected);
}

static void bounds_are_those_of_pytorch(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double fan_in;
    } expected[] = {
        {"conv1.weight", 9},  {"conv1.bias", 9},  {"conv2.weight", 288}, {"conv2.bias", 288},
        {"fc1.weight", 9216}, {"fc1.bias", 9216}, {"fc2.weight", 128},   {"fc2.bias", 128},
    };
    Arrays arrays = make("mnist-cnn", 1);
    assert_int_equal(graph_param_count(arrays.graph), 8);
    for (int i = 0; i < 8; i++) {
        const ParamInfo *info = graph_param(arrays.graph, i);
        assert_string_equal(info->name, expected[i].name);
        assert_uniform(arrays.params + info->offset, info->elements, 1 / sqrt(expected[i].fan_in));
    }
    drop(&arrays);
}

static void grouped_conv_counts_its_own_channels_only(void **state)
{
    (void)state;
    Shape input = {4, {DIM_BATCH, 6, 8, 8}};
    ConvAttrs attrs = {6, {2, 3}, {1, 1}, {0, 0}, {1, 1}, 3, true};
    Graph *graph;
    assert_int_equal(graph_new(&input, &graph), 0);
    assert_true(graph_conv2d(graph, "c", 0, &attrs) > 0);
    assert_true(fabs((double)graph_param(graph, 0)->bound - 1 / sqrt(2 * 2 * 3)) < 1e-7);
    graph_free(graph);
}

static void gaps_are_zero(void **state)
{
    (void)state;
    Arrays arrays = make("mnist-cnn", 1);
    size_t at = 0;
    for (int i = 0; i < graph_param_count(arrays.graph); i++) {
        const ParamInfo *info = graph_param(arrays.graph, i);
        for (; at < info->offset; at++)
            assert_true(arrays.params[at] == 0);
        at += (size_t)info->elements;
    }
    for (; at < graph_params_length(arrays.graph); at++)
        assert_true(arrays.params[at] == 0);
    drop(&arrays);
}

static void element_i_is_word_i_of_the_parameters_stream(void **state)
{
    (void)state;
    Arrays arrays = make("mlp", 77);
    const ParamInfo *info = graph_param(arrays.graph, 2);
    RngKey key = {.seed = 77, .purpose = RNG_INIT, .a = 2};
    for (int i = 0; i < 1000; i += 37) {
        float expected = (2 * rng_to_unit(rng_word(&key, (uint64_t)i)) - 1) * info->bound;
        assert_true(arrays.params[info->offset + (size_t)i] == expected);
    }
    drop(&arrays);
}

static void seed_decides_everything(void **state)
{
    (void)state;
    Arrays a = make("mnist-cnn", 5), b = make("mnist-cnn", 5), c = make("mnist-cnn", 6);
    size_t bytes = graph_params_length(a.graph) * sizeof(float);
    assert_memory_equal(a.params, b.params, bytes);
    assert_memory_not_equal(a.params, c.params, bytes);
    const ParamInfo *weight = graph_param(a.graph, 0), *bias = graph_param(a.graph, 1);
    assert_memory_not_equal(a.params + weight->offset, a.params + bias->offset, 32);
    drop(&a);
    drop(&b);
    drop(&c);
}

static void batchnorm_begins_as_identity(void **state)
{
    (void)state;
    Arrays arrays = make("resnet-small", 1);
    for (int i = 0; i < graph_node_count(arrays.graph); i++) {
        const Node *node = graph_node(arrays.graph, i);
        if (node->kind != OP_BATCHNORM2D)
            continue;
        const ParamInfo *weight = graph_param(arrays.graph, node->params[0]);
        const ParamInfo *bias = graph_param(arrays.graph, node->params[1]);
        const ParamInfo *mean = graph_buffer(arrays.graph, node->buffers[0]);
        const ParamInfo *variance = graph_buffer(arrays.graph, node->buffers[1]);
        const ParamInfo *counter = graph_buffer(arrays.graph, node->buffers[2]);
        for (int64_t k = 0; k < weight->elements; k++) {
            assert_true(arrays.params[weight->offset + (size_t)k] == 1);
            assert_true(arrays.params[bias->offset + (size_t)k] == 0);
            assert_true(arrays.buffers[mean->offset + (size_t)k] == 0);
            assert_true(arrays.buffers[variance->offset + (size_t)k] == 1);
        }
        assert_int_equal(arrays.counters[counter->offset], 0);
    }
    drop(&arrays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_those_of_pytorch),
        cmocka_unit_test(grouped_conv_counts_its_own_channels_only),
        cmocka_unit_test(gaps_are_zero),
        cmocka_unit_test(element_i_is_word_i_of_the_parameters_stream),
        cmocka_unit_test(seed_decides_everything),
        cmocka_unit_test(batchnorm_begins_as_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
