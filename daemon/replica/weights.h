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

enum { WEIGHTS_PARAMS = 1, WEIGHTS_BUFFERS = 2 /* and counters */, WEIGHTS_STATES = 4 };

/* Zeroed. -ENOMEM */
int weights_new(const Accelerator *accelerator, const Graph *graph, const Optimizer *optimizer,
                Weights *ret);
/* Only the parts named; what is left out has length 0, but for params, whose array is NULL. */
int weights_new_parts(const Accelerator *accelerator, const Graph *graph, unsigned parts,
                      int n_states, Weights *ret);
/* Writes the seed's initial weights into the parts that are there. -ENOMEM, -EIO */
int weights_initialise(const Accelerator *accelerator, const Graph *graph, uint64_t seed,
                       Weights *weights);
/* Optimizer state afresh: zero, and no updates. -EIO */
int weights_reset_states(const Accelerator *accelerator, Weights *weights);
void weights_free(const Accelerator *accelerator, Weights *weights);
/* Bytes of device memory. */
size_t weights_bytes(const Weights *weights);
