#include "job/job_state.h"

typedef struct StateEntry {
    const char *name;
    unsigned moves; /* bits of the states that may follow */
    bool final;
} StateEntry;

#define TO(state) (1U << (state))

static const StateEntry states[JOB_STATE_COUNT] = {
    [JOB_QUEUED] = {"QUEUED",
                    TO(JOB_RUNNING) | TO(JOB_RECOVERING) | TO(JOB_FAILED) | TO(JOB_CANCELLED),
                    false},
    [JOB_RUNNING] = {"RUNNING",
                     TO(JOB_PAUSED) | TO(JOB_RECOVERING) | TO(JOB_COMPLETED) | TO(JOB_FAILED) |
                         TO(JOB_CANCELLED),
                     false},
    [JOB_PAUSED] = {"PAUSED",
                    TO(JOB_RUNNING) | TO(JOB_RECOVERING) | TO(JOB_COMPLETED) | TO(JOB_FAILED) |
                        TO(JOB_CANCELLED),
                    false}, /* COMPLETED: paused during its last meeting */
    [JOB_RECOVERING] = {"RECOVERING",
                        TO(JOB_RUNNING) | TO(JOB_PAUSED) | TO(JOB_FAILED) | TO(JOB_CANCELLED),
                        false},
    [JOB_COMPLETED] = {"COMPLETED", TO(JOB_RECOVERING), true},
    [JOB_FAILED] = {"FAILED", TO(JOB_RECOVERING), true},
    [JOB_CANCELLED] = {"CANCELLED", TO(JOB_RECOVERING), true},
};

static bool is_state(JobState state)
{
    return state >= JOB_QUEUED && state < JOB_STATE_COUNT;
}

const char *job_state_name(JobState state)
{
    return is_state(state) ? states[state].name : "UNKNOWN";
}

bool job_state_may_move(JobState from, JobState to)
{
    return is_state(from) && is_state(to) && (states[from].moves & TO(to));
}

bool job_state_is_final(JobState state)
{
    return is_state(state) && states[state].final;
}
