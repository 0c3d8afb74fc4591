#include "model/graph.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/op.h"

/* Each parameter and float buffer begins on a cache line. */
enum { ALIGN_ELEMENTS = 16 };
/* Elements of all parameters together; with gradients and Adam's state 128 GiB a replica. */
#define GRAPH_MAX_LENGTH ((size_t)1 << 33)

typedef struct Value {
    Shape shape;
    int producer; /* index of the node, -1 for the input */
    int consumers;
    bool needs_gradient;
} Value;

/* A flat array's parts and its length so far. */
typedef struct ParamList {
    ParamInfo *infos;
    int count;
} ParamList;

struct Graph {
    Node *nodes;
    int n_nodes;
    Value *values; /* n_nodes + 1: each node makes one */
    int capacity;  /* of nodes; values has one more */
    ParamList params, buffers;
    int *params_by_name;
    size_t params_length, float_buffers_length, counters_length;
    ValueId output;
    bool finished;
    Error error;
};

static int fail_out_of_memory(Graph *graph)
{
    return error_set(&graph->error, -ENOMEM, "out of memory for the model's graph");
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int grow(Graph *graph, int capacity)
{
    Node *nodes = realloc(graph->nodes, (size_t)capacity * sizeof *nodes);
    if (!nodes)
        return fail_out_of_memory(graph);
    graph->nodes = nodes;
    Value *values = realloc(graph->values, ((size_t)capacity + 1) * sizeof *values);
    if (!values)
        return fail_out_of_memory(graph);
    graph->values = values;
    graph->capacity = capacity;
    return 0;
}

int graph_new(const Shape *input, Graph **ret)
{
    Graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return -ENOMEM;
    if (grow(graph, 16) < 0) {
        graph_free(graph);
        return -ENOMEM;
    }
    graph->values[0] = (Value){.shape = *input, .producer = -1};
    if (input->ndim < 1 || input->dims[0] != DIM_BATCH || !shape_is_sane(input)) {
        char text[256];
        (void)error_set(&graph->error, -EINVAL,
                        "a model's input must be (B, …) with at most %d dimensions and %" PRId64
                        " elements a sample, not %s",
                        SHAPE_MAX_DIMS, SHAPE_MAX_ELEMENTS, shape_format(input, text, sizeof text));
    }
    *ret = graph;
    return 0;
}

Graph *graph_free(Graph *graph)
{
    if (!graph)
        return NULL;
    free(graph->nodes);
    free(graph->values);
    free(graph->params.infos);
    free(graph->buffers.infos);
    free(graph->params_by_name);
    free(graph);
    return NULL;
}

const Error *graph_error(const Graph *graph)
{
    return &graph->error;
}

Node node_make(OpKind kind, const char *name, int n_inputs, ValueId a, ValueId b)
{
    Node node = {.kind = kind, .n_inputs = n_inputs, .inputs = {a, b}};
    snprintf(node.name, sizeof node.name, "%s", name); /* one that is too long is seen later */
    return node;
}

/* Names become those of parameters, which go into files, logs and messages. */
static int check_name(Graph *graph, const Node *node)
{
    size_t length = strlen(node->name);
    if (length == 0 || length == sizeof node->name - 1)
        return error_set(&graph->error, -EINVAL,
                         "the name of node %d must have 1 to %d characters, not \"%s\"",
                         graph->n_nodes, NODE_NAME_MAX - 2, node->name);
    for (const char *c = node->name; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("_.-/:", *c))
            return error_set(&graph->error, -EINVAL,
                             "node name \"%s\": only letters, digits and _ . - / : are allowed",
                             node->name);
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        if (strcmp(graph->nodes[i].name, node->name) == 0)
            return error_set(&graph->error, -EINVAL, "node name \"%s\" is used twice", node->name);
    }
    return 0;
}

static int check_inputs(Graph *graph, const Node *node)
{
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] < 0 || node->inputs[i] > graph->n_nodes)
            return error_set(&graph->error, -EINVAL,
                             "%s: input %d is value %d, which no node makes", node->name, i,
                             node->inputs[i]);
    }
    return 0;
}

static int check_node(Graph *graph, const Node *node)
{
    if (graph->error.code < 0)
        return graph->error.code;
    if (graph->finished)
        return error_set(&graph->error, -EINVAL, "%s: the model is already finished", node->name);
    if (graph->n_nodes == GRAPH_MAX_NODES)
        return error_set(&graph->error, -EINVAL, "%s: a model has at most %d nodes", node->name,
                         GRAPH_MAX_NODES);
    int r = check_name(graph, node);
    return r < 0 ? r : check_inputs(graph, node);
}

/* Runs the operator's checks; its output's shape into *ret. */
static int infer(Graph *graph, Node *node, Shape *ret)
{
    const OpInfo *op = op_info(node->kind);
    const Shape *inputs[NODE_MAX_INPUTS];
    Shape copies[NODE_MAX_INPUTS];
    for (int i = 0; i < node->n_inputs; i++) {
        copies[i] = graph->values[node->inputs[i]].shape;
        inputs[i] = &copies[i];
    }
    int r = op->infer(node, inputs, ret, &graph->error);
    if (r < 0)
        return r;
    if (!shape_is_sane(ret)) {
        char text[256];
        return error_set(&graph->error, -EINVAL,
                         "%s: the output of %s, %s, has more than %" PRId64 " elements a sample",
                         node->name, op->name, shape_format(ret, text, sizeof text),
                         SHAPE_MAX_ELEMENTS);
    }
    return op->declare ? op->declare(graph, node, inputs) : 0;
}

ValueId graph_append(Graph *graph, Node *node)
{
    Shape shape;
    int r = check_node(graph, node);
    if (r == 0)
        r = infer(graph, node, &shape);
    if (r == 0 && graph->n_nodes == graph->capacity)
        r = grow(graph, 2 * graph->capacity);
    if (r < 0)
        return r;
    node->index = graph->n_nodes;
    node->output = graph->n_nodes + 1;
    for (int i = 0; i < node->n_inputs; i++)
        graph->values[node->inputs[i]].consumers++;
    graph->values[node->output] = (Value){.shape = shape, .producer = node->index};
    graph->nodes[graph->n_nodes++] = *node;
    return node->output;
}

/* ---- parameters and buffers ------------------------------------------------------------------ */

static int append_info(Graph *graph, ParamList *list, const ParamInfo *info)
{
    if (!shape_is_sane(&info->shape)) {
        char text[256];
        return error_set(&graph->error, -EINVAL, "%s, %s, has more than %" PRId64 " elements",
                         info->name, shape_format(&info->shape, text, sizeof text),
                         SHAPE_MAX_ELEMENTS);
    }
    /* powers of two: the array is full whenever its count is one */
    if ((list->count & (list->count - 1)) == 0) {
        size_t capacity = list->count ? 2 * (size_t)list->count : 1;
        ParamInfo *infos = realloc(list->infos, capacity * sizeof *infos);
        if (!infos)
            return fail_out_of_memory(graph);
        list->infos = infos;
    }
    list->infos[list->count++] = *info;
    return 0;
}

static int append_param(Graph *graph, ParamList *list, ParamInfo *info, size_t *length)
{
    info->elements = shape_elements(&info->shape, 1);
    info->offset = *length;
    int r = append_info(graph, list, info);
    if (r < 0)
        return r;
    size_t align = info->counter ? 1 : ALIGN_ELEMENTS;
    *length += ((size_t)info->elements + align - 1) / align * align;
    if (*length > GRAPH_MAX_LENGTH)
        return error_set(&graph->error, -EINVAL, "with %s the model has more than %zu parameters",
                         info->name, GRAPH_MAX_LENGTH);
    return 0;
}

int graph_declare_param(Graph *graph, Node *node, const char *suffix, const Shape *shape,
                        InitKind init, float bound)
{
    ParamInfo info = {.shape = *shape, .init = init, .bound = bound};
    snprintf(info.name, sizeof info.name, "%s.%s", node->name, suffix);
    node->params[node->n_params++] = graph->params.count;
    return append_param(graph, &graph->params, &info, &graph->params_length);
}

int graph_declare_buffer(Graph *graph, Node *node, const char *suffix, const Shape *shape,
                         InitKind init, bool counter)
{
    ParamInfo info = {.shape = *shape, .init = init, .counter = counter};
    snprintf(info.name, sizeof info.name, "%s.%s", node->name, suffix);
    node->buffers[node->n_buffers++] = graph->buffers.count;
    size_t *length = counter ? &graph->counters_length : &graph->float_buffers_length;
    return append_param(graph, &graph->buffers, &info, length);
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* A node whose value goes nowhere would be computed for nothing. */
static int check_all_read(Graph *graph, ValueId output)
{
    if (output < 0 || output > graph->n_nodes)
        return error_set(&graph->error, -EINVAL,
                         "the model's output is value %d, which no node makes", output);
    if (graph->values[output].consumers > 0)
        return error_set(&graph->error, -EINVAL,
                         "the model's output, of node %d, is read by another node", output - 1);
    for (int i = 0; i < graph->n_nodes; i++) {
        const Node *node = &graph->nodes[i];
        if (node->output != output && graph->values[node->output].consumers == 0)
            return error_set(&graph->error, -EINVAL,
                             "%s: no node reads its output, and it is not the model's", node->name);
    }
    return 0;
}

static void mark_gradients(Graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        const Node *node = &graph->nodes[i];
        bool needed = node->n_params > 0;
        for (int k = 0; k < node->n_inputs; k++)
            needed |= graph->values[node->inputs[k]].needs_gradient;
        graph->values[node->output].needs_gradient = needed;
    }
}

/* A Relu that alone reads a Conv2d or Linear is computed with it. */
static void mark_fused(Graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        Node *relu = &graph->nodes[i];
        if (relu->kind != OP_RELU)
            continue;
        const Value *in = &graph->values[relu->inputs[0]];
        if (in->producer < 0 || in->consumers != 1)
            continue;
        Node *producer = &graph->nodes[in->producer];
        if (producer->kind != OP_CONV2D && producer->kind != OP_LINEAR)
            continue;
        producer->fused_relu = true;
        relu->skip = true;
    }
}

static int compare_names(const void *a, const void *b, void *data)
{
    const ParamInfo *infos = data;
    return strcmp(infos[*(const int *)a].name, infos[*(const int *)b].name);
}

static int sort_names(Graph *graph)
{
    size_t count = (size_t)graph->params.count;
    int *order = malloc((count + 1) * sizeof *order);
    if (!order)
        return fail_out_of_memory(graph);
    for (int i = 0; i < graph->params.count; i++)
        order[i] = i;
    if (count > 0)
        qsort_r(order, count, sizeof *order, compare_names, graph->params.infos);
    graph->params_by_name = order;
    return 0;
}

int graph_finish(Graph *graph, ValueId output, Error *err)
{
    int r = graph->error.code;
    if (r == 0 && graph->finished)
        r = error_set(&graph->error, -EINVAL, "the model is already finished");
    if (r == 0)
        r = check_all_read(graph, output);
    if (r == 0)
        r = sort_names(graph);
    if (r < 0)
        return error_set(err, r, "%s", graph->error.message);
    mark_gradients(graph);
    mark_fused(graph);
    graph->output = output;
    graph->finished = true;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

int graph_node_count(const Graph *graph)
{
    return graph->n_nodes;
}

const Node *graph_node(const Graph *graph, int index)
{
    return &graph->nodes[index];
}

int graph_value_count(const Graph *graph)
{
    return graph->n_nodes + 1;
}

const Shape *graph_value_shape(const Graph *graph, ValueId value)
{
    return &graph->values[value].shape;
}

int graph_value_consumers(const Graph *graph, ValueId value)
{
    return graph->values[value].consumers;
}

bool graph_value_needs_gradient(const Graph *graph, ValueId value)
{
    return graph->values[value].needs_gradient;
}

ValueId graph_output(const Graph *graph)
{
    return graph->output;
}

int graph_param_count(const Graph *graph)
{
    return graph->params.count;
}

const ParamInfo *graph_param(const Graph *graph, int index)
{
    return &graph->params.infos[index];
}

int graph_param_by_name(const Graph *graph, int position)
{
    return graph->params_by_name[position];
}

int graph_buffer_count(const Graph *graph)
{
    return graph->buffers.count;
}

const ParamInfo *graph_buffer(const Graph *graph, int index)
{
    return &graph->buffers.infos[index];
}

size_t graph_params_length(const Graph *graph)
{
    return graph->params_length;
}

size_t graph_float_buffers_length(const Graph *graph)
{
    return graph->float_buffers_length;
}

size_t graph_counters_length(const Graph *graph)
{
    return graph->counters_length;
}
