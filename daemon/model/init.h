/* Default initialisation as PyTorch's modules do it: Conv2d and Linear weights and biases uniform
 * in ±1/sqrt(fan_in) (kaiming_uniform with a = sqrt(5)); BatchNorm weight 1, bias 0, running
 * variance 1. */
#pragma once

#include "model/graph.h"

/* Fills the three flat arrays (lengths as graph_*_length) for a seed. Any thread. */
void init_weights(const Graph *graph, uint64_t seed, float *params, float *float_buffers,
                  int64_t *counters);
