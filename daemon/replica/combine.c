#include "replica/combine.h"

#include "replica/replica_internal.h"

/* ---- arrays ---------------------------------------------------------------------------------- */

float *weights_array(const Weights *weights, int array)
{
    if (array == ARRAY_PARAMS)
        return weights->params;
    return array == ARRAY_BUFFERS ? weights->buffers : weights->states[array - ARRAY_STATES];
}

/* Shared replicas have no parameters of their own. */
size_t weights_length(const Weights *weights, int array)
{
    if (array == ARRAY_BUFFERS)
        return weights->n_buffers;
    return weights->params ? weights->n_params : 0;
}

static int array_is_finite(const Accelerator *accelerator, const Weights *weights, int array,
                           bool *ret)
{
    size_t n = weights_length(weights, array);
    *ret = true;
    return n == 0 ? 0 : accelerator_all_finite(accelerator, weights_array(weights, array), n, ret);
}

int combine_copy(const Accelerator *accelerator, const float *from, float *to, size_t n)
{
    static const float one = 1;
    return accelerator_weighted_sum(accelerator, &from, &one, 1, to, 0, n);
}

/* ---- who takes part and with what weight ----------------------------------------------------- */

bool combine_shares(const uint64_t *samples, const bool *used, int count, float *shares)
{
    double sum = 0;
    uint64_t first = 0;
    bool differ = false, any = false;
    for (int i = 0; samples && i < count; i++) {
        if (used && !used[i])
            continue;
        if (!any)
            first = samples[i];
        any = true;
        differ |= samples[i] != first;
        sum += (double)samples[i];
    }
    for (int i = 0, n = 0; differ && i < count; i++)
        if (!used || used[i])
            shares[n++] = (float)((double)samples[i] / sum);
    return differ;
}

static bool same_sizes(const Weights *a, const Weights *b)
{
    return !a->params == !b->params && a->n_params == b->n_params && a->n_buffers == b->n_buffers &&
           a->n_counters == b->n_counters && a->n_states == b->n_states;
}

static int check_arguments(Replica *const *replicas, int count, Error *err)
{
    if (count < 1 || count > MEAN_MAX_REPLICAS)
        return error_set(err, -EINVAL, "a mean is of 1 to %d replicas, not %d", MEAN_MAX_REPLICAS,
                         count);
    for (int i = 0; i < count; i++) {
        if (!same_sizes(replica_weights(replicas[0]), replica_weights(replicas[i])))
            return error_set(err, -EINVAL, "replicas %d and %d are of different models",
                             replica_rank(replicas[0]), replica_rank(replicas[i]));
        if (replicas[i]->attached)
            return error_set(err, -EINVAL, "replica %d has parameters attached that are shared",
                             replica_rank(replicas[i]));
    }
    return 0;
}

/* Where states are averaged, they must be finite too. */
static int is_finite(const Combine *combine, const Weights *weights, const MeanSpec *spec,
                     bool *ret)
{
    int arrays = ARRAY_STATES;
    if (spec && spec->states == MEAN_STATES_AVERAGE)
        arrays += weights->n_states;
    int r = 0;
    *ret = true;
    for (int array = 0; r == 0 && *ret && array < arrays; array++)
        r = array_is_finite(combine->accelerator, weights, array, ret);
    return r;
}

int combine_begin(Combine *combine, Replica *const *replicas, const bool *contributes, int count,
                  const MeanSpec *spec, MeanResult *result, Error *err)
{
    int r = check_arguments(replicas, count, err);
    if (r < 0)
        return r;
    *combine = (Combine){.engine = replica_engine(replicas[0]), .count = count};
    combine->accelerator = engine_accelerator(combine->engine);
    for (int i = 0; i < count; i++) {
        combine->weights[i] = replica_weights(replicas[i]);
        r = is_finite(combine, combine->weights[i], spec, &result->finite[i]);
        if (r < 0)
            return combine_failed(combine, r, err);
        combine->used[i] = contributes[i] && result->finite[i];
        combine->n_used += combine->used[i];
    }
    result->contributors = combine->n_used;
    combine->uniform =
        !spec || !combine_shares(spec->samples, combine->used, count, combine->shares);
    return 0;
}

int combine_failed(const Combine *combine, int code, Error *err)
{
    return error_set(err, code, "the device failed in the mean of %d replicas", combine->count);
}

/* ---- means ----------------------------------------------------------------------------------- */

int combine_arrays(const Accelerator *accelerator, const float *const *from, const float *shares,
                   int n_from, float *to, size_t n)
{
    if (!shares)
        return accelerator_mean(accelerator, from, n_from, to, 0, n);
    return accelerator_weighted_sum(accelerator, from, shares, n_from, to, 0, n);
}

void combine_sources(const Combine *combine, int array, size_t begin, const float **from)
{
    for (int i = 0, n = 0; i < combine->count; i++)
        if (combine->used[i])
            from[n++] = weights_array(combine->weights[i], array) + begin;
}

int combine_mean(const Combine *combine, const float *const *from, float *to, size_t n)
{
    return combine_arrays(combine->accelerator, from, combine->uniform ? NULL : combine->shares,
                          combine->n_used, to, n);
}

int combine_array(const Combine *combine, int array)
{
    const float *from[MEAN_MAX_REPLICAS];
    size_t length = weights_length(combine->weights[0], array);
    if (combine->count == 1)
        return 0; /* the mean of one array is itself */
    for (size_t begin = 0; begin < length; begin += COMBINE_BLOCK) {
        size_t n = length - begin < COMBINE_BLOCK ? length - begin : COMBINE_BLOCK;
        float *first = weights_array(combine->weights[0], array) + begin;
        combine_sources(combine, array, begin, from);
        int r = combine_mean(combine, from, first, n);
        for (int i = 1; r == 0 && i < combine->count; i++)
            r = combine_copy(combine->accelerator, first,
                             weights_array(combine->weights[i], array) + begin, n);
        if (r < 0)
            return r;
    }
    return 0;
}

void combine_counters(const Combine *combine)
{
    for (size_t c = 0; c < combine->weights[0]->n_counters; c++) {
        int64_t max = 0;
        for (int i = 0; i < combine->count; i++) {
            if (combine->used[i] && combine->weights[i]->counters[c] > max)
                max = combine->weights[i]->counters[c];
        }
        for (int i = 0; i < combine->count; i++)
            combine->weights[i]->counters[c] = max;
    }
}

/* ---- optimizer state ------------------------------------------------------------------------- */

int combine_clean_states(const Accelerator *accelerator, Weights *weights)
{
    bool good = true;
    for (int i = 0; good && i < weights->n_states; i++) {
        int r = array_is_finite(accelerator, weights, ARRAY_STATES + i, &good);
        if (r < 0)
            return r;
    }
    return good ? 0 : weights_reset_states(accelerator, weights);
}

static int average_states(const Combine *combine)
{
    uint64_t updates = 0;
    for (int i = 0; i < combine->count; i++)
        if (combine->used[i] && combine->weights[i]->updates > updates)
            updates = combine->weights[i]->updates;
    for (int i = 0; i < combine->count; i++)
        combine->weights[i]->updates = updates;
    int r = 0;
    for (int i = 0; r == 0 && i < combine->weights[0]->n_states; i++)
        r = combine_array(combine, ARRAY_STATES + i);
    return r;
}

int combine_states(const Combine *combine, const MeanSpec *spec, const MeanResult *result)
{
    MeanStates states = spec ? spec->states : MEAN_STATES_KEEP;
    if (states == MEAN_STATES_AVERAGE)
        return average_states(combine);
    int r = 0;
    for (int i = 0; r == 0 && i < combine->count; i++) {
        if (states == MEAN_STATES_RESET)
            r = weights_reset_states(combine->accelerator, combine->weights[i]);
        else if (!result->finite[i])
            r = combine_clean_states(combine->accelerator, combine->weights[i]);
    }
    return r;
}
