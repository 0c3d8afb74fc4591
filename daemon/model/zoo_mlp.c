/* A multilayer perceptron: 784 → hidden (layers times, Relu) → 10. */
#include <stdio.h>

#include "model/zoo_build.h"

enum {
    MAX_HIDDEN = 16384,
    MAX_LAYERS = 32
}; /* of options, which a client chooses: 1 GiB a layer */

static int build(const ModelOption *options, int n_options, Graph **ret, Error *err);

const ModelEntry zoo_mlp = {
    .name = "mlp",
    .description = "fully connected layers with ReLU, for 28×28 digits",
    .options = "hidden, layers",
    .defaults =
        {
            .input = {4, {DIM_BATCH, 1, 28, 28}},
            .loss = LOSS_CROSS_ENTROPY,
            .lr = 0.1F,
            .scale = 1.0F / 255,
            .mean = {0.1307F},
            .deviation = {0.3081F},
            .channels = 1,
        },
    .build = build,
};

/* (B,1,28,28) → (B,10) */
static ValueId add_nodes(Graph *graph, int64_t hidden, int64_t layers)
{
    char name[NODE_NAME_MAX];
    ValueId v = graph_flatten(graph, "flatten", 0);
    for (int i = 1; i <= layers; i++) {
        snprintf(name, sizeof name, "fc%d", i);
        v = graph_linear(graph, name, v, hidden, true);
        snprintf(name, sizeof name, "relu%d", i);
        v = graph_relu(graph, name, v);
    }
    return graph_linear(graph, "out", v, 10, true);
}

static int build(const ModelOption *options, int n_options, Graph **ret, Error *err)
{
    const ModelEntry *self = &zoo_mlp;
    int64_t hidden = 128, layers = 1;
    int r = zoo_check_options(self->name, self->options, options, n_options, err);
    if (r == 0)
        r = zoo_option(self->name, "hidden", 1, MAX_HIDDEN, options, n_options, &hidden, err);
    if (r == 0)
        r = zoo_option(self->name, "layers", 0, MAX_LAYERS, options, n_options, &layers, err);
    if (r < 0)
        return r;
    Graph *graph;
    r = zoo_begin(self, &graph, err);
    return r < 0 ? r : zoo_end(graph, add_nodes(graph, hidden, layers), ret, err);
}
