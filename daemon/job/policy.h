/* How ranks are kept together: one file a policy, behind this interface.
 *
 * A policy says what there is (a replica a rank, or one set of parameters for all), who waits for
 * whom (its pace), and, for replicas, what happens when they meet. The job drives it: it sees to it
 * that everything a policy is handed is idle, and that settings, metrics and checkpoints go with
 * it. Policies are const tables without state of their own; what changes lives in the job. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "job/settings.h"
#include "replica/centre.h"
#include "replica/mean.h"

/* The steps of a rank between two synchronisations. Steps count its batches since the job began. */
typedef struct Round {
    uint64_t number; /* from 1 */
    uint64_t start;  /* first step of the round */
    uint64_t end;    /* first step of the next one: start + interval */
} Round;

typedef enum PolicyPace {
    PACE_ROUND, /* ranks wait for each other at the end of a round */
    PACE_STEP,  /* and after each step */
    PACE_FREE,  /* nobody waits for anybody */
} PolicyPace;

/* Replicas in rank order, idle, at the end of a round. */
typedef struct PolicyMeeting {
    Replica *const *replicas;
    const bool *contributes; /* false: out of the mean, yet it may get it */
    const uint64_t *samples; /* that each trained on in the round */
    int count;
    Centre *centre; /* of policies that have one */
    const JobSettings *settings;
} PolicyMeeting;

typedef struct SyncPolicy {
    const char *name;
    const char *description; /* one line, for help */
    PolicyPace pace;
    bool shared;           /* one set of parameters; ranks compute gradients on it */
    bool centre;           /* keeps a centre beside the replicas */
    bool centre_is_result; /* and that is the job's model, not the mean of the replicas */
    bool refreshes;        /* at the end of its round a rank takes the mean of all as they stand */
    /* Lane thread: brings replicas together; also at the end of the job. NULL where they share. */
    int (*combine)(const PolicyMeeting *meeting, MeanResult *ret, Error *err);
} SyncPolicy;

int policy_count(void);
const SyncPolicy *policy_entry(int index);
/* -ENOENT with the list of names */
int policy_find(const char *name, const SyncPolicy **ret, Error *err);
/* Whether a running job may go over to another policy, at the end of a round. -EINVAL with the
 * reason */
int policy_may_follow(const SyncPolicy *now, const SyncPolicy *next, Error *err);

/* The mean as the settings weigh it: what average and the end of average-async do. */
int policy_mean(const PolicyMeeting *meeting, MeanResult *ret, Error *err);

extern const SyncPolicy policy_average, policy_average_async, policy_elastic, policy_diloco,
    policy_barrier, policy_async;
