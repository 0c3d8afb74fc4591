#include "replica/weights.h"

#include <stdlib.h>

static int alloc_floats(const Accelerator *accelerator, size_t n, float **ret)
{
    if (n == 0)
        return 0;
    void *memory;
    int r = accelerator_alloc(accelerator, n * sizeof(float), &memory);
    if (r == 0)
        *ret = memory;
    return r;
}

int weights_new(const Accelerator *accelerator, const Graph *graph, const Optimizer *optimizer,
                Weights *ret)
{
    Weights weights = {
        .n_params = graph_params_length(graph),
        .n_buffers = graph_float_buffers_length(graph),
        .n_counters = graph_counters_length(graph),
        .n_states = optimizer_state_count(optimizer),
    };
    int r = alloc_floats(accelerator, weights.n_params, &weights.params);
    if (r == 0)
        r = alloc_floats(accelerator, weights.n_buffers, &weights.buffers);
    for (int i = 0; r == 0 && i < weights.n_states; i++)
        r = alloc_floats(accelerator, weights.n_params, &weights.states[i]);
    if (r == 0 && weights.n_counters > 0) {
        weights.counters = calloc(weights.n_counters, sizeof *weights.counters);
        r = weights.counters ? 0 : -ENOMEM;
    }
    if (r < 0) {
        weights_free(accelerator, &weights);
        return r;
    }
    *ret = weights;
    return 0;
}

void weights_free(const Accelerator *accelerator, Weights *weights)
{
    accelerator_release(accelerator, weights->params);
    accelerator_release(accelerator, weights->buffers);
    for (int i = 0; i < OPTIMIZER_MAX_STATES; i++)
        accelerator_release(accelerator, weights->states[i]);
    free(weights->counters);
    *weights = (Weights){0};
}

size_t weights_bytes(const Weights *weights)
{
    size_t arrays = 1 + (size_t)weights->n_states;
    return (arrays * weights->n_params + weights->n_buffers) * sizeof(float);
}
