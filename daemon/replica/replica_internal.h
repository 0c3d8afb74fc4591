/* What replica.c and context.c share. Internal to daemon/replica. */
#pragma once

#include "replica/replica.h"

struct Replica {
    Engine *engine;
    int rank;
    Weights weights;
};

/* The key of all random numbers of one forward. */
RngKey replica_rng(const Replica *replica, uint64_t step, uint32_t draw);
/* One optimizer step with a flat gradient array. -EIO */
int replica_apply(Replica *replica, const float *gradients, float lr);
/* Plan and arena for a batch that was checked. */
int replica_prepare(Replica *replica, const Batch *batch, bool training, Plan **plan,
                    Activations **activations, Error *err);
/* The sentence for what went wrong on the device in `what`. */
int replica_device_error(const Replica *replica, int code, const char *what, Error *err);
