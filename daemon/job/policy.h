/* How replicas are brought together: one file a policy, behind this interface.
 *
 * The job drives a policy: it asks whether a rank must wait before its next step, and when all live
 * ranks wait (or have nothing left to do) it has the replicas combined, on a lane, while all of
 * them are idle. Policies are const tables without state of their own; what changes lives in the
 * job. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "replica/mean.h"

/* The round in progress, as a policy may see it. Steps count the batches of a rank since the job
 * began. */
typedef struct Round {
    uint64_t number; /* from 1 */
    uint64_t start;  /* first step of the round */
    uint64_t end;    /* first step of the next one: start + interval */
} Round;

typedef struct SyncPolicy {
    const char *name;
    const char *description; /* one line, for help */
    /* Loop thread: whether a rank that has done `step` steps waits for the meeting. */
    bool (*must_wait)(const Round *round, uint64_t step);
    /* Lane thread: as replicas_mean. */
    int (*combine)(Replica *const *replicas, const bool *contributes, int count, MeanResult *ret,
                   Error *err);
} SyncPolicy;

int policy_count(void);
const SyncPolicy *policy_entry(int index);
/* -ENOENT with the list of names */
int policy_find(const char *name, const SyncPolicy **ret, Error *err);

extern const SyncPolicy policy_average;
