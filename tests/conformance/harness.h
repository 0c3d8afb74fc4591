/* Runs whole graphs on one backend in the plainest way: a buffer and a gradient for every value,
 * nothing shared, everything that a kernel is to write filled with NaN first. Slow and simple, so
 * that a difference between two backends is a difference between their kernels.
 *
 * Gradients of the graph's input are computed as well, which training itself never asks for. */
#pragma once

#include "backend/backend.h"
#include "base/cleanup.h"

typedef struct Array {
    float *data;
    size_t n;
} Array;

typedef struct RunNode RunNode;

/* Arrays are host memory, plain layout. The caller fills input, params, buffers (run_fill does) and
 * output_gradient; run_forward and run_backward fill the rest and move the buffers. */
typedef struct Run {
    const Graph *graph;
    int64_t batch;
    bool training;
    RngKey rng;
    Accelerator accelerator;
    Array input, params, buffers, output;
    Array output_gradient, input_gradient, param_gradients;
    int64_t *counters;
    /* private */
    RunNode *nodes;
    Layout *input_layout;
    const Layout **layouts;            /* by value */
    size_t *value_bytes;               /* by value */
    void **values, **gradients, *part; /* by value; part: one node's share of a gradient */
    float *device_params, *device_buffers, *device_gradients;
    size_t part_bytes;
} Run;

int run_new(const Backend *backend, const Graph *graph, int64_t batch, bool training, Run **ret,
            Error *err);
Run *run_free(Run *run);
DEFINE_CLEANUP(Run, run_free);
#define _cleanup_run_ _cleanup_(run_freep)

/* The same numbers for the same seed on every backend; running variances are positive. */
void run_fill(Run *run, uint64_t seed);
int run_forward(Run *run);
int run_backward(Run *run);

DEFINE_CLEANUP(Graph, graph_free);
#define _cleanup_graph_ _cleanup_(graph_freep)

/* Numbers that both sides of a comparison can make: words of a stream of the seed. */
enum { RNG_TEST = 0x54455354 };
void fill_words(uint32_t *to, size_t n, uint64_t seed, uint32_t stream);
/* Uniform in [-1, 1). */
void fill_uniform(float *to, size_t n, uint64_t seed, uint32_t stream);
/* Multiples of 1/32 in [-1, 1]: products and short sums of them are exact in float32, so that no
 * backend's rounding decides which side of zero a value falls, and equal maxima do occur. */
void fill_grid(float *to, size_t n, uint64_t seed, uint32_t stream);

/* Whether no element is further from `want` than tolerance · (largest |want|). Prints the case and
 * the worst element if one is. NaN agrees with NaN only. */
bool arrays_agree(const char *what, const float *got, const float *want, size_t n,
                  double tolerance);
