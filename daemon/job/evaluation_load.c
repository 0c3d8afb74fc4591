/* Evaluations of a job that is loaded: those before its cut count, and one that did not come to its
 * end is made again. */
#include "job/job_internal.h"

#include <string.h>

enum { PAGE = 1000 }; /* rows */

typedef struct Loading {
    Job *job;
    void (*then)(Job *job);
    uint64_t cut, after;
    bool evaluated; /* what is pinned */
} Loading;

static void begin(Job *job)
{
    job->evaluation =
        (JobEvaluation){.seen_round = job->round, .by_loss = evaluation_is_by_loss(&job->spec)};
    job->stop_wanted = false;
    /* checked when it was submitted */
    (void)stop_when_parse(job->spec.stop_when, &job->evaluation.stop_when, NULL);
}

/* A restore is about to delete the checkpoints after its own. */
static void take(Job *job, const EvaluationRecord *row)
{
    EvaluationRecord record = *row;
    if (job->rewind_settings && record.checkpoint > job->latest_checkpoint)
        record.kept = false;
    evaluation_take(job, &record);
}

/* Where pins do not say what the rows say: the best one was rewound, or is no longer valid. */
static void settle_pins(const Loading *loading, const EvaluationsLoaded *loaded)
{
    Job *job = loading->job;
    JobEvaluation *evaluation = &job->evaluation;
    Store *store = manager_store(job->manager);
    bool wanted = loaded->in_use && loaded->in_use_round <= loading->cut && !loading->evaluated &&
                  loaded->in_use <= job->latest_checkpoint && *job->spec.eval_data;
    (void)store_checkpoint_pin(store, job->id, PIN_BEST, evaluation->best_checkpoint, NULL, NULL);
    if (wanted) {
        evaluation->again = true;
        evaluation->checkpoint = loaded->in_use;
        evaluation->round = loaded->in_use_round;
    } else if (loaded->in_use) {
        (void)store_checkpoint_pin(store, job->id, PIN_IN_USE, 0, NULL, NULL);
    }
}

static void load_page(Loading *loading);

static void on_page(void *data, int r, const Error *err, const EvaluationsLoaded *loaded)
{
    Loading *loading = data;
    Job *job = loading->job;
    job->tasks--;
    for (size_t i = 0; i < loaded->n; i++) {
        const EvaluationRecord *row = &loaded->rows[i];
        loading->after = row->round;
        if (row->round > loading->cut)
            continue;
        take(job, row);
        loading->evaluated |= row->checkpoint == loaded->in_use;
    }
    if (r == 0 && loaded->n == PAGE) {
        load_page(loading);
        return;
    }
    if (r < 0)
        log_job(LOG_WARNING, job->id, -1, "its evaluations are not known: %s", err->message);
    else
        settle_pins(loading, loaded);
    void (*then)(Job *) = loading->then;
    free(loading);
    then(job);
}

static void load_page(Loading *loading)
{
    Job *job = loading->job;
    job->tasks++;
    int r = store_evaluations_load(manager_store(job->manager), job->id, loading->after, PAGE,
                                   on_page, loading);
    if (r < 0) {
        Error err;
        static const EvaluationsLoaded none;
        error_set(&err, r, "out of memory");
        on_page(loading, r, &err, &none);
    }
}

void evaluation_load(Job *job, void (*then)(Job *job))
{
    begin(job);
    Loading *loading = calloc(1, sizeof *loading);
    if (!loading) {
        log_job(LOG_WARNING, job->id, -1, "its evaluations are not known: out of memory");
        then(job);
        return;
    }
    *loading = (Loading){.job = job, .then = then, .cut = job->round ? job->round - 1 : 0};
    load_page(loading);
}
