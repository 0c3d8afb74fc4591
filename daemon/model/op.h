/* The operator table: what each kind of node takes, gives and learns. Internal to daemon/model.
 *
 * Adding an operator is a file with its table entry and its builder call, and a line in op.c. */
#pragma once

#include "model/graph.h"

typedef struct OpInfo {
    const char *name; /* as PyTorch calls the module: "Conv2d" */
    /* Checks attributes and input shapes and gives the output's shape. -EINVAL with a sentence that
     * names node and shapes. */
    int (*infer)(const Node *node, const Shape *const *inputs, Shape *ret, Error *err);
    /* Adds the node's parameters and buffers to the graph; NULL for operators without any. */
    int (*declare)(Graph *graph, Node *node, const Shape *const *inputs);
} OpInfo;

extern const OpInfo op_conv2d, op_relu, op_maxpool2d, op_avgpool2d, op_batchnorm2d, op_dropout,
    op_dropout2d, op_flatten, op_linear, op_logsoftmax, op_add;

const OpInfo *op_info(OpKind kind);

/* ---- for infer ------------------------------------------------------------------------------- */

/* -EINVAL unless the shape has the batch and ndim − 1 further dimensions. `layout` is what the
 * operator takes, for the sentence: "(B, channels, height, width)". */
int op_expect_ndim(const Node *node, const Shape *shape, int ndim, const char *layout, Error *err);
/* -EINVAL unless min <= value <= SHAPE_MAX_ELEMENTS. */
int op_expect_attr(const Node *node, const char *attr, int64_t value, int64_t min, Error *err);

/* A sliding window over height and width. */
typedef struct Window {
    const int64_t *kernel, *stride, *padding, *dilation;
} Window;

/* Checks the window and writes height and width of the output to ret->dims[2] and [3]. */
int op_window(const Node *node, const Shape *in, const Window *window, Shape *ret, Error *err);

/* The output has the input's shape. */
int op_same_shape(const Node *node, const Shape *const *inputs, Shape *ret, Error *err);

/* ---- for builders and declare, defined by graph.c -------------------------------------------- */

/* A node of the kind with its inputs (n_inputs of a and b) and name. The name is checked later. */
Node node_make(OpKind kind, const char *name, int n_inputs, ValueId a, ValueId b);
/* Checks and adds the node; what every builder call returns. */
ValueId graph_append(Graph *graph, Node *node);

/* "conv1" + "weight" → parameter "conv1.weight". bound: of INIT_UNIFORM. */
int graph_declare_param(Graph *graph, Node *node, const char *suffix, const Shape *shape,
                        InitKind init, float bound);
int graph_declare_buffer(Graph *graph, Node *node, const char *suffix, const Shape *shape,
                         InitKind init, bool counter);
