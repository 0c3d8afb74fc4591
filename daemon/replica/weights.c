#include "replica/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/init.h"

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
    return weights_new_parts(accelerator, graph, WEIGHTS_PARAMS | WEIGHTS_BUFFERS,
                             optimizer_state_count(optimizer), ret);
}

int weights_new_parts(const Accelerator *accelerator, const Graph *graph, unsigned parts,
                      int n_states, Weights *ret)
{
    Weights weights = {.n_params = graph_params_length(graph), .n_states = n_states};
    if (parts & WEIGHTS_BUFFERS) {
        weights.n_buffers = graph_float_buffers_length(graph);
        weights.n_counters = graph_counters_length(graph);
    }
    int r = 0;
    if (parts & WEIGHTS_PARAMS)
        r = alloc_floats(accelerator, weights.n_params, &weights.params);
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
    size_t arrays = (weights->params ? 1 : 0) + (size_t)weights->n_states;
    return (arrays * weights->n_params + weights->n_buffers) * sizeof(float);
}

int weights_initialise(const Accelerator *accelerator, const Graph *graph, uint64_t seed,
                       Weights *weights)
{
    size_t n_params = graph_params_length(graph), n_buffers = graph_float_buffers_length(graph);
    size_t n_counters = graph_counters_length(graph);
    _cleanup_free_ float *params = malloc(n_params * sizeof *params + 1);
    _cleanup_free_ float *buffers = malloc(n_buffers * sizeof *buffers + 1);
    _cleanup_free_ int64_t *counters = malloc(n_counters * sizeof *counters + 1);
    if (!params || !buffers || !counters)
        return -ENOMEM;
    init_weights(graph, seed, params, buffers, counters);
    int r = 0;
    if (weights->params)
        r = accelerator_write(accelerator, params, weights->params, n_params * sizeof *params);
    if (r == 0)
        r = accelerator_write(accelerator, buffers, weights->buffers,
                              weights->n_buffers * sizeof *buffers);
    if (r == 0 && weights->n_counters > 0)
        memcpy(weights->counters, counters, weights->n_counters * sizeof *counters);
    return r;
}

int weights_reset_states(const Accelerator *accelerator, Weights *weights)
{
    for (int i = 0; i < weights->n_states; i++) {
        int r =
            accelerator_zero(accelerator, weights->states[i], weights->n_params * sizeof(float));
        if (r < 0)
            return r;
    }
    weights->updates = 0;
    return 0;
}
