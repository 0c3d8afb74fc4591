/* Rounds: the steps of a rank between two synchronisations, their settings and their metrics. */
#include "job/job_internal.h"

#include <stdio.h>

/* The job's settings and those changes that hold by `round`. */
static JobSettings settings_at(const Job *job, uint64_t round)
{
    JobSettings settings = job->settings;
    for (unsigned i = 0; i < job->n_pending; i++)
        if (job->pending[i].round <= round)
            (void)settings_apply(&settings, job->pending[i].key, job->pending[i].value, NULL);
    return settings;
}

void job_begin_round(Job *job, uint64_t number)
{
    unsigned kept = 0;
    job->round = number;
    for (unsigned i = 0; i < job->n_pending; i++) {
        const SettingChange *change = &job->pending[i];
        if (change->round > number) {
            job->pending[kept++] = *change;
            continue;
        }
        (void)settings_apply(&job->settings, change->key, change->value, NULL);
        log_job(LOG_NOTICE, job->id, -1, "%s=%s from round %llu on", change->key, change->value,
                (unsigned long long)change->round);
    }
    job->n_pending = kept;
    job_touch(job);
}

void member_take_settings(Member *member)
{
    member->settings = settings_at(member->job, member->round.number);
    (void)schedule_parse(member->settings.schedule, &member->schedule, NULL); /* checked before */
}

void member_begin_round(Member *member, uint64_t number)
{
    member->round.number = number;
    member_take_settings(member);
    member->round = (Round){
        .number = number, .start = member->step, .end = member->step + member->settings.interval};
    member->account = (RoundAccount){0};
    member->arrived_us = 0;
}

uint64_t rounds_furthest(const Job *job)
{
    uint64_t furthest = job->round;
    if (!job->members && job->result_furthest > furthest)
        furthest = job->result_furthest;
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++)
        if (job->members[r].round.number > furthest)
            furthest = job->members[r].round.number;
    return furthest;
}

/* ---- where ranks do not meet ----------------------------------------------------------------- */

void member_end_free_round(Member *member, bool contributed)
{
    Job *job = member->job;
    if (member->arrived_us)
        member->account.wait_us += clock_monotonic_us() - member->arrived_us;
    rounds_save(job, &member, &contributed, 1);
    member_begin_round(member, member->round.number + 1);
}

static bool round_is_over(const Member *member)
{
    return member_has_model(member) && !member->busy && !member->contribution.ready &&
           !member->held && member->step >= member->round.end;
}

static bool may_end_rounds(const Job *job)
{
    return job->phase == PHASE_LIVE && !job->unsaved_settings &&
           job->rounds_unsaved < JOB_MAX_STORE_BACKLOG && !job->exclusive && !job->finishing;
}

/* Of the ranks that are live; where none is, the job stays where it was. */
static uint64_t slowest_round(const Job *job)
{
    uint64_t slowest = UINT64_MAX;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].place == MEMBER_LIVE && job->members[r].round.number < slowest)
            slowest = job->members[r].round.number;
    return slowest == UINT64_MAX ? job->round : slowest;
}

/* Means are taken one at a time, first come, first served: else low ranks would starve the others. */
static bool is_next_to_refresh(const Member *member)
{
    const Job *job = member->job;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        const Member *other = &job->members[r];
        if (other != member && round_is_over(other) && other->arrived_us < member->arrived_us)
            return false;
    }
    return !job->refreshing;
}

static void end_round(Member *member)
{
    Job *job = member->job;
    bool alone = members_live(job) < 2; /* the mean of one is itself */
    if (!job->policy->refreshes || alone)
        member_end_free_round(member, true);
    else if (is_next_to_refresh(member))
        refresh_begin(member);
}

/* Who was taken in takes the mean first, unless whoever was to give it has gone meanwhile. */
static void catch_up(Member *member)
{
    Job *job = member->job;
    bool others = false;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        others |= member_has_model(&job->members[r]);
    if (!others)
        member->behind = false;
    else if (!job->refreshing)
        refresh_begin(member);
}

static void end_rounds(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers && may_end_rounds(job); r++)
        if (round_is_over(&job->members[r]))
            end_round(&job->members[r]);
}

static void catch_up_all(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers && may_end_rounds(job); r++) {
        Member *member = &job->members[r];
        if (member->place == MEMBER_LIVE && member->behind && !member->busy)
            catch_up(member);
    }
}

void free_rounds_advance(Job *job)
{
    catch_up_all(job);
    end_rounds(job);
    if (job->phase != PHASE_LIVE)
        return;
    if (job->round < slowest_round(job)) {
        job_begin_round(job, slowest_round(job));
        members_turn_over(job);
        job_round_is_over(job);
    } else if (!job->exclusive) {
        members_turn_over(job); /* nobody waits for a meeting: who comes is taken in at once */
    }
    catch_up_all(job);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void on_saved(void *data, int r, const Error *err)
{
    Job *job = data;
    job->rounds_unsaved--;
    if (r < 0)
        log_job(LOG_ERR, job->id, -1, "metrics of a round are not saved: %s", err->message);
    job_advance(job);
}

/* The decimal number that a user would write, not the float nearest to it in double. */
static double shown_lr(const Member *member)
{
    char text[24];
    snprintf(text, sizeof text, "%.7g",
             (double)schedule_lr(&member->schedule, member->settings.lr, member->round.start));
    return strtod(text, NULL);
}

static RoundRecord row_of(const Member *member, bool contributed)
{
    const RoundAccount *account = &member->account;
    return (RoundRecord){
        .job = member->job->id,
        .round = member->round.number,
        .rank = member->rank,
        .step = member->step,
        .samples = account->samples,
        .bytes_in = account->bytes_in,
        .bytes_out = account->bytes_out,
        .loss = account->samples ? account->loss_sum / (double)account->samples : 0,
        .compute_ms = (double)account->compute_us / 1e3,
        .wait_ms = (double)account->wait_us / 1e3,
        .lr = shown_lr(member),
        .contributed = contributed,
    };
}

void rounds_save(Job *job, Member *const *members, const bool *contributed, size_t n)
{
    RoundRecord rows[JOB_MAX_TRAINERS];
    for (size_t i = 0; i < n; i++)
        rows[i] = row_of(members[i], contributed[i]);
    job->rounds_unsaved++;
    if (n && store_rounds_add(manager_store(job->manager), rows, n, on_saved, job) == 0)
        return;
    job->rounds_unsaved--;
    if (n)
        log_job(LOG_ERR, job->id, -1, "metrics of a round are not saved: out of memory");
}
