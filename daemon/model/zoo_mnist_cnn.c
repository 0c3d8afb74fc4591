/* The net of PyTorch's RPC parameter-server example, layer for layer: its Dropout2d on the
 * (B, 128) value and the missing Relu after conv2 included. */
#include "model/zoo_build.h"

static int build(const ModelOption *options, int n_options, Graph **ret, Error *err);

const ModelEntry zoo_mnist_cnn = {
    .name = "mnist-cnn",
    .description = "the convolutional net of PyTorch's parameter-server example, for 28×28 digits",
    .options = "dropout",
    .defaults =
        {
            .input = {4, {DIM_BATCH, 1, 28, 28}},
            .loss = LOSS_NLL,
            .lr = 0.03F,
            .scale = 1.0F / 255,
            .mean = {0.1307F},
            .deviation = {0.3081F},
            .channels = 1,
        },
    .build = build,
};

static const ConvAttrs conv1 = {32, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, true};
static const ConvAttrs conv2 = {64, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, true};
static const PoolAttrs pool = {{2, 2}, {2, 2}, {0, 0}, false};

/* (B,1,28,28) → (B,10). With dropout=0 the nodes stay and drop nothing, so that their indices, and
 * with them every random stream, are the same. */
static ValueId add_nodes(Graph *graph, bool dropout)
{
    ValueId v = graph_conv2d(graph, "conv1", 0, &conv1); /* (B,32,26,26) */
    v = graph_relu(graph, "relu1", v);
    v = graph_conv2d(graph, "conv2", v, &conv2);  /* (B,64,24,24) */
    v = graph_maxpool2d(graph, "pool", v, &pool); /* (B,64,12,12) */
    v = graph_dropout2d(graph, "dropout1", v, dropout ? 0.25F : 0);
    v = graph_flatten(graph, "flatten", v);       /* (B,9216) */
    v = graph_linear(graph, "fc1", v, 128, true); /* (B,128) */
    v = graph_relu(graph, "relu2", v);
    v = graph_dropout2d(graph, "dropout2", v, dropout ? 0.5F : 0);
    v = graph_linear(graph, "fc2", v, 10, true); /* (B,10) */
    return graph_logsoftmax(graph, "log_softmax", v);
}

static int build(const ModelOption *options, int n_options, Graph **ret, Error *err)
{
    const ModelEntry *self = &zoo_mnist_cnn;
    int64_t dropout = 1;
    int r = zoo_check_options(self->name, self->options, options, n_options, err);
    if (r == 0)
        r = zoo_option(self->name, "dropout", 0, 1, options, n_options, &dropout, err);
    if (r < 0)
        return r;
    Graph *graph;
    r = zoo_begin(self, &graph, err);
    return r < 0 ? r : zoo_end(graph, add_nodes(graph, dropout), ret, err);
}
