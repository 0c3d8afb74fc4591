#include "replica/engine.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cleanup.h"

/* A compiled plan and its arenas that wait to be used again. */
typedef struct PlanEntry {
    Plan *plan; /* NULL: free */
    bool training;
    uint64_t used; /* when, by the engine's count of uses */
    int under_way; /* arenas handed out */
    Activations *idle[ENGINE_MAX_IDLE];
    int n_idle;
} PlanEntry;

struct Engine {
    EngineSpec spec;
    Accelerator accelerator;
    PlanEntry plans[ENGINE_MAX_PLANS];
    uint64_t uses;
    float *idle_gradients[ENGINE_MAX_IDLE];
    int n_idle_gradients;
    atomic_size_t bytes;
};

static int check_spec(const EngineSpec *spec, Error *err)
{
    const Shape *output = graph_value_shape(spec->graph, graph_output(spec->graph));
    if (graph_params_length(spec->graph) == 0)
        return error_set(err, -EINVAL, "the model has no parameters to train");
    if (spec->channels < 0 || spec->channels > ENGINE_MAX_CHANNELS)
        return error_set(err, -EINVAL, "U8 input can have at most %d channels, not %d",
                         ENGINE_MAX_CHANNELS, spec->channels);
    if (loss_takes_classes(spec->loss) && output->ndim != 2) {
        char text[128];
        return error_set(err, -EINVAL, "loss %s takes (B, classes), but the model's output is %s",
                         loss_name(spec->loss), shape_format(output, text, sizeof text));
    }
    return 0;
}

int engine_new(const EngineSpec *spec, Engine **ret, Error *err)
{
    int r = check_spec(spec, err);
    if (r < 0)
        return r;
    Engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return error_set(err, -ENOMEM, "out of memory for an engine");
    engine->spec = *spec;
    r = accelerator_open(spec->backend, spec->device_index, spec->threads, &engine->accelerator,
                         err);
    if (r < 0) {
        free(engine);
        return r;
    }
    *ret = engine;
    return 0;
}

static void free_plan(Engine *engine, PlanEntry *entry)
{
    while (entry->n_idle > 0) {
        Activations *activations = entry->idle[--entry->n_idle];
        engine_count_bytes(engine, -(ptrdiff_t)activations_bytes(activations));
        activations_free(activations);
    }
    if (entry->plan)
        engine_count_bytes(engine, -(ptrdiff_t)plan_bytes(entry->plan));
    plan_free(entry->plan);
    *entry = (PlanEntry){0};
}

Engine *engine_free(Engine *engine)
{
    if (!engine)
        return NULL;
    for (int i = 0; i < ENGINE_MAX_PLANS; i++)
        free_plan(engine, &engine->plans[i]);
    for (int i = 0; i < engine->n_idle_gradients; i++)
        accelerator_release(&engine->accelerator, engine->idle_gradients[i]);
    accelerator_close(&engine->accelerator);
    free(engine);
    return NULL;
}

const EngineSpec *engine_spec(const Engine *engine)
{
    return &engine->spec;
}

const Accelerator *engine_accelerator(const Engine *engine)
{
    return &engine->accelerator;
}

void engine_bind(Engine *engine)
{
    accelerator_bind(&engine->accelerator);
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* A free entry, or the least recently used one that no arena refers to; NULL if all are in use. */
static PlanEntry *find_victim(Engine *engine)
{
    PlanEntry *best = NULL;
    for (int i = 0; i < ENGINE_MAX_PLANS; i++) {
        PlanEntry *entry = &engine->plans[i];
        if (!entry->plan)
            return entry;
        if (entry->under_way == 0 && (!best || entry->used < best->used))
            best = entry;
    }
    return best;
}

static int add_plan(Engine *engine, int64_t batch, bool training, PlanEntry **ret, Error *err)
{
    if (batch < 1 || batch > ENGINE_MAX_BATCH)
        return error_set(err, -EINVAL, "a batch must have 1 to %d samples, not %" PRId64,
                         ENGINE_MAX_BATCH, batch);
    PlanEntry *entry = find_victim(engine);
    if (!entry)
        return error_set(err, -ENOMEM,
                         "contexts of %d batch sizes are open; step or discard some before one of "
                         "%" PRId64 " samples",
                         ENGINE_MAX_PLANS, batch);
    Plan *plan;
    int r = plan_new(&engine->accelerator, engine->spec.graph, batch, training, &plan, err);
    if (r < 0)
        return r;
    free_plan(engine, entry);
    *entry = (PlanEntry){.plan = plan, .training = training};
    engine_count_bytes(engine, (ptrdiff_t)plan_bytes(plan));
    *ret = entry;
    return 0;
}

int engine_plan(Engine *engine, int64_t batch, bool training, Plan **ret, Error *err)
{
    PlanEntry *found = NULL;
    for (int i = 0; i < ENGINE_MAX_PLANS && !found; i++) {
        PlanEntry *entry = &engine->plans[i];
        if (entry->plan && entry->training == training && plan_batch(entry->plan) == batch)
            found = entry;
    }
    if (!found) {
        int r = add_plan(engine, batch, training, &found, err);
        if (r < 0)
            return r;
    }
    found->used = ++engine->uses;
    *ret = found->plan;
    return 0;
}

static PlanEntry *entry_of(Engine *engine, const Plan *plan)
{
    PlanEntry *entry = engine->plans;
    while (entry->plan != plan)
        entry++;
    return entry;
}

/* ---- arenas ---------------------------------------------------------------------------------- */

int engine_activations(Engine *engine, Plan *plan, Activations **ret)
{
    PlanEntry *entry = entry_of(engine, plan);
    if (entry->n_idle > 0) {
        *ret = entry->idle[--entry->n_idle];
    } else {
        int r = activations_new(plan, ret);
        if (r < 0)
            return r;
        engine_count_bytes(engine, (ptrdiff_t)activations_bytes(*ret));
    }
    entry->under_way++;
    return 0;
}

void engine_recycle(Engine *engine, Plan *plan, Activations *activations)
{
    PlanEntry *entry = entry_of(engine, plan);
    entry->under_way--;
    if (entry->n_idle < ENGINE_MAX_IDLE) {
        entry->idle[entry->n_idle++] = activations;
        return;
    }
    engine_count_bytes(engine, -(ptrdiff_t)activations_bytes(activations));
    activations_free(activations);
}

static size_t gradients_bytes(const Engine *engine)
{
    return graph_params_length(engine->spec.graph) * sizeof(float);
}

int engine_gradients(Engine *engine, float **ret)
{
    if (engine->n_idle_gradients > 0) {
        *ret = engine->idle_gradients[--engine->n_idle_gradients];
        return 0;
    }
    void *memory;
    int r = accelerator_alloc(&engine->accelerator, gradients_bytes(engine), &memory);
    if (r < 0)
        return r;
    engine_count_bytes(engine, (ptrdiff_t)gradients_bytes(engine));
    *ret = memory;
    return 0;
}

void engine_recycle_gradients(Engine *engine, float *gradients)
{
    if (engine->n_idle_gradients < ENGINE_MAX_IDLE) {
        engine->idle_gradients[engine->n_idle_gradients++] = gradients;
        return;
    }
    accelerator_release(&engine->accelerator, gradients);
    engine_count_bytes(engine, -(ptrdiff_t)gradients_bytes(engine));
}

size_t engine_bytes(const Engine *engine)
{
    return atomic_load_explicit(&engine->bytes, memory_order_relaxed);
}

void engine_count_bytes(Engine *engine, ptrdiff_t change)
{
    atomic_fetch_add_explicit(&engine->bytes, (size_t)change, memory_order_relaxed);
}
