/* In place of store/settings.c, rounds.c and rewind.c. Rounds are checked as they come: none is
 * missing, none comes twice, no rank's step goes back. */
#include <stdlib.h>
#include <string.h>

#include "fake_store.h"

/* ---- rounds ------------------------------------------------------------------------------------
 */

typedef struct RoundsAsked {
    Asked asked;
    RoundRecord *rows;
    size_t n;
} RoundsAsked;

static void rounds_release(Asked *asked)
{
    free(((RoundsAsked *)asked)->rows);
}

static void check_row(const DiskJob *job, const RoundRecord *row)
{
    const DiskRound *before = disk_last_row(job, row->rank);
    if (before && row->round <= before->round)
        sim_fail("job %llu: metrics of round %llu come for rank %u after those of round %llu",
                 (unsigned long long)row->job, (unsigned long long)row->round, row->rank,
                 (unsigned long long)before->round);
    if (before && row->step < before->step)
        sim_fail("job %llu: the metrics of rank %u go back from step %llu to %llu in round %llu",
                 (unsigned long long)row->job, row->rank, (unsigned long long)before->step,
                 (unsigned long long)row->step, (unsigned long long)row->round);
}

static int rounds_run(Asked *asked)
{
    const RoundsAsked *add = (RoundsAsked *)asked;
    DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    job->lost_rounds |= !check_ranks_meet(asked->job);
    if (!job->lost_rounds && add->rows[0].round != job->last_round + 1)
        sim_fail("job %llu: metrics of round %llu come; the last in the store is %llu",
                 (unsigned long long)asked->job, (unsigned long long)add->rows[0].round,
                 (unsigned long long)job->last_round);
    for (size_t i = 0; i < add->n; i++)
        check_row(job, &add->rows[i]);
    for (size_t i = 0; i < add->n; i++)
        disk_add_round(job, &add->rows[i]);
    return 0;
}

static void rounds_fails(Asked *asked)
{
    DiskJob *job = disk_job(&world.disk, asked->job);
    if (job)
        job->lost_rounds = true;
}

static const AskedKind rounds_kind = {.what = "record the round's metrics",
                                      .writes = true,
                                      .run = rounds_run,
                                      .fails = rounds_fails,
                                      .answer = asked_answer_done,
                                      .release = rounds_release};

int store_rounds_add(Store *store, const RoundRecord *rows, size_t n, StoreDone done, void *data)
{
    Asked *asked;
    if (n == 0)
        sim_fail("a round without any metrics");
    for (size_t i = 0; i < n; i++)
        trace("  metrics of round %llu: rank %u at step %llu, %llu samples",
              (unsigned long long)rows[i].round, rows[i].rank, (unsigned long long)rows[i].step,
              (unsigned long long)rows[i].samples);
    check_meeting(rows, n);
    int r = asked_new(store, &rounds_kind, sizeof(RoundsAsked), rows[0].job, data, &asked);
    if (r < 0)
        return r;
    RoundsAsked *add = (RoundsAsked *)asked;
    asked->done = done;
    add->n = n;
    add->rows = malloc(n * sizeof *rows);
    memcpy(add->rows, rows, n * sizeof *rows);
    asked_post(asked);
    return 0;
}

/* ---- settings ----------------------------------------------------------------------------------
 */

typedef struct SettingsAsked {
    Asked asked;
    SettingRecord *settings;
    size_t n;
    StoreSettingsLoaded loaded;
} SettingsAsked;

static void settings_release(Asked *asked)
{
    SettingsAsked *settings = (SettingsAsked *)asked;
    for (size_t i = 0; i < settings->n; i++) {
        free(settings->settings[i].key);
        free(settings->settings[i].value);
    }
    free(settings->settings);
}

static int settings_run(Asked *asked)
{
    const SettingsAsked *add = (SettingsAsked *)asked;
    DiskJob *job = asked_job(asked);
    SimJob *sim = sim_job_by_id(asked->job);
    for (size_t i = 0; job && i < add->n; i++)
        disk_add_setting(job, &add->settings[i]);
    if (job && (job->state_unsure || job->result_behind) && !sim->seen_live)
        sim->settings_unsure = true;
    return job ? 0 : -ENOENT;
}

static const AskedKind settings_kind = {.what = "record the change of settings",
                                        .writes = true,
                                        .run = settings_run,
                                        .answer = asked_answer_done,
                                        .release = settings_release};

int store_settings_add(Store *store, const SettingRecord *settings, size_t n, StoreDone done,
                       void *data)
{
    Asked *asked;
    int r = asked_new(store, &settings_kind, sizeof(SettingsAsked), settings[0].job, data, &asked);
    if (r < 0)
        return r;
    SettingsAsked *add = (SettingsAsked *)asked;
    asked->done = done;
    add->n = n;
    add->settings = calloc(n, sizeof *settings);
    for (size_t i = 0; i < n; i++)
        add->settings[i] = (SettingRecord){.job = settings[i].job,
                                           .round = settings[i].round,
                                           .unix_ms = settings[i].unix_ms,
                                           .key = strdup(settings[i].key),
                                           .value = strdup(settings[i].value)};
    asked_post(asked);
    return 0;
}

/* Copies of what the disk has now: others may be added before the answer. */
static int settings_load_run(Asked *asked)
{
    SettingsAsked *load = (SettingsAsked *)asked;
    const DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    load->settings = calloc(job->n_settings + 1, sizeof *load->settings);
    for (size_t i = 0; i < job->n_settings; i++)
        load->settings[load->n++] = (SettingRecord){.job = asked->job,
                                                    .round = job->settings[i].round,
                                                    .unix_ms = job->settings[i].unix_ms,
                                                    .key = strdup(job->settings[i].key),
                                                    .value = strdup(job->settings[i].value),
                                                    .who = (char *)"somebody"};
    return 0;
}

static void unreadable(Asked *asked)
{
    SimJob *job = sim_job_by_id(asked->job);
    if (job)
        job->unreadable = true;
}

static void settings_load_answer(Asked *asked, const Error *err)
{
    const SettingsAsked *load = (SettingsAsked *)asked;
    load->loaded(asked->data, asked->r, err, load->settings, load->n);
}

static const AskedKind settings_load_kind = {.what = "read the settings",
                                             .run = settings_load_run,
                                             .fails = unreadable,
                                             .answer = settings_load_answer,
                                             .release = settings_release};

int store_settings_load(Store *store, uint64_t job, StoreSettingsLoaded done, void *data)
{
    Asked *asked;
    int r = asked_new(store, &settings_load_kind, sizeof(SettingsAsked), job, data, &asked);
    if (r < 0)
        return r;
    ((SettingsAsked *)asked)->loaded = done;
    asked_post(asked);
    return 0;
}

/* ---- rewind ------------------------------------------------------------------------------------
 */

typedef struct RewindAsked {
    Asked asked;
    uint64_t round, checkpoint;
    bool also_settings;
    uint32_t n_ranks;
    uint64_t rank_rounds[JOB_MAX_TRAINERS];
} RewindAsked;

static uint64_t furthest_round(const RewindAsked *rewind)
{
    uint64_t behind = rewind->round;
    for (uint32_t rank = 0; rank < rewind->n_ranks; rank++)
        if (rewind->rank_rounds[rank] > behind)
            behind = rewind->rank_rounds[rank];
    return behind + 1;
}

static int rewind_run(Asked *asked)
{
    const RewindAsked *rewind = (RewindAsked *)asked;
    DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    disk_rewind_rounds(job, rewind->rank_rounds, rewind->n_ranks);
    disk_rewind_evaluations(job, rewind->round);
    if (!rewind->also_settings)
        return 0;
    disk_rewind_settings(job, furthest_round(rewind));
    while (job->n_checkpoints &&
           job->checkpoints[job->n_checkpoints - 1].record.id > rewind->checkpoint)
        disk_remove_checkpoint(job, job->n_checkpoints - 1);
    return 0;
}

static const AskedKind rewind_kind = {.what = "rewind the job's records",
                                      .writes = true,
                                      .run = rewind_run,
                                      .fails = unreadable,
                                      .answer = asked_answer_done};

int store_job_rewind(Store *store, uint64_t job, uint64_t round, const uint64_t *rank_rounds,
                     uint32_t n_ranks, bool also_settings, uint64_t checkpoint, StoreDone done,
                     void *data)
{
    Asked *asked;
    int r = asked_new(store, &rewind_kind, sizeof(RewindAsked), job, data, &asked);
    if (r < 0)
        return r;
    RewindAsked *rewind = (RewindAsked *)asked;
    asked->done = done;
    rewind->round = round;
    rewind->n_ranks = n_ranks;
    memcpy(rewind->rank_rounds, rank_rounds, n_ranks * sizeof *rank_rounds);
    rewind->also_settings = also_settings;
    rewind->checkpoint = checkpoint;
    asked_post(asked);
    return 0;
}
