/* Ranks that keep others waiting are named: in status at once, and in the log and the events after a while,
 * once a round. */
#include "job/job_internal.h"

#define PATIENCE_US (5 * USEC_PER_SEC)

static bool someone_waits_in_vain(Job *job)
{
    bool waits = false, missing = false;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->place != MEMBER_LIVE)
            continue;
        waits |= member->arrived_us != 0;
        missing |= member->arrived_us == 0 && !member_arrived(member);
    }
    return waits && missing && job->policy->pace != PACE_FREE;
}

void stragglers_name(void *data)
{
    Job *job = data;
    char awaited[JOB_TEXT_MAX];
    if (job->phase != PHASE_LIVE || job->state != JOB_RUNNING || !someone_waits_in_vain(job))
        return;
    members_awaited(job, awaited, sizeof awaited);
    job->straggler_round = job->round;
    log_job(LOG_WARNING, job->id, -1, "round %llu waits for %s", (unsigned long long)job->round,
            awaited);
    job_event(job, "straggler", NULL, "waiting for %s", awaited);
}

void stragglers_watch(Job *job)
{
    Timers *timers = manager_spec(job->manager)->timers;
    if (!someone_waits_in_vain(job))
        timer_cancel(timers, &job->straggler_timer);
    else if (job->straggler_round != job->round && !timer_is_armed(&job->straggler_timer))
        timer_arm(timers, &job->straggler_timer, PATIENCE_US);
}
