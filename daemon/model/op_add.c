#include "model/op.h"

static int infer(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    if (shape_equal(inputs[0], inputs[1]))
        return op_same_shape(node, inputs, ret, err);
    char a[128], b[128];
    return error_set(err, -EINVAL, "%s: Add takes two inputs of one shape, but it gets %s and %s",
                     node->name, shape_format(inputs[0], a, sizeof a),
                     shape_format(inputs[1], b, sizeof b));
}

const OpInfo op_add = {"Add", infer, NULL};

ValueId graph_add(Graph *graph, const char *name, ValueId a, ValueId b)
{
    Node node = node_make(OP_ADD, name, 2, a, b);
    return graph_append(graph, &node);
}
