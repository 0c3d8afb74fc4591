/* The mean of replicas, as a meeting wants it. Runs on one lane's thread while every replica
 * involved is idle and handed over to that task. */
#pragma once

#include "replica/replica.h"

typedef struct MeanResult {
    bool finite[64];   /* by position in the array: false had NaN or infinity */
    int contributors;  /* how many went into the mean; 0: nothing was changed */
    uint64_t checksum; /* XXH3-64 of the mean parameters in name order */
} MeanResult;

enum { MEAN_MAX_REPLICAS = 64 };

/* replicas[0 … count-1] in rank order. Those with contributes[i] and no NaN or infinity go into the
 * mean; all of them (contributing or not) get it: parameters and float buffers averaged, counters
 * the maximum, optimizer state kept (where a replica was not finite and its state is not either, it
 * starts afresh). Versions grow by one. The first replica's device does it, so the memory of the
 * others must be in its reach, as that of CPU lanes is. -EIO, -EINVAL (not one model's replicas) */
int replicas_mean(Replica *const *replicas, const bool *contributes, int count, MeanResult *ret,
                  Error *err);
