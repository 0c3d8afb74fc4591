/* Whole graphs on every backend, so that chosen layouts flow from node to node, through joins,
 * branches and the places where they must become plain: in the harness, where nothing is shared,
 * and through a Plan, which shares and reuses memory. The reference runs through a Plan as well:
 * then it is the Plan that is compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "compare.h"
#include "model/zoo.h"
#include "plan_run.h"

/* As for single operators, but errors add up along a chain. */
static const double tolerance = 5e-5;

/* ---- graphs ---------------------------------------------------------------------------------- */

static ValueId conv(Graph *g, const char *name, ValueId in, int64_t channels, int64_t kernel,
                    int64_t stride, int64_t groups)
{
    ConvAttrs attrs = {.out_channels = channels,
                       .kernel = {kernel, kernel},
                       .stride = {stride, stride},
                       .padding = {kernel / 2, kernel / 2},
                       .dilation = {1, 1},
                       .groups = groups,
                       .bias = true};
    return graph_conv2d(g, name, in, &attrs);
}

/* Before BatchNorm, which takes any bias out again: its gradient is 0, and whatever a backend gives
 * is rounding. */
static ValueId conv_without_bias(Graph *g, const char *name, ValueId in, int64_t channels)
{
    ConvAttrs attrs = {.out_channels = channels,
                       .kernel = {3, 3},
                       .stride = {1, 1},
                       .padding = {1, 1},
                       .dilation = {1, 1},
                       .groups = 1};
    return graph_conv2d(g, name, in, &attrs);
}

static const BatchNormAttrs norm = {.eps = 1e-5F, .momentum = 0.1F};
static const PoolAttrs pool2 = {.kernel = {2, 2}, .stride = {2, 2}};
static const PoolAttrs pool3 = {
    .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .count_include_pad = true};

/* conv → conv → pool → batchnorm → add with a 1×1 branch → flatten → linear */
static ValueId residual(Graph *g)
{
    ValueId v = conv(g, "conv1", 0, 24, 3, 1, 1);
    v = conv_without_bias(g, "conv2", v, 40);
    v = graph_maxpool2d(g, "pool", v, &pool2);
    v = graph_batchnorm2d(g, "bn", v, &norm);
    ValueId branch = conv(g, "branch", v, 40, 1, 1, 1);
    v = graph_add(g, "add", branch, v);
    v = graph_flatten(g, "flatten", v);
    return graph_linear(g, "fc", v, 11, true);
}

/* Channels that fit no block, groups and depthwise, average pooling, a join with the plain input */
static ValueId odd_channels(Graph *g)
{
    ValueId v = conv(g, "conv1", 0, 17, 3, 1, 1);
    v = graph_relu(g, "relu1", v);
    v = conv(g, "depthwise", v, 17, 3, 1, 17);
    v = conv(g, "shrink", v, 3, 1, 1, 1);
    v = graph_add(g, "add", v, 0);
    v = conv(g, "groups", v, 18, 3, 2, 3);
    v = graph_avgpool2d(g, "pool", v, &pool3);
    v = graph_flatten(g, "flatten", v);
    v = graph_linear(g, "fc", v, 5, false);
    return graph_logsoftmax(g, "log_softmax", v);
}

/* Dropout of both kinds between layers that like blocks */
static ValueId dropouts(Graph *g)
{
    ValueId v = conv(g, "conv1", 0, 16, 3, 1, 1);
    v = graph_relu(g, "relu1", v);
    v = graph_dropout2d(g, "drop1", v, 0.25F);
    v = conv(g, "conv2", v, 20, 3, 1, 1);
    v = graph_dropout(g, "drop2", v, 0.5F);
    v = graph_maxpool2d(g, "pool", v, &pool2);
    v = graph_flatten(g, "flatten", v);
    v = graph_linear(g, "fc1", v, 12, true);
    v = graph_relu(g, "relu2", v);
    v = graph_dropout2d(g, "drop3", v, 0.5F);
    v = graph_linear(g, "fc2", v, 6, true);
    return graph_logsoftmax(g, "log_softmax", v);
}

/* Values that several nodes read: gradients are summed, and a Relu whose input is read elsewhere
 * must not be fused */
static ValueId fan_out(Graph *g)
{
    ValueId v = conv(g, "conv1", 0, 32, 3, 1, 1);
    ValueId a = graph_relu(g, "relu", v);
    ValueId b = conv(g, "conv2", v, 32, 1, 1, 1);
    ValueId c = graph_add(g, "add1", a, b);
    c = graph_add(g, "add2", c, v);
    c = graph_add(g, "add3", c, c);
    ValueId f = graph_flatten(g, "flatten", c);
    ValueId h = graph_linear(g, "fc1", f, 9, true);
    return graph_add(g, "add4", h, graph_relu(g, "relu2", h));
}

/* The output is a value of blocks: a convolution, with and without Relu, a pool */
static ValueId ends_in_conv(Graph *g)
{
    return conv(g, "conv2", conv(g, "conv1", 0, 16, 3, 1, 1), 32, 3, 2, 1);
}

static ValueId ends_in_relu(Graph *g)
{
    return graph_relu(g, "relu", ends_in_conv(g));
}

static ValueId ends_in_pool(Graph *g)
{
    return graph_maxpool2d(g, "pool", ends_in_relu(g), &pool2);
}

static ValueId ends_in_flatten(Graph *g)
{
    return graph_flatten(g, "flatten", ends_in_relu(g));
}

static ValueId ends_in_add(Graph *g)
{
    ValueId v = conv(g, "conv1", 0, 16, 3, 1, 1);
    return graph_add(g, "add", conv(g, "conv2", v, 16, 3, 1, 1), v);
}

static ValueId ends_in_norm(Graph *g)
{
    ValueId v = conv(g, "conv1", 0, 16, 3, 2, 1);
    return graph_batchnorm2d(g, "bn", conv_without_bias(g, "conv2", v, 32), &norm);
}

/* Nothing to train before the first weight, and plain operators on the input */
static ValueId starts_plain(Graph *g)
{
    ValueId v = graph_avgpool2d(g, "pool", 0, &pool2);
    v = graph_relu(g, "relu", v);
    v = graph_flatten(g, "flatten", v);
    v = graph_relu(g, "relu2", graph_linear(g, "fc1", v, 17, true));
    return graph_linear(g, "fc2", v, 3, true);
}

static const struct {
    const char *name;
    ValueId (*build)(Graph *g);
} chains[] = {
    {"residual", residual},         {"odd channels", odd_channels},
    {"dropouts", dropouts},         {"fan out", fan_out},
    {"ends in conv", ends_in_conv}, {"ends in relu", ends_in_relu},
    {"ends in pool", ends_in_pool}, {"ends in flatten", ends_in_flatten},
    {"ends in add", ends_in_add},   {"ends in batchnorm", ends_in_norm},
    {"starts plain", starts_plain},
};
static const int64_t batches[] = {1, 2, 5};

/* ---- checks ---------------------------------------------------------------------------------- */

static bool plan_agrees(const char *name, const Backend *backend, const Graph *graph, int64_t batch,
                        bool training)
{
    PlanRun run;
    _cleanup_run_ Run *host = NULL; /* for its arrays only */
    assert_int_equal(run_new(&backend_ref, graph, batch, training, &host, NULL), 0);
    run_fill(host, COMPARE_SEED);
    plan_run_open(&run, backend, graph, batch, training);
    plan_run_write(&run, activations_input(run.activations), host->input.data, host->input.n);
    plan_run_write(&run, run.weights.params, host->params.data, host->params.n);
    plan_run_write(&run, run.weights.buffers, host->buffers.data, host->buffers.n);
    assert_int_equal(plan_forward(run.plan, run.activations, &run.weights, &host->rng), 0);
    plan_run_read(&run, activations_output(run.activations), host->output.data, host->output.n);
    plan_run_read(&run, run.weights.buffers, host->buffers.data, host->buffers.n);
    if (training) {
        float *gradient = plan_output_gradient(run.plan);
        plan_run_write(&run, gradient, host->output_gradient.data, host->output_gradient.n);
        assert_int_equal(plan_backward(run.plan, run.activations, &run.weights, &host->rng,
                                       gradient, plan_gradients(run.plan)),
                         0);
        plan_run_read(&run, plan_gradients(run.plan), host->param_gradients.data,
                      host->param_gradients.n);
    }
    Results got = {.backend = backend->name,
                   .output = host->output.data,
                   .buffers = host->buffers.data,
                   .param_gradients = host->param_gradients.data,
                   .counters = run.weights.counters};
    bool same = results_agree(name, graph, batch, training, &got, tolerance);
    plan_run_close(&run);
    return same;
}

static int check_graph(const char *name, const Graph *graph, int64_t batch)
{
    int wrong = 0;
    for (int b = 0; b < backend_count(); b++) {
        for (int training = 0; training < 2; training++) {
            const Backend *backend = backend_entry(b);
            char what[120];
            snprintf(what, sizeof what, "%s, batch %lld, %s", name, (long long)batch,
                     training ? "training" : "evaluation");
            if (backend != &backend_ref)
                wrong += !graph_agrees(what, backend, graph, batch, training, tolerance);
            snprintf(what, sizeof what, "%s, batch %lld, %s, as a plan", name, (long long)batch,
                     training ? "training" : "evaluation");
            wrong += !plan_agrees(what, backend, graph, batch, training);
        }
    }
    return wrong;
}

static void chains_agree_with_the_reference(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        Shape input = {4, {DIM_BATCH, 3, 9, 8}};
        _cleanup_graph_ Graph *graph = NULL;
        Error err = {0};
        assert_int_equal(graph_new(&input, &graph), 0);
        if (graph_finish(graph, chains[i].build(graph), &err) < 0)
            fail_msg("%s: %s", chains[i].name, err.message);
        for (size_t j = 0; j < sizeof batches / sizeof *batches; j++)
            wrong += check_graph(chains[i].name, graph, batches[j]);
    }
    assert_int_equal(wrong, 0);
}

static void models_of_the_zoo_agree_with_the_reference(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < zoo_count(); i++) {
        _cleanup_graph_ Graph *graph = NULL;
        assert_int_equal(zoo_entry(i)->build(NULL, 0, &graph, NULL), 0);
        wrong += check_graph(zoo_entry(i)->name, graph, 1);
        wrong += check_graph(zoo_entry(i)->name, graph, 3);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_agree_with_the_reference),
        cmocka_unit_test(models_of_the_zoo_agree_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
