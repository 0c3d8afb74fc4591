/* Shared parameters: gradients that wait for their optimizer step, and the steps. With barrier a
 * step is made of the gradients of all ranks, in rank order; with async of one, in the order in
 * which they came. */
#include "job/job_internal.h"

typedef struct StepTask {
    LaneTask lane_task; /* first */
    SharedUpdate update;
    StepRule rule;
    SharedResult result;
    Engine *engine;
    int n;
    uint32_t ranks[JOB_MAX_TRAINERS];
    SharedGradient gradients[JOB_MAX_TRAINERS];
} StepTask;

/* ---- a gradient comes --------------------------------------------------------------------------
 */

void member_contribute(Member *member, uint64_t version, int64_t samples,
                       const StepAccount *account)
{
    member->contribution = (Contribution){.ready = true,
                                          .version = version,
                                          .samples = (uint64_t)samples,
                                          .account = *account,
                                          .order = ++member->job->contributions};
    member->arrived_us = clock_monotonic_us();
    job_touch(member->job);
}

bool member_contribution_waits(const Member *member)
{
    return member->contribution.ready;
}

int member_contribution_result(const Member *member, Error *err)
{
    if (member->contribution.r < 0 && err)
        *err = member->contribution.err;
    return member->contribution.r;
}

static void settle(Member *member, int r, const Error *err)
{
    Contribution *contribution = &member->contribution;
    contribution->ready = false;
    contribution->r = r;
    if (r < 0)
        contribution->err = *err;
    if (member->arrived_us)
        member->account.wait_us += clock_monotonic_us() - member->arrived_us;
    member->arrived_us = 0;
    if (r == 0)
        member_step_done(member, &contribution->account);
}

/* Who left, or was to be dropped, while its gradient waited. */
static void drop_who_left(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers && job->phase == PHASE_LIVE; r++) {
        member_give_up_held(&job->members[r]);
        if (job->members[r].drops && !member_is_in_step(&job->members[r]))
            drop_after_step(&job->members[r]);
    }
}

/* ---- when
 * ---------------------------------------------------------------------------------------- */

static bool others_are_to_come(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->place == MEMBER_LIVE && !member_arrived(member) && !quorum_leaves_out(member))
            return true;
    }
    return false;
}

static Member *earliest(Job *job)
{
    Member *first = NULL;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->contribution.ready &&
            (!first || member->contribution.order < first->contribution.order))
            first = member;
    }
    return first;
}

bool contributions_wait(const Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].contribution.ready)
            return true;
    return false;
}

bool shared_step_is_due(Job *job)
{
    if (!job->policy->shared || job->stepping || !contributions_wait(job))
        return false;
    return job->policy->pace == PACE_FREE || !others_are_to_come(job);
}

/* ---- the step
 * ------------------------------------------------------------------------------------- */

static void step_work(LaneTask *task)
{
    StepTask *step = (StepTask *)task;
    engine_bind(step->engine);
    task->r = shared_params_update(&step->update, step->gradients, step->n, &step->rule,
                                   &step->result, &task->err);
}

static void step_done(LaneTask *task)
{
    StepTask *step = (StepTask *)task;
    Job *job = task->job;
    shared_params_publish(&step->update);
    job->stepping = job->stepping_in_place = false;
    if (task->r < 0 && job->phase == PHASE_LIVE)
        job_fail(job, "the optimizer step failed: %s", task->err.message);
    for (int i = 0; i < step->n && job->phase == PHASE_LIVE; i++) {
        Member *member = &job->members[step->ranks[i]];
        guard_judge(member, step->result.verdicts[i], step->result.norms[i]);
        settle(member, 0, NULL);
    }
    free(step);
    drop_who_left(job);
    job_advance(job);
}

static void add_gradient(StepTask *step, const Member *member)
{
    step->ranks[step->n] = member->rank;
    step->gradients[step->n++] = (SharedGradient){.gradients = replica_gradients(member->replica),
                                                  .samples = member->contribution.samples,
                                                  .norm_limit = guard_limit(member)};
}

/* async: too old a gradient is refused here, where it would be applied. */
static bool is_fresh(Member *member)
{
    Job *job = member->job;
    Error err;
    if (member->settings.on_stale == STALE_APPLY)
        return true;
    int r = shared_params_check(job->common.shared, member->contribution.version,
                                member->settings.max_staleness, &err);
    if (r < 0)
        settle(member, r, &err);
    return r == 0;
}

static Member *collect(Job *job, StepTask *step)
{
    if (job->policy->pace == PACE_FREE) {
        Member *member = earliest(job);
        while (member && !is_fresh(member))
            member = earliest(job);
        if (member)
            add_gradient(step, member);
        return member;
    }
    Member *first = NULL;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        if (!job->members[r].contribution.ready)
            continue;
        add_gradient(step, &job->members[r]);
        first = first ? first : &job->members[r];
    }
    return first;
}

void shared_step_begin(Job *job)
{
    StepTask *step = calloc(1, sizeof *step);
    if (!step) {
        job_fail(job, "out of memory");
        return;
    }
    step->lane_task.work = step_work;
    step->lane_task.done = step_done;
    Member *first = collect(job, step);
    if (!first) {
        free(step);
        drop_who_left(job);
        job_advance(job); /* a cut may have waited for those that were refused */
        return;
    }
    if (job->policy->pace == PACE_STEP) /* who was late is waited for in the next step again */
        quorum_reset(job);
    member_rule(first, &step->rule);
    step->rule.norm_limit = 0; /* each gradient has that of its rank */
    step->engine = job->engines[lane_index(first->lane)];
    int r = shared_params_prepare_update(job->common.shared, step->engine, true, &step->update);
    if (r < 0) {
        free(step);
        job_fail(job, "cannot begin an optimizer step");
        return;
    }
    job->stepping = true;
    job->stepping_in_place = step->update.in_place;
    job_post(job, first->lane, &step->lane_task);
    members_ready(job); /* async: others go on meanwhile, if they may */
}
