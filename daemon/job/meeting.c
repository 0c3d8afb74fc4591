/* Rounds, and the meeting that ends each: all live replicas are combined while nobody works on
 * them. */
#include "job/job_internal.h"

#include <stdio.h>

typedef struct MeetingTask {
    LaneTask lane_task; /* first */
    const SyncPolicy *policy;
    JobSettings settings;
    Common common;
    Engine *engine;
    SharedVersion *version; /* of shared parameters */
    MeanResult result;
    int n;
    uint32_t ranks[JOB_MAX_TRAINERS];
    Replica *replicas[JOB_MAX_TRAINERS];
    bool contributes[JOB_MAX_TRAINERS];
    bool newcomer[JOB_MAX_TRAINERS]; /* may be taken in after it */
    uint64_t samples[JOB_MAX_TRAINERS];
} MeetingTask;

bool job_work_is_done(Job *job)
{
    if (job->stop_wanted)
        return true;
    if (members_live(job) == 0)
        return false; /* a trainer may come yet */
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->place == MEMBER_LIVE && dealer_has_step(job->dealer, r, member->step))
            return false;
    }
    return true;
}

/* ---- when ------------------------------------------------------------------------------------ */

static bool is_awaited(Member *member)
{
    return member->place == MEMBER_LIVE && !member_arrived(member) && !quorum_leaves_out(member);
}

/* With barrier a round ends at the step that ends it for all; where nobody waits, with the job. */
static bool round_may_end(Job *job)
{
    if (job->policy->pace == PACE_FREE)
        return job_work_is_done(job) && !job->refreshing;
    if (contributions_wait(job))
        return false;
    return true;
}

bool meeting_is_due(Job *job)
{
    if (job->finishing || job->unsaved_settings || job->rounds_unsaved >= JOB_MAX_STORE_BACKLOG ||
        job->stepping || contributions_wait(job) || members_live(job) == 0 || !round_may_end(job))
        return false;
    bool anyone = false;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (is_awaited(member))
            return false;
        anyone |= member->place == MEMBER_LIVE && member_arrived(member);
    }
    return anyone;
}

/* Late ranks may be at work meanwhile. */
bool meeting_may_begin(Job *job)
{
    for (uint32_t r = 0; r < job->spec.max_trainers; r++)
        if (job->members[r].busy && member_arrived(&job->members[r]))
            return false;
    return !job->exclusive;
}

/* ---- what happens there ---------------------------------------------------------------------- */

static int greet_newcomers(MeetingTask *meeting, Error *err)
{
    int r = 0;
    for (int i = 0; i < meeting->n && r == 0; i++)
        if (meeting->newcomer[i] && meeting->common.centre)
            r = replica_take_centre(meeting->replicas[i], meeting->common.centre, err);
    return r;
}

static int seal_shared(MeetingTask *meeting)
{
    for (int i = 0; i < meeting->n; i++)
        meeting->result.finite[i] = true;
    meeting->result.contributors = meeting->n;
    return shared_version_checksum(meeting->common.shared, meeting->version,
                                   &meeting->result.checksum);
}

static void meeting_work(LaneTask *task)
{
    MeetingTask *meeting = (MeetingTask *)task;
    engine_bind(meeting->engine);
    if (meeting->policy->shared) {
        task->r = seal_shared(meeting);
        return;
    }
    const PolicyMeeting policy = {.replicas = meeting->replicas,
                                  .contributes = meeting->contributes,
                                  .samples = meeting->samples,
                                  .count = meeting->n,
                                  .centre = meeting->common.centre,
                                  .settings = &meeting->settings};
    task->r = meeting->policy->combine(&policy, &meeting->result, &task->err);
    if (task->r == 0)
        task->r = greet_newcomers(meeting, &task->err);
}

static void account_wait(Job *job)
{
    uint64_t now = clock_monotonic_us();
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        if (member->arrived_us)
            member->account.wait_us += now - member->arrived_us;
    }
}

/* Of a dropped rank only what it fed in this round before it was dropped. */
static void save_rounds(Job *job, const MeetingTask *meeting)
{
    Member *members[JOB_MAX_TRAINERS];
    bool contributed[JOB_MAX_TRAINERS];
    size_t n = 0;
    for (int i = 0; i < meeting->n; i++) {
        Member *member = &job->members[meeting->ranks[i]];
        if (member->account.samples == 0 &&
            (member->place != MEMBER_LIVE || job->policy->pace == PACE_FREE))
            continue;
        contributed[n] = meeting->contributes[i] && meeting->result.finite[i];
        members[n++] = member;
    }
    rounds_save(job, members, contributed, n);
}

static void judge_replicas(Job *job, const MeetingTask *meeting)
{
    for (int i = 0; i < meeting->n; i++)
        if (meeting->contributes[i])
            guard_judge_replica(&job->members[meeting->ranks[i]], meeting->result.finite[i]);
}

static void update_losses(Job *job)
{
    double sum = 0;
    unsigned n = 0;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        if (job->members[r].account.samples == 0)
            continue;
        sum += (double)job->members[r].last_loss;
        n++;
    }
    if (n)
        job->last_loss = (float)(sum / n);
}

static void update_rate(Job *job)
{
    uint64_t now = clock_monotonic_us();
    if (job->rate_mark_us && now - job->rate_mark_us >= USEC_PER_SEC / 2) {
        double rate = (double)(job->samples - job->rate_mark_samples) * 1e6 /
                      (double)(now - job->rate_mark_us);
        job->rate = job->rate > 0 ? 0.5 * job->rate + 0.5 * rate : rate;
    }
    if (!job->rate_mark_us || now - job->rate_mark_us >= USEC_PER_SEC / 2) {
        job->rate_mark_us = now;
        job->rate_mark_samples = job->samples;
    }
}

void job_round_is_over(Job *job)
{
    update_rate(job);
    job->rounds_since_checkpoint++;
    if (job_work_is_done(job) && job->policy->pace != PACE_FREE) {
        job->finishing = true;
        checkpoint_want(job, NULL, NULL);
    } else if (job->rounds_since_checkpoint >= job->settings.checkpoint_rounds &&
               !checkpoint_under_way(job)) {
        checkpoint_want(job, NULL, NULL);
    }
}

static void take_settings(Job *job)
{
    const SyncPolicy *policy;
    if (policy_find(job->settings.policy, &policy, NULL) == 0 && policy != job->policy) {
        log_job(LOG_NOTICE, job->id, -1, "policy %s from round %llu on", policy->name,
                (unsigned long long)job->round);
        job->policy = policy;
        if (!policy->centre && job->common.centre) /* a later one begins with the mean of then */
            common_leave(job);
    }
}

static void next_round(Job *job, const MeetingTask *meeting)
{
    bool ends = job->policy->pace == PACE_FREE;
    job_begin_round(job, rounds_furthest(job) + 1);
    for (int i = 0; i < meeting->n; i++)
        member_begin_round(&job->members[meeting->ranks[i]], job->round);
    take_settings(job);
    members_turn_over(job);
    if (ends) { /* the meeting that ends a job whose ranks do not meet */
        job->finishing = true;
        checkpoint_want(job, NULL, NULL);
        return;
    }
    job_round_is_over(job);
}

static void met(Job *job, const MeetingTask *meeting)
{
    judge_replicas(job, meeting);
    quorum_reset(job);
    if (meeting->result.contributors == 0) { /* the round is not over */
        job_halt(
            job,
            "every replica of round %llu has NaN or infinite numbers; restore a checkpoint and "
            "lower the learning rate",
            (unsigned long long)job->round);
        return;
    }
    job->checksum = meeting->result.checksum;
    update_losses(job);
    account_wait(job);
    save_rounds(job, meeting);
    next_round(job, meeting);
}

static void meeting_done(LaneTask *task)
{
    MeetingTask *meeting = (MeetingTask *)task;
    Job *job = task->job;
    job->exclusive = job->meeting = false;
    if (meeting->version)
        shared_params_unpin(job->common.shared, meeting->version);
    if (job->phase == PHASE_LIVE && task->r < 0)
        job_fail(job, "meeting of round %llu: %s", (unsigned long long)job->round,
                 task->err.message);
    else if (job->phase == PHASE_LIVE)
        met(job, meeting);
    free(meeting);
    job_advance(job);
}

/* Late ranks stay out: they may be in a step, and keep what they have. */
static void invite(Job *job, MeetingTask *meeting)
{
    bool any = false;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        Member *member = &job->members[r];
        bool live = member->place == MEMBER_LIVE;
        if (live && !member_arrived(member))
            continue;
        int i = meeting->n++;
        meeting->ranks[i] = r;
        meeting->replicas[i] = member->replica;
        meeting->samples[i] = member->account.samples;
        meeting->contributes[i] = live && member->account.samples > 0;
        meeting->newcomer[i] = !live;
        any |= meeting->contributes[i];
    }
    /* Nobody fed anything since the last mean: it stands, whoever confirms it. */
    for (int i = 0; !any && i < meeting->n; i++)
        meeting->contributes[i] = member_has_model(&job->members[meeting->ranks[i]]);
}

static MeetingTask *meeting_new(Job *job)
{
    MeetingTask *meeting = calloc(1, sizeof *meeting);
    if (!meeting)
        return NULL;
    meeting->policy = job->policy;
    meeting->settings = job->settings;
    meeting->common = job->common;
    meeting->engine = job->engines[lane_index(job->members[0].lane)];
    meeting->lane_task.work = meeting_work;
    meeting->lane_task.done = meeting_done;
    if (job->policy->shared)
        meeting->version = shared_params_pin(job->common.shared);
    invite(job, meeting);
    return meeting;
}

void meeting_begin(Job *job)
{
    MeetingTask *meeting = meeting_new(job);
    if (!meeting) {
        job_fail(job, "out of memory");
        return;
    }
    job->exclusive = job->meeting = true;
    job_post(job, job->members[0].lane, &meeting->lane_task);
}
