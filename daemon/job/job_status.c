/* What status tells of a job. */
#include "job/job_internal.h"

#include <string.h>

/* The round in progress; of a job that has completed, the last one that was. */
uint64_t job_shown_round(const Job *job)
{
    uint64_t round = job->members ? job->round : job->result_round;
    return round - (job->state == JOB_COMPLETED && round > 0);
}

uint64_t job_step(const Job *job)
{
    if (!job->members)
        return job->result_step;
    uint64_t step = UINT64_MAX, furthest = 0;
    for (uint32_t r = 0; r < job->spec.max_trainers; r++) {
        const Member *member = &job->members[r];
        furthest = member->step > furthest ? member->step : furthest;
        if (member->place == MEMBER_LIVE && member->step < step)
            step = member->step;
    }
    return step == UINT64_MAX ? furthest : step;
}

uint64_t job_epoch(const Job *job)
{
    uint64_t per_epoch = job->dealer ? dealer_batches_per_epoch(job->dealer) : 0;
    return job->members ? (per_epoch ? job->batches / per_epoch : 0) : job->result_epoch;
}

static uint64_t samples_total(const JobSpec *spec)
{
    if (spec->epochs)
        return spec->samples * spec->epochs;
    return spec->steps * spec->trainers * spec->batch;
}

uint32_t job_member_count(const Job *job)
{
    return job->members || job->summary ? job->spec.max_trainers : 0;
}

/* Over the ranks' last batches; of a job that is not in memory, what was kept. */
static float mean_loss(const Job *job)
{
    double sum = 0;
    unsigned n = 0;
    for (uint32_t r = 0; job->members && r < job->spec.max_trainers; r++) {
        if (job->members[r].step == 0 || job->members[r].place != MEMBER_LIVE)
            continue;
        sum += (double)job->members[r].last_loss;
        n++;
    }
    return n ? (float)(sum / n) : job->last_loss;
}

void job_status(Job *job, JobStatus *ret)
{
    uint64_t now = clock_monotonic_us(), total = samples_total(&job->spec);
    bool running = job->state == JOB_RUNNING;
    *ret = (JobStatus){
        .id = job->id,
        .round = job_shown_round(job),
        .step = job_step(job),
        .epoch = job_epoch(job),
        .samples = job->samples,
        .samples_total = total,
        .created_ms = job->created_ms,
        .checkpoint = job->latest_checkpoint,
        .state = job->state,
        .reason = job->reason,
        .owner = job->owner,
        .device = strcmp(job->spec.device, "auto") == 0 ? "cpu" : job->spec.device,
        .spec = &job->spec,
        .plan = job_plan(job),
        .settings = job->settings,
        .loss = mean_loss(job),
        .checksum = job->checksum,
        .samples_per_s = running ? job->rate : 0,
        .eta_s = -1,
        .accuracy = job->evaluation.accuracy_round ? job->evaluation.accuracy : -1,
        .accuracy_round = job->evaluation.accuracy_round,
        .running_s = job->lived_s + (running ? (double)(now - job->live_since_us) / 1e6 : 0),
    };
    if (running && job->rate > 0 && total >= job->samples)
        ret->eta_s = (double)(total - job->samples) / job->rate;
}
