/* Rounds, and the meeting that ends each: all live replicas are combined while nobody works on
 * them. */
#include "job/job_internal.h"

#include <stdio.h>

typedef struct MeetingTask {
    LaneTask lane_task; /* first */
    const SyncPolicy *policy;
    MeanResult result;
    int n;
    uint32_t ranks[JOB_MAX_TRAINERS];
    Replica *replicas[JOB_MAX_TRAINERS];
    bool contributes[JOB_MAX_TRAINERS];
} MeetingTask;

/* ---- the round ------------------------------------------------------------------------------- */

static void apply_pending(Job *job)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < job->n_pending; i++) {
        const SettingChange *change = &job->pending[i];
        if (change->round > job->round.number) {
            job->pending[kept++] = *change;
            continue;
        }
        (void)settings_apply(&job->settings, change->key, change->value, NULL);
        log_job(LOG_NOTICE, job->id, -1, "%s=%s from round %llu on", change->key, change->value,
                (unsigned long long)job->round.number);
    }
    job->n_pending = kept;
}

void round_begin(Job *job, uint64_t number, uint64_t start)
{
    job->round.number = number;
    job->round.start = start;
    apply_pending(job);
    job->round.end = start + job->settings.interval;
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        job->members[r].account = (RoundAccount){0};
        job->members[r].arrived_us = 0;
    }
    members_turn_over(job);
    job_touch(job);
}

bool job_work_is_done(Job *job)
{
    if (members_live(job) == 0)
        return false; /* a trainer may come yet */
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        if (member->place == MEMBER_LIVE && dealer_has_step(job->dealer, r, member->step))
            return false;
    }
    return true;
}

/* ---- when ------------------------------------------------------------------------------------ */

bool meeting_is_due(Job *job)
{
    if (job->finishing || job->unsaved_settings || job->rounds_unsaved >= JOB_MAX_STORE_BACKLOG ||
        members_live(job) == 0)
        return false;
    for (uint32_t r = 0; r < job->spec.trainers; r++)
        if (job->members[r].place == MEMBER_LIVE && !member_arrived(&job->members[r]))
            return false;
    return true;
}

bool meeting_is_next(Job *job)
{
    return job->state == JOB_RUNNING && !job->stopping && meeting_is_due(job);
}

/* ---- what happens there ---------------------------------------------------------------------- */

static void meeting_work(LaneTask *task)
{
    MeetingTask *meeting = (MeetingTask *)task;
    engine_bind(replica_engine(meeting->replicas[0]));
    task->r = meeting->policy->combine(meeting->replicas, meeting->contributes, meeting->n,
                                       &meeting->result, &task->err);
}

static void on_rounds_saved(void *data, int r, const Error *err)
{
    Job *job = data;
    job->rounds_unsaved--;
    if (r < 0)
        log_job(LOG_ERR, job->id, -1, "metrics of a round are not saved: %s", err->message);
    job_advance(job);
}

static void account_wait(Job *job)
{
    uint64_t now = clock_monotonic_us();
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        Member *member = &job->members[r];
        if (member->arrived_us)
            member->account.wait_us += now - member->arrived_us;
    }
}

/* The decimal number that a user gave, not the float nearest to it in double. */
static double shown_lr(float lr)
{
    char text[24];
    snprintf(text, sizeof text, "%.7g", (double)lr);
    return strtod(text, NULL);
}

static void save_rounds(Job *job, const MeetingTask *meeting)
{
    RoundRecord rows[JOB_MAX_TRAINERS];
    size_t n = 0;
    for (int i = 0; i < meeting->n; i++) {
        const Member *member = &job->members[meeting->ranks[i]];
        const RoundAccount *account = &member->account;
        if (member->place != MEMBER_LIVE && account->samples == 0)
            continue;
        rows[n++] = (RoundRecord){
            .job = job->id,
            .round = job->round.number,
            .rank = member->rank,
            .step = member->step,
            .samples = account->samples,
            .bytes_in = account->bytes_in,
            .bytes_out = account->bytes_out,
            .loss = account->samples ? account->loss_sum / (double)account->samples : 0,
            .compute_ms = (double)account->compute_us / 1e3,
            .wait_ms = (double)account->wait_us / 1e3,
            .lr = shown_lr(job->settings.lr),
            .contributed = meeting->contributes[i] && meeting->result.finite[i],
        };
    }
    job->rounds_unsaved++;
    if (store_rounds_add(manager_store(job->manager), rows, n, on_rounds_saved, job) < 0) {
        job->rounds_unsaved--;
        log_job(LOG_ERR, job->id, -1, "metrics of a round are not saved: out of memory");
    }
}

static void name_the_excluded(Job *job, const MeetingTask *meeting)
{
    for (int i = 0; i < meeting->n; i++) {
        if (!meeting->contributes[i] || meeting->result.finite[i])
            continue;
        uint32_t rank = meeting->ranks[i];
        log_job(
            LOG_WARNING, job->id, (int)rank,
            "its replica has NaN or infinite numbers and was kept out of the mean of round %llu",
            (unsigned long long)job->round.number);
        job_event(job, "quarantine", NULL,
                  "rank %u has NaN or infinite numbers and was kept out of the mean", rank);
    }
}

static void update_losses(Job *job)
{
    double sum = 0;
    unsigned n = 0;
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        if (job->members[r].account.samples == 0)
            continue;
        sum += (double)job->members[r].last_loss;
        n++;
    }
    if (n)
        job->last_loss = (float)(sum / n);
}

/* The step that the next round begins with: where those who took a full part in this one stand. */
static uint64_t next_start(const Job *job)
{
    uint64_t furthest = job->round.start;
    for (uint32_t r = 0; r < job->spec.trainers; r++)
        if (job->members[r].place == MEMBER_LIVE && job->members[r].step > furthest)
            furthest = job->members[r].step;
    return furthest < job->round.end ? furthest : job->round.end;
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

static void after_meeting(Job *job)
{
    round_begin(job, job->round.number + 1, next_start(job));
    update_rate(job);
    job->rounds_since_checkpoint++;
    if (job_work_is_done(job)) {
        job->finishing = true;
        checkpoint_want(job, NULL, NULL);
    } else if (job->rounds_since_checkpoint >= job->settings.checkpoint_rounds &&
               !checkpoint_under_way(job)) {
        checkpoint_want(job, NULL, NULL);
    }
}

static void meeting_done(LaneTask *task)
{
    MeetingTask *meeting = (MeetingTask *)task;
    Job *job = task->job;
    job->exclusive = job->meeting = false;
    if (job->phase == PHASE_LIVE) {
        if (task->r < 0) {
            job_fail(job, "meeting of round %llu: %s", (unsigned long long)job->round.number,
                     task->err.message);
        } else if (meeting->result.contributors == 0) {
            name_the_excluded(job, meeting);
            job_fail(
                job,
                "every replica of round %llu has NaN or infinite numbers; restore a checkpoint "
                "and lower the learning rate",
                (unsigned long long)job->round.number);
        } else {
            job->checksum = meeting->result.checksum;
            update_losses(job);
            account_wait(job);
            save_rounds(job, meeting);
            name_the_excluded(job, meeting);
            after_meeting(job);
        }
    }
    free(meeting);
    job_advance(job);
}

static MeetingTask *meeting_new(Job *job)
{
    MeetingTask *meeting = calloc(1, sizeof *meeting);
    if (!meeting)
        return NULL;
    meeting->policy = job->policy;
    meeting->lane_task.work = meeting_work;
    meeting->lane_task.done = meeting_done;
    bool any = false;
    for (uint32_t r = 0; r < job->spec.trainers; r++) {
        const Member *member = &job->members[r];
        int i = meeting->n++;
        meeting->ranks[i] = r;
        meeting->replicas[i] = member->replica;
        meeting->contributes[i] = member->place == MEMBER_LIVE && member->account.samples > 0;
        any |= meeting->contributes[i];
    }
    /* Nobody fed anything since the last mean: it stands, whoever confirms it. */
    for (int i = 0; !any && i < meeting->n; i++)
        meeting->contributes[i] = job->members[meeting->ranks[i]].place == MEMBER_LIVE;
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
