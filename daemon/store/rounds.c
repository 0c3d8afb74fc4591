#include <stdlib.h>
#include <string.h>

#include "store/request.h"
#include "store/rows.h"
#include "store/statement.h"

/* Adding and loading hold the same things: an array of rows. */
typedef struct RoundsRequest {
    Request request;
    uint64_t job, after_round; /* load */
    size_t limit;              /* load */
    RoundRecord *rows;
    size_t n, capacity;
    StoreRoundsLoaded loaded;
} RoundsRequest;

static void release_rounds(Request *request)
{
    free(((RoundsRequest *)request)->rows);
}

/* ---- add ------------------------------------------------------------------------------------- */

static void bind_row(Statement *statement, const RoundRecord *row)
{
    statement_bind_u64(statement, row->job);
    statement_bind_u64(statement, row->round);
    statement_bind_u64(statement, row->rank);
    statement_bind_u64(statement, row->step);
    statement_bind_u64(statement, row->samples);
    statement_bind_u64(statement, row->bytes_in);
    statement_bind_u64(statement, row->bytes_out);
    statement_bind_real(statement, row->loss);
    statement_bind_real(statement, row->compute_ms);
    statement_bind_real(statement, row->wait_ms);
    statement_bind_real(statement, row->lr);
    statement_bind_u64(statement, row->contributed);
}

/* A round that is recorded again, after a recovery, takes the place of the first record. */
static int run_add(Request *request, Db *db, Error *err)
{
    const RoundsRequest *add = (RoundsRequest *)request;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "INSERT OR REPLACE INTO rounds (job, round, rank, step, samples, bytes_in, bytes_out,"
        " loss, compute_ms, wait_ms, lr, contributed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        &statement, err);
    for (size_t i = 0; r >= 0 && i < add->n; i++) {
        bind_row(&statement, &add->rows[i]);
        r = statement_run(&statement, err);
    }
    return r;
}

static const RequestKind add_kind = {.what = "record the round's metrics",
                                     .transaction = true,
                                     .run = run_add,
                                     .answer = request_answer_done,
                                     .release = release_rounds};

int store_rounds_add(Store *store, const RoundRecord *rows, size_t n, StoreDone done, void *data)
{
    _cleanup_(request_freep) Request *request = NULL;
    int r = request_new(store, &add_kind, sizeof(RoundsRequest), data, &request);
    if (r < 0)
        return r;
    request->done = done;
    RoundsRequest *add = (RoundsRequest *)request;
    add->rows = calloc(n ? n : 1, sizeof *rows);
    if (!add->rows)
        return -ENOMEM;
    if (n)
        memcpy(add->rows, rows, n * sizeof *rows);
    add->n = n;
    request_post(MOVE(request));
    return 0;
}

/* ---- load ------------------------------------------------------------------------------------ */

static RoundRecord read_row(const Statement *row)
{
    return (RoundRecord){.job = statement_u64(row, 0),
                         .round = statement_u64(row, 1),
                         .rank = (uint32_t)statement_u64(row, 2),
                         .step = statement_u64(row, 3),
                         .samples = statement_u64(row, 4),
                         .bytes_in = statement_u64(row, 5),
                         .bytes_out = statement_u64(row, 6),
                         .loss = statement_real(row, 7),
                         .compute_ms = statement_real(row, 8),
                         .wait_ms = statement_real(row, 9),
                         .lr = statement_real(row, 10),
                         .contributed = statement_u64(row, 11) != 0};
}

/* Where the limit falls inside a round that round is left out, unless it is the only one: the
 * caller asks again after the last round that it got, and must get on. */
static int read_rows(RoundsRequest *load, Statement *statement, Error *err)
{
    size_t whole = 0; /* rows of complete rounds */
    int r;
    while ((r = statement_step(statement, err)) > 0) {
        RoundRecord row = read_row(statement);
        if (load->n > 0 && load->rows[load->n - 1].round != row.round)
            whole = load->n;
        if (load->n >= load->limit && whole > 0) {
            load->n = whole;
            return 0;
        }
        r = rows_grow((void **)&load->rows, load->n, &load->capacity, sizeof *load->rows);
        if (r < 0)
            return r;
        load->rows[load->n++] = row;
    }
    return r;
}

static int run_load(Request *request, Db *db, Error *err)
{
    RoundsRequest *load = (RoundsRequest *)request;
    if (load->limit == 0)
        return 0;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(
        db,
        "SELECT job, round, rank, step, samples, bytes_in, bytes_out, loss, compute_ms, wait_ms,"
        " lr, contributed FROM rounds WHERE job = ? AND round > ? ORDER BY round, rank",
        &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, load->job);
    statement_bind_limit(&statement, load->after_round);
    return read_rows(load, &statement, err);
}

static void answer_load(Request *request)
{
    const RoundsRequest *load = (RoundsRequest *)request;
    bool failed = request->result < 0;
    load->loaded(request->data, request->result, request_error(request), failed ? NULL : load->rows,
                 failed ? 0 : load->n);
}

static const RequestKind load_kind = {
    .what = "read the metrics", .run = run_load, .answer = answer_load, .release = release_rounds};

int store_rounds_load(Store *store, uint64_t job, uint64_t after_round, size_t limit,
                      StoreRoundsLoaded done, void *data)
{
    Request *request;
    int r = request_new(store, &load_kind, sizeof(RoundsRequest), data, &request);
    if (r < 0)
        return r;
    RoundsRequest *load = (RoundsRequest *)request;
    load->job = job;
    load->after_round = after_round;
    load->limit = limit;
    load->loaded = done;
    request_post(request);
    return 0;
}
