/* Shape inference: what each operator gives, and the sentence for what it does not take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "model/graph.h"

static const ConvAttrs plain_conv = {4, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, true};
static const PoolAttrs plain_pool = {{2, 2}, {2, 2}, {0, 0}, true};

static Graph *new_graph(int ndim, const int64_t *dims)
{
    Shape shape = {.ndim = ndim};
    for (int i = 0; i < ndim; i++)
        shape.dims[i] = dims[i];
    Graph *graph;
    assert_int_equal(graph_new(&shape, &graph), 0);
    return graph;
}

static Graph *image_graph(int64_t channels, int64_t height, int64_t width)
{
    return new_graph(4, (int64_t[]){DIM_BATCH, channels, height, width});
}

static Graph *flat_graph(int64_t features)
{
    return new_graph(2, (int64_t[]){DIM_BATCH, features});
}

static void assert_shape(const Graph *graph, ValueId value, const char *expected)
{
    char text[128];
    assert_true(value >= 0);
    assert_string_equal(shape_format(graph_value_shape(graph, value), text, sizeof text), expected);
}

/* The builder refused, and its sentence has all the words. Frees the graph. */
static void assert_refused(Graph *graph, ValueId value, const char *const *words)
{
    assert_int_equal(value, -EINVAL);
    for (; *words; words++) {
        if (!strstr(graph_error(graph)->message, *words))
            fail_msg("\"%s\" lacks \"%s\"", graph_error(graph)->message, *words);
    }
    graph_free(graph);
}

#define REFUSED(graph, value, ...)                                                                 \
    assert_refused(graph, value, (const char *const[]){__VA_ARGS__, NULL})

static void conv2d_output_follows_stride_padding_and_dilation(void **state)
{
    (void)state;
    Graph *graph = image_graph(6, 28, 17);
    ConvAttrs attrs = {8, {3, 5}, {2, 3}, {1, 2}, {2, 1}, 2, true};
    ValueId v = graph_conv2d(graph, "c", 0, &attrs);
    /* height: (28 + 2 − 2·2 − 1) / 2 + 1 = 13; width: (17 + 4 − 4 − 1) / 3 + 1 = 6 */
    assert_shape(graph, v, "(B, 8, 13, 6)");
    char text[64];
    const ParamInfo *weight = graph_param(graph, 0);
    assert_string_equal(weight->name, "c.weight");
    assert_string_equal(shape_format(&weight->shape, text, sizeof text), "(8, 3, 3, 5)");
    assert_string_equal(graph_param(graph, 1)->name, "c.bias");
    graph_free(graph);
}

static void pools_round_down(void **state)
{
    (void)state;
    Graph *graph = image_graph(3, 7, 6);
    PoolAttrs padded = {{3, 3}, {2, 2}, {1, 1}, true};
    assert_shape(graph, graph_maxpool2d(graph, "m", 0, &plain_pool), "(B, 3, 3, 3)");
    assert_shape(graph, graph_avgpool2d(graph, "a", 0, &padded), "(B, 3, 4, 3)");
    graph_free(graph);
}

static void elementwise_operators_keep_the_shape(void **state)
{
    (void)state;
    Graph *graph = image_graph(3, 4, 5);
    BatchNormAttrs norm = {1e-5F, 0.1F};
    ValueId v = graph_batchnorm2d(graph, "n", 0, &norm);
    v = graph_relu(graph, "r", v);
    v = graph_dropout(graph, "d", v, 0.5F);
    v = graph_dropout2d(graph, "d2", v, 0.5F);
    v = graph_add(graph, "s", v, 0);
    assert_shape(graph, v, "(B, 3, 4, 5)");
    v = graph_flatten(graph, "f", v);
    assert_shape(graph, v, "(B, 60)");
    v = graph_linear(graph, "l", v, 7, false);
    assert_shape(graph, graph_logsoftmax(graph, "s2", v), "(B, 7)");
    graph_free(graph);
}

static void wrong_rank_names_node_and_shapes(void **state)
{
    (void)state;
    Graph *graph = flat_graph(784);
    REFUSED(graph, graph_conv2d(graph, "conv1", 0, &plain_conv), "conv1: Conv2d",
            "(B, channels, height, width)", "(B, 784)");
    graph = image_graph(1, 2, 2);
    REFUSED(graph, graph_linear(graph, "fc", 0, 3, true), "fc: Linear", "(B, 1, 2, 2)");
    graph = image_graph(1, 2, 2);
    REFUSED(graph, graph_logsoftmax(graph, "out", 0), "out: LogSoftmax", "(B, 1, 2, 2)");
    graph = flat_graph(4);
    REFUSED(graph, graph_maxpool2d(graph, "p", 0, &plain_pool), "p: MaxPool2d", "(B, 4)");
    graph = flat_graph(4);
    REFUSED(graph, graph_batchnorm2d(graph, "n", 0, &(BatchNormAttrs){1e-5F, 0.1F}),
            "n: BatchNorm2d", "(B, 4)");
    graph = new_graph(3, (int64_t[]){DIM_BATCH, 3, 4});
    REFUSED(graph, graph_dropout2d(graph, "d", 0, 0.5F), "d: Dropout2d", "(B, 3, 4)");
}

static void window_larger_than_the_input_is_refused(void **state)
{
    (void)state;
    ConvAttrs attrs = plain_conv;
    attrs.dilation[1] = 4; /* spans 9 */
    Graph *graph = image_graph(1, 9, 8);
    REFUSED(graph, graph_conv2d(graph, "c", 0, &attrs), "c:", "spans 9 in width", "(B, 1, 9, 8)");
    graph = image_graph(1, 1, 8);
    REFUSED(graph, graph_maxpool2d(graph, "p", 0, &plain_pool), "spans 2 in height",
            "(B, 1, 1, 8)");
}

static void groups_must_divide_channels(void **state)
{
    (void)state;
    ConvAttrs attrs = plain_conv;
    attrs.groups = 3;
    Graph *graph = image_graph(6, 8, 8);
    REFUSED(graph, graph_conv2d(graph, "c", 0, &attrs), "c: Conv2d with 3 groups", "(B, 6, 8, 8)",
            "4 channels");
}

static void attributes_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int64_t value;
        const char *word;
    } cases[] = {
        {offsetof(ConvAttrs, out_channels), 0, "output channels"},
        {offsetof(ConvAttrs, kernel), 0, "kernel"},
        {offsetof(ConvAttrs, stride), 0, "stride"},
        {offsetof(ConvAttrs, padding), -1, "padding"},
        {offsetof(ConvAttrs, dilation), 0, "dilation"},
        {offsetof(ConvAttrs, groups), 0, "groups"},
        {offsetof(ConvAttrs, kernel), INT64_MAX, "kernel"},
        {offsetof(ConvAttrs, padding), INT64_MAX, "padding"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ConvAttrs attrs = plain_conv;
        memcpy((char *)&attrs + cases[i].offset, &cases[i].value, sizeof(int64_t));
        Graph *graph = image_graph(1, 8, 8);
        REFUSED(graph, graph_conv2d(graph, "c", 0, &attrs), "c: Conv2d", cases[i].word);
    }
    PoolAttrs pool = {{2, 2}, {2, 2}, {2, 2}, true};
    Graph *graph = image_graph(1, 8, 8);
    REFUSED(graph, graph_avgpool2d(graph, "p", 0, &pool), "p: AvgPool2d", "half its kernel");
    graph = flat_graph(3);
    REFUSED(graph, graph_dropout(graph, "d", 0, 1.5F), "d: Dropout", "1.5");
    graph = flat_graph(3);
    REFUSED(graph, graph_linear(graph, "l", 0, 0, true), "l: Linear", "outputs");
    graph = image_graph(1, 8, 8);
    REFUSED(graph, graph_batchnorm2d(graph, "n", 0, &(BatchNormAttrs){0, 0.1F}), "eps above 0");
}

static void add_of_two_shapes_names_both(void **state)
{
    (void)state;
    Graph *graph = image_graph(1, 8, 8);
    ValueId v = graph_maxpool2d(graph, "p", 0, &plain_pool);
    REFUSED(graph, graph_add(graph, "sum", 0, v), "sum: Add", "(B, 1, 8, 8)", "(B, 1, 4, 4)");
}

static void absurd_sizes_are_refused(void **state)
{
    (void)state;
    Graph *graph = new_graph(2, (int64_t[]){DIM_BATCH, INT64_C(1) << 62});
    REFUSED(graph, graph_relu(graph, "r", 0), "a model's input must be");
    graph = new_graph(3, (int64_t[]){DIM_BATCH, INT64_C(1) << 31, INT64_C(1) << 31});
    REFUSED(graph, graph_relu(graph, "r", 0), "a model's input must be");
    graph = new_graph(2, (int64_t[]){4, 4});
    REFUSED(graph, graph_relu(graph, "r", 0), "(B, …)", "(4, 4)");
    graph = flat_graph(70000);
    REFUSED(graph, graph_linear(graph, "big", 0, 70000, false), "big.weight", "(70000, 70000)");
    ConvAttrs wide = plain_conv;
    wide.out_channels = 1 << 20;
    graph = image_graph(1, 2000, 2000);
    REFUSED(graph, graph_conv2d(graph, "c", 0, &wide), "c:", "(B, 1048576, 1998, 1998)");
}

static void first_error_stays(void **state)
{
    (void)state;
    Graph *graph = flat_graph(784);
    Error err = {0};
    ValueId v = graph_conv2d(graph, "conv1", 0, &plain_conv);
    v = graph_relu(graph, "relu", v);
    assert_int_equal(v, -EINVAL);
    assert_int_equal(graph_finish(graph, v, &err), -EINVAL);
    assert_non_null(strstr(err.message, "conv1: Conv2d"));
    graph_free(graph);
}

static void format_shortens_to_the_room(void **state)
{
    (void)state;
    Shape shape = {4, {DIM_BATCH, 32, 26, 26}};
    char text[8];
    assert_string_equal(shape_format(&shape, text, sizeof text), "(B, 32,");
    assert_int_equal(shape_elements(&shape, 2), 2 * 32 * 26 * 26);
    Shape at = shape_at_batch(&shape, 5);
    assert_int_equal(at.dims[0], 5);
    assert_false(shape_equal(&at, &shape));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv2d_output_follows_stride_padding_and_dilation),
        cmocka_unit_test(pools_round_down),
        cmocka_unit_test(elementwise_operators_keep_the_shape),
        cmocka_unit_test(wrong_rank_names_node_and_shapes),
        cmocka_unit_test(window_larger_than_the_input_is_refused),
        cmocka_unit_test(groups_must_divide_channels),
        cmocka_unit_test(attributes_out_of_range_are_refused),
        cmocka_unit_test(add_of_two_shapes_names_both),
        cmocka_unit_test(absurd_sizes_are_refused),
        cmocka_unit_test(first_error_stays),
        cmocka_unit_test(format_shortens_to_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
