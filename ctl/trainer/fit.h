/* Whether a data set fits the job that it shall feed, and in what form it goes over the wire. Pure
 * functions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ctl/data/dataset.h"
#include "dps.pb-c.h"

enum {
    FIT_MAX_DIMS = DATASET_MAX_DIMS,
    /* Batches under way that are worth their memory: more hide no further latency. */
    FIT_MAX_WINDOW = 64,
};

/* Largest batch: x must go into one message, and dpsd takes no larger ones. */
#define FIT_MAX_BATCH_BYTES ((size_t)256 << 20)

/* What the session agreed on. */
typedef struct Fit {
    uint32_t batch;  /* most samples in a lease */
    uint32_t window; /* batches sent and not answered */
    int ndim;
    int64_t dims[FIT_MAX_DIMS]; /* of one sample, as the model has them */
    Dps__V1__DType x_dtype, y_dtype;
    size_t sample_bytes, label_bytes; /* of one sample on the wire */
    int64_t classes;                  /* labels are below; 0 for targets */
    int target_ndim;
    int64_t target_dims[FIT_MAX_DIMS];
} Fit;

/* 0, or -EINVAL with a sentence that names the data set's side and the job's. `data` is the data
 * set's name. */
int fit_check(const Dps__V1__JoinReply *reply, const DatasetInfo *info, const char *data, Fit *ret,
              char *problem, size_t size);
