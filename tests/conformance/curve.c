/* Training curves on every backend, through a Plan as dpsd runs it, against the same training in
 * PyTorch in float64: 50 steps of mnist-cnn without dropout, 10 of the residual net. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "model/zoo.h"
#include "plan_run.h"
#include "values.h"

enum { BATCH = 4, PIXELS = 28 * 28, CLASSES = 10, KEPT = 32 };

/* A fixed drawing for each class, with noise; the script's curve_batch. */
static void make_batch(uint32_t step, float *x, int64_t *classes)
{
    uint32_t words[BATCH];
    float noise[BATCH * PIXELS];
    fill_words(words, BATCH, TORCH_SEED, 1000 + step);
    fill_uniform(noise, BATCH * PIXELS, TORCH_SEED, 2000 + step);
    for (int b = 0; b < BATCH; b++) {
        classes[b] = words[b] % CLASSES;
        fill_uniform(x + b * PIXELS, PIXELS, TORCH_SEED, 500 + (uint32_t)classes[b]);
        for (int i = 0; i < PIXELS; i++)
            x[b * PIXELS + i] += 0.5F * noise[b * PIXELS + i];
    }
}

/* Uniform within the bound of the parameter's initialisation, by the stream of its name. */
static void set_weights(const PlanRun *run)
{
    const Graph *g = run->graph;
    _cleanup_free_ float *params = calloc(run->weights.n_params + 1, sizeof *params);
    _cleanup_free_ float *buffers = calloc(run->weights.n_buffers + 1, sizeof *buffers);
    assert_true(params && buffers);
    for (int i = 0; i < graph_param_count(g); i++) {
        const ParamInfo *p = graph_param(g, i);
        float *to = params + p->offset;
        if (p->init == INIT_UNIFORM)
            fill_uniform(to, (size_t)p->elements, TORCH_SEED, stream_of(p->name));
        for (int64_t j = 0; j < p->elements; j++)
            to[j] = p->init == INIT_UNIFORM ? to[j] * p->bound : p->init == INIT_ONES;
    }
    for (int i = 0; i < graph_buffer_count(g); i++) {
        const ParamInfo *b = graph_buffer(g, i);
        for (int64_t j = 0; !b->counter && j < b->elements; j++)
            buffers[b->offset + (size_t)j] = b->init == INIT_ONES;
    }
    plan_run_write(run, run->weights.params, params, run->weights.n_params);
    plan_run_write(run, run->weights.buffers, buffers, run->weights.n_buffers);
}

static float train_step(PlanRun *run, LossKind kind, const Optimizer *optimizer, uint32_t step)
{
    const Accelerator *a = &run->accelerator;
    float x[BATCH * PIXELS], loss = 0;
    int64_t classes[BATCH];
    make_batch(step, x, classes);
    plan_run_write(run, activations_input(run->activations), x, BATCH * PIXELS);
    assert_int_equal(accelerator_write(a, classes, plan_staging(run->plan), sizeof classes), 0);
    assert_int_equal(plan_forward(run->plan, run->activations, &run->weights, &run->rng), 0);
    float *gradient = plan_output_gradient(run->plan);
    assert_int_equal(accelerator_loss(a, kind, activations_output(run->activations),
                                      plan_staging(run->plan), BATCH, CLASSES, &loss, gradient,
                                      NULL),
                     0);
    float *gradients = plan_gradients(run->plan);
    assert_int_equal(
        plan_backward(run->plan, run->activations, &run->weights, &run->rng, gradient, gradients),
        0);
    assert_int_equal(accelerator_optimizer_step(a, optimizer, step + 1, run->weights.params,
                                                gradients, run->weights.states,
                                                run->weights.n_params),
                     0);
    return loss;
}

/* float32 against float64: 1e-6 with the instructions of one machine. A hundred times that leaves
 * room for the sums of others, and is less than any wrong formula makes in so many steps. */
static const double tolerance = 1e-4;

typedef struct Curve {
    const char *model;
    ModelOption option;
    LossKind loss;
    float lr;
    uint32_t steps;
} Curve;

static bool end_agrees(const PlanRun *run, const Curve *c, const ParamInfo *info, const void *from)
{
    float host[KEPT];
    size_t n = info->elements < KEPT ? (size_t)info->elements : KEPT;
    char what[200];
    snprintf(what, sizeof what, "%s, %s: %s after %u steps, against PyTorch", c->model,
             run->accelerator.backend->name, info->name, c->steps);
    plan_run_read(run, (const float *)from + info->offset, host, n);
    return arrays_agree(what, host, values_get(n, "curve|%s|%s", c->model, info->name), n,
                        tolerance);
}

static int follow(const Curve *c, const Backend *backend, const Graph *graph)
{
    Optimizer sgd = {.kind = OPTIMIZER_SGD, .lr = c->lr};
    PlanRun run;
    float losses[64];
    char what[120];
    plan_run_open(&run, backend, graph, BATCH, true);
    set_weights(&run);
    for (uint32_t step = 0; step < c->steps; step++)
        losses[step] = train_step(&run, c->loss, &sgd, step);
    snprintf(what, sizeof what, "%s, %s: losses, against PyTorch", c->model, backend->name);
    int wrong = !arrays_agree(what, losses, values_get(c->steps, "curve|%s|losses", c->model),
                              c->steps, tolerance);
    for (int i = 0; i < graph_param_count(graph); i++)
        wrong += !end_agrees(&run, c, graph_param(graph, i), run.weights.params);
    for (int i = 0; i < graph_buffer_count(graph); i++)
        if (!graph_buffer(graph, i)->counter)
            wrong += !end_agrees(&run, c, graph_buffer(graph, i), run.weights.buffers);
        else
            assert_int_equal(run.weights.counters[graph_buffer(graph, i)->offset], c->steps);
    plan_run_close(&run);
    return wrong;
}

static void check(const Curve *c)
{
    const ModelEntry *entry = NULL;
    _cleanup_graph_ Graph *graph = NULL;
    int wrong = 0;
    assert_int_equal(zoo_find(c->model, &entry, NULL), 0);
    assert_int_equal(entry->build(&c->option, c->option.key ? 1 : 0, &graph, NULL), 0);
    for (int b = 0; b < backend_count(); b++)
        wrong += follow(c, backend_entry(b), graph);
    assert_int_equal(wrong, 0);
}

static void mnist_cnn_trains_like_pytorch_for_50_steps(void **state)
{
    (void)state;
    check(&(Curve){"mnist-cnn", {"dropout", "0"}, LOSS_NLL, 0.03F, 50});
}

static void resnet_small_trains_like_pytorch_for_10_steps(void **state)
{
    (void)state;
    check(&(Curve){"resnet-small", {0}, LOSS_CROSS_ENTROPY, 0.05F, 10});
}

static int setup(void **state)
{
    (void)state;
    values_open();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    values_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mnist_cnn_trains_like_pytorch_for_50_steps),
        cmocka_unit_test(resnet_small_trains_like_pytorch_for_10_steps),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
