/* A tiny problem for the tests of replicas: 1×6×6 pictures of three kinds that a small residual net
 * with every sort of memory (fused Relu, shared values, BatchNorm, dropout) can learn. */
#pragma once

#include "replica/mean.h"
#include "replica/snapshot.h"

enum { FIXTURE_WIDTH = 36, FIXTURE_CLASSES = 3, FIXTURE_BATCH = 6 };

typedef struct Fixture {
    Graph *graph;
    Engine *engine;
    Replica *replica;
    float x[2 * FIXTURE_BATCH * FIXTURE_WIDTH];
    int64_t y[2 * FIXTURE_BATCH];
    Batch batch;
} Fixture;

Graph *fixture_graph(void);
/* A job's engine on backend `ref`. optimizer: "sgd" … The engine's loss is nll. */
void fixture_engine(const Graph *graph, const char *optimizer, Engine **ret);
void fixture_start(Fixture *fixture, const char *optimizer);
void fixture_stop(Fixture *fixture);

/* The same pictures for the same number. */
void fixture_fill(Fixture *fixture, int number);
float fixture_train(Fixture *fixture, Replica *replica, uint64_t step);

/* Gradient of the mean NLL with respect to log-probabilities (samples, FIXTURE_CLASSES). */
void fixture_nll_gradient(const int64_t *y, int64_t samples, float *gradient);

Snapshot *fixture_snapshot(const Fixture *fixture, Replica *replica);
void fixture_assert_same(const Snapshot *a, const Snapshot *b);
