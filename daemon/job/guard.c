/* The guard: gradients that are not finite, or far larger than a rank's usual ones, are left out
 * and named; a rank that has too many of them in a row pauses the job instead of ruining it. */
#include "job/job_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NORMS_BEFORE_A_MEDIAN = 8 }; /* fewer say little about what is usual */

static int compare_norms(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of the rank's own last norms, so that it does not depend on how ranks are timed. */
static double median_norm(const Guard *guard)
{
    double sorted[GUARD_NORMS];
    unsigned n = guard->n < GUARD_NORMS ? (unsigned)guard->n : GUARD_NORMS;
    memcpy(sorted, guard->norms, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_norms);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double guard_limit(const Member *member)
{
    if (member->settings.guard_norm <= 0 || member->guard.n < NORMS_BEFORE_A_MEDIAN)
        return 0;
    return (double)member->settings.guard_norm * median_norm(&member->guard);
}

/* Status tells of it until the rank does well again. */
static void forgive(Member *member, unsigned *strikes)
{
    Job *job = member->job;
    if (*strikes == 0)
        return;
    *strikes = 0;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].guard.strikes || job->members[r].guard.replica_strikes)
            return;
    if (job->state == JOB_RUNNING)
        job_set_reason(job, "%s", "");
}

void guard_forgive_all(Job *job)
{
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++)
        job->members[r].guard.strikes = job->members[r].guard.replica_strikes = 0;
}

static void strike(Member *member, unsigned *strikes, const char *what)
{
    Job *job = member->job;
    ++*strikes;
    log_job(LOG_WARNING, job->id, (int)member->rank, "%s and was left out (%u in a row)", what,
            *strikes);
    job_event(job, "quarantine", NULL, "rank %u: %s and was left out (%u in a row)", member->rank,
              what, *strikes);
    if (job->state == JOB_RUNNING)
        job_set_reason(job, "rank %u: %s and was left out (%u in a row)", member->rank, what,
                       *strikes);
    if (*strikes >= member->settings.guard_strikes)
        job_halt(
            job,
            "rank %u: %s, %u times in a row; lower the learning rate or look at its data, then "
            "resume or restore",
            member->rank, what, *strikes);
}

void guard_judge(Member *member, StepVerdict verdict, double norm)
{
    Guard *guard = &member->guard;
    if (verdict == STEP_NOT_FINITE) {
        strike(member, &guard->strikes, "its gradient has NaN or infinite numbers");
    } else if (verdict == STEP_OVER_LIMIT) {
        strike(member, &guard->strikes, "its gradient is far larger than usual");
    } else {
        forgive(member, &guard->strikes);
        if (norm > 0 && isfinite(norm))
            guard->norms[guard->n++ % GUARD_NORMS] = norm;
    }
}

void guard_judge_replica(Member *member, bool finite)
{
    if (finite)
        forgive(member, &member->guard.replica_strikes);
    else
        strike(member, &member->guard.replica_strikes, "its replica has NaN or infinite numbers");
}
