/* What a session asks of its member, and work on the member's lane. */
#include "job/job_internal.h"

Job *member_job(const Member *member)
{
    return member->job;
}

uint32_t member_rank(const Member *member)
{
    return member->rank;
}

uint64_t member_step(const Member *member)
{
    return member->step + member->held;
}

uint64_t member_round(const Member *member)
{
    return member->round.number;
}

const char *member_lane_name(const Member *member)
{
    return lane_name(member->lane);
}

bool member_own_data(const Member *member)
{
    return member->own_data;
}

bool member_shares(const Member *member)
{
    return member->job->policy->shared;
}

int member_batch(Member *member, uint64_t step, DealerBatch *ret)
{
    return dealer_batch(member->job->dealer, member->rank, step, ret);
}

void member_set_reading(Member *member, bool reading)
{
    if (member->reading != reading)
        job_touch(member->job);
    member->reading = reading;
}

/* ---- may it ------------------------------------------------------------------------------------
 */

/* Whether the member has nothing to do before the others have come. One that holds gradients is in
 * the middle of a step. */
bool member_arrived(Member *member)
{
    if (member->contribution.ready)
        return true;
    if (member->held)
        return false;
    return member->step >= member->round.end ||
           !dealer_has_step(member->job->dealer, member->rank, member->step);
}

bool member_waits(Member *member)
{
    return member_arrived(member);
}

bool member_has_step(Member *member)
{
    return dealer_has_step(member->job->dealer, member->rank, member_step(member));
}

bool member_may_touch(Member *member)
{
    const Job *job = member->job;
    return job->phase == PHASE_LIVE && !job->exclusive && !member->busy && !job->stopping &&
           !job->stepping_in_place && !job_cut_is_next(job) && !common_centre_is_missing(job) &&
           !(member_arrived(member) && job_sync_is_next(member->job));
}

bool member_may_step(Member *member)
{
    return member->job->state == JOB_RUNNING && !member->job->finishing &&
           member_may_touch(member) && member_has_model(member) && !member->drops &&
           !member_arrived(member) && member_has_step(member);
}

/* ---- steps
 * --------------------------------------------------------------------------------------- */

void member_rule(const Member *member, StepRule *ret)
{
    const JobSettings *settings = &member->settings;
    *ret = (StepRule){.lr = schedule_lr(&member->schedule, settings->lr, member->step),
                      .clip_norm = settings->clip,
                      .norm_limit = guard_limit(member),
                      .want_norm = settings->guard_norm > 0};
}

void member_order(Member *member, bool hold, StepOrder *ret)
{
    bool waits = hold || member_shares(member);
    *ret = (StepOrder){.step = member_step(member), .undo = waits ? member->undo : NULL};
    member_rule(member, &ret->rule);
    ret->rule.hold = hold;
    if (member->held) /* noted before the first of them */
        ret->undo = NULL;
    if (member_shares(member))
        ret->version = shared_version_number(member->pin_next);
}

int step_order_train(const StepOrder *order, Replica *replica, const Batch *batch, StepResult *ret,
                     Error *err)
{
    if (order->undo && !order->rule.again) {
        int r = replica_note_buffers(replica, order->undo);
        if (r < 0)
            return error_set(err, r, "the device failed");
    }
    if (!replica_is_shared(replica))
        return replica_train(replica, batch, order->step, &order->rule, ret, err);
    return replica_gradient(replica, batch, order->step, &order->rule, ret, err);
}

int step_order_context(const StepOrder *order, Replica *replica, Context *context, StepResult *ret,
                       Error *err)
{
    if (!replica_is_shared(replica))
        return replica_step(replica, context, &order->rule, ret, err);
    /* The context may go while its gradient waits: the member's own place keeps it. */
    return replica_take_gradient(replica, context, &order->rule, ret, err);
}

/* The batches that made the step, in the order in which they came. */
static void count_batches(Member *member)
{
    Job *job = member->job;
    for (unsigned i = 0; i <= member->held; i++) {
        dealer_done(job->dealer, member->rank);
        member->step++;
        job->batches++;
    }
    member->held = 0;
}

static void count(RoundAccount *round, const StepAccount *account)
{
    round->samples += account->samples;
    round->loss_sum += (double)account->loss * (double)account->samples;
    round->compute_us += account->compute_us;
    round->bytes_in += account->bytes_in;
    round->bytes_out += account->bytes_out;
}

/* What was held before counts with the step that it led to. */
static void count_step(Member *member, const StepAccount *account)
{
    RoundAccount *round = &member->account, *held = &member->held_account;
    count(held, account);
    round->samples += held->samples;
    round->loss_sum += held->loss_sum;
    round->compute_us += held->compute_us;
    round->bytes_in += held->bytes_in;
    round->bytes_out += held->bytes_out;
    member->job->samples += held->samples;
    *held = (RoundAccount){0};
}

void member_step_done(Member *member, const StepAccount *account)
{
    count_batches(member);
    member->last_loss = account->loss;
    count_step(member, account);
    if (member_arrived(member))
        member->arrived_us = clock_monotonic_us();
    managed_note_step(member);
    job_touch(member->job);
}

const Snapshot *member_undo(const Member *member)
{
    return member->held || member->contribution.ready ? member->noted : NULL;
}

void member_drop_held(Member *member)
{
    member->held = 0;
    member->held_account = (RoundAccount){0};
}

bool member_trained(Member *member, const StepOrder *order, const StepResult *result,
                    const StepAccount *account)
{
    if (!member->held)
        member->noted = order->undo;
    if (order->rule.hold) {
        member->held++;
        member->last_loss = account->loss;
        count(&member->held_account, account);
        if (result->verdict != STEP_HELD)
            guard_judge(member, result->verdict, result->gradient_norm);
        job_touch(member->job);
        return true;
    }
    if (member_shares(member)) {
        member_contribute(member, order->version, result->samples, account);
        return false;
    }
    guard_judge(member, result->verdict, result->gradient_norm);
    member_step_done(member, account);
    return true;
}

/* ---- shared parameters: versions that tasks and contexts read
 * ----------------------------------------- */

SharedVersion *member_hold_version(Member *member)
{
    if (member->pin)
        shared_version_hold(member->pin);
    return member->pin;
}

void member_drop_version(Member *member, SharedVersion *version)
{
    if (version && member->job->common.shared)
        shared_params_unpin(member->job->common.shared, version);
}

uint64_t member_shared_version(const Member *member)
{
    const SharedParams *shared = member->job->common.shared;
    return shared ? shared_params_version(shared) : 0;
}

int member_check_fresh(const Member *member, uint64_t version, Error *err)
{
    const JobSettings *settings = &member->settings;
    bool alike = member->job->policy->pace == PACE_STEP && !settings->quorum;
    if (!member_shares(member) || (!alike && settings->on_stale == STALE_APPLY))
        return 0;
    /* Where a step waits for all, their gradients are of the same parameters. */
    return shared_params_check(member->job->common.shared, version,
                               alike ? 0 : settings->max_staleness, err);
}

/* ---- on the lane
 * ----------------------------------------------------------------------------------- */

static void work(Task *task)
{
    MemberTask *member_task = (MemberTask *)task;
    Replica *replica = member_task->replica;
    engine_bind(replica_engine(replica));
    if (member_task->version)
        replica_attach(replica, member_task->version);
    member_task->work(member_task);
    if (member_task->version)
        replica_attach(replica, NULL);
}

static void done(Task *task)
{
    MemberTask *member_task = (MemberTask *)task;
    Job *job = member_task->member->job;
    Member *member = member_task->member;
    SharedVersion *pin = member->pin;
    member->busy = false;
    job->tasks--;
    member_task->finished(member_task); /* frees the task; its answer may have begun the next one */
    member_drop_version(member, pin);
    if (!member->busy)
        member->pin = NULL;
    member_give_up_held(member);
    if (member->drops && !member_is_in_step(member))
        drop_after_step(member);
    job_advance(job);
}

static void released(Task *task)
{
    MemberTask *member_task = (MemberTask *)task;
    Job *job = member_task->member->job;
    job->tasks--;
    member_task->finished(member_task);
    if (job->phase == PHASE_LEAVING)
        job_advance(job);
}

static void post(Member *member, MemberTask *task, void (*finished)(Task *))
{
    task->member = member;
    task->replica = member->replica;
    task->task = (Task){.work = work, .done = finished};
    member->job->tasks++;
    lane_post(member->lane, &task->task);
}

bool member_pin(Member *member)
{
    if (!member_shares(member))
        return true;
    member->pin_next = shared_params_pin(member->job->common.shared);
    return member->pin_next;
}

void member_unpin(Member *member)
{
    member_drop_version(member, member->pin_next);
    member->pin_next = NULL;
}

void member_run(Member *member, MemberTask *task)
{
    member->busy = true;
    task->version = member->pin = member->pin_next;
    member->pin_next = NULL;
    post(member, task, done);
}

void member_release(Member *member, MemberTask *task)
{
    task->version = NULL;
    post(member, task, released);
}
