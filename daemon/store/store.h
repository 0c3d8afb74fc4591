/* SQLite on a thread of its own: jobs, events, settings, per-round metrics, checkpoints.
 *
 * Every call but open and close is asynchronous: it copies or takes what it is given, runs on the
 * store thread in the order of the calls, and ends with one callback on the loop's thread. A
 * callback gets 0 or a negative errno with a sentence: -ENOSPC (disk full), -EROFS, -EIO, -ENOENT,
 * -EBADMSG (corrupt). What a callback is handed is valid during the callback only, unless said
 * otherwise.
 *
 * A call that succeeded is on disk (synchronous=FULL) when its callback runs.
 *
 * The calls themselves return 0 or -ENOMEM, -EAGAIN (thousands of requests wait already),
 * -ESHUTDOWN (store_close was called); then there is no callback. Texts may be NULL, which is kept
 * as ""; those that come back are never NULL, but for `problem`. A job that the database does not
 * have is -ENOENT. A StoreDone may be NULL: then the store logs what fails. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mailbox.h"

typedef struct Store Store;

/* Opens or creates state_dir/dps.db, migrates it forward, checks it. -EPROTO: the database was
 * written by a newer dps (left untouched); -EBUSY: another dpsd has it; -EACCES, -EROFS, -ENOSPC,
 * -EBADMSG. */
int store_open(const char *state_dir, Mailbox *loop, Store **ret, Error *err);
/* Ends what was asked for, then closes. Returns NULL. The answers still lie in the loop's mailbox:
 * the caller drains it, `while ((task = mailbox_take(loop))) task->done(task);`, and each callback
 * runs as usual; a request made from one of them is refused with -ESHUTDOWN. The memory that they
 * need goes with the last of them. */
Store *store_close(Store *store);

/* Requests asked for and not yet answered. Loop thread. */
size_t store_pending(const Store *store);
/* Answers from the store thread when it gets there: the watchdog's question. */
typedef void (*StoreDone)(void *data, int r, const Error *err);
int store_ping(Store *store, StoreDone done, void *data);

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef struct JobRecord {
    uint64_t id; /* assigned by insert */
    char *name;
    char *spec;  /* JSON, the job's own format */
    char *owner; /* "uid=1000 (ada)" */
    int state;   /* the job's own numbers; the store only keeps them */
    char *reason;
    char *result; /* JSON: last known progress, for the list after a restart */
    uint64_t created_ms, updated_ms;
} JobRecord;

typedef void (*StoreJobInserted)(void *data, int r, const Error *err, uint64_t id);
typedef void (*StoreJobsLoaded)(void *data, int r, const Error *err, const JobRecord *jobs,
                                size_t n);

int store_job_insert(Store *store, const JobRecord *job, StoreJobInserted done, void *data);
/* Writes state, reason, result and updated_ms of job->id. done may be NULL. */
int store_job_update(Store *store, const JobRecord *job, StoreDone done, void *data);
/* All jobs, by id. */
int store_jobs_load(Store *store, StoreJobsLoaded done, void *data);

/* ---- events and settings --------------------------------------------------------------------- */

typedef struct EventRecord {
    uint64_t id, job, unix_ms, round; /* job 0: the daemon itself */
    char *kind, *who, *text;
} EventRecord;

typedef void (*StoreEventsLoaded)(void *data, int r, const Error *err, const EventRecord *events,
                                  size_t n);

/* event->id is not looked at. */
int store_event_add(Store *store, const EventRecord *event, StoreDone done, void *data);
/* Those of the job (0: of the daemon itself) after `after_id`, by id. */
int store_events_load(Store *store, uint64_t job, uint64_t after_id, size_t limit,
                      StoreEventsLoaded done, void *data);

/* A change of a setting, in force from `round` on. */
typedef struct SettingRecord {
    uint64_t job, round, unix_ms;
    char *key, *value, *who;
} SettingRecord;

typedef void (*StoreSettingsLoaded)(void *data, int r, const Error *err,
                                    const SettingRecord *settings, size_t n);

/* All of them in one transaction, with an event each. */
int store_settings_add(Store *store, const SettingRecord *settings, size_t n, StoreDone done,
                       void *data);
/* In the order in which they were asked for. */
int store_settings_load(Store *store, uint64_t job, StoreSettingsLoaded done, void *data);

/* ---- metrics --------------------------------------------------------------------------------- */

typedef struct RoundRecord {
    uint64_t job, round;
    uint32_t rank;
    uint64_t step, samples, bytes_in, bytes_out;
    double loss, compute_ms, wait_ms, lr; /* NaN comes back as NaN */
    bool contributed;
} RoundRecord;

typedef void (*StoreRoundsLoaded)(void *data, int r, const Error *err, const RoundRecord *rows,
                                  size_t n);

/* The rows of one round, in one transaction. A row that is there already (job, round, rank) is
 * replaced. */
int store_rounds_add(Store *store, const RoundRecord *rows, size_t n, StoreDone done, void *data);
/* Rows of rounds after `after_round`, ordered by round and rank, at most `limit`; whole rounds
 * only, and at least one of them, if that alone is more than `limit`. */
int store_rounds_load(Store *store, uint64_t job, uint64_t after_round, size_t limit,
                      StoreRoundsLoaded done, void *data);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* A named piece of a checkpoint. Pieces with the same bytes are stored once. */
typedef struct CheckpointPart {
    char name[48]; /* "rank0/params" */
    const void *data;
    size_t bytes;
} CheckpointPart;

typedef struct CheckpointRecord {
    uint64_t id; /* assigned by save */
    uint64_t job, round, step, created_ms;
    uint64_t bytes; /* on disk */
    char *meta;     /* JSON, the job's own format; covered by the checksum */
    bool valid;
    char *problem; /* when not valid: which part and why */
    bool in_use;   /* has PIN_IN_USE: from the beginning where it is saved with it */
    bool best;     /* has PIN_BEST; not looked at by save */
} CheckpointRecord;

/* Why a checkpoint is not pruned, however old it is. */
typedef enum CheckpointPin {
    PIN_IN_USE, /* an evaluation reads it, or is to read it when dpsd is back */
    PIN_BEST,   /* the job's best so far */
} CheckpointPin;

typedef void (*StoreCheckpointSaved)(void *data, int r, const Error *err, uint64_t id);
typedef void (*StoreCheckpointLoaded)(void *data, int r, const Error *err,
                                      const CheckpointRecord *checkpoint,
                                      const CheckpointPart *parts, size_t n);
typedef void (*StoreCheckpointsListed)(void *data, int r, const Error *err,
                                       const CheckpointRecord *checkpoints, size_t n);

/* Saves all parts in one transaction, then prunes the job's older checkpoints down to `keep` valid
 * ones (0: keep all), not counting those that are pinned, and gives the space back. The parts'
 * memory stays the caller's and must live until the callback. Where this fails nothing that was
 * saved before is lost. */
int store_checkpoint_save(Store *store, const CheckpointRecord *checkpoint,
                          const CheckpointPart *parts, size_t n, unsigned keep,
                          StoreCheckpointSaved done, void *data);
/* id 0: the latest valid one of the job; each torn or corrupt one on the way is logged as a warning
 * that names it and marked not valid, with an event. An explicit id that is corrupt: -EBADMSG.
 * -ENOENT: none. */
int store_checkpoint_load(Store *store, uint64_t job, uint64_t id, StoreCheckpointLoaded done,
                          void *data);
/* Gives a pin of the job to the checkpoint `id`, whichever had it before; 0: to none. */
int store_checkpoint_pin(Store *store, uint64_t job, CheckpointPin pin, uint64_t id, StoreDone done,
                         void *data);
/* Newest first. Verifies every checksum when `verify`. */
int store_checkpoints_list(Store *store, uint64_t job, bool verify, StoreCheckpointsListed done,
                           void *data);

/* ---- evaluations ----------------------------------------------------------------------------- */

/* What the averaged model of a checkpoint was worth on held-out data. */
typedef struct EvaluationRecord {
    uint64_t job, round, checkpoint, samples, unix_ms;
    double accuracy, loss; /* NaN comes back as NaN */
    bool best;             /* add: its checkpoint gets PIN_BEST; load: it has it */
    bool kept;             /* load: its checkpoint is there, and valid as far as is known */
} EvaluationRecord;

/* What a job knows of its evaluations. */
typedef struct EvaluationsLoaded {
    const EvaluationRecord *rows; /* n, by round */
    size_t n;
    uint64_t in_use, in_use_round; /* the checkpoint that has PIN_IN_USE; 0: none */
} EvaluationsLoaded;

typedef void (*StoreEvaluationsLoaded)(void *data, int r, const Error *err,
                                       const EvaluationsLoaded *loaded);

/* One that is there already (job, round) is replaced. */
int store_evaluation_add(Store *store, const EvaluationRecord *evaluation, StoreDone done,
                         void *data);
/* Those of rounds after `after_round`, at most `limit`. */
int store_evaluations_load(Store *store, uint64_t job, uint64_t after_round, size_t limit,
                           StoreEvaluationsLoaded done, void *data);

/* ---- going back ------------------------------------------------------------------------------ */

/* Rewinds a job to a cut: deletes its metrics after `round`, or, where n_ranks is not 0, those of
 * each rank r after rank_rounds[r]; its evaluations after `round`; and, with also_settings, the
 * settings that were to hold from a round that no rank had reached at the cut, and the checkpoints
 * after `checkpoint` (0: all of them). */
int store_job_rewind(Store *store, uint64_t job, uint64_t round, const uint64_t *rank_rounds,
                     uint32_t n_ranks, bool also_settings, uint64_t checkpoint, StoreDone done,
                     void *data);
