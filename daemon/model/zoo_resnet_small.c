/* A small residual net: a stem, one block that keeps its size, two that halve it with a 1×1
 * projection as shortcut, average pooling and a linear classifier. */
#include <stdio.h>

#include "model/zoo_build.h"

enum { MAX_WIDTH = 256 }; /* of an option, which a client chooses */

static int build(const ModelOption *options, int n_options, Graph **ret, Error *err);

const ModelEntry zoo_resnet_small = {
    .name = "resnet-small",
    .description = "three residual blocks with BatchNorm, for 28×28 digits",
    .options = "width",
    .defaults =
        {
            .input = {4, {DIM_BATCH, 1, 28, 28}},
            .loss = LOSS_CROSS_ENTROPY,
            .lr = 0.05F,
            .scale = 1.0F / 255,
            .mean = {0.1307F},
            .deviation = {0.3081F},
            .channels = 1,
        },
    .build = build,
};

static const BatchNormAttrs norm = {.eps = 1e-5F, .momentum = 0.1F};
static const PoolAttrs pool = {{7, 7}, {7, 7}, {0, 0}, true};

/* Convolution without bias and BatchNorm, which has one: "block1" + "conv1" → block1.conv1.weight
 */
static ValueId add_conv(Graph *graph, const char *block, const char *conv, const char *bn,
                        ValueId in, int64_t channels, int64_t kernel, int64_t stride)
{
    char name[NODE_NAME_MAX];
    int64_t padding = kernel / 2;
    ConvAttrs attrs = {.out_channels = channels,
                       .kernel = {kernel, kernel},
                       .stride = {stride, stride},
                       .padding = {padding, padding},
                       .dilation = {1, 1},
                       .groups = 1};
    snprintf(name, sizeof name, "%s.%s", block, conv);
    ValueId v = graph_conv2d(graph, name, in, &attrs);
    snprintf(name, sizeof name, "%s.%s", block, bn);
    return graph_batchnorm2d(graph, name, v, &norm);
}

static ValueId add_relu(Graph *graph, const char *block, const char *relu, ValueId in)
{
    char name[NODE_NAME_MAX];
    snprintf(name, sizeof name, "%s.%s", block, relu);
    return graph_relu(graph, name, in);
}

/* relu(branch(in) + shortcut(in)) */
static ValueId add_block(Graph *graph, const char *block, ValueId in, int64_t channels,
                         int64_t stride)
{
    char name[NODE_NAME_MAX];
    ValueId v = add_conv(graph, block, "conv1", "bn1", in, channels, 3, stride);
    v = add_relu(graph, block, "relu1", v);
    v = add_conv(graph, block, "conv2", "bn2", v, channels, 3, 1);
    ValueId shortcut = in;
    if (stride != 1)
        shortcut = add_conv(graph, block, "shortcut", "shortcut_bn", in, channels, 1, stride);
    snprintf(name, sizeof name, "%s.add", block);
    v = graph_add(graph, name, v, shortcut);
    return add_relu(graph, block, "relu2", v);
}

/* (B,1,28,28) → (B,10) */
static ValueId add_nodes(Graph *graph, int64_t width)
{
    ValueId v = add_conv(graph, "stem", "conv", "bn", 0, width, 3, 1);
    v = add_relu(graph, "stem", "relu", v);          /* (B,width,28,28) */
    v = add_block(graph, "block1", v, width, 1);     /* (B,width,28,28) */
    v = add_block(graph, "block2", v, 2 * width, 2); /* (B,2·width,14,14) */
    v = add_block(graph, "block3", v, 4 * width, 2); /* (B,4·width,7,7) */
    v = graph_avgpool2d(graph, "pool", v, &pool);    /* (B,4·width,1,1) */
    v = graph_flatten(graph, "flatten", v);
    return graph_linear(graph, "fc", v, 10, true);
}

static int build(const ModelOption *options, int n_options, Graph **ret, Error *err)
{
    const ModelEntry *self = &zoo_resnet_small;
    int64_t width = 16;
    int r = zoo_check_options(self->name, self->options, options, n_options, err);
    if (r == 0)
        r = zoo_option(self->name, "width", 1, MAX_WIDTH, options, n_options, &width, err);
    if (r < 0)
        return r;
    Graph *graph;
    r = zoo_begin(self, &graph, err);
    return r < 0 ? r : zoo_end(graph, add_nodes(graph, width), ret, err);
}
