/* Trainers that come, go and get lost; what that does to the meetings. */
#include "job/job_internal.h"

#include <stdio.h>
#include <string.h>

static void on_rejoin_timeout(void *data);

int members_new(Job *job)
{
    job->members = calloc(job->spec.trainers, sizeof *job->members);
    if (!job->members)
        return -ENOMEM;
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        member->job = job;
        member->rank = r;
        member->rejoin = (Timer){.fire = on_rejoin_timeout, .data = member};
        snprintf(member->absent_why, sizeof member->absent_why, "its trainer has not come yet");
    }
    return 0;
}

void members_free(Job *job)
{
    Timers *timers = manager_spec(job->manager)->timers;
    for (uint32_t r = 0; job->members && r < job->spec.trainers; r++) {
        timer_cancel(timers, &job->members[r].rejoin);
        timer_cancel(timers, &job->members[r].managed.backoff);
        timer_cancel(timers, &job->members[r].managed.absence);
        snapshot_free(job->members[r].cut);
    }
    free(job->members);
    job->members = NULL;
}

unsigned members_live(const Job *job)
{
    unsigned live = 0;
    for (uint32_t r = 0; r < job->spec.trainers; r++)
        live += job->members[r].place == MEMBER_LIVE;
    return live;
}

bool members_busy(const Job *job)
{
    for (uint32_t r = 0; r < job->spec.trainers; r++)
        if (job->members[r].busy)
            return true;
    return false;
}

/* Whether the member has nothing to do before the meeting. */
bool member_arrived(Member *member)
{
    Job *job = member->job;
    return job->policy->must_wait(&job->round, member->step) ||
           !dealer_has_step(job->dealer, member->rank, member->step);
}

/* Batches may have come to who had none left. */
static void wait_no_longer(Job *job)
{
    uint64_t now = clock_monotonic_us();
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        if (!member->arrived_us || member_arrived(member))
            continue;
        member->account.wait_us += now - member->arrived_us;
        member->arrived_us = 0;
    }
}

/* ---- coming ---------------------------------------------------------------------------------- */

static int find_free_rank(Job *job, const JoinWant *want, Member **ret, Error *err)
{
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        bool managed = !job->spec.external_trainers;
        if (!member->events && (!managed || strcmp(member->managed.token, want->token) == 0)) {
            *ret = member;
            return 0;
        }
    }
    return error_set(err, -EBUSY, "all %u ranks of job %llu have a trainer", job->spec.trainers,
                     (unsigned long long)job->id);
}

static int find_member(Job *job, const JoinWant *want, Member **ret, Error *err)
{
    if (want->any_rank)
        return find_free_rank(job, want, ret, err);
    if (want->rank >= job->spec.trainers)
        return error_set(err, -ENOENT, "job %llu has no rank %u: its ranks are 0 to %u",
                         (unsigned long long)job->id, want->rank, job->spec.trainers - 1);
    Member *member = &job->members[want->rank];
    if (!job->spec.external_trainers && strcmp(member->managed.token, want->token) != 0)
        return error_set(err, -EPERM,
                         "rank %u of job %llu is for the trainer that dpsd starts; submit with "
                         "--external-trainers to bring your own",
                         want->rank, (unsigned long long)job->id);
    if (member->events)
        return error_set(err, -EBUSY, "rank %u of job %llu has a trainer already (%s)", want->rank,
                         (unsigned long long)job->id, member->client);
    *ret = member;
    return 0;
}

static int check_joinable(const Job *job, const JoinWant *want, Error *err)
{
    if (job_state_is_final(job->state))
        return error_set(err, -ESTALE, "job %llu is %s", (unsigned long long)job->id,
                         job_state_name(job->state));
    if (job->phase != PHASE_LIVE || job->finishing || job->stopping)
        return error_set(err, -EAGAIN, "job %llu is %s%s; try again in a moment",
                         (unsigned long long)job->id, job_state_name(job->state),
                         job->finishing ? " and saving its result" : "");
    if (want->own_data && !job->spec.external_trainers)
        return error_set(err, -EINVAL, "job %llu has managed trainers, which take leases",
                         (unsigned long long)job->id);
    if (!want->own_data && job->spec.samples == 0)
        return error_set(err, -EINVAL,
                         "job %llu knows no data set, so it deals no leases: join with own_data",
                         (unsigned long long)job->id);
    return 0;
}

/* A dropped rank comes back at a round boundary, with the mean; where nobody is left, at once. */
static int come_back(Member *member, Error *err)
{
    Job *job = member->job;
    if (members_live(job) == 0 && !job->exclusive) {
        member_admit(member);
        return 0;
    }
    member->wants_back = true;
    return error_set(err, -EAGAIN,
                     "rank %u of job %llu was dropped (%s); it is taken back when round %llu ends",
                     member->rank, (unsigned long long)job->id, member->absent_why,
                     (unsigned long long)job->round.number);
}

int job_join(Job *job, const JoinWant *want, const MemberEvents *events, void *data, Member **ret,
             Error *err)
{
    Member *member = NULL;
    int r = check_joinable(job, want, err);
    if (r == 0)
        r = find_member(job, want, &member, err);
    if (r < 0 || !member)
        return r;
    if (member->busy)
        return error_set(err, -EAGAIN, "rank %u is ending its last step; try again in a moment",
                         member->rank);
    if (member->place == MEMBER_DROPPED && (r = come_back(member, err)) < 0)
        return r;
    timer_cancel(manager_spec(job->manager)->timers, &member->rejoin);
    member->events = events;
    member->events_data = data;
    member->own_data = want->own_data;
    member->reading = true;
    snprintf(member->client, sizeof member->client, "%s", want->client);
    if (!member->ever_joined || job->spec.external_trainers)
        log_job(LOG_INFO, job->id, (int)member->rank, "trainer joined (%s)", member->client);
    member->ever_joined = true;
    member->leaves = member->drops = false;
    job_touch(job);
    *ret = member;
    return 0;
}

/* ---- going ----------------------------------------------------------------------------------- */

void member_leave(Member *member, bool lost, const char *why)
{
    Job *job = member->job;
    member->events = NULL;
    member->events_data = NULL;
    member->reading = false;
    snprintf(member->absent_why, sizeof member->absent_why, "%s", why);
    job_touch(job);
    if (job->phase != PHASE_LIVE || job_state_is_final(job->state) || job->finishing)
        return;
    if (!lost && member_arrived(member)) { /* its part of the round still counts */
        member->leaves = true;
        return;
    }
    if (!lost) {
        member_drop(member, why);
        return;
    }
    log_job(LOG_WARNING, job->id, (int)member->rank, "trainer lost: %s", why);
    job_event(job, "trainer", NULL, "rank %u lost its trainer: %s", member->rank, why);
    managed_note_absence(member);
    if (job->state == JOB_RUNNING)
        timer_arm(manager_spec(job->manager)->timers, &member->rejoin,
                  manager_spec(job->manager)->rejoin_us);
    job_advance(job);
}

static void on_rejoin_timeout(void *data)
{
    Member *member = data;
    Job *job = member->job;
    if (job->state == JOB_RUNNING && !member->events)
        member_drop(member, member->absent_why);
}

void members_wait_for_absent(Job *job)
{
    const JobManagerSpec *spec = manager_spec(job->manager);
    bool someone_waits = false;
    for (uint32_t r = 0; r < job->spec.trainers; r++)
        someone_waits |= job->members[r].arrived_us != 0;
    for (uint32_t r = 0; someone_waits && r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        if (!member->events && member->place == MEMBER_LIVE && !member_arrived(member) &&
            !timer_is_armed(&member->rejoin))
            timer_arm(spec->timers, &member->rejoin, spec->rejoin_us);
    }
}

static bool take_out(Member *member, const char *why)
{
    Job *job = member->job;
    if (member->place == MEMBER_DROPPED)
        return false;
    timer_cancel(manager_spec(job->manager)->timers, &member->rejoin);
    member->place = MEMBER_DROPPED;
    member->arrived_us = 0;
    if (dealer_drop(job->dealer, member->rank) < 0) {
        job_fail(job, "out of memory");
        return false;
    }
    log_job(LOG_WARNING, job->id, (int)member->rank, "dropped, the meeting goes on without it: %s",
            why);
    job_event(job, "trainer", NULL, "rank %u dropped: %s", member->rank, why);
    if (members_live(job) == 0)
        job_set_reason(job, "waiting for trainers: rank %u was the last, %s", member->rank, why);
    return true;
}

/* The batch of a step in flight is used: it must not be dealt again. */
void member_drop(Member *member, const char *why)
{
    if (member->busy) {
        member->drops = true;
        if (why != member->absent_why)
            snprintf(member->absent_why, sizeof member->absent_why, "%s", why);
        return;
    }
    if (take_out(member, why)) {
        wait_no_longer(member->job);
        job_advance(member->job);
    }
}

static void drop_after_step(Member *member)
{
    member->drops = false;
    if (member->job->phase != PHASE_LIVE || member->job->finishing)
        return;
    if (member_arrived(member)) /* its part of the round still counts */
        member->leaves = true;
    else
        member_drop(member, member->absent_why);
}

void members_turn_over(Job *job)
{
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        if (member->wants_back)
            member_admit(member);
        else if (member->leaves && dealer_has_step(job->dealer, r, member->step))
            (void)take_out(member, member->absent_why);
    }
}

void member_admit(Member *member)
{
    Job *job = member->job;
    uint64_t step = member->step > job->round.start ? member->step : job->round.start;
    member->place = MEMBER_LIVE;
    member->wants_back = false;
    member->step = step;
    dealer_admit(job->dealer, member->rank, step);
    job_set_reason(job, "%s", "");
    log_job(LOG_NOTICE, job->id, (int)member->rank, "taken back at round %llu",
            (unsigned long long)job->round.number);
    job_event(job, "trainer", NULL, "rank %u taken back", member->rank);
}

void members_end(Job *job, const char *reason)
{
    for (uint32_t r = 0; job->members && r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        const MemberEvents *events = member->events;
        timer_cancel(manager_spec(job->manager)->timers, &member->rejoin);
        member->events = NULL;
        if (events)
            events->on_end(member->events_data, reason);
    }
}

void members_ready(Job *job)
{
    for (uint32_t r = 0; job->members && r < job->spec.trainers; r++)
        if (job->members[r].events)
            job->members[r].events->on_ready(job->members[r].events_data);
}

/* ---- what a session asks --------------------------------------------------------------------- */

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
    return member->step;
}

uint64_t member_round(const Member *member)
{
    return member->job->round.number;
}

const char *member_lane_name(const Member *member)
{
    return lane_name(member->lane);
}

float member_lr(const Member *member)
{
    return member->job->settings.lr;
}

bool member_own_data(const Member *member)
{
    return member->own_data;
}

int member_batch(Member *member, uint64_t step, DealerBatch *ret)
{
    return dealer_batch(member->job->dealer, member->rank, step, ret);
}

bool member_may_touch(const Member *member)
{
    const Job *job = member->job;
    return job->phase == PHASE_LIVE && !job->exclusive && !member->busy && !job->stopping &&
           !job_cut_is_next(job) && !meeting_is_next(member->job);
}

bool member_waits(Member *member)
{
    return member_arrived(member);
}

bool member_has_step(Member *member)
{
    return dealer_has_step(member->job->dealer, member->rank, member->step);
}

bool member_may_step(Member *member)
{
    return member->job->state == JOB_RUNNING && !member->job->finishing &&
           member_may_touch(member) && member->place == MEMBER_LIVE && !member->drops &&
           !member_arrived(member);
}

void member_set_reading(Member *member, bool reading)
{
    if (member->reading != reading)
        job_touch(member->job);
    member->reading = reading;
}

/* ---- work on the member's lane --------------------------------------------------------------- */

static void work(Task *task)
{
    MemberTask *member_task = (MemberTask *)task;
    engine_bind(replica_engine(member_task->replica));
    member_task->work(member_task);
}

static void done(Task *task)
{
    MemberTask *member_task = (MemberTask *)task;
    Job *job = member_task->member->job;
    Member *member = member_task->member;
    member->busy = false;
    job->tasks--;
    member_task->finished(member_task); /* frees the task */
    if (member->drops && !member->busy)
        drop_after_step(member);
    job_advance(job);
}

static void post(Member *member, MemberTask *task, void (*when_done)(Task *task))
{
    task->member = member;
    task->replica = member->replica;
    task->task = (Task){.work = work, .done = when_done};
    member->job->tasks++;
    lane_post(member->lane, &task->task);
}

void member_run(Member *member, MemberTask *task)
{
    member->busy = true;
    post(member, task, done);
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

void member_release(Member *member, MemberTask *task)
{
    post(member, task, released);
}

void member_step_done(Member *member, const StepAccount *account)
{
    Job *job = member->job;
    RoundAccount *round = &member->account;
    dealer_done(job->dealer, member->rank);
    member->step++;
    member->last_loss = account->loss;
    round->samples += account->samples;
    round->loss_sum += (double)account->loss * (double)account->samples;
    round->compute_us += account->compute_us;
    round->bytes_in += account->bytes_in;
    round->bytes_out += account->bytes_out;
    job->samples += account->samples;
    job->batches++;
    if (member_arrived(member))
        member->arrived_us = clock_monotonic_us();
    managed_note_step(member);
    job_touch(job);
}

/* ---- status ---------------------------------------------------------------------------------- */

static const char *state_text(Member *member)
{
    const Job *job = member->job;
    if (member->place == MEMBER_DROPPED)
        return "dropped";
    if (job->finishing || job_state_is_final(job->state))
        return "done";
    if (!member->events)
        return member->ever_joined || job->spec.external_trainers ? "absent" : "starting";
    if (member->busy)
        return "computing";
    if (member->arrived_us)
        return "waiting";
    return member->reading ? "reading" : "computing";
}

/* "rank 2 (no trainer: killed by signal 9), rank 3 (reading)" */
static void name_awaited(Job *job, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < job->spec.trainers && used < size; r++) {
        Member *other = &job->members[r];
        if (other->place != MEMBER_LIVE || other->arrived_us)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%srank %u (%s%s)", used ? ", " : "", r,
                                 other->events ? "" : "no trainer: ",
                                 other->events ? state_text(other) : other->absent_why);
    }
}

static void summary_status(const Job *job, uint32_t rank, MemberStatus *ret)
{
    const RankSummary *summary = &job->summary[rank];
    *ret = (MemberStatus){.rank = rank,
                          .state = summary->dropped ? "dropped" : "done",
                          .step = summary->step,
                          .loss = summary->loss,
                          .restarts = summary->restarts,
                          .device = "",
                          .waiting_for = "",
                          .client = ""};
}

void job_member_status(Job *job, uint32_t rank, MemberStatus *ret)
{
    static char awaited[JOB_TEXT_MAX]; /* loop thread only; valid until the next call */
    awaited[0] = '\0';
    if (!job->members) {
        summary_status(job, rank, ret);
        return;
    }
    Member *member = &job->members[rank];
    if (member->arrived_us)
        name_awaited(job, awaited, sizeof awaited);
    *ret = (MemberStatus){
        .rank = rank,
        .state = state_text(member),
        .step = member->step,
        .loss = member->last_loss,
        .device = member->lane ? lane_name(member->lane) : "",
        .waiting_s =
            member->arrived_us ? (double)(clock_monotonic_us() - member->arrived_us) / 1e6 : 0,
        .waiting_for = awaited,
        .restarts = member->managed.restarts,
        .client = member->client,
    };
}
