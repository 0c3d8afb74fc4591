/* Changes of settings while a job runs: on disk first, then in force with the next round. */
#include "job/job_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct Update {
    Job *job;
    uint64_t round;
    size_t n;
    JobUpdated done;
    void *data;
    SettingChange changes[];
} Update;

static void fail(JobUpdated done, void *data, int r, Error *err)
{
    done(data, r, err, 0);
}

int pending_add(Job *job, const SettingChange *change)
{
    SettingChange *grown =
        realloc(job->pending, ((size_t)job->n_pending + 1) * sizeof *job->pending);
    if (!grown)
        return -ENOMEM;
    job->pending = grown;
    unsigned at = job->n_pending++;
    while (at > 0 && grown[at - 1].round > change->round) {
        grown[at] = grown[at - 1];
        at--;
    }
    grown[at] = *change;
    return 0;
}

/* On disk: a job that cannot remember it must not go on without it. */
static void remember(Job *job, const Update *update)
{
    for (size_t i = 0; i < update->n; i++)
        if (pending_add(job, &update->changes[i]) < 0) {
            job_fail(job, "out of memory for a change of settings; restore its last checkpoint");
            return;
        }
}

static void on_saved(void *data, int r, const Error *err)
{
    Update *update = data;
    Job *job = update->job;
    job->unsaved_settings -= (unsigned)update->n;
    if (r == 0)
        remember(job, update);
    job_touch(job);
    update->done(update->data, r, err, update->round);
    free(update);
    job_advance(job);
}

/* What the job's settings will be when all that was asked for holds. */
static JobSettings settings_to_be(const Job *job)
{
    JobSettings settings = job->settings;
    for (unsigned i = 0; i < job->n_pending; i++)
        (void)settings_apply(&settings, job->pending[i].key, job->pending[i].value, NULL);
    return settings;
}

static int check_change(const Job *job, const JobSettings *after, Error *err)
{
    const SyncPolicy *now, *next;
    JobSettings before = settings_to_be(job);
    int r = policy_find(before.policy, &now, err);
    if (r == 0)
        r = policy_find(after->policy, &next, err);
    if (r == 0)
        r = policy_may_follow(now, next, err);
    if (r == 0 && after->trainers > job->spec.max_trainers)
        r = error_set(err, -EINVAL,
                      "trainers=%u: job %llu was submitted for %u at the most (--max-trainers)",
                      after->trainers, (unsigned long long)job->id, job->spec.max_trainers);
    return r < 0 ? r : evaluation_check_settings(&job->spec, after, err);
}

static int check(const Job *job, const SettingText *settings, size_t n, Error *err)
{
    if (job_state_is_final(job->state) || job->finishing)
        return error_set(err, -ESTALE, "job %llu is %s; its settings are history",
                         (unsigned long long)job->id, job_state_name(job->state));
    if (n == 0)
        return error_set(err, -EINVAL, "no setting was given");
    if (job->n_pending + job->unsaved_settings + n > JOB_MAX_PENDING_SETTINGS)
        return error_set(err, -ENOBUFS,
                         "%u changes wait for the next round already; try again then",
                         job->n_pending);
    JobSettings trial = settings_to_be(job);
    for (size_t i = 0; i < n; i++) {
        int applied = settings_apply(&trial, settings[i].key, settings[i].value, err);
        if (applied < 0)
            return applied;
    }
    int r = check_change(job, &trial, err);
    if (r < 0)
        return r;
    if (job->phase != PHASE_LIVE && job->phase != PHASE_IDLE)
        return error_set(err, -EAGAIN, "job %llu is being loaded; try again in a moment",
                         (unsigned long long)job->id);
    return 0;
}

/* The round that the change holds from is fixed before it is saved, and the meeting that leads to
 * that round waits for the store: thus a recovered job changes at the same place. A meeting that is
 * under way no longer waits, nor does a rank that takes the mean, so the round after it is too soon.
 */
static int save(Update *update, const char *who)
{
    Job *job = update->job;
    SettingRecord *records = calloc(update->n + 1, sizeof *records);
    if (!records)
        return -ENOMEM;
    for (size_t i = 0; i < update->n; i++)
        records[i] = (SettingRecord){.job = job->id,
                                     .round = update->round,
                                     .unix_ms = clock_unix_ms(),
                                     .key = update->changes[i].key,
                                     .value = update->changes[i].value,
                                     .who = (char *)who};
    int r = store_settings_add(manager_store(job->manager), records, update->n, on_saved, update);
    free(records);
    return r;
}

void job_update(Job *job, const SettingText *settings, size_t n, const char *who, JobUpdated done,
                void *data)
{
    Error err = {0};
    int r = check(job, settings, n, &err);
    if (r < 0) {
        fail(done, data, r, &err);
        return;
    }
    Update *update = calloc(1, sizeof *update + n * sizeof *update->changes);
    if (!update) {
        fail(done, data, error_set(&err, -ENOMEM, "out of memory"), &err);
        return;
    }
    *update = (Update){.job = job, .n = n, .done = done, .data = data};
    update->round = rounds_furthest(job) + 1 + (job->meeting || job->refreshing);
    for (size_t i = 0; i < n; i++) {
        update->changes[i].round = update->round;
        snprintf(update->changes[i].key, SETTING_KEY_MAX, "%s", settings[i].key);
        snprintf(update->changes[i].value, SETTING_VALUE_MAX, "%s", settings[i].value);
    }
    job->unsaved_settings += (unsigned)n;
    r = save(update, who);
    if (r < 0) {
        job->unsaved_settings -= (unsigned)n;
        free(update);
        fail(done, data, error_set(&err, r, "out of memory"), &err);
    }
}
