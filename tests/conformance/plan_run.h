/* One graph with its weights on a backend, run the way dpsd runs it: through a Plan. */
#pragma once

#include "harness.h"
#include "replica/plan.h"

typedef struct PlanRun {
    Accelerator accelerator;
    const Graph *graph;
    Plan *plan;
    Activations *activations;
    Weights weights;
    RngKey rng;
} PlanRun;

/* Fails the running test with the sentence of whatever goes wrong. */
void plan_run_open(PlanRun *run, const Backend *backend, const Graph *graph, int64_t batch,
                   bool training);
void plan_run_close(PlanRun *run);

/* From host memory (plain, whole flat arrays), and back. */
void plan_run_write(const PlanRun *run, void *to, const float *host, size_t n);
void plan_run_read(const PlanRun *run, const void *from, float *host, size_t n);
