/* What users ask for, at any time and in any state: each question has one answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_replica.h"
#include "sim.h"

static void on_request(void *data, uint64_t arg);

/* ---- answers -----------------------------------------------------------------------------------
 */

static void tell(const Question *question, int r, const Error *err)
{
    events_mix((uint64_t)(uint32_t)r);
    const char *sentence = r < 0 && err ? err->message : "";
    trace("  %s: %d %s", question->what, r, sentence);
    if (r < 0 && !*sentence)
        sim_fail("%s is refused without a sentence", question->what);
}

static void on_done(void *data, int r, const Error *err)
{
    tell(data, r, err);
    question_answered(data);
}

static void on_updated(void *data, int r, const Error *err, uint64_t round)
{
    tell(data, r, err);
    if (r == 0)
        trace("  from round %llu on", (unsigned long long)round);
    question_answered(data);
}

static void on_checkpointed(void *data, int r, const Error *err, const CheckpointRecord *record)
{
    tell(data, r, err);
    question_answered(data);
    if (r < 0)
        return;
    DiskJob *job = disk_job(&world.disk, record->job);
    for (size_t i = 0; i < job->n_checkpoints; i++)
        if (job->checkpoints[i].record.id == record->id)
            return;
    DiskCheckpoint *latest = disk_latest_checkpoint(job);
    if (!latest || latest->record.id < record->id) /* else a later one has taken its place */
        sim_fail("checkpoint %llu was answered and is not on the disk",
                 (unsigned long long)record->id);
}

static void on_mean(void *data, int r, const Error *err, Snapshot *mean)
{
    tell(data, r, err);
    question_answered(data);
    snapshot_free(mean);
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static void set(Job *job)
{
    char keys[3][SETTING_KEY_MAX], values[3][SETTING_VALUE_MAX];
    SettingText settings[3];
    size_t n = sim_between(1, 3);
    for (size_t i = 0; i < n; i++) {
        settings_random(keys[i], sizeof keys[i], values[i], sizeof values[i]);
        settings[i] = (SettingText){keys[i], values[i]};
        trace("  %s=%s", keys[i], values[i]);
    }
    job_update(job, settings, n, "a user", on_updated, question_new("set", job));
}

static void pause_it(Job *job)
{
    job_pause(job, "a user", on_done, question_new("pause", job));
}

static void resume(Job *job)
{
    job_resume(job, "a user", on_done, question_new("resume", job));
}

static void cancel(Job *job)
{
    if (sim_chance(100))
        job_cancel(job, "a user", on_done, question_new("cancel", job));
}

static void checkpoint(Job *job)
{
    job_checkpoint(job, on_checkpointed, question_new("checkpoint", job));
}

static uint64_t some_checkpoint(const Job *job)
{
    const DiskJob *disk = disk_job(&world.disk, job_id(job));
    if (!disk || !disk->n_checkpoints || sim_chance(400))
        return 0;
    return disk->checkpoints[sim_between(0, disk->n_checkpoints - 1)].record.id;
}

static void restore(Job *job)
{
    uint64_t id = sim_chance(50) ? 999999 : some_checkpoint(job);
    if (sim_chance(300))
        job_restore(job, id, "a user", on_done, question_new("restore", job));
}

static void mean(Job *job)
{
    job_mean(job, some_checkpoint(job), on_mean, question_new("mean", job));
}

static void evaluate(Job *job)
{
    evaluation_by_user(job, some_checkpoint(job));
}

static void give_up(Job *job)
{
    (void)job;
    evaluation_abandon_one();
}

static void look(Job *job)
{
    JobStatus status;
    MemberStatus member;
    job_status(job, &status);
    for (uint32_t rank = 0; rank < job_member_count(job); rank++)
        job_member_status(job, rank, &member);
}

static const struct Request {
    const char *name;
    void (*make)(Job *job);
} requests[] = {
    {"set", set},         {"set", set},       {"set", set},           {"pause", pause_it},
    {"resume", resume},   {"resume", resume}, {"cancel", cancel},     {"checkpoint", checkpoint},
    {"restore", restore}, {"mean", mean},     {"evaluate", evaluate}, {"give up", give_up},
    {"status", look},
};

static void on_request(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    if (world_is_calm())
        return;
    event_in(sim_between(0, 2 * SIM_SECOND * 1000 / (world.requests + 1)), "user asks", on_request,
             NULL, 0);
    if (!world.n_jobs || !world.loaded)
        return;
    Job *job = sim_daemon_job(&world.jobs[sim_between(0, world.n_jobs - 1)]);
    const struct Request *request =
        &requests[sim_between(0, sizeof requests / sizeof *requests - 1)];
    if (!job)
        return;
    trace("  %s job %llu", request->name, (unsigned long long)job_id(job));
    request->make(job);
}

void users_begin(void)
{
    event_in(sim_between(0, 3 * SIM_SECOND), "user asks", on_request, NULL, 0);
}

/* In peace nobody leaves a job paused. */
static void on_look_around(void *data, uint64_t arg)
{
    (void)data;
    (void)arg;
    event_in(SIM_SECOND, "user looks around", on_look_around, NULL, 0);
    for (unsigned i = 0; i < world.n_jobs && world.loaded && !world.stopping; i++) {
        Job *job = sim_daemon_job(&world.jobs[i]);
        if (!job || job_state(job) != JOB_PAUSED)
            continue;
        if (world.jobs[i].poisoned) /* its numbers are lost */
            job_cancel(job, "a user", on_done, question_new("cancel", job));
        else
            resume(job);
    }
}

void users_calm(void)
{
    event_in(SIM_SECOND, "user looks around", on_look_around, NULL, 0);
}
