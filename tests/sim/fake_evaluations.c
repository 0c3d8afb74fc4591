/* In place of store/evaluations.c and checkpoint_pin.c. */
#include <stdlib.h>
#include <string.h>

#include "fake_store.h"
#include "memory.h"

/* ---- pins ------------------------------------------------------------------------------------ */

typedef struct PinAsked {
    Asked asked;
    CheckpointPin pin;
    uint64_t id;
} PinAsked;

static void give_pin(DiskJob *job, CheckpointPin pin, uint64_t id)
{
    for (size_t i = 0; i < job->n_checkpoints; i++) {
        CheckpointRecord *record = &job->checkpoints[i].record;
        if (pin == PIN_BEST)
            record->best = record->id == id;
        else
            record->in_use = record->id == id;
    }
}

static int pin_run(Asked *asked)
{
    const PinAsked *pin = (PinAsked *)asked;
    DiskJob *job = asked_job(asked);
    if (job)
        give_pin(job, pin->pin, pin->id);
    return job ? 0 : -ENOENT;
}

/* What should be pinned is not: it may be pruned. */
static void pin_fails(Asked *asked)
{
    DiskJob *job = disk_job(&world.disk, asked->job);
    if (job)
        job->pins_unsure = true;
}

static const AskedKind pin_kind = {.what = "pin the checkpoint",
                                   .writes = true,
                                   .run = pin_run,
                                   .fails = pin_fails,
                                   .answer = asked_answer_done};

int store_checkpoint_pin(Store *store, uint64_t job, CheckpointPin pin, uint64_t id, StoreDone done,
                         void *data)
{
    Asked *asked;
    int r = asked_new(store, &pin_kind, sizeof(PinAsked), job, data, &asked);
    if (r < 0)
        return r;
    asked->done = done;
    ((PinAsked *)asked)->pin = pin;
    ((PinAsked *)asked)->id = id;
    asked_post(asked);
    return 0;
}

/* ---- adding ---------------------------------------------------------------------------------- */

typedef struct EvaluationAsked {
    Asked asked;
    EvaluationRecord record; /* add */
    uint64_t after_round;    /* load */
    size_t limit;
    EvaluationsLoaded result;
    EvaluationRecord *rows;
    StoreEvaluationsLoaded loaded;
} EvaluationAsked;

static const DiskCheckpoint *find_checkpoint(const DiskJob *job, uint64_t id)
{
    for (size_t i = 0; i < job->n_checkpoints; i++)
        if (job->checkpoints[i].record.id == id)
            return &job->checkpoints[i];
    return NULL;
}

/* The checkpoint of an evaluation is pinned from its beginning to its end. */
static void check_evaluation(const DiskJob *job, const EvaluationRecord *record)
{
    const DiskCheckpoint *checkpoint = find_checkpoint(job, record->checkpoint);
    if (!checkpoint && !job->pins_unsure)
        sim_fail("job %llu: round %llu was evaluated by checkpoint %llu, which is gone",
                 (unsigned long long)record->job, (unsigned long long)record->round,
                 (unsigned long long)record->checkpoint);
    if (checkpoint && checkpoint->record.round != record->round)
        sim_fail("job %llu: the evaluation of round %llu used a checkpoint of round %llu",
                 (unsigned long long)record->job, (unsigned long long)record->round,
                 (unsigned long long)checkpoint->record.round);
}

static int add_run(Asked *asked)
{
    const EvaluationRecord *record = &((EvaluationAsked *)asked)->record;
    DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    check_evaluation(job, record);
    disk_add_evaluation(job, record);
    if (record->best)
        give_pin(job, PIN_BEST, record->checkpoint);
    return 0;
}

static const AskedKind add_kind = {
    .what = "record the evaluation", .writes = true, .run = add_run, .answer = asked_answer_done};

int store_evaluation_add(Store *store, const EvaluationRecord *evaluation, StoreDone done,
                         void *data)
{
    Asked *asked;
    int r = asked_new(store, &add_kind, sizeof(EvaluationAsked), evaluation->job, data, &asked);
    if (r < 0)
        return r;
    asked->done = done;
    ((EvaluationAsked *)asked)->record = *evaluation;
    asked_post(asked);
    return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int load_run(Asked *asked)
{
    EvaluationAsked *load = (EvaluationAsked *)asked;
    const DiskJob *job = asked_job(asked);
    if (!job)
        return -ENOENT;
    load->rows = calloc(job->n_evaluations + 1, sizeof *load->rows);
    for (size_t i = 0; i < job->n_evaluations && load->result.n < load->limit; i++) {
        EvaluationRecord row = job->evaluations[i];
        const DiskCheckpoint *checkpoint = find_checkpoint(job, row.checkpoint);
        if (row.round <= load->after_round)
            continue;
        row.kept = checkpoint && !checkpoint->known_torn;
        row.best = checkpoint && checkpoint->record.best;
        load->rows[load->result.n++] = row;
    }
    load->result.rows = load->rows;
    for (size_t i = 0; i < job->n_checkpoints; i++)
        if (job->checkpoints[i].record.in_use && !job->checkpoints[i].known_torn) {
            load->result.in_use = job->checkpoints[i].record.id;
            load->result.in_use_round = job->checkpoints[i].record.round;
        }
    return 0;
}

static void load_fails(Asked *asked)
{
    SimJob *job = sim_job_by_id(asked->job);
    if (job)
        job->unreadable = true;
}

static void load_answer(Asked *asked, const Error *err)
{
    static const EvaluationsLoaded none;
    const EvaluationAsked *load = (EvaluationAsked *)asked;
    load->loaded(asked->data, asked->r, err, asked->r < 0 ? &none : &load->result);
}

static void load_release(Asked *asked)
{
    free(((EvaluationAsked *)asked)->rows);
}

static const AskedKind load_kind = {.what = "read the evaluations",
                                    .run = load_run,
                                    .fails = load_fails,
                                    .answer = load_answer,
                                    .release = load_release};

int store_evaluations_load(Store *store, uint64_t job, uint64_t after_round, size_t limit,
                           StoreEvaluationsLoaded done, void *data)
{
    Asked *asked;
    int r = asked_new(store, &load_kind, sizeof(EvaluationAsked), job, data, &asked);
    if (r < 0)
        return r;
    EvaluationAsked *load = (EvaluationAsked *)asked;
    load->after_round = after_round;
    load->limit = limit ? limit : SIZE_MAX;
    load->loaded = done;
    asked_post(asked);
    return 0;
}
