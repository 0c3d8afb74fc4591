/* The numbers of one replica: parameters, buffers, optimizer state, as flat arrays on its device.
 *
 * Lane thread of the device while a task runs; nobody else's. */
#pragma once

#include "backend/backend.h"

typedef struct Weights {
    float *params;                       /* graph_params_length */
    float *buffers;                      /* graph_float_buffers_length */
    float *states[OPTIMIZER_MAX_STATES]; /* graph_params_length each */
    int64_t *counters;                   /* graph_counters_length, host memory */
    size_t n_params, n_buffers, n_counters;
    int n_states;
    uint64_t version; /* grows by one with every change of the parameters */
    uint64_t updates; /* optimizer steps taken: t of Adam's bias correction */
} Weights;

int weights_new(const Accelerator *accelerator, const Graph *graph, const Optimizer *optimizer,
                Weights *ret);
void weights_free(const Accelerator *accelerator, Weights *weights);
/* Bytes of device memory. */
size_t weights_bytes(const Weights *weights);
