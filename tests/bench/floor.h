/* The bare engine: replica_train on mnist-cnn with batches that are already in memory. A Floor is
 * used by the thread that made it. */
#pragma once

#include "backend/backend.h"

typedef struct Floor Floor;

int floor_new(const Backend *backend, int64_t batch, int rank, Floor **ret, Error *err);
Floor *floor_free(Floor *floor);
/* Mean microseconds of one step, over `steps` of them. */
int floor_time(Floor *floor, int steps, double *ret, Error *err);

/* Microseconds of one step on each of `lanes` threads at once, each with an engine of its own, for
 * at least `seconds`; ret holds one number a lane. */
int floor_time_lanes(const Backend *backend, int64_t batch, int lanes, double seconds, double *ret,
                     Error *err);
