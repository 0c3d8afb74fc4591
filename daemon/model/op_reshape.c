#include "model/op.h"

/* (B, …) → (B, product of the rest). The product fits: the input's shape was checked. */
static int infer(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    (void)node;
    (void)err;
    *ret = (Shape){2, {DIM_BATCH, shape_elements(inputs[0], 1)}};
    return 0;
}

const OpInfo op_flatten = {"Flatten", infer, NULL};

ValueId graph_flatten(Graph *graph, const char *name, ValueId in)
{
    Node node = node_make(OP_FLATTEN, name, 1, in, -1);
    return graph_append(graph, &node);
}
