#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct RunNode {
    const Node *node;
    Kernel *kernel;
    KernelInfo info;
    void *saved, *scratch;
};

/* ---- numbers --------------------------------------------------------------------------------- */

void fill_words(uint32_t *to, size_t n, uint64_t seed, uint32_t stream)
{
    RngKey key = {.seed = seed, .purpose = RNG_TEST, .a = stream};
    rng_words(&key, 0, n, to);
}

void fill_uniform(float *to, size_t n, uint64_t seed, uint32_t stream)
{
    RngKey key = {.seed = seed, .purpose = RNG_TEST, .a = stream};
    for (size_t i = 0; i < n; i++)
        to[i] = 2 * rng_to_unit(rng_word(&key, i)) - 1;
}

void fill_grid(float *to, size_t n, uint64_t seed, uint32_t stream)
{
    RngKey key = {.seed = seed, .purpose = RNG_TEST, .a = stream};
    for (size_t i = 0; i < n; i++)
        to[i] = ((float)(rng_word(&key, i) % 65) - 32) / 32;
}

bool arrays_agree(const char *what, const float *got, const float *want, size_t n, double tolerance)
{
    double scale = 0, worst = 0;
    size_t where = n;
    for (size_t i = 0; i < n; i++)
        if (isfinite(want[i]))
            scale = fmax(scale, fabs((double)want[i]));
    double limit = tolerance * (scale > 0 ? scale : 1);
    for (size_t i = 0; i < n; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))
            continue;
        double error = fabs((double)got[i] - want[i]);
        if (!(error <= limit) && !(error <= worst && where < n)) {
            worst = isnan(error) ? INFINITY : error;
            where = i;
        }
    }
    if (where == n)
        return true;
    fprintf(stderr, "%s: element %zu of %zu is %.9g, not %.9g; max error %.3g, allowed %.3g\n",
            what, where, n, (double)got[where], (double)want[where], worst, limit);
    return false;
}

/* ---- making a run ---------------------------------------------------------------------------- */

static int array_new(Array *array, size_t n)
{
    array->data = calloc(n + 1, sizeof *array->data);
    array->n = n;
    return array->data ? 0 : -ENOMEM;
}

static int host_arrays(Run *run)
{
    const Graph *g = run->graph;
    size_t in = (size_t)shape_elements(graph_value_shape(g, 0), run->batch);
    size_t out = (size_t)shape_elements(graph_value_shape(g, graph_output(g)), run->batch);
    run->counters = calloc(graph_counters_length(g) + 1, sizeof *run->counters);
    if (!run->counters || array_new(&run->input, in) < 0 ||
        array_new(&run->input_gradient, in) < 0 || array_new(&run->output, out) < 0 ||
        array_new(&run->output_gradient, out) < 0 ||
        array_new(&run->params, graph_params_length(g)) < 0 ||
        array_new(&run->param_gradients, graph_params_length(g)) < 0 ||
        array_new(&run->buffers, graph_float_buffers_length(g)) < 0)
        return -ENOMEM;
    return 0;
}

/* The output is read as it lies, and so is what a Relu computed with it leaves behind. */
static bool must_be_plain(const Graph *graph, const Node *node)
{
    const Node *last = graph_node(graph, graph_node_count(graph) - 1);
    return node->output == graph_output(graph) || (last->skip && last->inputs[0] == node->output);
}

static int compile_node(Run *run, int index, Error *err)
{
    RunNode *n = &run->nodes[index];
    n->node = graph_node(run->graph, index);
    KernelSpec spec = {.graph = run->graph,
                       .node = n->node,
                       .batch = run->batch,
                       .training = run->training,
                       .plain_output = must_be_plain(run->graph, n->node)};
    for (int i = 0; i < n->node->n_inputs; i++) {
        spec.inputs[i] = run->layouts[n->node->inputs[i]];
        spec.need_input_gradient[i] = run->training;
    }
    int r = kernel_compile(&run->accelerator, &spec, &n->kernel, &n->info, err);
    if (r < 0)
        return r;
    run->layouts[n->node->output] = n->info.output;
    run->value_bytes[n->node->output] = n->info.output_bytes;
    r = accelerator_alloc(&run->accelerator, n->info.saved_bytes, &n->saved);
    if (r == 0)
        r = accelerator_alloc(&run->accelerator, n->info.scratch_bytes, &n->scratch);
    return r;
}

static int alloc_value(Run *run, const RunNode *producer, ValueId value)
{
    const Accelerator *a = &run->accelerator;
    size_t bytes = run->value_bytes[value];
    int r = 0;
    if (producer && producer->info.aliases_input)
        run->values[value] = run->values[producer->node->inputs[0]];
    else
        r = accelerator_alloc(a, bytes, &run->values[value]);
    if (bytes > run->part_bytes)
        run->part_bytes = bytes;
    return r < 0 ? r : accelerator_alloc(a, bytes, &run->gradients[value]);
}

static int device_arrays(Run *run)
{
    const Accelerator *a = &run->accelerator;
    int r = alloc_value(run, NULL, 0);
    for (int i = 0; r == 0 && i < graph_node_count(run->graph); i++)
        r = alloc_value(run, &run->nodes[i], run->nodes[i].node->output);
    if (r == 0)
        r = accelerator_alloc(a, run->part_bytes, &run->part);
    if (r == 0)
        r = accelerator_alloc(a, run->params.n * sizeof(float), (void **)&run->device_params);
    if (r == 0)
        r = accelerator_alloc(a, run->params.n * sizeof(float), (void **)&run->device_gradients);
    if (r == 0)
        r = accelerator_alloc(a, run->buffers.n * sizeof(float), (void **)&run->device_buffers);
    return r;
}

static int build(Run *run, const Backend *backend, Error *err)
{
    size_t values = (size_t)graph_value_count(run->graph);
    run->nodes = calloc((size_t)graph_node_count(run->graph), sizeof *run->nodes);
    run->layouts = calloc(values, sizeof *run->layouts);
    run->value_bytes = calloc(values, sizeof *run->value_bytes);
    run->values = calloc(values, sizeof *run->values);
    run->gradients = calloc(values, sizeof *run->gradients);
    if (!run->nodes || !run->layouts || !run->value_bytes || !run->values || !run->gradients ||
        host_arrays(run) < 0)
        return -ENOMEM;
    int r = accelerator_open(backend, 0, 1, &run->accelerator, err);
    if (r < 0)
        return r;
    accelerator_bind(&run->accelerator);
    Shape input = shape_at_batch(graph_value_shape(run->graph, 0), run->batch);
    r = accelerator_layout_plain(&run->accelerator, &input, &run->input_layout);
    run->layouts[0] = run->input_layout;
    run->value_bytes[0] = run->input.n * sizeof(float);
    for (int i = 0; r == 0 && i < graph_node_count(run->graph); i++)
        r = compile_node(run, i, err);
    return r < 0 ? r : device_arrays(run);
}

int run_new(const Backend *backend, const Graph *graph, int64_t batch, bool training, Run **ret,
            Error *err)
{
    _cleanup_run_ Run *run = calloc(1, sizeof *run);
    if (!run)
        return -ENOMEM;
    run->graph = graph;
    run->batch = batch;
    run->training = training;
    int r = build(run, backend, err);
    if (r == 0)
        *ret = MOVE(run);
    return r;
}

static void free_values(Run *run)
{
    const Accelerator *a = &run->accelerator;
    for (int i = 0; i < graph_value_count(run->graph); i++)
        accelerator_release(a, run->gradients[i]);
    accelerator_release(a, run->values[0]);
    for (int i = 0; i < graph_node_count(run->graph); i++) {
        RunNode *n = &run->nodes[i];
        if (n->node && !n->info.aliases_input)
            accelerator_release(a, run->values[n->node->output]);
        accelerator_release(a, n->saved);
        accelerator_release(a, n->scratch);
        kernel_free(a, n->kernel);
    }
    accelerator_release(a, run->part);
    accelerator_release(a, run->device_params);
    accelerator_release(a, run->device_gradients);
    accelerator_release(a, run->device_buffers);
    accelerator_layout_free(a, run->input_layout);
}

Run *run_free(Run *run)
{
    if (!run)
        return NULL;
    if (run->accelerator.device)
        free_values(run);
    accelerator_close(&run->accelerator);
    float *arrays[] = {run->input.data,           run->params.data,
                       run->buffers.data,         run->output.data,
                       run->output_gradient.data, run->input_gradient.data,
                       run->param_gradients.data};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(run->counters);
    free(run->nodes);
    free(run->layouts);
    free(run->value_bytes);
    free(run->values);
    free(run->gradients);
    free(run);
    return NULL;
}

/* Weights of the usual size, so that values neither grow nor vanish along a chain: multiplied by
 * the power of two nearest to the bound that they are initialised in, which keeps them on a grid.
 */
static void scale_params(Run *run)
{
    for (int i = 0; i < graph_param_count(run->graph); i++) {
        const ParamInfo *p = graph_param(run->graph, i);
        float scale = p->init == INIT_UNIFORM ? exp2f(rintf(log2f(p->bound))) : 1;
        for (int64_t j = 0; j < p->elements; j++)
            run->params.data[p->offset + (size_t)j] *= scale;
    }
}

void run_fill(Run *run, uint64_t seed)
{
    fill_grid(run->input.data, run->input.n, seed, 0);
    fill_grid(run->params.data, run->params.n, seed, 1);
    scale_params(run);
    fill_grid(run->buffers.data, run->buffers.n, seed, 2);
    fill_grid(run->output_gradient.data, run->output_gradient.n, seed, 3);
    for (int i = 0; i < graph_buffer_count(run->graph); i++) {
        const ParamInfo *buffer = graph_buffer(run->graph, i);
        if (!buffer->counter && buffer->init == INIT_ONES)
            for (int64_t j = 0; j < buffer->elements; j++)
                run->buffers.data[buffer->offset + (size_t)j] =
                    0.5F + fabsf(run->buffers.data[buffer->offset + (size_t)j]);
    }
    run->rng = (RngKey){.seed = seed, .purpose = RNG_DROPOUT, .a = 3, .b = 17};
}

/* ---- running --------------------------------------------------------------------------------- */

static int poison(const Run *run, void *memory, size_t bytes)
{
    _cleanup_free_ float *nan = malloc(bytes + sizeof *nan);
    if (!nan)
        return -ENOMEM;
    for (size_t i = 0; i <= bytes / sizeof *nan; i++)
        nan[i] = NAN;
    return accelerator_write(&run->accelerator, nan, memory, bytes);
}

static KernelArgs arguments_of(const Run *run, const RunNode *n)
{
    const Node *node = n->node;
    KernelArgs args = {.output = run->values[node->output],
                       .saved = n->saved,
                       .scratch = n->scratch,
                       .rng = run->rng,
                       .output_gradient = run->gradients[node->output]};
    for (int i = 0; i < node->n_inputs; i++)
        args.inputs[i] = run->values[node->inputs[i]];
    for (int i = 0; i < node->n_params; i++) {
        size_t offset = graph_param(run->graph, node->params[i])->offset;
        args.params[i] = run->device_params + offset;
        args.param_gradients[i] = run->device_gradients + offset;
    }
    for (int i = 0; i < node->n_buffers; i++) {
        const ParamInfo *buffer = graph_buffer(run->graph, node->buffers[i]);
        if (buffer->counter)
            args.counter = run->counters + buffer->offset;
        else
            args.buffers[i] = run->device_buffers + buffer->offset;
    }
    return args;
}

static int forward_node(Run *run, RunNode *n)
{
    KernelArgs args = arguments_of(run, n);
    int r = 0;
    if (!n->info.aliases_input)
        r = poison(run, args.output, n->info.output_bytes);
    if (r == 0)
        r = poison(run, n->saved, n->info.saved_bytes);
    if (r == 0)
        r = poison(run, n->scratch, n->info.scratch_bytes);
    return r < 0 ? r : kernel_forward(&run->accelerator, n->kernel, &args);
}

int run_forward(Run *run)
{
    const Accelerator *a = &run->accelerator;
    size_t buffers = run->buffers.n * sizeof(float);
    int r = accelerator_write(a, run->input.data, run->values[0], run->value_bytes[0]);
    if (r == 0)
        r = accelerator_write(a, run->params.data, run->device_params,
                              run->params.n * sizeof(float));
    if (r == 0)
        r = accelerator_write(a, run->buffers.data, run->device_buffers, buffers);
    for (int i = 0; r == 0 && i < graph_node_count(run->graph); i++)
        r = forward_node(run, &run->nodes[i]);
    if (r == 0)
        r = accelerator_read(a, run->device_buffers, run->buffers.data, buffers);
    return r < 0 ? r
                 : accelerator_read(a, run->values[graph_output(run->graph)], run->output.data,
                                    run->output.n * sizeof(float));
}

/* Adds the node's share to the gradient of each of its inputs. A kernel overwrites the gradients it
 * is given, so each input is asked for in a call of its own, into `part`. */
static int backward_node(Run *run, RunNode *n)
{
    const Accelerator *a = &run->accelerator;
    KernelArgs args = arguments_of(run, n);
    for (int i = 0; i < n->node->n_inputs; i++) {
        ValueId input = n->node->inputs[i];
        const void *share = run->part;
        int r = 0;
        if (n->info.aliases_input) {
            share = args.output_gradient;
        } else {
            for (int j = 0; j < n->node->n_inputs; j++)
                args.input_gradients[j] = j == i ? run->part : NULL;
            r = poison(run, run->part, run->value_bytes[input]);
            if (r == 0)
                r = poison(run, n->scratch, n->info.scratch_bytes);
            if (r == 0)
                r = kernel_backward(a, n->kernel, &args);
        }
        if (r == 0)
            r = accelerator_accumulate(a, run->layouts[input], run->gradients[input], share);
        if (r < 0)
            return r;
    }
    return 0;
}

int run_backward(Run *run)
{
    const Accelerator *a = &run->accelerator;
    ValueId output = graph_output(run->graph);
    int r = poison(run, run->device_gradients, run->params.n * sizeof(float));
    for (int i = 0; r == 0 && i < graph_value_count(run->graph); i++)
        r = accelerator_zero(a, run->gradients[i], run->value_bytes[i]);
    if (r == 0)
        r = accelerator_write(a, run->output_gradient.data, run->gradients[output],
                              run->output.n * sizeof(float));
    for (int i = graph_node_count(run->graph) - 1; r == 0 && i >= 0; i--)
        r = backward_node(run, &run->nodes[i]);
    if (r == 0)
        r = accelerator_read(a, run->device_gradients, run->param_gradients.data,
                             run->params.n * sizeof(float));
    return r < 0 ? r
                 : accelerator_read(a, run->gradients[0], run->input_gradient.data,
                                    run->input.n * sizeof(float));
}
