#include "model/op.h"

/* (B, K) → (B, K) */
static int infer_logsoftmax(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    int r = op_expect_ndim(node, inputs[0], 2, "(B, classes)", err);
    return r < 0 ? r : op_same_shape(node, inputs, ret, err);
}

const OpInfo op_relu = {"ReLU", op_same_shape, NULL};
const OpInfo op_logsoftmax = {"LogSoftmax", infer_logsoftmax, NULL};

ValueId graph_relu(Graph *graph, const char *name, ValueId in)
{
    Node node = node_make(OP_RELU, name, 1, in, -1);
    return graph_append(graph, &node);
}

ValueId graph_logsoftmax(Graph *graph, const char *name, ValueId in)
{
    Node node = node_make(OP_LOGSOFTMAX, name, 1, in, -1);
    return graph_append(graph, &node);
}
