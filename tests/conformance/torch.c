/* Operators, losses, optimizers and initialisation on every backend against what PyTorch computes
 * in float64 (make_torch_values.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "cases.h"
#include "model/init.h"
#include "model/zoo.h"
#include "values.h"

/* As among backends: float32 sums of up to a few hundred terms. */
static const double tolerance = 1e-5;

/* ---- operators ------------------------------------------------------------------------------- */

static void fill_by_name(Run *run)
{
    fill_grid(run->input.data, run->input.n, TORCH_SEED, 0);
    fill_grid(run->output_gradient.data, run->output_gradient.n, TORCH_SEED, 3);
    for (int i = 0; i < graph_param_count(run->graph); i++) {
        const ParamInfo *p = graph_param(run->graph, i);
        fill_grid(run->params.data + p->offset, (size_t)p->elements, TORCH_SEED,
                  stream_of(p->name));
    }
    for (int i = 0; i < graph_buffer_count(run->graph); i++) {
        const ParamInfo *b = graph_buffer(run->graph, i);
        float *to = run->buffers.data + b->offset;
        if (b->counter)
            continue;
        fill_grid(to, (size_t)b->elements, TORCH_SEED, stream_of(b->name));
        for (int64_t j = 0; b->init == INIT_ONES && j < b->elements; j++)
            to[j] = fabsf(to[j]) + 0.5F;
    }
    run->rng = (RngKey){.seed = TORCH_SEED, .a = 3, .b = 17};
}

static bool record_agrees(const Run *run, const char *op, const char *part, const float *got,
                          size_t n)
{
    char what[300];
    snprintf(what, sizeof what, "%s, %s against PyTorch: %s", op, run->accelerator.backend->name,
             part);
    return arrays_agree(what, got, values_get(n, "%s|%s", op, part), n, tolerance);
}

static bool evaluation_agrees(const Backend *backend, const OpCase *c, const Graph *graph)
{
    _cleanup_run_ Run *run = NULL;
    assert_int_equal(run_new(backend, graph, c->batch, false, &run, NULL), 0);
    fill_by_name(run);
    if (c->kind == OP_DROPOUT || c->kind == OP_DROPOUT2D)
        memset(run->input.data, 0, run->input.n * sizeof(float)); /* as the script does */
    assert_int_equal(run_forward(run), 0);
    return record_agrees(run, c->name, "evaluation", run->output.data, run->output.n);
}

static bool training_agrees(const Backend *backend, const OpCase *c, const Graph *graph)
{
    _cleanup_run_ Run *run = NULL;
    assert_int_equal(run_new(backend, graph, c->batch, true, &run, NULL), 0);
    fill_by_name(run);
    int r = run_forward(run);
    if (r == 0)
        r = run_backward(run);
    if (r < 0)
        fprintf(stderr, "%s, %s: %s\n", c->name, backend->name, strerror(-r));
    bool same = r == 0;
    same &= record_agrees(run, c->name, "output", run->output.data, run->output.n);
    same &= record_agrees(run, c->name, "input", run->input_gradient.data, run->input.n);
    for (int i = 0; i < graph_param_count(graph); i++) {
        const ParamInfo *p = graph_param(graph, i);
        same &= record_agrees(run, c->name, p->name, run->param_gradients.data + p->offset,
                              (size_t)p->elements);
    }
    for (int i = 0; i < graph_buffer_count(graph); i++) {
        const ParamInfo *b = graph_buffer(graph, i);
        float counter = b->counter ? (float)run->counters[b->offset] : 0;
        same &= record_agrees(run, c->name, b->name,
                              b->counter ? &counter : run->buffers.data + b->offset,
                              (size_t)b->elements);
    }
    return same;
}

static void operators_agree_with_pytorch(void **state)
{
    (void)state;
    int wrong = 0;
    bool seen[OP_KIND_COUNT] = {false};
    for (int i = 0; i < n_op_cases; i++) {
        const OpCase *c = &op_cases[i];
        if (!values_find("%s|output", c->name))
            continue;
        _cleanup_graph_ Graph *graph = op_case_graph(c, ALONE);
        for (int b = 0; b < backend_count(); b++) {
            wrong += !evaluation_agrees(backend_entry(b), c, graph);
            wrong += !training_agrees(backend_entry(b), c, graph);
        }
        seen[c->kind] = true;
    }
    assert_int_equal(wrong, 0);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        if (!seen[kind])
            fail_msg("PyTorch's values have no case of %s", op_kind_name((OpKind)kind));
}

/* ---- losses ---------------------------------------------------------------------------------- */

enum { MAX_ELEMENTS = 320 };

typedef struct LossInput {
    float output[MAX_ELEMENTS], target[MAX_ELEMENTS];
    int64_t classes[MAX_ELEMENTS];
} LossInput;

static void fill_loss(LossInput *in, int64_t batch, int64_t width)
{
    uint32_t words[MAX_ELEMENTS];
    size_t n = (size_t)(batch * width);
    fill_uniform(in->output, n, TORCH_SEED, 0);
    fill_words(words, (size_t)batch, TORCH_SEED, 1);
    fill_uniform(in->target, n, TORCH_SEED, 2);
    for (size_t i = 0; i < n; i++)
        in->output[i] *= 3;
    for (int64_t b = 0; b < batch; b++)
        in->classes[b] = words[b] % width;
}

static void *upload(const Accelerator *a, const void *host, size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(accelerator_alloc(a, bytes, &memory), 0);
    assert_int_equal(accelerator_write(a, host, memory, bytes), 0);
    return memory;
}

static bool loss_agrees(const Accelerator *a, LossKind kind, int64_t batch, int64_t width)
{
    LossInput in;
    float loss = 0, host[MAX_ELEMENTS];
    size_t n = (size_t)(batch * width), bytes = n * sizeof(float);
    fill_loss(&in, batch, width);
    void *output = upload(a, in.output, bytes), *gradient = upload(a, in.output, bytes);
    void *target = kind == LOSS_MSE ? upload(a, in.target, bytes)
                                    : upload(a, in.classes, (size_t)batch * sizeof *in.classes);
    assert_int_equal(accelerator_loss(a, kind, output, target, batch, width, &loss, gradient, NULL),
                     0);
    assert_int_equal(accelerator_read(a, gradient, host, bytes), 0);
    accelerator_release(a, output);
    accelerator_release(a, gradient);
    accelerator_release(a, target);

    char record[100], what[200];
    snprintf(record, sizeof record, "%s|%dx%d", loss_name(kind), (int)batch, (int)width);
    snprintf(what, sizeof what, "%s, %s against PyTorch", record, a->backend->name);
    bool same = arrays_agree(what, &loss, values_get(1, "%s|loss", record), 1, 1e-6);
    return same & arrays_agree(what, host, values_get(n, "%s|gradient", record), n, 1e-6);
}

static void losses_agree_with_pytorch(void **state)
{
    (void)state;
    int wrong = 0;
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        for (int kind = 0; kind < LOSS_KIND_COUNT; kind++) {
            wrong += !loss_agrees(&a, (LossKind)kind, 1, 1);
            wrong += !loss_agrees(&a, (LossKind)kind, 5, 7);
            wrong += !loss_agrees(&a, (LossKind)kind, 32, 10);
        }
        accelerator_close(&a);
    }
    assert_int_equal(wrong, 0);
}

/* ---- optimizers ------------------------------------------------------------------------------ */

static const char *const optimizers[] = {
    "sgd",
    "sgd,weight_decay=0.1",
    "sgd,momentum=0.9",
    "sgd,momentum=0.9,dampening=0.5",
    "sgd,momentum=0.9,nesterov=true",
    "sgd,momentum=0.9,nesterov=true,weight_decay=0.01",
    "sgd,momentum=0.5,dampening=0.25,weight_decay=0.1",
    "adam",
    "adam,weight_decay=0.1",
    "adam,beta1=0.5,beta2=0.9,eps=1e-3",
    "adamw",
    "adamw,weight_decay=0.1,beta1=0.8",
};

static bool optimizer_agrees(const Accelerator *a, const char *text)
{
    enum { N = 37, STEPS = 6 };
    Optimizer o;
    Error err = {0};
    if (optimizer_parse(text, 0.05F, &o, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    float host[N], path[STEPS][N];
    static const float zeros[N];
    fill_uniform(host, N, TORCH_SEED, 0);
    float *params = upload(a, host, sizeof host), *gradients = upload(a, host, sizeof host);
    float *states[] = {upload(a, zeros, sizeof zeros), upload(a, zeros, sizeof zeros)};
    for (uint32_t t = 1; t <= STEPS; t++) {
        fill_uniform(host, N, TORCH_SEED, t);
        assert_int_equal(accelerator_write(a, host, gradients, sizeof host), 0);
        assert_int_equal(accelerator_optimizer_step(a, &o, t, params, gradients, states, N), 0);
        assert_int_equal(accelerator_read(a, params, path[t - 1], sizeof host), 0);
    }
    accelerator_release(a, params);
    accelerator_release(a, gradients);
    accelerator_release(a, states[0]);
    accelerator_release(a, states[1]);
    char what[200];
    snprintf(what, sizeof what, "%s, %s against PyTorch: path of parameters", text,
             a->backend->name);
    /* a few float32 roundings a step */
    return arrays_agree(what, path[0], values_get(N * STEPS, "%s", text), N * STEPS, 2e-6);
}

static void optimizers_agree_with_pytorch(void **state)
{
    (void)state;
    int wrong = 0;
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
            wrong += !optimizer_agrees(&a, optimizers[i]);
        accelerator_close(&a);
    }
    assert_int_equal(wrong, 0);
}

/* ---- initialisation -------------------------------------------------------------------------- */

typedef struct Moments {
    double elements, least, most, mean, deviation;
} Moments;

static Moments moments_of(const float *x, size_t n)
{
    Moments m = {(double)n, x[0], x[0], 0, 0};
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        m.least = fmin(m.least, x[i]);
        m.most = fmax(m.most, x[i]);
        m.mean += x[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - m.mean) * (x[i] - m.mean);
    m.deviation = sqrt(squares / (double)n);
    return m;
}

/* Two samples of n from one distribution with deviation σ: means differ by σ·√(2/n) and deviations
 * by no more, times 4 for chance; extremes of a uniform one come as close to the bound as n says.
 * Constants (σ = 0) agree exactly. */
static bool drawn_alike(const char *what, Moments ours, const float torch[5])
{
    double sigma = torch[4], slack = 4 * sigma * sqrt(2 / ours.elements);
    double edge = 8 * sigma / ours.elements * 2 * sqrt(3) + 1e-6 * sigma;
    if (ours.elements == (double)torch[0] && fabs(ours.mean - torch[3]) <= slack &&
        fabs(ours.deviation - sigma) <= slack && fabs(ours.least - torch[1]) <= edge &&
        fabs(ours.most - torch[2]) <= edge)
        return true;
    fprintf(stderr,
            "%s: (%g elements, %g … %g, mean %g, deviation %g), PyTorch's (%g, %g … %g, %g, %g)\n",
            what, ours.elements, ours.least, ours.most, ours.mean, ours.deviation, (double)torch[0],
            (double)torch[1], (double)torch[2], (double)torch[3], sigma);
    return false;
}

static int model_initialisation(const char *model)
{
    const ModelEntry *entry = NULL;
    _cleanup_graph_ Graph *graph = NULL;
    int wrong = 0;
    assert_int_equal(zoo_find(model, &entry, NULL), 0);
    assert_int_equal(entry->build(NULL, 0, &graph, NULL), 0);
    _cleanup_free_ float *params = calloc(graph_params_length(graph) + 1, sizeof *params);
    _cleanup_free_ float *buffers = calloc(graph_float_buffers_length(graph) + 1, sizeof *buffers);
    _cleanup_free_ int64_t *counters = calloc(graph_counters_length(graph) + 1, sizeof *counters);
    assert_true(params && buffers && counters);
    init_weights(graph, 1, params, buffers, counters);
    for (int i = 0; i < graph_param_count(graph); i++) {
        const ParamInfo *p = graph_param(graph, i);
        char what[200];
        snprintf(what, sizeof what, "initial %s of %s", p->name, model);
        wrong += !drawn_alike(what, moments_of(params + p->offset, (size_t)p->elements),
                              values_get(5, "init|%s|%s", model, p->name));
    }
    return wrong;
}

static void initial_weights_are_drawn_like_pytorchs(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < zoo_count(); i++)
        wrong += model_initialisation(zoo_entry(i)->name);
    assert_int_equal(wrong, 0);
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
        cmocka_unit_test(operators_agree_with_pytorch),
        cmocka_unit_test(losses_agree_with_pytorch),
        cmocka_unit_test(optimizers_agree_with_pytorch),
        cmocka_unit_test(initial_weights_are_drawn_like_pytorchs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
