/* What a job knows of its evaluations while it trains, and what the files of job/ share of it.
 *
 *   evaluation.c         when one begins, its process     evaluation_record.c  what it has found
 *   evaluation_load.c    after a restart, a restore       evaluation_spec.c    what a spec may say
 *
 * One at a time: at the end of a round that is due, a checkpoint is taken; once it is on disk a
 * process evaluates it while training goes on. The checkpoint is pinned until then, in the same
 * transaction that saves it, so that after any end of dpsd it is known what is still to be
 * evaluated. */
#pragma once

#include "base/timer.h"
#include "job/evaluation.h"
#include "job/evaluation_spec.h"
#include "job/launcher.h"
#include "job/token.h"

typedef enum EvaluationPhase {
    EVALUATION_NONE,
    EVALUATION_WANTED,  /* its checkpoint is being taken */
    EVALUATION_RUNNING, /* its process runs, or what it has found is on its way to the disk */
} EvaluationPhase;

typedef struct JobEvaluation {
    EvaluationPhase phase;
    bool due;                   /* at the next end of a round where a checkpoint can be taken */
    bool again;                 /* checkpoint and round below were not evaluated to the end */
    uint64_t seen_round;        /* the job's, when it was last looked at */
    uint64_t checkpoint, round; /* that it is of */
    unsigned skipped;           /* that were due meanwhile */

    LaunchedTrainer *running;
    Timer silence; /* since its last batch */
    char token[TOKEN_MAX];
    bool recording, recorded;
    char problem[160];

    StopWhen stop_when;
    bool by_loss;
    char stop_reason[120];   /* once stop_when has held */
    double accuracy;         /* of the latest */
    uint64_t accuracy_round; /* 0: there is none yet */
    double best_value;
    uint64_t best_checkpoint; /* 0: none */
} JobEvaluation;

/* ---- evaluation.c */

/* To be called before job_advance decides what comes next: rounds may have ended. */
void evaluation_advance(Job *job);
/* Whether the checkpoint that is being saved of this round is to be pinned for its evaluation. */
bool evaluation_wants_checkpoint(const Job *job, uint64_t round);
/* The end of the job waits for it. */
bool evaluation_is_under_way(const Job *job);
/* The job leaves memory. */
void evaluation_stop(Job *job);
/* Of a job that is freed. */
void evaluation_free(Job *job);
/* The process is gone, or what it has found is on disk, whichever came last. */
void evaluation_ended(Job *job);

/* ---- evaluation_record.c */

/* Takes in one that is on disk. kept: its checkpoint is there. */
void evaluation_take(Job *job, const EvaluationRecord *record);

/* ---- evaluation_load.c */

/* Between the checkpoint and the rewind: what is known of rounds before the cut; then goes on. */
void evaluation_load(Job *job, void (*then)(Job *job));
