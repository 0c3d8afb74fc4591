/* What graph_finish decides, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "model/graph.h"

static const ConvAttrs conv = {4, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true};

static Graph *image_graph(void)
{
    Shape shape = {4, {DIM_BATCH, 4, 8, 8}};
    Graph *graph;
    assert_int_equal(graph_new(&shape, &graph), 0);
    return graph;
}

static void finish(Graph *graph, ValueId output)
{
    Error err = {0};
    if (graph_finish(graph, output, &err) < 0)
        fail_msg("%s", err.message);
}

static void finish_fails(Graph *graph, ValueId output, const char *words)
{
    Error err = {0};
    assert_int_equal(graph_finish(graph, output, &err), -EINVAL);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
    graph_free(graph);
}

static void relu_that_alone_reads_a_conv_is_fused(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    ValueId v = graph_conv2d(graph, "c", 0, &conv);
    v = graph_relu(graph, "r", v);
    v = graph_flatten(graph, "f", v);
    v = graph_linear(graph, "l", v, 3, true);
    finish(graph, graph_relu(graph, "r2", v));
    assert_true(graph_node(graph, 0)->fused_relu);
    assert_true(graph_node(graph, 1)->skip);
    assert_false(graph_node(graph, 2)->skip);
    assert_true(graph_node(graph, 3)->fused_relu);
    assert_true(graph_node(graph, 4)->skip);
    graph_free(graph);
}

static void relu_is_not_fused_when_others_read_the_conv(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    ValueId c = graph_conv2d(graph, "c", 0, &conv);
    ValueId r = graph_relu(graph, "r", c);
    finish(graph, graph_add(graph, "s", r, c));
    assert_false(graph_node(graph, 0)->fused_relu);
    assert_false(graph_node(graph, 1)->skip);
    graph_free(graph);
}

static void relu_after_other_operators_is_not_fused(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    ValueId v = graph_relu(graph, "r0", 0);
    v = graph_batchnorm2d(graph, "n", v, &(BatchNormAttrs){1e-5F, 0.1F});
    v = graph_relu(graph, "r1", v);
    finish(graph, graph_relu(graph, "r2", v));
    for (int i = 0; i < graph_node_count(graph); i++)
        assert_false(graph_node(graph, i)->skip);
    graph_free(graph);
}

static void gradients_are_needed_only_below_parameters(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    ValueId pooled = graph_maxpool2d(graph, "p", 0, &(PoolAttrs){{1, 1}, {1, 1}, {0, 0}, true});
    ValueId c = graph_conv2d(graph, "c", pooled, &conv);
    ValueId plain = graph_relu(graph, "r", pooled);
    ValueId sum = graph_add(graph, "s", plain, c);
    finish(graph, sum);
    assert_false(graph_value_needs_gradient(graph, 0));
    assert_false(graph_value_needs_gradient(graph, pooled));
    assert_false(graph_value_needs_gradient(graph, plain));
    assert_true(graph_value_needs_gradient(graph, c));
    assert_true(graph_value_needs_gradient(graph, sum));
    assert_int_equal(graph_value_consumers(graph, pooled), 2);
    assert_int_equal(graph_output(graph), sum);
    graph_free(graph);
}

static void flat_arrays_begin_parameters_on_cache_lines(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    ValueId v = graph_conv2d(graph, "z", 0, &conv);
    v = graph_batchnorm2d(graph, "a", v, &(BatchNormAttrs){1e-5F, 0.1F});
    finish(graph, v);
    static const struct {
        const char *name;
        size_t offset;
    } expected[] = {{"z.weight", 0}, {"z.bias", 144}, {"a.weight", 160}, {"a.bias", 176}};
    assert_int_equal(graph_param_count(graph), 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(graph_param(graph, i)->name, expected[i].name);
        assert_int_equal(graph_param(graph, i)->offset, expected[i].offset);
    }
    assert_int_equal(graph_params_length(graph), 192);
    assert_int_equal(graph_float_buffers_length(graph), 32);
    assert_int_equal(graph_counters_length(graph), 1);
    assert_string_equal(graph_buffer(graph, 2)->name, "a.num_batches_tracked");
    assert_true(graph_buffer(graph, 2)->counter);
    const int by_name[] = {3, 2, 1, 0}; /* a.bias, a.weight, z.bias, z.weight */
    for (int i = 0; i < 4; i++)
        assert_int_equal(graph_param_by_name(graph, i), by_name[i]);
    graph_free(graph);
}

static void values_that_nobody_reads_are_refused(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    (void)graph_relu(graph, "dead", 0);
    finish_fails(graph, graph_relu(graph, "r", 0), "dead: no node reads its output");
    graph = image_graph();
    ValueId v = graph_relu(graph, "r", 0);
    (void)graph_relu(graph, "r2", v);
    finish_fails(graph, v, "read by another node");
    finish_fails(image_graph(), 3, "value 3");
}

static void names_must_be_good_and_unique(void **state)
{
    (void)state;
    char longest[2 * NODE_NAME_MAX];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *const bad[] = {"", "has space", "new\nline", longest};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Graph *graph = image_graph();
        assert_int_equal(graph_relu(graph, bad[i], 0), -EINVAL);
        graph_free(graph);
    }
    Graph *graph = image_graph();
    ValueId v = graph_relu(graph, "same", 0);
    assert_int_equal(graph_relu(graph, "same", v), -EINVAL);
    assert_non_null(strstr(graph_error(graph)->message, "\"same\" is used twice"));
    graph_free(graph);
}

static void values_from_nowhere_are_refused(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    assert_int_equal(graph_relu(graph, "r", 7), -EINVAL);
    graph_free(graph);
    graph = image_graph();
    assert_int_equal(graph_relu(graph, "r", -3), -EINVAL);
    graph_free(graph);
}

static void finished_graph_takes_no_more_nodes(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    ValueId v = graph_relu(graph, "r", 0);
    finish(graph, v);
    assert_int_equal(graph_relu(graph, "late", v), -EINVAL);
    graph_free(graph);
}

static void number_of_nodes_is_limited(void **state)
{
    (void)state;
    Graph *graph = image_graph();
    ValueId v = 0;
    char name[16];
    for (int i = 0; i < GRAPH_MAX_NODES; i++) {
        snprintf(name, sizeof name, "r%d", i);
        v = graph_relu(graph, name, v);
        assert_int_equal(v, i + 1);
    }
    assert_int_equal(graph_relu(graph, "more", v), -EINVAL);
    assert_non_null(strstr(graph_error(graph)->message, "at most 4096 nodes"));
    graph_free(graph);
    assert_null(graph_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_that_alone_reads_a_conv_is_fused),
        cmocka_unit_test(relu_is_not_fused_when_others_read_the_conv),
        cmocka_unit_test(relu_after_other_operators_is_not_fused),
        cmocka_unit_test(gradients_are_needed_only_below_parameters),
        cmocka_unit_test(flat_arrays_begin_parameters_on_cache_lines),
        cmocka_unit_test(values_that_nobody_reads_are_refused),
        cmocka_unit_test(names_must_be_good_and_unique),
        cmocka_unit_test(values_from_nowhere_are_refused),
        cmocka_unit_test(finished_graph_takes_no_more_nodes),
        cmocka_unit_test(number_of_nodes_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
