/* Trainers that come, go and get lost; what that does to the meetings. */
#include "job/job_internal.h"

#include <stdio.h>
#include <string.h>

static void on_rejoin_timeout(void *data);

int members_new(Job *job)
{
    job->members = calloc(job->spec.max_trainers, sizeof *job->members);
    if (!job->members)
        return -ENOMEM;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
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
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++) {
        timer_cancel(timers, &job->members[r].rejoin);
        timer_cancel(timers, &job->members[r].managed.backoff);
        timer_cancel(timers, &job->members[r].managed.absence);
        snapshot_free(job->members[r].cut);
        snapshot_free(job->members[r].copy);
        snapshot_free(job->members[r].undo);
    }
    free(job->members);
    job->members = NULL;
}

unsigned members_live(const Job *job)
{
    unsigned live = 0;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        live += job->members[r].place == MEMBER_LIVE;
    return live;
}

bool member_has_model(const Member *member)
{
    return member->place == MEMBER_LIVE && !member->behind;
}

bool members_busy(const Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].busy)
            return true;
    return false;
}

/* Batches may have come to who had none left. */
static void wait_no_longer(Job *job)
{
    uint64_t now = clock_monotonic_us();
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (!member->arrived_us || member_arrived(member))
            continue;
        member->account.wait_us += now - member->arrived_us;
        member->arrived_us = 0;
    }
}

/* A task of it is on its lane, or its gradient waits for the optimizer step: its batch is used. */
bool member_is_in_step(const Member *member)
{
    return member->busy || member->contribution.ready;
}

/* ---- coming ---------------------------------------------------------------------------------- */

static Member *free_rank(Job *job, const JoinWant *want, MemberPlace place, bool spare)
{
    bool managed = !job->spec.external_trainers;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->events || member->spare != spare || member->place != place)
            continue;
        if (!managed || strcmp(member->managed.token, want->token) == 0)
            return member;
    }
    return NULL;
}

/* Ranks that others wait for come first, those that there may be besides last. */
static int find_free_rank(Job *job, const JoinWant *want, Member **ret, Error *err)
{
    *ret = free_rank(job, want, MEMBER_LIVE, false);
    if (!*ret)
        *ret = free_rank(job, want, MEMBER_DROPPED, false);
    if (!*ret)
        *ret = free_rank(job, want, MEMBER_DROPPED, true);
    if (*ret)
        return 0;
    return error_set(err, -EBUSY, "all %u ranks of job %llu have a trainer", job->spec.max_trainers,
                     (unsigned long long)job->id);
}

static int find_member(Job *job, const JoinWant *want, Member **ret, Error *err)
{
    if (want->any_rank)
        return find_free_rank(job, want, ret, err);
    if (want->rank >= job->spec.max_trainers)
        return error_set(err, -ENOENT, "job %llu has no rank %u: its ranks are 0 to %u",
                         (unsigned long long)job->id, want->rank, job->spec.max_trainers - 1);
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
    if (member->spare && !job->spec.external_trainers)
        return error_set(err, -EAGAIN, "rank %u of job %llu is not wanted: trainers is %u",
                         member->rank, (unsigned long long)job->id, job->settings.trainers);
    if (members_live(job) == 0 && !job->exclusive) {
        member_admit(member);
        return 0;
    }
    member->wants_back = true;
    job_advance(job); /* where nobody meets it may be taken in at once */
    if (member->place == MEMBER_LIVE)
        return 0;
    return error_set(err, -EAGAIN, "rank %u of job %llu is taken in when round %llu ends (%s)",
                     member->rank, (unsigned long long)job->id, (unsigned long long)job->round,
                     member->absent_why);
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
    if (member_is_in_step(member))
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

/* Gradients that wait for their step go with the trainer that was to finish it; the batches are
 * dealt to it, or to others, again. */
typedef struct DropHeld {
    LaneTask lane_task; /* first */
    Member *member;
    Replica *replica;
    const Snapshot *undo; /* what its buffers were before them; NULL: nothing to undo */
} DropHeld;

static void drop_held_work(LaneTask *task)
{
    DropHeld *drop = (DropHeld *)task;
    engine_bind(replica_engine(drop->replica));
    replica_drop_held(drop->replica);
    if (drop->undo)
        task->r = replica_undo_buffers(drop->replica, drop->undo);
}

static void drop_held_done(LaneTask *task)
{
    Member *member = ((DropHeld *)task)->member;
    Job *job = task->job;
    member->busy = false;
    if (task->r < 0 && job->phase == PHASE_LIVE)
        job_fail(job, "the device failed");
    free(task);
    if (member->drops)
        drop_after_step(member);
    job_advance(job);
}

/* Not of one in a step: that step may be the one that they wait for. */
void member_give_up_held(Member *member)
{
    if (!member->held || member->events || member_is_in_step(member))
        return;
    const Snapshot *undo = member_undo(member);
    member_drop_held(member);
    DropHeld *drop = calloc(1, sizeof *drop);
    if (!drop) {
        job_fail(member->job, "out of memory");
        return;
    }
    drop->lane_task.work = drop_held_work;
    drop->lane_task.done = drop_held_done;
    drop->member = member;
    drop->replica = member->replica;
    drop->undo = undo;
    member->busy = true; /* no meeting and no cut may have its replica meanwhile */
    job_post(member->job, member->lane, &drop->lane_task);
}

void member_leave(Member *member, bool lost, const char *why)
{
    Job *job = member->job;
    member->events = NULL;
    member->events_data = NULL;
    member->reading = false;
    snprintf(member->absent_why, sizeof member->absent_why, "%s", why);
    member_give_up_held(member);
    job_touch(job);
    if (job->phase != PHASE_LIVE || job_state_is_final(job->state) || job->finishing)
        return;
    bool met = member_arrived(member) && !member->contribution.ready;
    if (!lost && met) { /* its part of the round still counts */
        member->leaves = true;
        return;
    }
    if (!lost) {
        member_drop(member, why);
        return;
    }
    if (member->place == MEMBER_DROPPED)
        return; /* it was not wanted any longer, or given up before */
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
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        someone_waits |= job->members[r].arrived_us != 0 || job->members[r].wants_back;
    for (uint32_t r = 0; someone_waits && r < job->spec.max_trainers; r++) {
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
    if (member_is_in_step(member)) {
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

void drop_after_step(Member *member)
{
    member->drops = false;
    if (member->job->phase != PHASE_LIVE || member->job->finishing)
        return;
    if (member_arrived(member)) /* its part of the round still counts */
        member->leaves = true;
    else
        member_drop(member, member->absent_why);
}

/* trainers=N: ranks N and above are not wanted any longer, those below are (again). */
static void follow_trainers(Member *member)
{
    Job *job = member->job;
    bool wanted = member->rank < job->settings.trainers;
    if (wanted && member->spare) {
        member->spare = false;
        member->wants_back = member->place == MEMBER_DROPPED;
        if (!member->wants_back) { /* it had not gone yet */
            member->drops = member->leaves = false;
            managed_start(member);
        }
    } else if (!wanted && !member->spare && !job->spec.external_trainers) {
        member->spare = true;
        managed_stop(member);
        snprintf(member->absent_why, sizeof member->absent_why, "fewer trainers are wanted");
        if (member_is_in_step(member))
            member->drops = true;
        else
            (void)take_out(member, member->absent_why);
    }
}

void members_turn_over(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        follow_trainers(member);
        if (member->wants_back)
            member_admit(member);
        else if (member->leaves && !member_is_in_step(member) &&
                 dealer_has_step(job->dealer, r, member->step))
            (void)take_out(member, member->absent_why);
    }
}

/* Into the job's round, but for one that is further, or in the middle of that very round: where
 * ranks do not meet, or all had left. No round of a rank is told of twice, or not at all. */
static void enter_round(Member *member)
{
    Job *job = member->job;
    bool contributed = false;
    if (member->round.number > job->round ||
        (member->round.number == job->round && member->account.samples)) {
        member->arrived_us = member_arrived(member) ? clock_monotonic_us() : 0;
        return;
    }
    if (job->policy->pace == PACE_FREE && member->account.samples)
        rounds_save(job, &member, &contributed, 1);
    member_begin_round(member, job->round);
}

/* Where nobody meets it could bring an old replica, or the seed's, into the means of others. */
static bool must_take_mean(const Member *member)
{
    const Job *job = member->job;
    bool others = false;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        others |= &job->members[r] != member && member_has_model(&job->members[r]);
    return job->policy->refreshes && others;
}

void member_admit(Member *member)
{
    Job *job = member->job;
    uint64_t step = member->step;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].place == MEMBER_LIVE && job->members[r].step > step)
            step = job->members[r].step;
    member->behind = must_take_mean(member);
    member->place = MEMBER_LIVE;
    member->wants_back = member->spare = false;
    member->step = step;
    dealer_admit(job->dealer, member->rank, step);
    enter_round(member);
    managed_start(member);
    job_set_reason(job, "%s", "");
    log_job(LOG_NOTICE, job->id, (int)member->rank, "taken in at round %llu",
            (unsigned long long)job->round);
    job_event(job, "trainer", NULL, "rank %u taken in", member->rank);
}

void members_end(Job *job, const char *reason)
{
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++) {
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
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++)
        if (job->members[r].events)
            job->members[r].events->on_ready(job->members[r].events_data);
}
