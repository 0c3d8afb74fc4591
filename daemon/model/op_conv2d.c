#include <math.h>

#include <inttypes.h>

#include "model/op.h"

static int check_groups(const Node *node, const Shape *in, Error *err)
{
    const ConvAttrs *a = &node->attrs.conv;
    int r = op_expect_attr(node, "output channels", a->out_channels, 1, err);
    if (r == 0)
        r = op_expect_attr(node, "groups", a->groups, 1, err);
    if (r < 0)
        return r;
    if (in->dims[1] % a->groups == 0 && a->out_channels % a->groups == 0)
        return 0;
    char text[128];
    return error_set(err, -EINVAL,
                     "%s: Conv2d with %" PRId64 " groups must have a multiple of that as channels, "
                     "but its input is %s and it gives %" PRId64 " channels",
                     node->name, a->groups, shape_format(in, text, sizeof text), a->out_channels);
}

/* (B, C, H, W) → (B, out_channels, H', W') */
static int infer(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    const ConvAttrs *a = &node->attrs.conv;
    int r = op_expect_ndim(node, inputs[0], 4, "(B, channels, height, width)", err);
    if (r == 0)
        r = check_groups(node, inputs[0], err);
    if (r < 0)
        return r;
    Window window = {a->kernel, a->stride, a->padding, a->dilation};
    *ret = *inputs[0];
    ret->dims[1] = a->out_channels;
    return op_window(node, inputs[0], &window, ret, err);
}

/* weight (out_channels, C / groups, kernel height, kernel width), bias (out_channels) */
static int declare(Graph *graph, Node *node, const Shape *const *inputs)
{
    const ConvAttrs *a = &node->attrs.conv;
    int64_t channels = inputs[0]->dims[1] / a->groups;
    Shape weight = {4, {a->out_channels, channels, a->kernel[0], a->kernel[1]}};
    Shape bias = {1, {a->out_channels}};
    float bound = (float)(1 / sqrt((double)channels * (double)a->kernel[0] * (double)a->kernel[1]));
    int r = graph_declare_param(graph, node, "weight", &weight, INIT_UNIFORM, bound);
    if (r == 0 && a->bias)
        r = graph_declare_param(graph, node, "bias", &bias, INIT_UNIFORM, bound);
    return r;
}

const OpInfo op_conv2d = {"Conv2d", infer, declare};

ValueId graph_conv2d(Graph *graph, const char *name, ValueId in, const ConvAttrs *attrs)
{
    Node node = node_make(OP_CONV2D, name, 1, in, -1);
    node.attrs.conv = *attrs;
    return graph_append(graph, &node);
}
