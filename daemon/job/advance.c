/* What happens next in a job. Everything that may have changed something ends with job_advance().
 */
#include "job/job_internal.h"

/* Nothing is on a lane: a cut of this moment is whole. Gradients that wait, for those of other
 * ranks or for batches to come, are no part of it. */
static bool is_quiet(const Job *job)
{
    return !members_busy(job) && !job->exclusive && !job->stepping;
}

static bool cuts_are_free(const Job *job)
{
    return !job->checkpoint.writing && !job->checkpoint.cutting && !job->mean_under_way;
}

/* No member begins anything while a cut is due. */
bool job_cut_is_next(const Job *job)
{
    return (job->checkpoint.wanted || job->mean_waiters) && cuts_are_free(job);
}

static bool cut_begins(Job *job)
{
    if (!is_quiet(job) || !cuts_are_free(job) || common_centre_is_missing(job))
        return false;
    if (job->checkpoint.wanted) {
        checkpoint_cut(job);
        return true;
    }
    if (job->mean_waiters) {
        mean_begin(job);
        return true;
    }
    return false;
}

/* True: something was begun that has the job to itself, or the job has changed altogether. */
static bool sync_begins(Job *job)
{
    if (job->exclusive)
        return false;
    if (common_centre_is_missing(job)) {
        if (!members_busy(job))
            common_make_centre(job);
        return true;
    }
    if (shared_step_is_due(job)) {
        shared_step_begin(job);
        return true;
    }
    if (job->policy->pace == PACE_FREE && !job_work_is_done(job))
        free_rounds_advance(job);
    if (job->phase == PHASE_LIVE && meeting_is_due(job) && meeting_may_begin(job)) {
        meeting_begin(job);
        return true;
    }
    return false;
}

bool job_sync_is_next(Job *job)
{
    return job->state == JOB_RUNNING && !job->stopping && meeting_is_due(job);
}

static void advance_live(Job *job)
{
    const Member *given_up = job->state == JOB_RUNNING ? managed_hopeless(job) : NULL;
    if (given_up) {
        managed_fail(job, given_up);
        return;
    }
    evaluation_advance(job);
    if (cut_begins(job))
        return;
    if (job->state == JOB_RUNNING && !job->stopping) {
        if (sync_begins(job))
            return;
        if (job->phase != PHASE_LIVE)
            return;
        if (cut_begins(job)) /* wanted by a round that has just ended, with nobody at work */
            return;
        quorum_watch(job);
        stragglers_watch(job);
        members_wait_for_absent(job);
    }
    members_ready(job);
}

void job_advance(Job *job)
{
    if (job->phase == PHASE_LEAVING && job->tasks == 0)
        job_leave_lanes(job);
    else if (job->phase == PHASE_IDLE)
        manager_job_changed(job->manager, job);
    else if (job->phase == PHASE_LIVE)
        advance_live(job);
}
