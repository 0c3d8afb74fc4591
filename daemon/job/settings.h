/* What can be changed while a job runs: names, checks, application, and their texts. A table
 * (settings.c): one line a setting. Plain values, any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SETTING_KEY_MAX = 40, SETTING_VALUE_MAX = 80 };

typedef enum SyncWeights { WEIGHTS_UNIFORM, WEIGHTS_SAMPLES } SyncWeights;
typedef enum SyncState { STATE_KEEP, STATE_AVERAGE, STATE_RESET } SyncState;
typedef enum OnStale { STALE_REJECT, STALE_APPLY } OnStale;

/* The values that hold in a round. */
typedef struct JobSettings {
    char policy[SETTING_VALUE_MAX];
    uint32_t interval;              /* K */
    SyncWeights weights;            /* of the replicas in a mean */
    SyncState state;                /* what a meeting does with optimizer state */
    uint32_t quorum;                /* ranks that a meeting waits for; 0: all */
    uint32_t timeout_s;             /* for the rest, once the quorum is there */
    uint32_t max_staleness;         /* async: versions that a gradient may be behind */
    OnStale on_stale;               /* async: what happens to an older one */
    float alpha;                    /* elastic */
    float outer_lr, outer_momentum; /* diloco */
    float lr;
    char schedule[SETTING_VALUE_MAX]; /* model/schedule.h */
    float clip;                       /* largest gradient norm; 0: no clipping */
    float guard_norm;                 /* times the running median norm; 0: off */
    uint32_t guard_strikes;           /* in a row, then the job pauses */
    uint32_t trainers;                /* ranks that are wanted */
    uint32_t checkpoint_rounds, checkpoint_keep;
    uint32_t eval_every; /* rounds between evaluations; 0: none */
} JobSettings;

/* A change that holds from the beginning of `round` on. */
typedef struct SettingChange {
    uint64_t round;
    char key[SETTING_KEY_MAX], value[SETTING_VALUE_MAX];
} SettingChange;

/* Those that have nothing to do with the job's spec. */
void settings_defaults(JobSettings *settings);
/* Checks and applies one setting. -EINVAL with a sentence that lists the keys or says what it
 * takes. */
int settings_apply(JobSettings *settings, const char *key, const char *value, Error *err);

int settings_count(void);
const char *settings_key(int index);
/* The value as settings_apply takes it; returns text. */
const char *settings_format(const JobSettings *settings, int index, char *text, size_t size);
