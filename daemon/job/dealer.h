/* Deals the data out: which rank gets which batch, in which of its steps.
 *
 * The job's batches are numbered through all epochs; batch number g is the (g mod B)-th of epoch g
 * / B, B being the batches of one epoch, and holds the samples that the epoch's permutation, keyed
 * by (seed, epoch), has there. Rows are dealt: each live rank gets the next batch, in rank order,
 * so that with N ranks batch i·N + r goes to rank r as its step i. What a dropped rank leaves
 * undone is dealt again, to the others, before anything new. Thus no sample is used twice in an
 * epoch and none is lost.
 *
 * Pure bookkeeping without threads or time; owned by its job, loop thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Dealer Dealer;

typedef struct DealerSpec {
    uint64_t samples; /* 0: the trainers bring their own data, nothing is dealt */
    uint32_t batch;
    uint64_t seed;
    uint64_t epochs; /* the whole set so often among all ranks, or 0 */
    uint64_t steps;  /* so many batches for each rank, or 0 */
    uint32_t ranks;
} DealerSpec;

typedef struct DealerBatch {
    uint64_t number; /* through all epochs */
    uint64_t epoch;
    uint32_t samples;
    const uint64_t *indices; /* valid until the next call */
} DealerBatch;

/* All ranks are live, at step 0. -ENOMEM */
int dealer_new(const DealerSpec *spec, Dealer **ret);
Dealer *dealer_free(Dealer *dealer);

/* Batches of one epoch; 0 without data. */
uint64_t dealer_batches_per_epoch(const Dealer *dealer);

/* The batch for a rank's step, dealing rows as far as needed. -ENODATA: the rank has no such step
 * (the data is dealt out, or it has fed its steps); -ENOMEM. Asking again gives the same. */
int dealer_batch(Dealer *dealer, uint32_t rank, uint64_t step, DealerBatch *ret);
/* Whether the rank has a step number `step` to do; as dealer_batch, but true where memory is
 * missing to say, and without data as long as steps are left. */
bool dealer_has_step(Dealer *dealer, uint32_t rank, uint64_t step);
/* The rank's earliest undone step is done. */
void dealer_done(Dealer *dealer, uint32_t rank);

/* Takes a rank out; what it had not done is dealt again. -ENOMEM: nothing was changed */
int dealer_drop(Dealer *dealer, uint32_t rank);
/* Takes a rank in (again); its next step is number `step`. */
void dealer_admit(Dealer *dealer, uint32_t rank, uint64_t step);

/* ---- for checkpoints: everything that cannot be computed from the spec ----------------------- */

/* JSON text, the caller's to free. -ENOMEM */
int dealer_save(const Dealer *dealer, char **ret);
/* Into a new dealer of the same spec. -EBADMSG */
int dealer_load(Dealer *dealer, const char *json);
