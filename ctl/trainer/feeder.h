/* Reads leased batches ahead, on a thread of its own, so that a slow disk neither holds up the
 * connection nor leaves the lane without work.
 *
 * Leases go in at one end and come out at the other as batches, in the same order. Memory is
 * bounded by `window` batches and FEEDER_LEASES(window) leases. All functions belong to the thread
 * that made the feeder; feeder_fd becomes readable when there is a batch. The data set is the
 * feeder's alone while it lives. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/data/dataset.h"
#include "ctl/trainer/fit.h"

/* How many leases may wait to be read: the server sends about a window ahead. */
#define FEEDER_LEASES(window) (4 * (size_t)(window) + 16)

typedef struct Feeder Feeder;

/* A batch in its form on the wire. */
typedef struct FeederBatch {
    uint64_t step, epoch;
    size_t samples;
    void *x; /* (samples, fit.dims…) */
    void *y; /* (samples) or (samples, fit.target_dims…) */
    size_t x_bytes, y_bytes;
    int error;         /* 0, or why there is no batch */
    char problem[200]; /* the sentence for it */
} FeederBatch;

/* -ENOMEM, or what the system said. */
int feeder_new(Dataset *dataset, const Fit *fit, Feeder **ret);
/* Waits for the read that is under way. NULL is fine; returns NULL. */
Feeder *feeder_free(Feeder *feeder);

/* To be watched for reading; feeder_clear takes the mark off. */
int feeder_fd(const Feeder *feeder);
void feeder_clear(Feeder *feeder);

/* -EMSGSIZE: more samples than a batch has, or none; -ENOBUFS: too many leases wait. */
int feeder_push(Feeder *feeder, uint64_t step, uint64_t epoch, const uint64_t *indices, size_t n);
/* The next batch, which stays the feeder's until feeder_pop; NULL: not read yet. */
const FeederBatch *feeder_front(Feeder *feeder);
void feeder_pop(Feeder *feeder);
/* Whether a lease stands behind that of the front, read or not. */
bool feeder_has_next(const Feeder *feeder);
