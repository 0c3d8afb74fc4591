/* A job's model as compiled on one lane: its accelerator, a plan per batch size, and recycled
 * arenas.
 *
 * All replicas of a job on a lane share one engine. Everything here runs on the lane's thread, but
 * for engine_bytes, which any thread may ask. The graph is the job's and outlives the engine. */
#pragma once

#include "model/loss.h"
#include "replica/plan.h"

enum { ENGINE_MAX_CHANNELS = 4, ENGINE_MAX_PLANS = 16 };

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

/* -ENOMEM, -EOPNOTSUPP */
int engine_new(const EngineSpec *spec, Engine **ret, Error *err);
Engine *engine_free(Engine *engine); /* after its replicas and contexts */

const EngineSpec *engine_spec(const Engine *engine);
const Accelerator *engine_accelerator(const Engine *engine);
/* Makes the calling thread the engine's: first thing in every task. */
void engine_bind(Engine *engine);

/* The plan for a batch size, compiled at its first use. Past ENGINE_MAX_PLANS sizes the least
 * recently used one that no arena refers to goes. */
int engine_plan(Engine *engine, int64_t batch, bool training, Plan **ret, Error *err);

/* An arena for the plan, recycled where one is idle. */
int engine_activations(Engine *engine, Plan *plan, Activations **ret);
void engine_recycle(Engine *engine, Plan *plan, Activations *activations);

/* Device memory held: plans, arenas, weights of replicas. */
size_t engine_bytes(const Engine *engine);
