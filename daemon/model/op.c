#include "model/op.h"

#include <inttypes.h>

static const OpInfo *const operators[OP_KIND_COUNT] = {
    [OP_CONV2D] = &op_conv2d,
    [OP_RELU] = &op_relu,
    [OP_MAXPOOL2D] = &op_maxpool2d,
    [OP_AVGPOOL2D] = &op_avgpool2d,
    [OP_BATCHNORM2D] = &op_batchnorm2d,
    [OP_DROPOUT] = &op_dropout,
    [OP_DROPOUT2D] = &op_dropout2d,
    [OP_FLATTEN] = &op_flatten,
    [OP_LINEAR] = &op_linear,
    [OP_LOGSOFTMAX] = &op_logsoftmax,
    [OP_ADD] = &op_add,
};

const OpInfo *op_info(OpKind kind)
{
    return operators[kind];
}

const char *op_kind_name(OpKind kind)
{
    return operators[kind]->name;
}

int op_expect_ndim(const Node *node, const Shape *shape, int ndim, const char *layout, Error *err)
{
    if (shape->ndim == ndim)
        return 0;
    char text[128];
    return error_set(err, -EINVAL, "%s: %s takes an input %s, but it gets %s", node->name,
                     op_kind_name(node->kind), layout, shape_format(shape, text, sizeof text));
}

int op_expect_attr(const Node *node, const char *attr, int64_t value, int64_t min, Error *err)
{
    if (value >= min && value <= SHAPE_MAX_ELEMENTS)
        return 0;
    return error_set(err, -EINVAL,
                     "%s: %s must have %s from %" PRId64 " to %" PRId64 ", not %" PRId64,
                     node->name, op_kind_name(node->kind), attr, min, SHAPE_MAX_ELEMENTS, value);
}

int op_window(const Node *node, const Shape *in, const Window *window, Shape *ret, Error *err)
{
    static const char *const axis[] = {"height", "width"};
    for (int i = 0; i < 2; i++) {
        int r = op_expect_attr(node, "a kernel", window->kernel[i], 1, err);
        if (r == 0)
            r = op_expect_attr(node, "a stride", window->stride[i], 1, err);
        if (r == 0)
            r = op_expect_attr(node, "padding", window->padding[i], 0, err);
        if (r == 0)
            r = op_expect_attr(node, "a dilation", window->dilation[i], 1, err);
        if (r < 0)
            return r;
        /* all factors are below 2^31, so nothing here overflows */
        int64_t reach = window->dilation[i] * (window->kernel[i] - 1) + 1;
        int64_t padded = in->dims[2 + i] + 2 * window->padding[i];
        if (padded < reach) {
            char text[128];
            return error_set(err, -EINVAL,
                             "%s: the window of %s spans %" PRId64 " in %s, but the input %s has "
                             "only %" PRId64 " there with its padding",
                             node->name, op_kind_name(node->kind), reach, axis[i],
                             shape_format(in, text, sizeof text), padded);
        }
        ret->dims[2 + i] = (padded - reach) / window->stride[i] + 1;
    }
    return 0;
}

int op_same_shape(const Node *node, const Shape *const *inputs, Shape *ret, Error *err)
{
    (void)node;
    (void)err;
    *ret = *inputs[0];
    return 0;
}
