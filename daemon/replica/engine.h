/* A job's model as compiled on one lane: its accelerator, a plan per batch size, and recycled
 * arenas.
 *
 * All replicas of a job on a lane share one engine. Everything here runs on the lane's thread, but
 * for engine_bytes, which any thread may ask. The graph is the job's and outlives the engine. */
#pragma once

#include "model/loss.h"
#include "replica/plan.h"

enum {
    ENGINE_MAX_CHANNELS = 4,
    ENGINE_MAX_PLANS = 16, /* a job has few batch sizes: its own, an epoch's last, evaluation's */
    ENGINE_MAX_IDLE = 8,   /* arenas a plan, and gradient arrays, that wait to be used again */
    ENGINE_MAX_BATCH = 16384, /* samples; activations of one sample may take megabytes */
};

typedef struct EngineSpec {
    const Graph *graph;
    const Backend *backend;
    int device_index; /* of the backend's devices */
    int threads;
    LossKind loss;
    Optimizer optimizer;
    uint64_t seed;
    float scale; /* of U8 input: (x · scale − mean[c]) / deviation[c] */
    float mean[ENGINE_MAX_CHANNELS], deviation[ENGINE_MAX_CHANNELS];
    int channels;
} EngineSpec;

typedef struct Engine Engine;

/* -ENOMEM, -EOPNOTSUPP, -EINVAL (the model does not fit the loss or has nothing to train) */
int engine_new(const EngineSpec *spec, Engine **ret, Error *err);
Engine *engine_free(Engine *engine); /* after its replicas and contexts */

const EngineSpec *engine_spec(const Engine *engine);
const Accelerator *engine_accelerator(const Engine *engine);
/* Makes the calling thread the engine's: first thing in every task. */
void engine_bind(Engine *engine);

/* The plan for a batch size, compiled at its first use. Past ENGINE_MAX_PLANS sizes the least
 * recently used one that no arena refers to goes; -ENOMEM if there is none. -EINVAL for a batch
 * that is not 1 … ENGINE_MAX_BATCH. */
int engine_plan(Engine *engine, int64_t batch, bool training, Plan **ret, Error *err);

/* An arena for the plan, recycled where one is idle. */
int engine_activations(Engine *engine, Plan *plan, Activations **ret);
void engine_recycle(Engine *engine, Plan *plan, Activations *activations);

/* A flat gradient array (graph_params_length), recycled where one is idle; its gaps are zero. */
int engine_gradients(Engine *engine, float **ret);
void engine_recycle_gradients(Engine *engine, float *gradients);

/* Device memory held: plans, arenas, gradients, weights of replicas. */
size_t engine_bytes(const Engine *engine);
/* For replicas, whose weights are part of it. */
void engine_count_bytes(Engine *engine, ptrdiff_t change);
