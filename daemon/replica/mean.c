#include "replica/mean.h"

#include <string.h>

#include "replica/checksum.h"

/* Elements meant and copied at a time: they stay in the cache in between. */
enum { BLOCK = 32768 };

/* ---- who goes into it ------------------------------------------------------------------------ */

static int array_is_finite(const Accelerator *accelerator, const float *array, size_t n, bool *ret)
{
    if (n == 0) {
        *ret = true;
        return 0;
    }
    return accelerator_all_finite(accelerator, array, n, ret);
}

static int weights_are_finite(const Accelerator *accelerator, const Weights *weights, bool *ret)
{
    int r = array_is_finite(accelerator, weights->params, weights->n_params, ret);
    if (r < 0 || !*ret)
        return r;
    return array_is_finite(accelerator, weights->buffers, weights->n_buffers, ret);
}

static bool same_sizes(const Weights *a, const Weights *b)
{
    return a->n_params == b->n_params && a->n_buffers == b->n_buffers &&
           a->n_counters == b->n_counters && a->n_states == b->n_states;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Arrays of n floats, one a replica: the mean of those in `from` is written to all of them. */
static int mean_of_arrays(const Accelerator *accelerator, const float *const *from, int n_from,
                          float *const *all, int n_all, size_t n)
{
    if (n_all == 1)
        return 0; /* the mean of one array is itself */
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        size_t end = n - begin < BLOCK ? n : begin + BLOCK;
        int r = accelerator_mean(accelerator, from, n_from, all[0], begin, end);
        const float *mean = all[0];
        for (int i = 1; r == 0 && i < n_all; i++)
            r = accelerator_mean(accelerator, &mean, 1, all[i], begin, end);
        if (r < 0)
            return r;
    }
    return 0;
}

static void max_of_counters(Weights *const *weights, const bool *used, int count)
{
    for (size_t c = 0; c < weights[0]->n_counters; c++) {
        int64_t max = 0;
        for (int i = 0; i < count; i++) {
            if (used[i] && weights[i]->counters[c] > max)
                max = weights[i]->counters[c];
        }
        for (int i = 0; i < count; i++)
            weights[i]->counters[c] = max;
    }
}

/* A replica that comes back from NaN starts its optimizer afresh where that is spoilt too. */
static int clean_states(const Accelerator *accelerator, Weights *weights)
{
    bool good = true;
    for (int i = 0; good && i < weights->n_states; i++) {
        int r = accelerator_all_finite(accelerator, weights->states[i], weights->n_params, &good);
        if (r < 0)
            return r;
    }
    if (good)
        return 0;
    for (int i = 0; i < weights->n_states; i++) {
        int r =
            accelerator_zero(accelerator, weights->states[i], weights->n_params * sizeof(float));
        if (r < 0)
            return r;
    }
    weights->updates = 0;
    return 0;
}

/* ---- the meeting ----------------------------------------------------------------------------- */

typedef struct Meeting {
    const Accelerator *accelerator;
    Weights *weights[MEAN_MAX_REPLICAS];
    bool used[MEAN_MAX_REPLICAS];
    int count;
} Meeting;

static int choose(Meeting *meeting, const bool *contributes, MeanResult *result)
{
    for (int i = 0; i < meeting->count; i++) {
        int r = weights_are_finite(meeting->accelerator, meeting->weights[i], &result->finite[i]);
        if (r < 0)
            return r;
        meeting->used[i] = contributes[i] && result->finite[i];
        result->contributors += meeting->used[i];
    }
    return 0;
}

static int mean_of_weights(const Meeting *meeting, int contributors)
{
    const float *params[MEAN_MAX_REPLICAS], *buffers[MEAN_MAX_REPLICAS];
    float *all_params[MEAN_MAX_REPLICAS], *all_buffers[MEAN_MAX_REPLICAS];
    int n = 0;
    for (int i = 0; i < meeting->count; i++) {
        const Weights *weights = meeting->weights[i];
        all_params[i] = weights->params;
        all_buffers[i] = weights->buffers;
        if (meeting->used[i]) {
            params[n] = weights->params;
            buffers[n++] = weights->buffers;
        }
    }
    const Weights *first = meeting->weights[0];
    int r = mean_of_arrays(meeting->accelerator, params, contributors, all_params, meeting->count,
                           first->n_params);
    if (r == 0)
        r = mean_of_arrays(meeting->accelerator, buffers, contributors, all_buffers, meeting->count,
                           first->n_buffers);
    return r;
}

static int finish(const Meeting *meeting, const MeanResult *result)
{
    for (int i = 0; i < meeting->count; i++) {
        Weights *weights = meeting->weights[i];
        weights->version++;
        if (result->finite[i])
            continue;
        int r = clean_states(meeting->accelerator, weights);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_arguments(Replica *const *replicas, int count, Error *err)
{
    if (count < 1 || count > MEAN_MAX_REPLICAS)
        return error_set(err, -EINVAL, "a mean is of 1 to %d replicas, not %d", MEAN_MAX_REPLICAS,
                         count);
    for (int i = 1; i < count; i++) {
        if (!same_sizes(replica_weights(replicas[0]), replica_weights(replicas[i])))
            return error_set(err, -EINVAL, "replicas %d and %d are of different models",
                             replica_rank(replicas[0]), replica_rank(replicas[i]));
    }
    return 0;
}

int replicas_mean(Replica *const *replicas, const bool *contributes, int count, MeanResult *ret,
                  Error *err)
{
    int r = check_arguments(replicas, count, err);
    if (r < 0)
        return r;
    const Engine *engine = replica_engine(replicas[0]);
    Meeting meeting = {.accelerator = engine_accelerator(engine), .count = count};
    MeanResult result = {0};
    for (int i = 0; i < count; i++)
        meeting.weights[i] = replica_weights(replicas[i]);
    r = choose(&meeting, contributes, &result);
    if (r == 0 && result.contributors > 0) {
        r = mean_of_weights(&meeting, result.contributors);
        max_of_counters(meeting.weights, meeting.used, count);
        if (r == 0)
            r = finish(&meeting, &result);
        if (r == 0)
            r = checksum_params(engine_spec(engine)->graph, meeting.accelerator,
                                meeting.weights[0]->params, &result.checksum);
    }
    if (r < 0)
        return error_set(err, r, "the device failed in the mean of %d replicas", count);
    *ret = result;
    return 0;
}
