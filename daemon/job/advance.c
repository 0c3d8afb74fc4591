/* What happens next in a job. Everything that may have changed something ends with job_advance().
 */
#include "job/job_internal.h"

static bool replicas_are_free(const Job *job)
{
    return job->phase == PHASE_LIVE && !job->exclusive && !members_busy(job);
}

static bool cuts_are_free(const Job *job)
{
    return !job->checkpoint.writing && !job->checkpoint.cutting && !job->mean_under_way;
}

/* A cut needs all members between steps, so no new step begins while one is due. */
bool job_cut_is_next(const Job *job)
{
    return (job->checkpoint.wanted || job->mean_waiters) && cuts_are_free(job);
}

void job_advance(Job *job)
{
    if (job->phase == PHASE_LEAVING && job->tasks == 0) {
        job_leave_lanes(job);
        return;
    }
    if (job->phase == PHASE_IDLE)
        manager_job_changed(job->manager, job);
    if (job->phase != PHASE_LIVE)
        return;
    if (replicas_are_free(job) && cuts_are_free(job)) {
        if (job->checkpoint.wanted) {
            checkpoint_cut(job);
            return;
        }
        if (job->mean_waiters) {
            mean_begin(job);
            return;
        }
    }
    if (job->state == JOB_RUNNING && !job->stopping) {
        if (replicas_are_free(job) && meeting_is_next(job)) {
            meeting_begin(job);
            return;
        }
        members_wait_for_absent(job);
    }
    members_ready(job);
}
