/* Evaluation while training, as the service sees it: a process that dpsd has started sends held-out
 * data to the model of a checkpoint, and what comes out is kept with the round. Loop thread only. */
#pragma once

#include "job/job.h"
#include "replica/replica.h"

/* Whether this is the evaluation that the job waits for. Each batch that comes for it shows that it
 * is alive. -EPERM */
int job_evaluation_admit(Job *job, uint64_t checkpoint, const char *token, Error *err);
/* Records what it has found; `done` when that is on disk. -EPERM */
void job_evaluation_record(Job *job, uint64_t checkpoint, const char *token,
                           const Evaluation *total, JobDone done, void *data);
