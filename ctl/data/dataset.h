/* A data set that can be read by sample: MNIST-style IDX files, .npz files with `x` and `y`, or
 * digits that the reader draws itself.
 *
 * `path` is one of
 *   DIR with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-… (plain or with .gz)
 *   DIR with train.npz and test.npz
 *   FILE.npz, which serves both splits
 *   "synthetic", "synthetic:SEED" or "synthetic:SEED:COUNT": COUNT digits to train on (8,000) and a
 *   quarter as many to test on
 *
 * A Dataset belongs to whoever opened it. dataset_read may be called from any thread, but by one at
 * a time; the getters from any. Files are checked when they are opened, so that reading a sample
 * of an open set does not fail. Plain files are mapped: replace them by renaming, not in place.
 *
 * Problems are sentences that name the file and, where there is one, the byte offset. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dps.pb-c.h"

enum { DATASET_MAX_DIMS = 7 }; /* of one sample; a batch adds one, and tensors have at most 8 */

typedef enum DatasetSplit {
    DATASET_TRAIN,
    DATASET_TEST,
} DatasetSplit;

/* What a sample's label is. */
typedef enum DatasetLabel {
    DATASET_CLASSES, /* one class index */
    DATASET_TARGETS, /* target_elements floats, for mse */
} DatasetLabel;

typedef struct DatasetInfo {
    uint64_t samples;
    Dps__V1__DType dtype; /* of x: U8 or F32 */
    int ndim;
    int64_t dims[DATASET_MAX_DIMS]; /* of one sample: (1, 28, 28) for grey images */
    size_t sample_bytes;            /* of one x */
    DatasetLabel label;
    Dps__V1__DType label_dtype; /* the smallest that holds all labels: U8 or I64; F32 for targets */
    int target_ndim;
    int64_t target_dims[DATASET_MAX_DIMS];
    size_t target_elements; /* 0 for classes */
} DatasetInfo;

typedef struct Dataset Dataset;

/* `seed` is that of drawn digits where `path` names none. -ENOENT, -EINVAL (what the file says is
 * wrong), -EFBIG (a named limit), -ENOMEM, or what the system said; `problem` then has the
 * sentence. */
int dataset_open(const char *path, DatasetSplit split, uint64_t seed, Dataset **ret, char *problem,
                 size_t size);
Dataset *dataset_free(Dataset *dataset); /* NULL is fine; returns NULL */

const DatasetInfo *dataset_info(const Dataset *dataset);

/* Writes n samples to x (n · sample_bytes) and their classes to y (n). -ERANGE: an index is not in
 * the set; -EINVAL: the labels are no classes. y may be NULL. */
int dataset_read(Dataset *dataset, const uint64_t *indices, size_t n, void *x, int64_t *y);

/* The same for sets with targets: y is (n, target_dims…). */
int dataset_read_targets(Dataset *dataset, const uint64_t *indices, size_t n, void *x, float *y);
