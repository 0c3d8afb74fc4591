#include "replica/centre.h"

#include <stdlib.h>
#include <string.h>

#include "replica/checksum.h"
#include "replica/combine.h"
#include "replica/replica_internal.h"
#include "replica/snapshot_internal.h"

struct Centre {
    Engine *engine;
    Weights weights;   /* states[0]: the momentum, where it has one */
    float *scratch[2]; /* COMBINE_BLOCK each */
};

enum { CENTRE_PARTS = WEIGHTS_PARAMS | WEIGHTS_BUFFERS | WEIGHTS_STATES };

static size_t scratch_bytes(const Centre *centre)
{
    size_t arrays = (centre->scratch[0] != NULL) + (centre->scratch[1] != NULL);
    return arrays * COMBINE_BLOCK * sizeof(float);
}

static int fill_new(Centre *centre, bool momentum)
{
    const EngineSpec *spec = engine_spec(centre->engine);
    const Accelerator *accelerator = engine_accelerator(centre->engine);
    int r = weights_new_parts(accelerator, spec->graph, WEIGHTS_PARAMS | WEIGHTS_BUFFERS, momentum,
                              &centre->weights);
    for (int i = 0; r == 0 && i < 2; i++) {
        void *memory;
        r = accelerator_alloc(accelerator, COMBINE_BLOCK * sizeof(float), &memory);
        if (r == 0)
            centre->scratch[i] = memory;
    }
    if (r == 0)
        r = weights_initialise(accelerator, spec->graph, spec->seed, &centre->weights);
    engine_count_bytes(centre->engine,
                       (ptrdiff_t)(weights_bytes(&centre->weights) + scratch_bytes(centre)));
    return r;
}

int centre_new(Engine *engine, bool momentum, Centre **ret, Error *err)
{
    Centre *centre = calloc(1, sizeof *centre);
    if (!centre)
        return error_set(err, -ENOMEM, "not enough memory for the centre");
    centre->engine = engine;
    int r = fill_new(centre, momentum);
    if (r < 0) {
        centre_free(centre);
        return error_set(err, r,
                         r == -ENOMEM ? "not enough memory for the centre"
                                      : "the device failed to take the centre's weights");
    }
    *ret = centre;
    return 0;
}

Centre *centre_free(Centre *centre)
{
    if (!centre)
        return NULL;
    const Accelerator *accelerator = engine_accelerator(centre->engine);
    engine_count_bytes(centre->engine,
                       -(ptrdiff_t)(weights_bytes(&centre->weights) + scratch_bytes(centre)));
    weights_free(accelerator, &centre->weights);
    accelerator_release(accelerator, centre->scratch[0]);
    accelerator_release(accelerator, centre->scratch[1]);
    free(centre);
    return NULL;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static bool same_model(const Weights *a, const Weights *b)
{
    return a->params && b->params && a->n_params == b->n_params && a->n_buffers == b->n_buffers &&
           a->n_counters == b->n_counters;
}

static void copy_counters(const Weights *from, Weights *to)
{
    if (from->n_counters > 0)
        memcpy(to->counters, from->counters, from->n_counters * sizeof *from->counters);
}

static int copy_buffers(const Accelerator *accelerator, const Weights *from, Weights *to)
{
    copy_counters(from, to);
    if (from->n_buffers == 0)
        return 0;
    return combine_copy(accelerator, from->buffers, to->buffers, from->n_buffers);
}

/* The whole model, and no momentum of any kind. */
static int copy_model(const Accelerator *accelerator, const Weights *from, Weights *to)
{
    int r = combine_copy(accelerator, from->params, to->params, from->n_params);
    if (r == 0)
        r = copy_buffers(accelerator, from, to);
    if (r == 0)
        r = weights_reset_states(accelerator, to);
    to->version++;
    return r;
}

int centre_set(Centre *centre, Replica *replica, Error *err)
{
    const Weights *from = replica_weights(replica);
    if (!same_model(from, &centre->weights))
        return error_set(err, -EINVAL, "the centre and replica %d are of different models",
                         replica_rank(replica));
    int r = copy_model(engine_accelerator(centre->engine), from, &centre->weights);
    return r < 0 ? error_set(err, r, "the device failed to set the centre") : 0;
}

int replica_take_centre(Replica *replica, Centre *centre, Error *err)
{
    Weights *to = replica_weights(replica);
    if (!same_model(to, &centre->weights) || replica_is_shared(replica))
        return error_set(err, -EINVAL, "the centre and replica %d are of different models",
                         replica_rank(replica));
    int r = copy_model(engine_accelerator(replica_engine(replica)), &centre->weights, to);
    return r < 0 ? replica_device_error(replica, r, "taking the centre", err) : 0;
}

int centre_snapshot_new(const Graph *graph, bool momentum, Snapshot **ret)
{
    return snapshot_new_parts(graph, CENTRE_PARTS, momentum, ret);
}

int centre_snapshot(Centre *centre, Snapshot *into)
{
    return weights_to_snapshot(engine_accelerator(centre->engine), &centre->weights, CENTRE_PARTS,
                               into);
}

int centre_restore(Centre *centre, const Snapshot *from)
{
    return weights_from_snapshot(engine_accelerator(centre->engine), &centre->weights, CENTRE_PARTS,
                                 from);
}

/* ---- meetings -------------------------------------------------------------------------------- */

/* Finds who takes part, as replicas_mean does, and that the centre fits them. */
static int begin(Combine *combine, Replica *const *replicas, const bool *contributes, int count,
                 const MeanSpec *spec, const Centre *centre, MeanResult *result, Error *err)
{
    int r = combine_begin(combine, replicas, contributes, count, spec, result, err);
    if (r < 0)
        return r;
    if (!same_model(combine->weights[0], &centre->weights))
        return error_set(err, -EINVAL, "the centre and replica %d are of different models",
                         replica_rank(replicas[0]));
    return 0;
}

static int take_checksum(const Combine *combine, const Centre *centre, MeanResult *result)
{
    return checksum_params(engine_spec(combine->engine)->graph, combine->accelerator,
                           centre->weights.params, &result->checksum);
}

/* Float buffers and counters of all, and the centre's: as in a mean. */
static int meet_buffers(const Combine *combine, Centre *centre)
{
    int r = combine_array(combine, ARRAY_BUFFERS);
    combine_counters(combine);
    return r == 0 ? copy_buffers(combine->accelerator, combine->weights[0], &centre->weights) : r;
}

/* ---- elastic --------------------------------------------------------------------------------- */

/* x and c, n elements from `at`: d = x − c, sum += α·d, x −= α·d. */
static int pull(const Combine *combine, const Centre *centre, float *x, size_t at, size_t n,
                float alpha)
{
    static const float difference[] = {1, -1};
    float *sum = centre->scratch[0], *d = centre->scratch[1];
    const float *x_and_c[] = {x + at, centre->weights.params + at};
    const float *sum_and_d[] = {sum, d}, *x_and_d[] = {x + at, d};
    const float add[] = {1, alpha}, subtract[] = {1, -alpha};
    int r = accelerator_weighted_sum(combine->accelerator, x_and_c, difference, 2, d, 0, n);
    if (r == 0)
        r = accelerator_weighted_sum(combine->accelerator, sum_and_d, add, 2, sum, 0, n);
    if (r == 0)
        r = accelerator_weighted_sum(combine->accelerator, x_and_d, subtract, 2, x + at, 0, n);
    return r;
}

static int pull_all(const Combine *combine, const Centre *centre, float alpha)
{
    float *c = centre->weights.params, *sum = centre->scratch[0];
    size_t length = centre->weights.n_params;
    for (size_t at = 0; at < length; at += COMBINE_BLOCK) {
        size_t n = length - at < COMBINE_BLOCK ? length - at : COMBINE_BLOCK;
        int r = combine_copy(combine->accelerator, c + at, sum, n);
        for (int i = 0; r == 0 && i < combine->count; i++)
            if (combine->used[i])
                r = pull(combine, centre, combine->weights[i]->params, at, n, alpha);
        if (r == 0)
            r = combine_copy(combine->accelerator, sum, c + at, n);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Versions of those whose parameters changed; who was not finite takes the new centre. */
static int heal(const Combine *combine, Centre *centre, const MeanResult *result)
{
    int r = 0;
    centre->weights.version++;
    for (int i = 0; r == 0 && i < combine->count; i++) {
        Weights *weights = combine->weights[i];
        if (combine->used[i] || !result->finite[i])
            weights->version++;
        if (!result->finite[i])
            r = combine_copy(combine->accelerator, centre->weights.params, weights->params,
                             weights->n_params);
    }
    return r == 0 ? combine_states(combine, NULL, result) : r;
}

int replicas_elastic(Replica *const *replicas, const bool *contributes, int count, Centre *centre,
                     float alpha, MeanResult *ret, Error *err)
{
    Combine combine;
    MeanResult result = {0};
    int r = begin(&combine, replicas, contributes, count, NULL, centre, &result, err);
    if (r < 0)
        return r;
    if (combine.n_used > 0 && alpha != 0) {
        r = pull_all(&combine, centre, alpha);
        if (r == 0)
            r = meet_buffers(&combine, centre);
        if (r == 0)
            r = heal(&combine, centre, &result);
    }
    if (r == 0)
        r = take_checksum(&combine, centre, &result);
    if (r < 0)
        return combine_failed(&combine, r, err);
    *ret = result;
    return 0;
}

/* ---- outer step ------------------------------------------------------------------------------ */

/* The outer step on n elements from `at`; the mean is in scratch[0]. */
static int outer_block(const Combine *combine, const Centre *centre, size_t at, size_t n,
                       const OuterRule *rule)
{
    const float *mean = centre->scratch[0];
    float *c = centre->weights.params + at, *v = centre->weights.states[0] + at;
    float *delta = centre->scratch[1];
    const float *c_and_mean[] = {c, mean}, *delta_and_v[] = {delta, v};
    const float *mean_delta_v[] = {mean, delta, v};
    static const float difference[] = {1, -1};
    const float decay[] = {1, rule->momentum};
    const float step[] = {1, (float)(1.0 - (double)rule->lr),
                          (float)(-(double)rule->lr * (double)rule->momentum)};
    int r = accelerator_weighted_sum(combine->accelerator, c_and_mean, difference, 2, delta, 0, n);
    if (r == 0)
        r = accelerator_weighted_sum(combine->accelerator, delta_and_v, decay, 2, v, 0, n);
    if (r == 0)
        r = accelerator_weighted_sum(combine->accelerator, mean_delta_v, step, 3, c, 0, n);
    return r;
}

static int outer_step(const Combine *combine, const Centre *centre, const OuterRule *rule)
{
    const float *from[MEAN_MAX_REPLICAS];
    size_t length = centre->weights.n_params;
    for (size_t at = 0; at < length; at += COMBINE_BLOCK) {
        size_t n = length - at < COMBINE_BLOCK ? length - at : COMBINE_BLOCK;
        combine_sources(combine, ARRAY_PARAMS, at, from);
        int r = combine_mean(combine, from, centre->scratch[0], n);
        if (r == 0)
            r = outer_block(combine, centre, at, n, rule);
        for (int i = 0; r == 0 && i < combine->count; i++)
            r = combine_copy(combine->accelerator, centre->weights.params + at,
                             combine->weights[i]->params + at, n);
        if (r < 0)
            return r;
    }
    return 0;
}

static int take_outer(const Combine *combine, Centre *centre, const OuterRule *rule,
                      const MeanSpec *spec, const MeanResult *result)
{
    int r = outer_step(combine, centre, rule);
    if (r == 0)
        r = meet_buffers(combine, centre);
    if (r < 0)
        return r;
    centre->weights.version++;
    for (int i = 0; i < combine->count; i++)
        combine->weights[i]->version++;
    return combine_states(combine, spec, result);
}

int replicas_outer(Replica *const *replicas, const bool *contributes, int count, Centre *centre,
                   const OuterRule *rule, const MeanSpec *spec, MeanResult *ret, Error *err)
{
    Combine combine;
    MeanResult result = {0};
    int r = begin(&combine, replicas, contributes, count, spec, centre, &result, err);
    if (r < 0)
        return r;
    if (centre->weights.n_states != 1)
        return error_set(err, -EINVAL, "the centre has no momentum for an outer step");
    if (combine.n_used > 0) {
        r = take_outer(&combine, centre, rule, spec, &result);
        if (r == 0)
            r = take_checksum(&combine, centre, &result);
    }
    if (r < 0)
        return combine_failed(&combine, r, err);
    *ret = result;
    return 0;
}
