/* What dataset.c asks of the kinds of data sets, one file a kind: idx.c, npz_set.c, digits.c.
 *
 * An open function fills *ret only on success; its state then belongs to the Dataset, which gives
 * it back by ops->free. Problems are sentences, as in dataset.h. */
#pragma once

#include "ctl/data/dataset.h"

typedef struct SourceOps {
    /* Sample `index` < info.samples; x has info.sample_bytes, y one class or the target's floats.
     * y may be NULL. */
    void (*read)(const void *state, uint64_t index, void *x, int64_t *class_index, float *target);
    void (*free)(void *state);
} SourceOps;

typedef struct Source {
    DatasetInfo info;
    const SourceOps *ops;
    void *state;
} Source;

/* The four MNIST-style files in a directory. -ENOENT: none of them is there. */
int idx_open(const char *directory, DatasetSplit split, Source *ret, char *problem, size_t size);

/* Arrays x and y of an .npz file. */
int npz_set_open(const char *path, Source *ret, char *problem, size_t size);

/* Drawn digits: `count` of the split. */
int digits_open(uint64_t seed, DatasetSplit split, uint64_t count, Source *ret, char *problem,
                size_t size);
