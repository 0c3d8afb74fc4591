#include "model/op.h"

static int infer(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    float p = node->attrs.dropout;
    if (!(p >= 0 && p <= 1))
        return error_set(err, -EINVAL, "%s: %s must have a probability from 0 to 1, not %g",
                         node->name, op_kind_name(node->kind), (double)p);
    return op_same_shape(node, inputs, ret, err);
}

/* Drops whole channels of (B, C, H, W); in (B, C) each element is a channel of its own. */
static int infer_channels(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    if (inputs[0]->ndim != 2) {
        int r = op_expect_ndim(node, inputs[0], 4, "(B, channels, height, width) or (B, channels)",
                               err);
        if (r < 0)
            return r;
    }
    return infer(node, inputs, ret, err);
}

const OpInfo op_dropout = {"Dropout", infer, NULL};
const OpInfo op_dropout2d = {"Dropout2d", infer_channels, NULL};

ValueId graph_dropout(Graph *graph, const char *name, ValueId in, float p)
{
    Node node = node_make(OP_DROPOUT, name, 1, in, -1);
    node.attrs.dropout = p;
    return graph_append(graph, &node);
}

ValueId graph_dropout2d(Graph *graph, const char *name, ValueId in, float p)
{
    Node node = node_make(OP_DROPOUT2D, name, 1, in, -1);
    node.attrs.dropout = p;
    return graph_append(graph, &node);
}
