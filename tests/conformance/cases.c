#include "cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CONV(channels, kh, kw, sh, sw, ph, pw, dh, dw, g, b)                                       \
    .attrs.conv = {.out_channels = (channels),                                                     \
                   .kernel = {kh, kw},                                                             \
                   .stride = {sh, sw},                                                             \
                   .padding = {ph, pw},                                                            \
                   .dilation = {dh, dw},                                                           \
                   .groups = (g),                                                                  \
                   .bias = (b)}
#define POOL(kh, kw, sh, sw, ph, pw, include)                                                      \
    .attrs.pool = {.kernel = {kh, kw},                                                             \
                   .stride = {sh, sw},                                                             \
                   .padding = {ph, pw},                                                            \
                   .count_include_pad = (include)}
#define LINEAR(n, b) .attrs.linear = {.outputs = (n), .bias = (b)}
#define NORM         .attrs.norm = {.eps = 1e-5F, .momentum = 0.1F}

const OpCase op_cases[] = {
    /* conv: (channels, kernel, stride, padding, dilation, groups, bias) */
    {"conv 3x3", OP_CONV2D, 2, 3, 8, 8, CONV(5, 3, 3, 1, 1, 0, 0, 1, 1, 1, true)},
    {"conv 3x3 padded no bias", OP_CONV2D, 3, 4, 7, 6, CONV(6, 3, 3, 1, 1, 1, 1, 1, 1, 1, false)},
    {"conv 1x1 batch 1", OP_CONV2D, 1, 5, 4, 3, CONV(7, 1, 1, 1, 1, 0, 0, 1, 1, 1, true)},
    {"conv 1x1 stride 2", OP_CONV2D, 2, 16, 5, 5, CONV(32, 1, 1, 2, 2, 0, 0, 1, 1, 1, false)},
    {"conv to one pixel", OP_CONV2D, 1, 1, 3, 3, CONV(1, 3, 3, 1, 1, 0, 0, 1, 1, 1, true)},
    {"conv uneven kernel and stride", OP_CONV2D, 2, 3, 9, 11,
     CONV(4, 2, 5, 3, 2, 1, 2, 1, 1, 1, true)},
    {"conv dilated", OP_CONV2D, 2, 2, 11, 9, CONV(3, 3, 2, 1, 1, 2, 1, 2, 3, 1, true)},
    {"conv dilated strided", OP_CONV2D, 2, 2, 12, 13, CONV(3, 3, 3, 2, 3, 2, 2, 3, 2, 1, true)},
    {"conv groups", OP_CONV2D, 2, 6, 6, 5, CONV(9, 3, 3, 1, 1, 1, 1, 1, 1, 3, true)},
    {"conv depthwise", OP_CONV2D, 2, 6, 6, 6, CONV(6, 3, 3, 2, 1, 1, 1, 1, 1, 6, true)},
    {"conv depthwise multiplied", OP_CONV2D, 1, 3, 5, 5, CONV(6, 3, 3, 1, 1, 1, 1, 1, 1, 3, false)},
    {"conv 16 channels groups", OP_CONV2D, 2, 32, 5, 5, CONV(32, 3, 3, 1, 1, 1, 1, 1, 1, 2, true)},
    {"conv 17 to 33 channels", OP_CONV2D, 1, 17, 5, 6, CONV(33, 3, 3, 1, 1, 1, 1, 1, 1, 1, true)},
    {"conv with more padding than input", OP_CONV2D, 1, 2, 1, 1,
     CONV(3, 3, 3, 2, 2, 2, 2, 1, 1, 1, true)},
    {"conv relu", OP_CONV2D, 2, 3, 6, 6, CONV(8, 3, 3, 1, 1, 1, 1, 1, 1, 1, true),
     .relu_after = true},
    {"conv relu 13 channels groups", OP_CONV2D, 3, 4, 5, 5,
     CONV(14, 3, 3, 2, 2, 1, 1, 1, 1, 2, false), .relu_after = true},
    /* linear */
    {"linear", OP_LINEAR, 4, 9, 0, 0, LINEAR(7, true)},
    {"linear no bias", OP_LINEAR, 3, 16, 0, 0, LINEAR(32, false)},
    {"linear 1 to 1 batch 1", OP_LINEAR, 1, 1, 0, 0, LINEAR(1, true)},
    {"linear relu", OP_LINEAR, 5, 33, 0, 0, LINEAR(17, true), .relu_after = true},
    {"linear relu no bias batch 1", OP_LINEAR, 1, 8, 0, 0, LINEAR(3, false), .relu_after = true},
    /* pools: (kernel, stride, padding, count_include_pad) */
    {"maxpool 2", OP_MAXPOOL2D, 2, 3, 6, 6, POOL(2, 2, 2, 2, 0, 0, false)},
    {"maxpool overlapping padded", OP_MAXPOOL2D, 2, 5, 7, 8, POOL(3, 3, 2, 1, 1, 1, false)},
    {"maxpool uneven", OP_MAXPOOL2D, 1, 16, 9, 7, POOL(3, 2, 2, 3, 1, 0, false)},
    {"maxpool whole plane", OP_MAXPOOL2D, 2, 2, 4, 3, POOL(4, 3, 1, 1, 0, 0, false)},
    {"maxpool 1x1", OP_MAXPOOL2D, 1, 1, 1, 1, POOL(1, 1, 1, 1, 0, 0, false)},
    {"maxpool leaving a rest", OP_MAXPOOL2D, 2, 17, 7, 5, POOL(2, 2, 2, 2, 0, 0, false)},
    {"avgpool 2", OP_AVGPOOL2D, 2, 3, 6, 6, POOL(2, 2, 2, 2, 0, 0, true)},
    {"avgpool padding counted", OP_AVGPOOL2D, 2, 5, 7, 8, POOL(3, 3, 2, 1, 1, 1, true)},
    {"avgpool padding not counted", OP_AVGPOOL2D, 2, 5, 7, 8, POOL(3, 3, 2, 1, 1, 1, false)},
    {"avgpool whole plane", OP_AVGPOOL2D, 3, 18, 4, 4, POOL(4, 4, 4, 4, 0, 0, true)},
    {"avgpool uneven", OP_AVGPOOL2D, 1, 2, 9, 7, POOL(2, 3, 3, 1, 0, 1, true)},
    /* the rest */
    {"relu", OP_RELU, 2, 5, 4, 3},
    {"relu of rows", OP_RELU, 3, 19, 0, 0},
    {"batchnorm", OP_BATCHNORM2D, 4, 3, 5, 5, NORM},
    {"batchnorm batch 1", OP_BATCHNORM2D, 1, 17, 3, 2, NORM},
    {"batchnorm of single pixels", OP_BATCHNORM2D, 5, 16, 1, 1, NORM},
    {"batchnorm other settings", OP_BATCHNORM2D, 2, 6, 3, 3,
     .attrs.norm = {.eps = 1e-2F, .momentum = 0.7F}},
    {"dropout", OP_DROPOUT, 3, 7, 5, 3, .attrs.dropout = 0.5F},
    {"dropout of rows", OP_DROPOUT, 4, 33, 0, 0, .attrs.dropout = 0.3F},
    {"dropout 0", OP_DROPOUT, 2, 3, 2, 2, .attrs.dropout = 0},
    {"dropout 1", OP_DROPOUT, 2, 3, 2, 2, .attrs.dropout = 1},
    {"dropout2d", OP_DROPOUT2D, 3, 19, 3, 3, .attrs.dropout = 0.25F},
    {"dropout2d of rows", OP_DROPOUT2D, 4, 21, 0, 0, .attrs.dropout = 0.5F},
    {"dropout2d 1", OP_DROPOUT2D, 2, 4, 2, 3, .attrs.dropout = 1},
    {"flatten", OP_FLATTEN, 2, 5, 3, 4},
    {"flatten batch 1", OP_FLATTEN, 1, 17, 2, 2},
    {"logsoftmax", OP_LOGSOFTMAX, 4, 10, 0, 0},
    {"logsoftmax of one class", OP_LOGSOFTMAX, 2, 1, 0, 0},
    {"logsoftmax batch 1", OP_LOGSOFTMAX, 1, 37, 0, 0},
    {"add branch", OP_ADD, 2, 5, 4, 4},
    {"add branch 16 channels", OP_ADD, 1, 16, 3, 3},
    {"add value to itself", OP_ADD, 2, 3, 4, 2, .same_value = true},
    {"add rows", OP_ADD, 3, 9, 0, 0},
};
const int n_op_cases = sizeof op_cases / sizeof *op_cases;

/* A layer that keeps the shape and may choose a layout: 1×1 Conv2d, or Linear for rows. Without
 * bias before BatchNorm, which takes it out again: its gradient would be nothing but rounding. */
static ValueId neighbour(Graph *graph, const char *name, ValueId in, int64_t channels, bool rows,
                         bool bias)
{
    ConvAttrs conv = {.out_channels = channels,
                      .kernel = {1, 1},
                      .stride = {1, 1},
                      .dilation = {1, 1},
                      .groups = 1,
                      .bias = bias};
    return rows ? graph_linear(graph, name, in, channels, bias)
                : graph_conv2d(graph, name, in, &conv);
}

static ValueId add_operator(Graph *graph, const OpCase *c, ValueId in)
{
    switch (c->kind) {
    case OP_CONV2D:
        return graph_conv2d(graph, "op", in, &c->attrs.conv);
    case OP_RELU:
        return graph_relu(graph, "op", in);
    case OP_MAXPOOL2D:
        return graph_maxpool2d(graph, "op", in, &c->attrs.pool);
    case OP_AVGPOOL2D:
        return graph_avgpool2d(graph, "op", in, &c->attrs.pool);
    case OP_BATCHNORM2D:
        return graph_batchnorm2d(graph, "op", in, &c->attrs.norm);
    case OP_DROPOUT:
        return graph_dropout(graph, "op", in, c->attrs.dropout);
    case OP_DROPOUT2D:
        return graph_dropout2d(graph, "op", in, c->attrs.dropout);
    case OP_FLATTEN:
        return graph_flatten(graph, "op", in);
    case OP_LINEAR:
        return graph_linear(graph, "op", in, c->attrs.linear.outputs, c->attrs.linear.bias);
    case OP_LOGSOFTMAX:
        return graph_logsoftmax(graph, "op", in);
    case OP_ADD:
        return graph_add(graph, "op",
                         c->same_value ? in : neighbour(graph, "branch", in, c->c, c->h == 0, true),
                         in);
    case OP_KIND_COUNT:
        break;
    }
    return -1;
}

Graph *op_case_graph(const OpCase *c, Surroundings surroundings)
{
    Shape input = {c->h > 0 ? 4 : 2, {DIM_BATCH, c->c, c->h, c->w}};
    Graph *graph = NULL;
    assert_int_equal(graph_new(&input, &graph), 0);
    ValueId value = 0;
    if (surroundings == BETWEEN)
        value = neighbour(graph, "before", value, c->c, c->h == 0, c->kind != OP_BATCHNORM2D);
    value = add_operator(graph, c, value);
    if (c->relu_after)
        value = graph_relu(graph, "relu", value);
    if (surroundings == BETWEEN && value > 0) {
        const Shape *shape = graph_value_shape(graph, value);
        value = neighbour(graph, "after", value, shape->dims[1], shape->ndim == 2, true);
    }
    Error err = {0};
    if (graph_finish(graph, value, &err) < 0)
        fail_msg("%s: %s", c->name, err.message);
    return graph;
}
