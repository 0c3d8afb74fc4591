/* The mean of replicas, as a meeting wants it. Runs on one lane's thread while every replica
 * involved is idle and handed over to that task. */
#pragma once

#include "replica/replica.h"

enum { MEAN_MAX_REPLICAS = 64 };

typedef struct MeanResult {
    bool finite[MEAN_MAX_REPLICAS]; /* by position in the array: false had NaN or infinity */
    int contributors;               /* how many went into the mean; 0: nothing was changed */
    uint64_t checksum;              /* XXH3-64 of the resulting parameters in name order */
} MeanResult;

/* What becomes of the optimizer state of the replicas. */
typedef enum MeanStates {
    MEAN_STATES_KEEP,    /* each keeps its own */
    MEAN_STATES_AVERAGE, /* all get the mean; step counts (t of Adam) the maximum. A replica whose
                            state is not finite does not contribute then */
    MEAN_STATES_RESET,   /* all start afresh: zero, and t from 1 */
} MeanStates;

/* All zero, or NULL where a spec is taken: the uniform mean, optimizer state kept. */
typedef struct MeanSpec {
    /* By position: samples that the replica has trained on since the last meeting. Replica i weighs
     * w_i = (float)(samples_i / sum), the quotient in double, the sum over contributors; the mean
     * is w_0·x_0 + w_1·x_1 + … in rank order, each product and sum rounded to float. Equal counts
     * (all 0 too) and NULL are the uniform mean (x_0 + x_1 + …) / n, bit for bit. */
    const uint64_t *samples;
    MeanStates states;
} MeanSpec;

/* replicas[0 … count-1] in rank order. Those with contributes[i] and no NaN or infinity go into the
 * mean; all of them (contributing or not) get it: parameters and float buffers averaged, counters
 * the maximum, optimizer state as the spec says (where a replica was not finite and its state is
 * not either, it starts afresh). Versions grow by one. The first replica's device does it, so the
 * memory of the others must be in its reach, as that of CPU lanes is. -EIO, -EINVAL (not one
 * model's replicas, or shared ones) */
int replicas_mean(Replica *const *replicas, const bool *contributes, int count,
                  const MeanSpec *spec, MeanResult *ret, Error *err);
