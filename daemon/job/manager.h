/* All jobs: numbers, the queue, which lane hosts what, loading at start, stopping. Loop thread
 * only. */
#pragma once

#include "base/timer.h"
#include "job/job.h"
#include "job/launcher.h"
#include "replica/lane.h"

typedef struct JobManager JobManager;

typedef struct JobManagerSpec {
    Store *store;
    Timers *timers;
    Mailbox *loop;
    Lane *const *lanes; /* not owned; outlive the manager */
    unsigned n_lanes;
    Launcher launcher;
    JobDefaults defaults;
    unsigned max_running;      /* further jobs are QUEUED */
    unsigned max_jobs;         /* stored ones included */
    uint64_t rejoin_us;        /* how long a meeting waits for a lost trainer */
    unsigned trainer_restarts; /* in a row without a step, then the rank is given up */
} JobManagerSpec;

int manager_new(const JobManagerSpec *spec, JobManager **ret);
/* After manager_stop's callback; ends what is left. */
JobManager *manager_free(JobManager *manager);

/* Reads the store and sets every unfinished job on its way again; `done` when all are listed. */
void manager_load(JobManager *manager, JobDone done, void *data);

typedef void (*JobSubmitted)(void *data, int r, const Error *err, Job *job);
void manager_submit(JobManager *manager, const JobSpec *spec, const char *owner, JobSubmitted done,
                    void *data);

Job *manager_find(JobManager *manager, uint64_t id); /* or NULL */
unsigned manager_count(const JobManager *manager);
Job *manager_job(JobManager *manager, unsigned index); /* by number */
unsigned manager_running(const JobManager *manager);
Store *manager_store(JobManager *manager);
Lane *const *manager_lanes(const JobManager *manager, unsigned *n);
/* Replicas hosted on a lane and the memory that they hold there. */
void manager_lane_use(const JobManager *manager, unsigned lane, unsigned *replicas, size_t *bytes);

/* Takes a checkpoint of every job that runs, ends trainers and replicas; `done` when all is on
 * disk. New jobs and joins are refused from now on. `progress` (may be NULL) says what is being
 * done. */
void manager_stop(JobManager *manager, void (*progress)(void *data, const char *what), JobDone done,
                  void *data);
