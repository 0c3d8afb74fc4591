/* What a model computes: nodes with attributes, values with shapes, named parameters and buffers.
 *
 * A graph is built once by graph_* calls in topological order (the zoo does so now, a file importer
 * will), checked by shape inference at each call, then never changes: any thread may read it. It
 * holds no weights. Whoever made it frees it, after everything that was compiled from it.
 *
 * Builder calls return the value (>= 0) that the node produces, or a negative errno with a sentence
 * that names node and shapes in the graph's Error (graph_error). After a failure every further call
 * returns the same error, so that a model's builder checks once, at graph_finish. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/shape.h"

typedef struct Graph Graph;
typedef int ValueId; /* 0 is the input */

enum {
    NODE_MAX_INPUTS = 2,
    NODE_MAX_PARAMS = 2,
    NODE_MAX_BUFFERS = 3,
    NODE_NAME_MAX = 64,
    GRAPH_MAX_NODES = 4096, /* the largest published convolutional nets have under 1,000 */
};

typedef enum OpKind {
    OP_CONV2D,
    OP_RELU,
    OP_MAXPOOL2D,
    OP_AVGPOOL2D,
    OP_BATCHNORM2D,
    OP_DROPOUT,
    OP_DROPOUT2D,
    OP_FLATTEN,
    OP_LINEAR,
    OP_LOGSOFTMAX,
    OP_ADD,
    OP_KIND_COUNT,
} OpKind;

typedef struct ConvAttrs {
    int64_t out_channels;
    int64_t kernel[2], stride[2], padding[2], dilation[2]; /* height, width */
    int64_t groups;
    bool bias;
} ConvAttrs;

typedef struct PoolAttrs {
    int64_t kernel[2], stride[2], padding[2];
    bool count_include_pad; /* average only; PyTorch's default is true */
} PoolAttrs;

typedef struct BatchNormAttrs {
    float eps;      /* 1e-5 */
    float momentum; /* 0.1 */
} BatchNormAttrs;

typedef struct Node {
    OpKind kind;
    int index; /* position in the graph; the operator's number for random streams */
    char name[NODE_NAME_MAX];
    int n_inputs;
    ValueId inputs[NODE_MAX_INPUTS];
    ValueId output;
    int n_params, params[NODE_MAX_PARAMS]; /* indices into the graph's parameters: weight, bias */
    int n_buffers, buffers[NODE_MAX_BUFFERS]; /* running_mean, running_var, num_batches_tracked */
    union {
        ConvAttrs conv;
        PoolAttrs pool;
        BatchNormAttrs norm;
        float dropout; /* probability of zero */
        struct {
            int64_t linear_outputs;
            bool linear_bias;
        };
    } attrs;
    bool fused_relu; /* set by graph_finish: the Relu after this Conv2d or Linear is computed with
                        it */
    bool skip;       /* set by graph_finish on that Relu: its output is its input's buffer */
} Node;

typedef enum InitKind {
    INIT_UNIFORM, /* in [-bound, bound) */
    INIT_ONES,
    INIT_ZEROS,
} InitKind;

/* A parameter (float32, trained) or a buffer (float32, or int64 when `counter`). offset counts
 * elements in the flat parameter, float-buffer or counter array that it belongs to
 * (replica/weights.h). */
typedef struct ParamInfo {
    char name[NODE_NAME_MAX + 32]; /* "conv1.weight" */
    Shape shape;
    int64_t elements;
    size_t offset;
    InitKind init;
    float bound;
    bool counter;
} ParamInfo;

/* input: the shape of one batch, with DIM_BATCH first. -ENOMEM */
int graph_new(const Shape *input, Graph **ret);
Graph *graph_free(Graph *graph);

/* The first error of the builder; code 0 while there is none. */
const Error *graph_error(const Graph *graph);

ValueId graph_conv2d(Graph *graph, const char *name, ValueId in, const ConvAttrs *attrs);
ValueId graph_relu(Graph *graph, const char *name, ValueId in);
ValueId graph_maxpool2d(Graph *graph, const char *name, ValueId in, const PoolAttrs *attrs);
ValueId graph_avgpool2d(Graph *graph, const char *name, ValueId in, const PoolAttrs *attrs);
ValueId graph_batchnorm2d(Graph *graph, const char *name, ValueId in, const BatchNormAttrs *attrs);
ValueId graph_dropout(Graph *graph, const char *name, ValueId in, float p);
ValueId graph_dropout2d(Graph *graph, const char *name, ValueId in, float p);
ValueId graph_flatten(Graph *graph, const char *name, ValueId in);
ValueId graph_linear(Graph *graph, const char *name, ValueId in, int64_t outputs, bool bias);
ValueId graph_logsoftmax(Graph *graph, const char *name, ValueId in); /* over the last dimension */
ValueId graph_add(Graph *graph, const char *name, ValueId a, ValueId b);

/* Ends building: `output` is the model's result, the only value that no node reads. Decides which
 * gradients are needed and which Relus are computed by their producer. 0, or the first error of the
 * builder. */
int graph_finish(Graph *graph, ValueId output, Error *err);

int graph_node_count(const Graph *graph);
const Node *graph_node(const Graph *graph, int index);
int graph_value_count(const Graph *graph);
const Shape *graph_value_shape(const Graph *graph, ValueId value);
int graph_value_consumers(const Graph *graph, ValueId value);
/* Whether training needs this value's gradient: some parameter lies upstream of it. */
bool graph_value_needs_gradient(const Graph *graph, ValueId value);
ValueId graph_output(const Graph *graph);

int graph_param_count(const Graph *graph);
const ParamInfo *graph_param(const Graph *graph, int index);
/* Index of the parameter at `position` when all are sorted by name (strcmp); after graph_finish. */
int graph_param_by_name(const Graph *graph, int position);
int graph_buffer_count(const Graph *graph);
const ParamInfo *graph_buffer(const Graph *graph, int index);

/* Lengths of the flat arrays, in elements. Each parameter begins on a multiple of 16 elements (one
 * cache line); the gaps are zero and stay zero under every optimizer. */
size_t graph_params_length(const Graph *graph);
size_t graph_float_buffers_length(const Graph *graph);
size_t graph_counters_length(const Graph *graph);

const char *op_kind_name(OpKind kind); /* "Conv2d" */
