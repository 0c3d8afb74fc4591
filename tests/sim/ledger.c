/* Which batch was used by whom. A batch has a number through all epochs, and always the same
 * samples; the batches of an epoch share none. What a replica was trained on is part of it and of
 * its checkpoints; what the live replicas of a job were trained on must never meet twice. */
#include <string.h>

#include "memory.h"
#include "sim.h"

/* Of one job: what was leased for each batch, through all lives of the daemon. */
typedef struct Leases {
    uint64_t fingerprint[SIM_MAX_BATCHES];
    uint8_t *taken; /* by epoch and sample */
    size_t n;
} Leases;

static Leases leases[SIM_MAX_JOBS];

void ledger_begin(void)
{
    memset(leases, 0, sizeof leases);
}

void ledger_end(void)
{
    for (unsigned i = 0; i < SIM_MAX_JOBS; i++)
        sim_release(leases[i].taken);
    ledger_begin();
}

static uint64_t per_epoch(const SimJob *job)
{
    return job->spec.samples ? (job->spec.samples + job->spec.batch - 1) / job->spec.batch : 0;
}

uint64_t ledger_total(const SimJob *job)
{
    return per_epoch(job) * job->spec.epochs;
}

/* ---- leases ------------------------------------------------------------------------------------
 */

static void take_samples(SimJob *job, Leases *of, const DealerBatch *batch)
{
    size_t needed = (size_t)((batch->epoch + 1) * job->spec.samples);
    if (of->n < needed) {
        of->taken = sim_resize(of->taken, needed);
        memset(of->taken + of->n, 0, needed - of->n);
        of->n = needed;
    }
    for (uint32_t i = 0; i < batch->samples; i++) {
        if (batch->indices[i] >= job->spec.samples)
            sim_fail("job %llu: batch %llu has sample %llu of %llu", (unsigned long long)job->id,
                     (unsigned long long)batch->number, (unsigned long long)batch->indices[i],
                     (unsigned long long)job->spec.samples);
        uint8_t *taken = &of->taken[batch->epoch * job->spec.samples + batch->indices[i]];
        if (*taken)
            sim_fail("job %llu: sample %llu is in two batches of epoch %llu",
                     (unsigned long long)job->id, (unsigned long long)batch->indices[i],
                     (unsigned long long)batch->epoch);
        *taken = 1;
    }
}

void ledger_lease(SimJob *job, const DealerBatch *batch)
{
    Leases *of = &leases[job - world.jobs];
    uint64_t fingerprint = batch->samples + 1;
    for (uint32_t i = 0; i < batch->samples; i++)
        fingerprint = (fingerprint ^ batch->indices[i]) * UINT64_C(0x100000001b3) + 1;
    if (batch->number >= SIM_MAX_BATCHES)
        sim_fail("job %llu: there is no batch %llu", (unsigned long long)job->id,
                 (unsigned long long)batch->number);
    if (!of->fingerprint[batch->number])
        take_samples(job, of, batch);
    else if (of->fingerprint[batch->number] != fingerprint)
        sim_fail("job %llu: batch %llu has other samples than before", (unsigned long long)job->id,
                 (unsigned long long)batch->number);
    of->fingerprint[batch->number] = fingerprint;
}

/* ---- what was trained on -----------------------------------------------------------------------
 */

void ledger_add(SimJob *job, History *history, uint64_t number, uint64_t samples, int rank)
{
    history->samples += samples;
    history->batches++;
    job->samples += samples;
    job->batches++;
    if (number == UINT64_MAX) /* the trainer's own data */
        return;
    uint64_t bit = UINT64_C(1) << number % 64;
    if (job->done[number / 64] & bit)
        sim_fail("job %llu: batch %llu is used twice, now by rank %d", (unsigned long long)job->id,
                 (unsigned long long)number, rank);
    job->done[number / 64] |= bit;
    history->done[number / 64] |= bit;
}

void ledger_join(SimJob *job, const History *history, int rank)
{
    for (unsigned i = 0; i < SIM_WORDS; i++) {
        if (job->done[i] & history->done[i])
            sim_fail("job %llu: two ranks of a checkpoint were trained on the same batch, one is "
                     "rank %d",
                     (unsigned long long)job->id, rank);
        job->done[i] |= history->done[i];
    }
    job->samples += history->samples;
    job->batches += history->batches;
}

void ledger_leave(SimJob *job, const History *history)
{
    for (unsigned i = 0; i < SIM_WORDS; i++)
        job->done[i] &= ~history->done[i];
    job->samples -= history->samples;
    job->batches -= history->batches;
}

bool ledger_complete(const SimJob *job, const uint64_t *done)
{
    uint64_t total = ledger_total(job);
    for (uint64_t number = 0; number < total; number++)
        if (!(done[number / 64] >> number % 64 & 1))
            return false;
    return true;
}
