#include "replica/shared.h"

#include <inttypes.h>
#include <stdlib.h>

#include "replica/checksum.h"
#include "replica/combine.h"
#include "replica/replica_internal.h"
#include "replica/shared_internal.h"
#include "replica/snapshot_internal.h"

/* Versions that wait to be used again; more are freed, one an update. */
enum { MAX_SPARES = 4 };

enum { SHARED_PARTS = WEIGHTS_PARAMS | WEIGHTS_STATES };

struct SharedParams {
    Engine *home;
    /* the loop's */
    SharedVersion *current;
    SharedVersion *spares;
    int n_spares, n_versions;
    bool updating, in_place;
    /* the update's, on its lane */
    Weights
        weights; /* states and updates; params are the current version's while they are needed */
    float *mean; /* of several gradients, or a clipped one */
};

static size_t params_bytes(const Engine *engine)
{
    return graph_params_length(engine_spec(engine)->graph) * sizeof(float);
}

/* ---- versions, on a lane --------------------------------------------------------------------- */

static int alloc_array(Engine *engine, float **ret)
{
    void *memory;
    int r = accelerator_alloc(engine_accelerator(engine), params_bytes(engine), &memory);
    if (r < 0)
        return r;
    engine_count_bytes(engine, (ptrdiff_t)params_bytes(engine));
    *ret = memory;
    return 0;
}

static void release_array(Engine *engine, float *array)
{
    if (!array)
        return;
    accelerator_release(engine_accelerator(engine), array);
    engine_count_bytes(engine, -(ptrdiff_t)params_bytes(engine));
}

static void version_free(SharedVersion *version)
{
    if (!version)
        return;
    release_array(version->engine, version->params);
    free(version);
}

static int version_new(Engine *engine, SharedVersion **ret)
{
    SharedVersion *version = calloc(1, sizeof *version);
    if (!version)
        return -ENOMEM;
    version->engine = engine;
    int r = alloc_array(engine, &version->params);
    if (r < 0) {
        version_free(version);
        return r;
    }
    *ret = version;
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int fill_new(SharedParams *shared)
{
    const EngineSpec *spec = engine_spec(shared->home);
    const Accelerator *accelerator = engine_accelerator(shared->home);
    int r = version_new(shared->home, &shared->current);
    if (r == 0)
        r = alloc_array(shared->home, &shared->mean);
    if (r == 0)
        r = weights_new_parts(accelerator, spec->graph, 0, optimizer_state_count(&spec->optimizer),
                              &shared->weights);
    if (r < 0)
        return r;
    engine_count_bytes(shared->home, (ptrdiff_t)weights_bytes(&shared->weights));
    shared->current->holds = 1;
    shared->n_versions = 1;
    Weights weights = {.params = shared->current->params, .n_params = shared->weights.n_params};
    return weights_initialise(accelerator, spec->graph, spec->seed, &weights);
}

int shared_params_new(Engine *home, SharedParams **ret, Error *err)
{
    SharedParams *shared = calloc(1, sizeof *shared);
    if (!shared)
        return error_set(err, -ENOMEM, "not enough memory for shared parameters");
    shared->home = home;
    int r = fill_new(shared);
    if (r < 0) {
        shared_params_free(shared);
        return error_set(err, r,
                         r == -ENOMEM ? "not enough memory for shared parameters"
                                      : "the device failed to take the shared parameters");
    }
    *ret = shared;
    return 0;
}

SharedParams *shared_params_free(SharedParams *shared)
{
    if (!shared)
        return NULL;
    while (shared->spares) {
        SharedVersion *version = shared->spares;
        shared->spares = version->next;
        version_free(version);
    }
    version_free(shared->current);
    release_array(shared->home, shared->mean);
    engine_count_bytes(shared->home, -(ptrdiff_t)weights_bytes(&shared->weights));
    weights_free(engine_accelerator(shared->home), &shared->weights);
    free(shared);
    return NULL;
}

/* ---- loop thread ----------------------------------------------------------------------------- */

uint64_t shared_params_version(const SharedParams *shared)
{
    return shared->current->number;
}

uint64_t shared_version_number(const SharedVersion *version)
{
    return version->number;
}

int shared_params_versions(const SharedParams *shared)
{
    return shared->n_versions;
}

SharedVersion *shared_params_pin(SharedParams *shared)
{
    if (shared->updating && shared->in_place)
        return NULL;
    shared->current->holds++;
    return shared->current;
}

void shared_version_hold(SharedVersion *version)
{
    version->holds++;
}

static void put_spare(SharedParams *shared, SharedVersion *version)
{
    version->next = shared->spares;
    shared->spares = version;
    shared->n_spares++;
}

void shared_params_unpin(SharedParams *shared, SharedVersion *version)
{
    if (version && --version->holds == 0)
        put_spare(shared, version);
}

int shared_params_check(const SharedParams *shared, uint64_t number, uint64_t max_staleness,
                        Error *err)
{
    uint64_t now = shared_params_version(shared);
    if (number <= now && now - number <= max_staleness)
        return 0;
    return error_set(err, -ESTALE,
                     "%s is at version %" PRIu64 "; this gradient was computed at version %" PRIu64
                     " (max_staleness %" PRIu64 ")",
                     graph_param(engine_spec(shared->home)->graph, 0)->name, now, number,
                     max_staleness);
}

/* Takes a spare version off the list: any, or with `of` the first that this engine allocated. */
static SharedVersion *take_spare(SharedParams *shared, const Engine *of)
{
    SharedVersion **at = &shared->spares;
    while (*at && of && (*at)->engine != of)
        at = &(*at)->next;
    SharedVersion *version = *at;
    if (version) {
        *at = version->next;
        shared->n_spares--;
    }
    return version;
}

int shared_params_prepare_update(SharedParams *shared, Engine *on, bool may_wait, SharedUpdate *ret)
{
    if (shared->updating)
        return -EBUSY;
    SharedUpdate update = {.shared = shared, .on = on};
    update.in_place = may_wait && shared->current->holds == 1;
    if (!update.in_place)
        update.to = take_spare(shared, NULL);
    if (shared->n_spares > MAX_SPARES)
        update.surplus = take_spare(shared, on);
    shared->updating = true;
    shared->in_place = update.in_place;
    *ret = update;
    return 0;
}

static void replace_current(SharedParams *shared, SharedVersion *to)
{
    SharedVersion *old = shared->current;
    to->number = old->number + 1;
    to->holds = 1;
    shared->current = to;
    shared_params_unpin(shared, old);
}

void shared_params_publish(SharedUpdate *update)
{
    SharedParams *shared = update->shared;
    shared->updating = false;
    shared->n_versions += update->made - update->freed;
    if (update->applied && update->in_place)
        shared->current->number++;
    else if (update->applied)
        replace_current(shared, update->to);
    else if (update->to)
        put_spare(shared, update->to);
    if (update->surplus)
        put_spare(shared, update->surplus);
    *update = (SharedUpdate){0};
}

/* ---- the update, on a lane ------------------------------------------------------------------- */

int gradients_mean(const Engine *engine, const float *const *gradients, const uint64_t *samples,
                   int count, float *to)
{
    float shares[MEAN_MAX_REPLICAS];
    if (count < 1 || count > MEAN_MAX_REPLICAS)
        return -EINVAL;
    bool weighted = combine_shares(samples, NULL, count, shares);
    return combine_arrays(engine_accelerator(engine), gradients, weighted ? shares : NULL, count,
                          to, graph_params_length(engine_spec(engine)->graph));
}

/* The gradients that are fit to be used, in their order. */
typedef struct Chosen {
    const float *gradients[MEAN_MAX_REPLICAS];
    uint64_t samples[MEAN_MAX_REPLICAS];
} Chosen;

static int judge_one(const Accelerator *accelerator, const float *gradients, size_t n,
                     const StepRule *rule, StepVerdict *verdict, double *norm)
{
    bool finite = false;
    if (rule->want_norm || rule->norm_limit > 0)
        return gradient_judge(accelerator, gradients, n, rule, verdict, norm);
    int r = accelerator_all_finite(accelerator, gradients, n, &finite);
    *verdict = finite ? STEP_APPLIED : STEP_NOT_FINITE;
    return r;
}

static int choose(const SharedUpdate *update, const SharedGradient *gradients, int count,
                  const StepRule *rule, Chosen *chosen, SharedResult *result)
{
    const Accelerator *accelerator = engine_accelerator(update->on);
    for (int i = 0; i < count; i++) {
        StepRule own = *rule;
        if (gradients[i].norm_limit > 0)
            own.norm_limit = gradients[i].norm_limit;
        int r = judge_one(accelerator, gradients[i].gradients, update->shared->weights.n_params,
                          &own, &result->verdicts[i], &result->norms[i]);
        if (r < 0)
            return r;
        if (result->verdicts[i] != STEP_APPLIED)
            continue;
        chosen->gradients[result->contributors] = gradients[i].gradients;
        chosen->samples[result->contributors++] = gradients[i].samples;
    }
    return 0;
}

/* The gradient of the step: the only one, or the mean of several, clipped. Members' arrays are only
 * read. */
static int prepare_gradient(const SharedUpdate *update, const Chosen *chosen, const StepRule *rule,
                            SharedResult *result, const float **ret)
{
    const Accelerator *accelerator = engine_accelerator(update->on);
    size_t n = update->shared->weights.n_params;
    float *mean = update->shared->mean;
    const float *gradient = chosen->gradients[0];
    bool scaled = false;
    int r = 0;
    if (result->contributors > 1) {
        r = gradients_mean(update->on, chosen->gradients, chosen->samples, result->contributors,
                           mean);
        gradient = mean;
    }
    if (r == 0 && (rule->want_norm || rule->clip_norm > 0)) {
        StepVerdict unused;
        r = gradient_judge(accelerator, gradient, n, rule, &unused, &result->norm);
        if (r == 0)
            r = gradient_clip(accelerator, gradient, mean, n, result->norm, rule->clip_norm,
                              &scaled);
    }
    *ret = scaled ? mean : gradient;
    return r;
}

/* Where the step is to be taken: the current version itself, or a copy of it. */
static int prepare_target(SharedUpdate *update, float **ret)
{
    const SharedVersion *current = update->shared->current;
    if (update->in_place) {
        *ret = current->params;
        return 0;
    }
    if (!update->to) {
        int r = version_new(update->on, &update->to);
        if (r < 0)
            return r;
        update->made++;
    }
    *ret = update->to->params;
    return combine_copy(engine_accelerator(update->on), current->params, update->to->params,
                        update->shared->weights.n_params);
}

static int apply(SharedUpdate *update, const float *gradient, float lr)
{
    Weights *weights = &update->shared->weights;
    Optimizer optimizer = engine_spec(update->on)->optimizer;
    optimizer.lr = lr;
    float *params;
    int r = prepare_target(update, &params);
    if (r == 0)
        r = accelerator_optimizer_step(engine_accelerator(update->on), &optimizer,
                                       weights->updates + 1, params, gradient, weights->states,
                                       weights->n_params);
    if (r < 0)
        return r;
    weights->updates++;
    update->applied = true;
    return 0;
}

static void drop_surplus(SharedUpdate *update)
{
    update->freed += update->surplus != NULL;
    version_free(update->surplus);
    update->surplus = NULL;
}

int shared_params_update(SharedUpdate *update, const SharedGradient *gradients, int count,
                         const StepRule *rule, SharedResult *ret, Error *err)
{
    SharedResult result = {0};
    Chosen chosen = {0};
    const float *gradient = NULL;
    if (count < 1 || count > MEAN_MAX_REPLICAS)
        return error_set(err, -EINVAL, "a step is made of 1 to %d gradients, not %d",
                         MEAN_MAX_REPLICAS, count);
    drop_surplus(update);
    int r = choose(update, gradients, count, rule, &chosen, &result);
    if (r == 0 && result.contributors > 0) {
        r = prepare_gradient(update, &chosen, rule, &result, &gradient);
        if (r == 0)
            r = apply(update, gradient, rule->lr);
    }
    if (r < 0)
        return error_set(err, r,
                         r == -ENOMEM ? "not enough memory for one more version of the parameters"
                                      : "the device failed in a step of the shared parameters");
    *ret = result;
    return 0;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

int shared_version_checksum(const SharedParams *shared, const SharedVersion *version, uint64_t *ret)
{
    return checksum_params(engine_spec(shared->home)->graph, engine_accelerator(version->engine),
                           version->params, ret);
}

int shared_snapshot_new(const Graph *graph, const Optimizer *optimizer, Snapshot **ret)
{
    return snapshot_new_parts(graph, WEIGHTS_PARAMS, optimizer_state_count(optimizer), ret);
}

/* Parameters and states as one Weights, for the time of a copy. */
static Weights whole(const SharedParams *shared)
{
    Weights weights = shared->weights;
    weights.params = shared->current->params;
    weights.version = shared->current->number;
    return weights;
}

int shared_params_snapshot(SharedParams *shared, Snapshot *into)
{
    Weights weights = whole(shared);
    return weights_to_snapshot(engine_accelerator(shared->home), &weights, SHARED_PARTS, into);
}

int shared_params_restore(SharedParams *shared, const Snapshot *from)
{
    if (shared->updating || shared->current->holds > 1)
        return -EINVAL;
    Weights weights = whole(shared);
    int r = weights_from_snapshot(engine_accelerator(shared->home), &weights, SHARED_PARTS, from);
    shared->weights.updates = weights.updates;
    shared->current->number = weights.version;
    return r;
}
