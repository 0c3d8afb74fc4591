#include <inttypes.h>

#include "model/op.h"

/* Padding beyond half the kernel would make windows that see nothing but padding. */
static int check_padding(const Node *node, Error *err)
{
    const PoolAttrs *a = &node->attrs.pool;
    for (int i = 0; i < 2; i++) {
        if (a->padding[i] <= a->kernel[i] / 2)
            continue;
        return error_set(err, -EINVAL,
                         "%s: %s takes padding of at most half its kernel, but padding is %" PRId64
                         " and the kernel %" PRId64,
                         node->name, op_kind_name(node->kind), a->padding[i], a->kernel[i]);
    }
    return 0;
}

/* (B, C, H, W) → (B, C, H', W') */
static int infer(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    static const int64_t no_dilation[2] = {1, 1};
    const PoolAttrs *a = &node->attrs.pool;
    Window window = {a->kernel, a->stride, a->padding, no_dilation};
    int r = op_expect_ndim(node, inputs[0], 4, "(B, channels, height, width)", err);
    if (r < 0)
        return r;
    *ret = *inputs[0];
    r = op_window(node, inputs[0], &window, ret, err);
    return r < 0 ? r : check_padding(node, err);
}

const OpInfo op_maxpool2d = {"MaxPool2d", infer, NULL};
const OpInfo op_avgpool2d = {"AvgPool2d", infer, NULL};

static ValueId append_pool(OpKind kind, Graph *graph, const char *name, ValueId in,
                           const PoolAttrs *attrs)
{
    Node node = node_make(kind, name, 1, in, -1);
    node.attrs.pool = *attrs;
    return graph_append(graph, &node);
}

ValueId graph_maxpool2d(Graph *graph, const char *name, ValueId in, const PoolAttrs *attrs)
{
    return append_pool(OP_MAXPOOL2D, graph, name, in, attrs);
}

ValueId graph_avgpool2d(Graph *graph, const char *name, ValueId in, const PoolAttrs *attrs)
{
    return append_pool(OP_AVGPOOL2D, graph, name, in, attrs);
}
