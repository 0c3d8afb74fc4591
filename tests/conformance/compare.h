/* One graph on a backend and on the reference, from the same numbers. */
#pragma once

#include "harness.h"

/* What a run, by whatever means, has come to; memory of the run. */
typedef struct Results {
    const char *backend;
    const float *output, *buffers, *param_gradients;
    const float *input_gradient; /* NULL: not computed */
    const int64_t *counters;
} Results;

/* Against a run of the reference in the harness, filled with seed COMPARE_SEED. */
enum { COMPARE_SEED = 42 };
bool results_agree(const char *name, const Graph *graph, int64_t batch, bool training,
                   const Results *got, double tolerance);

/* Both run in the harness. Compares output, buffers, counters and, in training, the gradients of
 * the input and of every parameter. Prints what differs, with name, backend and parameter. */
bool graph_agrees(const char *name, const Backend *backend, const Graph *graph, int64_t batch,
                  bool training, double tolerance);
