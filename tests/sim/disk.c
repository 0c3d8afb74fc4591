#include "disk.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

static void release_setting(DiskSetting *setting)
{
    sim_release(setting->key);
    sim_release(setting->value);
}

static void release_checkpoint(DiskCheckpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n; i++)
        sim_release((void *)checkpoint->parts[i].data);
    sim_release(checkpoint->parts);
    sim_release(checkpoint->record.meta);
}

static void clear_job(DiskJob *job)
{
    sim_release(job->record.name);
    sim_release(job->record.spec);
    sim_release(job->record.owner);
    sim_release(job->record.reason);
    sim_release(job->record.result);
    for (size_t i = 0; i < job->n_settings; i++)
        release_setting(&job->settings[i]);
    for (size_t i = 0; i < job->n_checkpoints; i++)
        release_checkpoint(&job->checkpoints[i]);
    sim_release(job->rounds);
    sim_release(job->settings);
    sim_release(job->evaluations);
    sim_release(job->checkpoints);
}

void disk_clear(Disk *disk)
{
    for (size_t i = 0; i < disk->n; i++)
        clear_job(&disk->jobs[i]);
    *disk = (Disk){0};
}

DiskJob *disk_job(Disk *disk, uint64_t id)
{
    for (size_t i = 0; i < disk->n; i++)
        if (disk->jobs[i].record.id == id)
            return &disk->jobs[i];
    return NULL;
}

/* Grows at powers of two. */
static void *room_for_one(void *array, size_t n, size_t size)
{
    return n & (n - 1) || n == 1 ? array : sim_resize(array, (n ? n * 2 : 2) * size);
}

/* ---- rounds ------------------------------------------------------------------------------------
 */

void disk_add_round(DiskJob *job, const RoundRecord *row)
{
    job->rounds = room_for_one(job->rounds, job->n_rounds, sizeof *job->rounds);
    job->rounds[job->n_rounds++] =
        (DiskRound){.round = row->round, .step = row->step, .rank = row->rank};
    if (row->round > job->last_round)
        job->last_round = row->round;
}

const DiskRound *disk_last_row(const DiskJob *job, uint32_t rank)
{
    for (size_t i = job->n_rounds; i--;)
        if (job->rounds[i].rank == rank)
            return &job->rounds[i];
    return NULL;
}

void disk_rewind_rounds(DiskJob *job, const uint64_t *rank_rounds, uint32_t n)
{
    size_t kept = 0;
    job->last_round = 0;
    for (size_t i = 0; i < job->n_rounds; i++) {
        const DiskRound *row = &job->rounds[i];
        if (row->rank < n && row->round > rank_rounds[row->rank])
            continue;
        if (row->round > job->last_round)
            job->last_round = row->round;
        job->rounds[kept++] = *row;
    }
    job->n_rounds = kept;
}

/* ---- settings ----------------------------------------------------------------------------------
 */

void disk_add_setting(DiskJob *job, const SettingRecord *setting)
{
    job->settings = room_for_one(job->settings, job->n_settings, sizeof *job->settings);
    job->settings[job->n_settings++] = (DiskSetting){.round = setting->round,
                                                     .unix_ms = setting->unix_ms,
                                                     .key = sim_copy_text(setting->key),
                                                     .value = sim_copy_text(setting->value)};
    job->settings_stamp++;
}

void disk_rewind_settings(DiskJob *job, uint64_t round)
{
    size_t kept = 0;
    for (size_t i = 0; i < job->n_settings; i++) {
        if (job->settings[i].round > round)
            release_setting(&job->settings[i]);
        else
            job->settings[kept++] = job->settings[i];
    }
    job->n_settings = kept;
    job->settings_stamp++;
}

/* ---- evaluations ------------------------------------------------------------------------------- */

/* By round; one that is there already is replaced. */
void disk_add_evaluation(DiskJob *job, const EvaluationRecord *evaluation)
{
    size_t i = job->n_evaluations;
    while (i > 0 && job->evaluations[i - 1].round >= evaluation->round)
        i--;
    if (i < job->n_evaluations && job->evaluations[i].round == evaluation->round) {
        job->evaluations[i] = *evaluation;
        return;
    }
    job->evaluations = room_for_one(job->evaluations, job->n_evaluations, sizeof *evaluation);
    memmove(&job->evaluations[i + 1], &job->evaluations[i],
            (job->n_evaluations - i) * sizeof *evaluation);
    job->evaluations[i] = *evaluation;
    job->n_evaluations++;
}

void disk_rewind_evaluations(DiskJob *job, uint64_t round)
{
    while (job->n_evaluations && job->evaluations[job->n_evaluations - 1].round > round)
        job->n_evaluations--;
}

/* ---- checkpoints -------------------------------------------------------------------------------
 */

DiskCheckpoint *disk_add_checkpoint(DiskJob *job)
{
    job->checkpoints = room_for_one(job->checkpoints, job->n_checkpoints, sizeof *job->checkpoints);
    DiskCheckpoint *checkpoint = &job->checkpoints[job->n_checkpoints++];
    *checkpoint = (DiskCheckpoint){0};
    return checkpoint;
}

void disk_remove_checkpoint(DiskJob *job, size_t index)
{
    release_checkpoint(&job->checkpoints[index]);
    job->n_checkpoints--;
    memmove(&job->checkpoints[index], &job->checkpoints[index + 1],
            (job->n_checkpoints - index) * sizeof *job->checkpoints);
}

DiskCheckpoint *disk_latest_checkpoint(DiskJob *job)
{
    for (size_t i = job->n_checkpoints; i--;)
        if (!job->checkpoints[i].torn && !job->checkpoints[i].known_torn)
            return &job->checkpoints[i];
    return NULL;
}
