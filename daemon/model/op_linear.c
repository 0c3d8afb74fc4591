#include <math.h>

#include "model/op.h"

/* (B, D) → (B, K) */
static int infer(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    int r = op_expect_ndim(node, inputs[0], 2, "(B, features)", err);
    if (r == 0)
        r = op_expect_attr(node, "outputs", node->attrs.linear_outputs, 1, err);
    if (r < 0)
        return r;
    *ret = *inputs[0];
    ret->dims[1] = node->attrs.linear_outputs;
    return 0;
}

/* weight (K, D), bias (K) */
static int declare(Graph *graph, Node *node, const Shape *const *inputs)
{
    int64_t in = inputs[0]->dims[1], out = node->attrs.linear_outputs;
    Shape weight = {2, {out, in}}, bias = {1, {out}};
    float bound = (float)(1 / sqrt((double)in));
    int r = graph_declare_param(graph, node, "weight", &weight, INIT_UNIFORM, bound);
    if (r == 0 && node->attrs.linear_bias)
        r = graph_declare_param(graph, node, "bias", &bias, INIT_UNIFORM, bound);
    return r;
}

const OpInfo op_linear = {"Linear", infer, declare};

ValueId graph_linear(Graph *graph, const char *name, ValueId in, int64_t outputs, bool bias)
{
    Node node = node_make(OP_LINEAR, name, 1, in, -1);
    node.attrs.linear_outputs = outputs;
    node.attrs.linear_bias = bias;
    return graph_append(graph, &node);
}
