/* A plan computes what its kernels compute when each value has memory of its own: sharing memory
 * between values, aliases and gradients that several nodes add to change no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "conformance/harness.h"
#include "fixture.h"
#include "model/zoo.h"

typedef struct Planned {
    Accelerator accelerator;
    Plan *plan;
    Activations *activations;
    Weights weights;
    float *gradients;
} Planned;

static void start(Planned *self, const Run *run, bool training)
{
    Optimizer optimizer = {.kind = OPTIMIZER_SGD};
    Error err = {0};
    self->accelerator = run->accelerator;
    if (plan_new(&self->accelerator, run->graph, run->batch, training, &self->plan, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(activations_new(self->plan, &self->activations), 0);
    assert_int_equal(weights_new(&self->accelerator, run->graph, &optimizer, &self->weights), 0);
    self->gradients = plan_gradients(self->plan);
}

static void stop(Planned *self)
{
    activations_free(self->activations);
    plan_free(self->plan);
    weights_free(&self->accelerator, &self->weights);
}

/* CPU backends' memory is ordinary memory. */
static void load(Planned *self, const Run *run)
{
    memcpy(self->weights.params, run->params.data, run->params.n * sizeof(float));
    if (run->buffers.n > 0)
        memcpy(self->weights.buffers, run->buffers.data, run->buffers.n * sizeof(float));
    memcpy(activations_input(self->activations), run->input.data, run->input.n * sizeof(float));
}

static void assert_same(const char *what, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(a[i] == b[i])) /* the harness adds gradients to 0, so that it has no −0 */
            fail_msg("%s: element %zu is %.9g, not %.9g", what, i, (double)a[i], (double)b[i]);
    }
}

static void compare_params(const Run *run, const float *gradients)
{
    for (int i = 0; i < graph_param_count(run->graph); i++) {
        const ParamInfo *info = graph_param(run->graph, i);
        assert_same(info->name, gradients + info->offset, run->param_gradients.data + info->offset,
                    (size_t)info->elements);
    }
}

/* Twice over one arena, so that the second time it is dirty. */
static void compare_training(const Backend *backend, const Graph *graph, int64_t batch)
{
    _cleanup_run_ Run *run = NULL;
    Error err = {0};
    Planned planned = {0};
    if (run_new(backend, graph, batch, true, &run, &err) < 0)
        fail_msg("%s", err.message);
    start(&planned, run, true);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        run_fill(run, seed);
        load(&planned, run);
        RngKey rng = run->rng;
        assert_int_equal(plan_forward(planned.plan, planned.activations, &planned.weights, &rng),
                         0);
        assert_int_equal(run_forward(run), 0);
        assert_same("output", activations_output(planned.activations), run->output.data,
                    run->output.n);
        fill_uniform(run->output_gradient.data, run->output_gradient.n, seed, 99);
        float *gradient = plan_output_gradient(planned.plan);
        memcpy(gradient, run->output_gradient.data, run->output_gradient.n * sizeof(float));
        assert_int_equal(plan_backward(planned.plan, planned.activations, &planned.weights, &rng,
                                       gradient, planned.gradients),
                         0);
        assert_int_equal(run_backward(run), 0);
        compare_params(run, planned.gradients);
        assert_same("buffers", planned.weights.buffers, run->buffers.data, run->buffers.n);
    }
    stop(&planned);
}

static void compare_evaluation(const Backend *backend, const Graph *graph, int64_t batch)
{
    _cleanup_run_ Run *run = NULL;
    Error err = {0};
    Planned planned = {0};
    if (run_new(backend, graph, batch, false, &run, &err) < 0)
        fail_msg("%s", err.message);
    start(&planned, run, false);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        run_fill(run, seed);
        load(&planned, run);
        RngKey rng = run->rng;
        assert_int_equal(plan_forward(planned.plan, planned.activations, &planned.weights, &rng),
                         0);
        assert_int_equal(run_forward(run), 0);
        assert_same("output", activations_output(planned.activations), run->output.data,
                    run->output.n);
    }
    stop(&planned);
}

static void compare(const Graph *graph, int64_t batch)
{
    for (int b = 0; b < backend_count(); b++) {
        compare_training(backend_entry(b), graph, batch);
        compare_evaluation(backend_entry(b), graph, batch);
    }
}

static void zoo_models_are_as_with_memory_for_each_value(void **state)
{
    (void)state;
    for (int m = 0; m < zoo_count(); m++) {
        _cleanup_graph_ Graph *graph = NULL;
        assert_int_equal(zoo_entry(m)->build(NULL, 0, &graph, NULL), 0);
        compare(graph, 2);
    }
}

static void small_net_is_as_with_memory_for_each_value(void **state)
{
    (void)state;
    _cleanup_graph_ Graph *graph = fixture_graph();
    compare(graph, 1);
    compare(graph, 5);
}

/* A value read by two additions and, flattened, by a third; one node reads a value twice. */
static void tangled_graph_is_as_with_memory_for_each_value(void **state)
{
    (void)state;
    Shape input = {2, {DIM_BATCH, 12}};
    _cleanup_graph_ Graph *graph = NULL;
    Error err = {0};
    assert_int_equal(graph_new(&input, &graph), 0);
    ValueId flat_input = graph_flatten(graph, "f0", 0);
    ValueId a = graph_linear(graph, "a", flat_input, 12, true);
    ValueId doubled = graph_add(graph, "doubled", a, a);
    ValueId flat = graph_flatten(graph, "flat", doubled);
    ValueId rest = graph_add(graph, "rest", flat, 0);
    ValueId both = graph_add(graph, "both", doubled, rest);
    ValueId last = graph_relu(graph, "relu", graph_linear(graph, "b", both, 7, false));
    if (graph_finish(graph, last, &err) < 0)
        fail_msg("%s", err.message);
    compare(graph, 3);
}

/* The output is an alias: of a fused Relu's producer, and of a Flatten after that. */
static void output_may_be_an_alias(void **state)
{
    (void)state;
    static const ConvAttrs conv = {20, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, true};
    Shape input = {4, {DIM_BATCH, 17, 5, 5}};
    for (int flatten = 0; flatten < 2; flatten++) {
        _cleanup_graph_ Graph *graph = NULL;
        assert_int_equal(graph_new(&input, &graph), 0);
        ValueId v = graph_relu(graph, "r", graph_conv2d(graph, "c", 0, &conv));
        if (flatten)
            v = graph_flatten(graph, "f", v);
        assert_int_equal(graph_finish(graph, v, NULL), 0);
        compare(graph, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zoo_models_are_as_with_memory_for_each_value),
        cmocka_unit_test(small_net_is_as_with_memory_for_each_value),
        cmocka_unit_test(tangled_graph_is_as_with_memory_for_each_value),
        cmocka_unit_test(output_may_be_an_alias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
