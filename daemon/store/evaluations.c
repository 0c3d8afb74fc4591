#include <stdlib.h>

#include "store/checkpoint.h"
#include "store/request.h"
#include "store/rows.h"
#include "store/statement.h"

/* ---- add ------------------------------------------------------------------------------------- */

typedef struct Add {
    Request request;
    EvaluationRecord evaluation;
} Add;

/* With its pin, so that no end of dpsd falls between the two. */
static int run_add(Request *request, Db *db, Error *err)
{
    const EvaluationRecord *evaluation = &((Add *)request)->evaluation;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "INSERT OR REPLACE INTO evaluations (job, round, checkpoint, accuracy, loss, samples,"
        " unix_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, evaluation->job);
    statement_bind_u64(&statement, evaluation->round);
    statement_bind_u64(&statement, evaluation->checkpoint);
    statement_bind_real(&statement, evaluation->accuracy);
    statement_bind_real(&statement, evaluation->loss);
    statement_bind_u64(&statement, evaluation->samples);
    statement_bind_u64(&statement, evaluation->unix_ms);
    r = statement_run(&statement, err);
    if (r >= 0 && evaluation->best)
        r = checkpoint_pin(db, evaluation->job, PIN_BEST, evaluation->checkpoint, err);
    return r;
}

static const RequestKind add_kind = {.what = "record the evaluation",
                                     .transaction = true,
                                     .run = run_add,
                                     .answer = request_answer_done};

int store_evaluation_add(Store *store, const EvaluationRecord *evaluation, StoreDone done,
                         void *data)
{
    Request *request;
    int r = request_new(store, &add_kind, sizeof(Add), data, &request);
    if (r < 0)
        return r;
    Add *add = (Add *)request;
    add->request.done = done;
    add->evaluation = *evaluation;
    request_post(request);
    return 0;
}

/* ---- load ------------------------------------------------------------------------------------ */

typedef struct Load {
    Request request;
    uint64_t job, after_round;
    size_t limit;
    EvaluationRecord *rows;
    size_t capacity;
    EvaluationsLoaded result;
    StoreEvaluationsLoaded loaded;
} Load;

static EvaluationRecord read_row(const Statement *row)
{
    return (EvaluationRecord){.job = statement_u64(row, 0),
                              .round = statement_u64(row, 1),
                              .checkpoint = statement_u64(row, 2),
                              .accuracy = statement_real(row, 3),
                              .loss = statement_real(row, 4),
                              .samples = statement_u64(row, 5),
                              .unix_ms = statement_u64(row, 6),
                              .kept = statement_u64(row, 7) != 0,
                              .best = statement_u64(row, 8) != 0};
}

static int read_rows(Load *load, Db *db, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "SELECT e.job, e.round, e.checkpoint, e.accuracy, e.loss, e.samples, e.unix_ms,"
        " ifnull(c.valid, 0), ifnull(c.best, 0)"
        " FROM evaluations AS e LEFT JOIN checkpoints AS c ON c.id = e.checkpoint AND c.job = e.job"
        " WHERE e.job = ? AND e.round > ? ORDER BY e.round LIMIT ?",
        &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, load->job);
    statement_bind_limit(&statement, load->after_round);
    statement_bind_limit(&statement, load->limit);
    while ((r = statement_step(&statement, err)) > 0) {
        size_t n = load->result.n;
        r = rows_grow((void **)&load->rows, n, &load->capacity, sizeof *load->rows);
        if (r < 0)
            return r;
        load->rows[n] = read_row(&statement);
        load->result.n++;
    }
    return r;
}

static int read_in_use(Load *load, Db *db, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db, "SELECT id, round FROM checkpoints WHERE job = ? AND in_use = 1 AND valid = 1",
        &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, load->job);
    r = statement_step(&statement, err);
    if (r > 0) {
        load->result.in_use = statement_u64(&statement, 0);
        load->result.in_use_round = statement_u64(&statement, 1);
    }
    return r < 0 ? r : 0;
}

static int run_load(Request *request, Db *db, Error *err)
{
    Load *load = (Load *)request;
    int r = read_rows(load, db, err);
    if (r >= 0)
        r = read_in_use(load, db, err);
    load->result.rows = load->rows;
    return r;
}

static void answer_load(Request *request)
{
    const Load *load = (Load *)request;
    static const EvaluationsLoaded none;
    load->loaded(request->data, request->result, request_error(request),
                 request->result < 0 ? &none : &load->result);
}

static void release_load(Request *request)
{
    free(((Load *)request)->rows);
}

static const RequestKind load_kind = {.what = "read the evaluations",
                                      .run = run_load,
                                      .answer = answer_load,
                                      .release = release_load};

int store_evaluations_load(Store *store, uint64_t job, uint64_t after_round, size_t limit,
                           StoreEvaluationsLoaded done, void *data)
{
    Request *request;
    int r = request_new(store, &load_kind, sizeof(Load), data, &request);
    if (r < 0)
        return r;
    Load *load = (Load *)request;
    load->job = job;
    load->after_round = after_round;
    load->limit = limit;
    load->loaded = done;
    request_post(request);
    return 0;
}
