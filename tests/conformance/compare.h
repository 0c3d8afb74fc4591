/* One graph on a backend and on the reference, from the same numbers. */
#pragma once

#include "harness.h"

/* Compares output, buffers, counters and, in training, the gradients of the input and of every
 * parameter. Prints what differs, with name, backend and parameter. */
bool graph_agrees(const char *name, const Backend *backend, const Graph *graph, int64_t batch,
                  bool training, double tolerance);
