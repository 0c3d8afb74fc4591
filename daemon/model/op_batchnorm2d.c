#include "model/op.h"

static int infer(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    const BatchNormAttrs *a = &node->attrs.norm;
    int r = op_expect_ndim(node, inputs[0], 4, "(B, channels, height, width)", err);
    if (r < 0)
        return r;
    if (!(a->eps > 0))
        return error_set(err, -EINVAL, "%s: BatchNorm2d must have eps above 0, not %g", node->name,
                         (double)a->eps);
    if (!(a->momentum >= 0 && a->momentum <= 1))
        return error_set(err, -EINVAL, "%s: BatchNorm2d must have a momentum from 0 to 1, not %g",
                         node->name, (double)a->momentum);
    *ret = *inputs[0];
    return 0;
}

/* weight, bias, running_mean, running_var: (C); num_batches_tracked: a scalar */
static int declare(Graph *graph, Node *node, const Shape *const *inputs)
{
    static const Shape scalar = {0, {0}};
    Shape channels = {1, {inputs[0]->dims[1]}};
    int r = graph_declare_param(graph, node, "weight", &channels, INIT_ONES, 0);
    if (r == 0)
        r = graph_declare_param(graph, node, "bias", &channels, INIT_ZEROS, 0);
    if (r == 0)
        r = graph_declare_buffer(graph, node, "running_mean", &channels, INIT_ZEROS, false);
    if (r == 0)
        r = graph_declare_buffer(graph, node, "running_var", &channels, INIT_ONES, false);
    if (r == 0)
        r = graph_declare_buffer(graph, node, "num_batches_tracked", &scalar, INIT_ZEROS, true);
    return r;
}

const OpInfo op_batchnorm2d = {"BatchNorm2d", infer, declare};

ValueId graph_batchnorm2d(Graph *graph, const char *name, ValueId in, const BatchNormAttrs *attrs)
{
    Node node = node_make(OP_BATCHNORM2D, name, 1, in, -1);
    node.attrs.norm = *attrs;
    return graph_append(graph, &node);
}
