/* What all ways of bringing replicas together share: who takes part, what each weighs, sums over
 * their arrays. Internal to daemon/replica; allocates nothing. */
#pragma once

#include "replica/mean.h"

/* Elements combined and copied at a time: they stay in the cache in between. */
enum { COMBINE_BLOCK = 32768 };

/* The arrays of a Weights. */
enum { ARRAY_PARAMS, ARRAY_BUFFERS, ARRAY_STATES /* + index */ };

typedef struct Combine {
    const Engine *engine; /* the first replica's: its device computes */
    const Accelerator *accelerator;
    int count;
    Weights *weights[MEAN_MAX_REPLICAS];
    bool used[MEAN_MAX_REPLICAS]; /* contributes and is finite */
    int n_used;
    bool uniform;                    /* all that contribute weigh the same */
    float shares[MEAN_MAX_REPLICAS]; /* of those used, by their order; unless uniform */
} Combine;

/* Finds who takes part; fills result->finite and ->contributors. spec may be NULL. -EIO, -EINVAL */
int combine_begin(Combine *combine, Replica *const *replicas, const bool *contributes, int count,
                  const MeanSpec *spec, MeanResult *result, Error *err);
int combine_failed(const Combine *combine, int code, Error *err);

float *weights_array(const Weights *weights, int array);
size_t weights_length(const Weights *weights, int array);
/* That array of those that contribute, into from[0 … n_used-1], moved on by `begin` elements. */
void combine_sources(const Combine *combine, int array, size_t begin, const float **from);
/* to = the weighted or uniform mean of from[0 … n_used-1], n elements. -EIO */
int combine_mean(const Combine *combine, const float *const *from, float *to, size_t n);
/* That array of all replicas = its mean over those that contribute. -EIO */
int combine_array(const Combine *combine, int array);
/* Counters of all = the maximum over those that contribute. */
void combine_counters(const Combine *combine);
/* Parameters, buffers and counters of the last moment are in place: optimizer state as the spec
 * says; that of replicas that were not finite afresh where it is spoilt. -EIO */
int combine_states(const Combine *combine, const MeanSpec *spec, const MeanResult *result);
/* Optimizer state afresh if it is not finite, as a replica needs that comes back from NaN. -EIO */
int combine_clean_states(const Accelerator *accelerator, Weights *weights);
/* to = from, on the device. -EIO */
int combine_copy(const Accelerator *accelerator, const float *from, float *to, size_t n);

/* What `count` takers of part in a mean weigh by their samples, those without `used` left out
 * (NULL: all used): into shares, one for each that is used. Returns false where all weigh the same;
 * shares is not to be looked at then. */
bool combine_shares(const uint64_t *samples, const bool *used, int count, float *shares);
/* The mean of n_from arrays by those shares, or the uniform one where shares is NULL. -EIO */
int combine_arrays(const Accelerator *accelerator, const float *const *from, const float *shares,
                   int n_from, float *to, size_t n);
