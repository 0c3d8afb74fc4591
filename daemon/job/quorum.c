/* sync.wait=quorum:Q: once Q ranks have come, a meeting waits for the others no longer than
 * sync.timeout. Who is left out goes on with its round, and counts in the first meeting that it
 * comes to. */
#include "job/job_internal.h"

static void stop_waiting(Job *job)
{
    timer_cancel(manager_spec(job->manager)->timers, &job->quorum_timer);
    job->quorum_over = false;
}

void quorum_reset(Job *job)
{
    stop_waiting(job);
}

bool quorum_leaves_out(Member *member)
{
    return member->job->quorum_over && !member_arrived(member);
}

void quorum_timeout(void *data)
{
    Job *job = data;
    if (job->state != JOB_RUNNING || job->phase != PHASE_LIVE) /* it begins anew with the job */
        return;
    job->quorum_over = true;
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->place == MEMBER_LIVE && !member_arrived(member))
            job_event(job, "trainer", NULL, "rank %u is not waited for any longer", member->rank);
    }
    job_advance(job);
}

void quorum_watch(Job *job)
{
    unsigned live = members_live(job), arrived = 0, quorum = job->settings.quorum;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        arrived += member->place == MEMBER_LIVE && member->arrived_us && member_arrived(member);
    }
    if (quorum == 0 || job->policy->pace == PACE_FREE || arrived < quorum || arrived == live) {
        if (!job->quorum_over || quorum == 0)
            stop_waiting(job);
        return;
    }
    if (!job->quorum_over && !timer_is_armed(&job->quorum_timer))
        timer_arm(manager_spec(job->manager)->timers, &job->quorum_timer,
                  job->settings.timeout_s * USEC_PER_SEC);
}
