/* The states of a job and the moves between them. The numbers are those of the wire and the store.
 */
#pragma once

#include <stdbool.h>

typedef enum JobState {
    JOB_QUEUED = 1,
    JOB_RUNNING = 2,
    JOB_PAUSED = 3,
    JOB_RECOVERING = 4,
    JOB_COMPLETED = 5,
    JOB_FAILED = 6,
    JOB_CANCELLED = 7,
    JOB_STATE_COUNT,
} JobState;

const char *job_state_name(JobState state); /* "RUNNING" */
bool job_state_may_move(JobState from, JobState to);
/* COMPLETED, FAILED or CANCELLED: only a restore leads out. */
bool job_state_is_final(JobState state);
