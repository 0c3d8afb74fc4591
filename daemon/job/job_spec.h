/* What a job is asked to be: everything about a run that stays, and the initial values of what does
 * not. Plain values without pointers, so that a spec can be copied; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "job/settings.h"
#include "model/loss.h"
#include "model/optimizer.h"
#include "model/zoo.h"

/* Limits of what a client may ask for, each with the reason. */
enum {
    JOB_NAME_MAX = 64,
    JOB_PATH_MAX = 1024,
    JOB_MAX_TRAINERS = 64,      /* replicas that one meeting takes (replica/mean.h) */
    JOB_MAX_BATCH = 16384,      /* arenas grow with it: an engine's limit */
    JOB_MAX_INTERVAL = 1000000, /* leases dealt ahead grow with it */
    JOB_MAX_EPOCHS = 1000000,
    JOB_MAX_THREADS = 256,
    JOB_MAX_CHECKPOINT_ROUNDS = 1000000,
    JOB_MAX_CHECKPOINT_KEEP = 1000,
    JOB_MAX_ACCUMULATE = 1024, /* a group that is lost is fed again */
    JOB_MAX_OPTIONS = 16,
    JOB_MAX_SETTINGS = 32,     /* there are not that many names */
    JOB_MAX_SAMPLES = 1 << 26, /* an epoch's permutation is 8 bytes a sample, two are kept */
};
#define JOB_MAX_STEPS UINT64_C(1000000000000)

typedef struct SettingPair {
    char key[SETTING_KEY_MAX], value[SETTING_VALUE_MAX];
} SettingPair;

typedef struct JobSpec {
    char name[JOB_NAME_MAX];
    char model[JOB_NAME_MAX];
    char data[JOB_PATH_MAX];
    char policy[JOB_NAME_MAX];
    char optimizer[OPTIMIZER_TEXT_MAX];
    char loss[JOB_NAME_MAX];
    char device[JOB_NAME_MAX];
    char backend[JOB_NAME_MAX];
    uint64_t samples, steps, seed;
    uint32_t trainers, interval, epochs, batch, threads, checkpoint_rounds, checkpoint_keep;
    float lr;
    bool external_trainers;
    uint32_t max_trainers; /* ranks that there may ever be */
    uint32_t accumulate;   /* batches a step, of managed trainers */
    char eval_data[JOB_PATH_MAX];
    char stop_when[JOB_NAME_MAX];
    int n_options;
    struct {
        char key[32], value[32];
    } options[JOB_MAX_OPTIONS];
    int n_settings; /* initial values of what can be changed while the job runs */
    SettingPair settings[JOB_MAX_SETTINGS];
} JobSpec;

/* What the daemon fills in where a spec is silent. */
typedef struct JobDefaults {
    uint32_t checkpoint_rounds, checkpoint_keep;
} JobDefaults;

/* A spec with its model looked up. */
typedef struct JobPlan {
    const ModelEntry *model;
    Graph *graph; /* owned */
    LossKind loss;
    Optimizer optimizer; /* lr is the job's */
} JobPlan;

/* The settings that the job begins with. -EINVAL */
int job_spec_settings(const JobSpec *spec, JobSettings *ret, Error *err);

/* Fills in defaults, checks every limit and builds the model. -EINVAL, -ENOENT, -ENOMEM with a
 * sentence. */
int job_spec_resolve(JobSpec *spec, const JobDefaults *defaults, JobPlan *ret, Error *err);
void job_plan_free(JobPlan *plan);

/* JSON for the store and back; the caller frees the text. -ENOMEM; -EBADMSG: not a spec */
int job_spec_to_json(const JobSpec *spec, char **ret);
int job_spec_from_json(const char *json, JobSpec *ret, Error *err);
