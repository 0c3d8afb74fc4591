/* What survives the daemon: the rows that the real store keeps in SQLite. The simulation's memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

enum { DISK_MAX_JOBS = 8 };

typedef struct DiskRound {
    uint64_t round, step;
    uint32_t rank;
} DiskRound;

typedef struct DiskSetting {
    uint64_t round, unix_ms;
    char *key, *value;
} DiskSetting;

typedef struct DiskCheckpoint {
    CheckpointRecord record; /* its texts are the disk's */
    CheckpointPart *parts;
    size_t n;
    uint64_t samples; /* of the job, when it was saved */
    bool torn, known_torn;
} DiskCheckpoint;

typedef struct DiskJob {
    JobRecord record;   /* its texts are the disk's */
    bool state_unsure;  /* a change of state was refused, by a fault */
    bool result_behind; /* no state was saved since the last checkpoint */
    DiskRound *rounds;
    size_t n_rounds;
    uint64_t last_round; /* the highest that has rows */
    bool lost_rounds;    /* some are missing, by a fault or because ranks do not meet */
    DiskSetting *settings;
    size_t n_settings;
    uint64_t settings_stamp; /* grows with every change of the settings */
    EvaluationRecord *evaluations;
    size_t n_evaluations;
    bool pins_unsure;            /* a pin was refused, by a fault */
    DiskCheckpoint *checkpoints; /* oldest first */
    size_t n_checkpoints;
} DiskJob;

typedef struct Disk {
    DiskJob jobs[DISK_MAX_JOBS];
    size_t n;
    uint64_t next_job, next_checkpoint;
    bool full;           /* every write fails */
    unsigned fail_next;  /* so many requests fail */
    uint64_t slow_until; /* requests take long */
    uint64_t healthy_since;
} Disk;

void disk_clear(Disk *disk);
DiskJob *disk_job(Disk *disk, uint64_t id);
void disk_add_round(DiskJob *job, const RoundRecord *row);
/* Those of each rank after its round. */
void disk_rewind_rounds(DiskJob *job, const uint64_t *rank_rounds, uint32_t n);
void disk_add_setting(DiskJob *job, const SettingRecord *setting);
void disk_rewind_settings(DiskJob *job, uint64_t round);
void disk_add_evaluation(DiskJob *job, const EvaluationRecord *evaluation);
void disk_rewind_evaluations(DiskJob *job, uint64_t round);
DiskCheckpoint *disk_add_checkpoint(DiskJob *job);
void disk_remove_checkpoint(DiskJob *job, size_t index);
/* NULL: none that counts as valid */
DiskCheckpoint *disk_latest_checkpoint(DiskJob *job);
/* The rank's last row; NULL: none. */
const DiskRound *disk_last_row(const DiskJob *job, uint32_t rank);
