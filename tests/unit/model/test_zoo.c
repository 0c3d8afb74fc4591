/* The models by name: their nodes, options and defaults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "model/zoo.h"

static Graph *build(const char *model, const char *key, const char *value)
{
    const ModelEntry *entry;
    Error err = {0};
    ModelOption option = {key, value};
    Graph *graph = NULL;
    assert_int_equal(zoo_find(model, &entry, &err), 0);
    if (entry->build(&option, key ? 1 : 0, &graph, &err) < 0)
        fail_msg("%s", err.message);
    return graph;
}

static void build_fails(const char *model, const char *key, const char *value, const char *words)
{
    const ModelEntry *entry;
    Error err = {0};
    ModelOption option = {key, value};
    Graph *graph = NULL;
    assert_int_equal(zoo_find(model, &entry, &err), 0);
    assert_int_equal(entry->build(&option, 1, &graph, &err), -EINVAL);
    assert_null(graph);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
}

static void mnist_cnn_is_the_examples_net(void **state)
{
    (void)state;
    static const struct {
        const char *name, *kind, *output;
    } nodes[] = {
        {"conv1", "Conv2d", "(B, 32, 26, 26)"},
        {"relu1", "ReLU", "(B, 32, 26, 26)"},
        {"conv2", "Conv2d", "(B, 64, 24, 24)"},
        {"pool", "MaxPool2d", "(B, 64, 12, 12)"},
        {"dropout1", "Dropout2d", "(B, 64, 12, 12)"},
        {"flatten", "Flatten", "(B, 9216)"},
        {"fc1", "Linear", "(B, 128)"},
        {"relu2", "ReLU", "(B, 128)"},
        {"dropout2", "Dropout2d", "(B, 128)"},
        {"fc2", "Linear", "(B, 10)"},
        {"log_softmax", "LogSoftmax", "(B, 10)"},
    };
    Graph *graph = build("mnist-cnn", NULL, NULL);
    assert_int_equal(graph_node_count(graph), 11);
    for (int i = 0; i < 11; i++) {
        char text[64];
        const Node *node = graph_node(graph, i);
        assert_string_equal(node->name, nodes[i].name);
        assert_string_equal(op_kind_name(node->kind), nodes[i].kind);
        assert_string_equal(shape_format(graph_value_shape(graph, node->output), text, sizeof text),
                            nodes[i].output);
    }
    assert_true(graph_node(graph, 4)->attrs.dropout == 0.25F);
    assert_true(graph_node(graph, 8)->attrs.dropout == 0.5F);
    int64_t elements = 0;
    for (int i = 0; i < graph_param_count(graph); i++)
        elements += graph_param(graph, i)->elements;
    assert_int_equal(elements, 1199882); /* as PyTorch counts them */
    graph_free(graph);
}

static void dropout_option_keeps_the_nodes(void **state)
{
    (void)state;
    Graph *graph = build("mnist-cnn", "dropout", "0");
    assert_int_equal(graph_node_count(graph), 11);
    assert_true(graph_node(graph, 4)->attrs.dropout == 0);
    assert_true(graph_node(graph, 8)->attrs.dropout == 0);
    graph_free(graph);
}

static void mlp_takes_hidden_and_layers(void **state)
{
    (void)state;
    Graph *graph = build("mlp", "hidden", "32");
    assert_int_equal(graph_param(graph, 0)->shape.dims[0], 32);
    graph_free(graph);
    graph = build("mlp", "layers", "3");
    assert_int_equal(graph_param_count(graph), 8);
    assert_string_equal(graph_param(graph, 4)->name, "fc3.weight");
    graph_free(graph);
    graph = build("mlp", "layers", "0");
    assert_int_equal(graph_param_count(graph), 2);
    graph_free(graph);
}

static void resnet_adds_two_branches(void **state)
{
    (void)state;
    Graph *graph = build("resnet-small", NULL, NULL);
    int adds = 0, norms = 0, projections = 0;
    for (int i = 0; i < graph_node_count(graph); i++) {
        const Node *node = graph_node(graph, i);
        adds += node->kind == OP_ADD;
        norms += node->kind == OP_BATCHNORM2D;
        projections += node->kind == OP_CONV2D && node->attrs.conv.kernel[0] == 1 &&
                       node->attrs.conv.stride[0] == 2;
    }
    assert_int_equal(adds, 3);
    assert_int_equal(norms, 9);
    assert_int_equal(projections, 2);
    graph_free(graph);
}

static void wrong_options_are_refused_with_the_list(void **state)
{
    (void)state;
    build_fails("mnist-cnn", "hidden", "3", "mnist-cnn has dropout");
    build_fails("mnist-cnn", "drop", "1", "no option is called \"drop\"");
    build_fails("mnist-cnn", "", "1", "no option is called \"\"");
    build_fails("mnist-cnn", "dropout", "2", "from 0 to 1, not \"2\"");
    build_fails("mlp", "hidden", "many", "whole number");
    build_fails("mlp", "hidden", "0", "from 1 to");
    build_fails("mlp", "layers", "99999999999999999999", "from 0 to 32");
    build_fails("resnet-small", "width", "-4", "from 1 to");
}

static void unknown_model_lists_what_there_is(void **state)
{
    (void)state;
    const ModelEntry *entry;
    Error err = {0};
    assert_int_equal(zoo_find("alexnet", &entry, &err), -ENOENT);
    assert_non_null(strstr(err.message, "mnist-cnn, mlp, resnet-small"));
}

static void every_model_builds_and_matches_its_defaults(void **state)
{
    (void)state;
    for (int i = 0; i < zoo_count(); i++) {
        const ModelEntry *entry = zoo_entry(i);
        Graph *graph = build(entry->name, NULL, NULL);
        assert_true(shape_equal(graph_value_shape(graph, 0), &entry->defaults.input));
        assert_int_equal(graph_value_shape(graph, graph_output(graph))->ndim, 2);
        assert_true(entry->defaults.lr > 0 && entry->defaults.deviation[0] > 0);
        assert_int_equal(entry->defaults.channels, entry->defaults.input.dims[1]);
        graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mnist_cnn_is_the_examples_net),
        cmocka_unit_test(dropout_option_keeps_the_nodes),
        cmocka_unit_test(mlp_takes_hidden_and_layers),
        cmocka_unit_test(resnet_adds_two_branches),
        cmocka_unit_test(wrong_options_are_refused_with_the_list),
        cmocka_unit_test(unknown_model_lists_what_there_is),
        cmocka_unit_test(every_model_builds_and_matches_its_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
