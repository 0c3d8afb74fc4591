/* A job: one training run, from QUEUED to its end. Loop thread only.
 *
 * Owned by the JobManager, found by number (manager.h). Long operations end with a callback; where
 * it is a JobDone with r < 0, err has a sentence. */
#pragma once

#include "job/job_spec.h"
#include "job/job_state.h"
#include "job/member.h"
#include "job/settings.h"
#include "replica/snapshot.h"
#include "store/store.h"

typedef void (*JobDone)(void *data, int r, const Error *err);

typedef struct MemberStatus {
    uint32_t rank;
    const char *state; /* starting, computing, waiting, reading, absent, dropped, done */
    uint64_t step;
    float loss;
    const char *device;
    double waiting_s;
    const char *waiting_for; /* valid until the next call */
    uint32_t restarts;
    const char *client;
} MemberStatus;

typedef struct JobStatus {
    uint64_t id, round, step, epoch, samples, samples_total, created_ms, checkpoint;
    JobState state;
    const char *reason, *owner, *device;
    const JobSpec *spec;
    const JobPlan *plan; /* NULL while a job that has ended is not loaded */
    JobSettings settings;
    float loss;
    uint64_t checksum; /* 0: none yet */
    double samples_per_s, eta_s, running_s;
    double accuracy; /* of the latest evaluation while training; negative: none yet */
    uint64_t accuracy_round;
} JobStatus;

uint64_t job_id(const Job *job);
JobState job_state(const Job *job);
const JobSpec *job_spec(const Job *job);
const JobPlan *job_plan(const Job *job); /* NULL before job_prepare, where it was not loaded */
/* Builds the model of a job that was not loaded since dpsd began. -EINVAL, -ENOMEM */
int job_prepare(Job *job, Error *err);
void job_status(Job *job, JobStatus *ret);
uint32_t job_member_count(const Job *job); /* 0 where nothing is known of its ranks */
void job_member_status(Job *job, uint32_t rank, MemberStatus *ret);
/* Grows with everything that status shows. */
uint64_t job_changes(const Job *job);

/* who: "uid=1000 (ada)", for the events. -ESTALE: the state does not allow it */
void job_pause(Job *job, const char *who, JobDone done, void *data);
void job_resume(Job *job, const char *who, JobDone done, void *data);
void job_cancel(Job *job, const char *who, JobDone done, void *data);
/* checkpoint 0: the latest valid one. */
void job_restore(Job *job, uint64_t checkpoint, const char *who, JobDone done, void *data);

typedef struct SettingText {
    const char *key, *value;
} SettingText;

/* All or none; `round` is the one from which they hold. */
typedef void (*JobUpdated)(void *data, int r, const Error *err, uint64_t round);
void job_update(Job *job, const SettingText *settings, size_t n, const char *who, JobUpdated done,
                void *data);

/* Takes a checkpoint now; *record is valid during the callback. */
typedef void (*JobCheckpointed)(void *data, int r, const Error *err,
                                const CheckpointRecord *record);
void job_checkpoint(Job *job, JobCheckpointed done, void *data);

/* The averaged model: as the replicas stand, between steps, or of a checkpoint (0: as it stands, or
 * the latest where the job is not loaded). The snapshot is the callback's to free. */
typedef void (*JobMean)(void *data, int r, const Error *err, Snapshot *mean);
void job_mean(Job *job, uint64_t checkpoint, JobMean done, void *data);
