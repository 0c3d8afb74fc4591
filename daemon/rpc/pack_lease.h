/* A lease as a message. */
#pragma once

#include "dps.pb-c.h"
#include "job/dealer.h"

/* The message points to the batch's indices. */
static inline void pack_lease(const DealerBatch *batch, uint64_t step, Dps__V1__Lease *ret)
{
    dps__v1__lease__init(ret);
    ret->step = step;
    ret->epoch = batch->epoch;
    ret->n_indices = batch->samples;
    ret->indices = (uint64_t *)batch->indices;
}
