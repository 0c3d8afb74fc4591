/* Making a plan: kernels in order, then where everything lies. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "replica/arena.h"
#include "replica/plan_internal.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The model's output must be plain, and so must what its Relu is computed with. */
static bool must_be_plain(const Graph *graph, const Node *node)
{
    ValueId output = graph_output(graph);
    if (node->output == output || !node->fused_relu)
        return node->output == output;
    for (int i = 0; i < graph_node_count(graph); i++) {
        const Node *last = graph_node(graph, i);
        if (last->output == output)
            return last->skip && last->inputs[0] == node->output;
    }
    return false;
}

static KernelSpec kernel_spec(const Plan *plan, const Node *node)
{
    KernelSpec spec = {
        .graph = plan->graph,
        .node = node,
        .batch = plan->batch,
        .training = plan->training,
        .plain_output = must_be_plain(plan->graph, node),
    };
    for (int i = 0; i < node->n_inputs; i++) {
        spec.inputs[i] = plan->values[node->inputs[i]].layout;
        spec.need_input_gradient[i] =
            plan->training && graph_value_needs_gradient(plan->graph, node->inputs[i]);
    }
    return spec;
}

static int compile_node(Plan *plan, int index, Error *err)
{
    PlanNode *self = &plan->nodes[index];
    const Node *node = self->node = graph_node(plan->graph, index);
    const PlanValue *in = &plan->values[node->inputs[0]];
    PlanValue *out = &plan->values[node->output];
    if (node->skip) {
        self->alias = true;
        *out = (PlanValue){.root = in->root, .producer = index, .layout = in->layout};
        return 0;
    }
    KernelSpec spec = kernel_spec(plan, node);
    int r = kernel_compile(plan->accelerator, &spec, &self->kernel, &self->info, err);
    if (r < 0)
        return r;
    self->alias = self->info.aliases_input;
    self->backward =
        plan->training && !self->alias && graph_value_needs_gradient(plan->graph, node->output);
    for (int i = 0; i < node->n_inputs; i++)
        self->need_input_gradient[i] = spec.need_input_gradient[i];
    *out = (PlanValue){.root = self->alias ? in->root : node->output,
                       .producer = index,
                       .layout = self->info.output,
                       .bytes = self->info.output_bytes};
    return 0;
}

static int compile_nodes(Plan *plan, Error *err)
{
    const Shape *input = graph_value_shape(plan->graph, 0);
    Shape shape = shape_at_batch(input, plan->batch);
    int r = accelerator_layout_plain(plan->accelerator, &shape, &plan->input_layout);
    if (r < 0)
        return error_set(err, r, "out of memory for the layout of the input");
    plan->values[0] =
        (PlanValue){.root = 0,
                    .producer = -1,
                    .layout = plan->input_layout,
                    .bytes = (size_t)shape_elements(input, plan->batch) * sizeof(float)};
    for (int i = 0; i < plan->n_nodes; i++) {
        r = compile_node(plan, i, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the activation arena -------------------------------------------------------------------- */

/* Moments: 0 the input is written, i + 1 node i runs, n + 1 the output is read or backward runs. */
static int place_activations(Plan *plan)
{
    int end = plan->n_nodes + 1;
    _cleanup_free_ ArenaBlock *blocks =
        calloc((size_t)plan->n_values + (size_t)plan->n_nodes, sizeof *blocks);
    if (!blocks)
        return -ENOMEM;
    ArenaBlock *saved = blocks + plan->n_values;
    for (int v = 0; v < plan->n_values; v++) {
        const PlanValue *value = &plan->values[v];
        if (value->root == v)
            blocks[v] = (ArenaBlock){value->bytes, value->producer + 1, value->producer + 1, 0};
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        const PlanNode *self = &plan->nodes[i];
        if (self->alias)
            continue;
        saved[i] = (ArenaBlock){self->info.saved_bytes, i + 1, self->backward ? end : i + 1, 0};
        if (self->backward && self->info.backward_reads_output)
            blocks[self->node->output].to = end;
        bool keep = self->backward && self->info.backward_reads_input;
        for (int k = 0; k < self->node->n_inputs; k++) {
            ArenaBlock *in = &blocks[plan->values[self->node->inputs[k]].root];
            in->to = keep || in->to == end ? end : i + 1;
        }
    }
    blocks[plan->values[graph_output(plan->graph)].root].to = end;
    int r = arena_place(blocks, plan->n_values + plan->n_nodes, &plan->arena_bytes);
    if (r < 0)
        return r;
    for (int v = 0; v < plan->n_values; v++)
        plan->values[v].offset = blocks[plan->values[v].root].offset;
    for (int i = 0; i < plan->n_nodes; i++)
        plan->nodes[i].saved_offset = saved[i].offset;
    return 0;
}

/* ---- the workspace --------------------------------------------------------------------------- */

/* The blocks of the workspace. Moments: 0 the loss runs, n − i the backward of node i; the forward
 * uses nothing but scratch, which is there all the time. */
typedef struct Workspace {
    ArenaBlock *scratch, *staging;
    ArenaBlock *gradients; /* by value */
    ArenaBlock *asides;    /* by node and input */
} Workspace;

/* Gives the gradients that node i's backward writes their blocks. */
static void place_input_gradients(Plan *plan, const Workspace *space, int i)
{
    PlanNode *self = &plan->nodes[i];
    int now = plan->n_nodes - i;
    for (int k = 0; self->backward && k < self->node->n_inputs; k++) {
        if (!self->need_input_gradient[k])
            continue;
        const PlanValue *root = &plan->values[plan->values[self->node->inputs[k]].root];
        ArenaBlock *gradient = &space->gradients[root->root];
        self->accumulate[k] = gradient->bytes > 0;
        if (self->accumulate[k])
            space->asides[NODE_MAX_INPUTS * i + k] = (ArenaBlock){root->bytes, now, now, 0};
        else
            *gradient = (ArenaBlock){root->bytes, now, plan->n_nodes - root->producer, 0};
    }
}

static void read_offsets(Plan *plan, const Workspace *space)
{
    plan->scratch_offset = space->scratch->offset;
    plan->staging_offset = space->staging->offset;
    for (int v = 0; v < plan->n_values; v++)
        plan->values[v].gradient_offset = space->gradients[plan->values[v].root].offset;
    for (int i = 0; i < plan->n_nodes; i++) {
        PlanNode *self = &plan->nodes[i];
        for (int k = 0; k < self->node->n_inputs; k++)
            self->input_gradient_offset[k] =
                self->accumulate[k] ? space->asides[NODE_MAX_INPUTS * i + k].offset
                                    : plan->values[self->node->inputs[k]].gradient_offset;
    }
}

/* U8 input on its way in, then the loss's targets: classes or numbers like the output. */
static size_t staging_bytes(const Plan *plan)
{
    const Shape *in = graph_value_shape(plan->graph, 0);
    const Shape *out = graph_value_shape(plan->graph, graph_output(plan->graph));
    size_t pixels = (size_t)shape_elements(in, plan->batch);
    size_t numbers = (size_t)shape_elements(out, plan->batch) * sizeof(float);
    return larger(pixels, larger(numbers, (size_t)plan->batch * sizeof(int64_t)));
}

static int place_workspace(Plan *plan)
{
    int n = plan->n_nodes, count = 2 + plan->n_values + NODE_MAX_INPUTS * n;
    _cleanup_free_ ArenaBlock *blocks = calloc((size_t)count, sizeof *blocks);
    if (!blocks)
        return -ENOMEM;
    Workspace space = {blocks, blocks + 1, blocks + 2, blocks + 2 + plan->n_values};
    *space.scratch = (ArenaBlock){0, 0, n, 0};
    *space.staging = (ArenaBlock){staging_bytes(plan), 0, 0, 0};
    for (int i = 0; i < n; i++)
        space.scratch->bytes = larger(space.scratch->bytes, plan->nodes[i].info.scratch_bytes);
    if (plan->training) {
        const PlanValue *output = &plan->values[plan->values[graph_output(plan->graph)].root];
        space.gradients[output->root] = (ArenaBlock){output->bytes, 0, n - output->producer, 0};
        for (int i = n - 1; i >= 0; i--)
            place_input_gradients(plan, &space, i);
    }
    int r = arena_place(blocks, count, &plan->workspace_bytes);
    if (r == 0)
        read_offsets(plan, &space);
    return r;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int allocate(Plan *plan)
{
    void *memory;
    int r = accelerator_alloc(plan->accelerator, plan->workspace_bytes, &memory);
    if (r < 0)
        return r;
    plan->workspace = memory;
    size_t n = graph_params_length(plan->graph);
    if (!plan->training || n == 0)
        return 0;
    r = accelerator_alloc(plan->accelerator, n * sizeof(float), &memory);
    if (r == 0)
        plan->gradients = memory;
    return r;
}

static int build(Plan *plan, Error *err)
{
    plan->n_nodes = graph_node_count(plan->graph);
    plan->n_values = graph_value_count(plan->graph);
    plan->nodes = calloc((size_t)plan->n_nodes + 1, sizeof *plan->nodes);
    plan->values = calloc((size_t)plan->n_values, sizeof *plan->values);
    int r = plan->nodes && plan->values ? 0 : -ENOMEM;
    if (r == 0) {
        r = compile_nodes(plan, err);
        if (r < 0)
            return r; /* with a sentence of its own */
    }
    if (r == 0)
        r = place_activations(plan);
    if (r == 0)
        r = place_workspace(plan);
    if (r == 0)
        r = allocate(plan);
    if (r < 0)
        return error_set(err, r, "not enough memory for a batch of %" PRId64, plan->batch);
    return 0;
}

int plan_new(const Accelerator *accelerator, const Graph *graph, int64_t batch, bool training,
             Plan **ret, Error *err)
{
    Plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return error_set(err, -ENOMEM, "not enough memory for a batch of %" PRId64, batch);
    plan->accelerator = accelerator;
    plan->graph = graph;
    plan->batch = batch;
    plan->training = training;
    int r = build(plan, err);
    if (r < 0) {
        plan_free(plan);
        return r;
    }
    *ret = plan;
    return 0;
}

Plan *plan_free(Plan *plan)
{
    if (!plan)
        return NULL;
    for (int i = 0; plan->nodes && i < plan->n_nodes; i++)
        kernel_free(plan->accelerator, plan->nodes[i].kernel);
    accelerator_layout_free(plan->accelerator, plan->input_layout);
    accelerator_release(plan->accelerator, plan->workspace);
    accelerator_release(plan->accelerator, plan->gradients);
    free(plan->nodes);
    free(plan->values);
    free(plan);
    return NULL;
}
