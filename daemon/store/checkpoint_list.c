#include <stdlib.h>

#include "store/checkpoint.h"
#include "store/request.h"
#include "store/rows.h"
#include "store/statement.h"

typedef struct List {
    Request request;
    uint64_t job;
    bool verify;
    CheckpointRecord *checkpoints;
    size_t n, capacity;
    StoreCheckpointsListed listed;
} List;

static int read_record(const Statement *row, CheckpointRecord *record, Error *err)
{
    record->id = statement_u64(row, 0);
    record->job = statement_u64(row, 1);
    record->round = statement_u64(row, 2);
    record->step = statement_u64(row, 3);
    record->created_ms = statement_u64(row, 4);
    record->bytes = statement_u64(row, 5);
    record->valid = statement_u64(row, 7) != 0;
    record->in_use = statement_u64(row, 9) != 0;
    record->best = statement_u64(row, 10) != 0;
    int r = statement_text(row, 6, &record->meta, err);
    if (r >= 0 && !record->valid)
        r = statement_text(row, 8, &record->problem, err);
    return r;
}

static int read_records(List *list, Db *db, Error *err)
{
    _cleanup_(statement_end) Statement row = {0};
    int r = statement_prepare(
        db,
        "SELECT id, job, round, step, created_ms, bytes, meta, valid, problem, in_use, best"
        " FROM checkpoints WHERE job = ? ORDER BY id DESC",
        &row, err);
    if (r < 0)
        return r;
    statement_bind_u64(&row, list->job);
    while (r >= 0 && (r = statement_step(&row, err)) > 0) {
        r = rows_grow((void **)&list->checkpoints, list->n, &list->capacity,
                      sizeof *list->checkpoints);
        if (r >= 0)
            r = read_record(&row, &list->checkpoints[list->n++], err);
    }
    return r;
}

/* What cannot be read counts as not valid in the answer; only damage is recorded. */
static int verify(Db *db, CheckpointRecord *record, Error *err)
{
    StoredCheckpoint checkpoint = {0};
    Error problem = {0};
    int r = checkpoint_read(db, record->job, record->id, &checkpoint, &problem);
    if (r >= 0)
        r = checkpoint_read_parts(db, &checkpoint, false, &problem);
    checkpoint_release(&checkpoint);
    if (r >= 0)
        return 0;
    if (r != -EBADMSG && r != -EIO)
        return error_set(err, r, "%s", problem.message);
    if (r == -EBADMSG)
        checkpoint_mark_invalid(db, record, problem.message);
    record->valid = false;
    return text_copy(problem.message, &record->problem);
}

static int run(Request *request, Db *db, Error *err)
{
    List *list = (List *)request;
    int r = read_records(list, db, err);
    for (size_t i = 0; r >= 0 && list->verify && i < list->n; i++)
        if (list->checkpoints[i].valid)
            r = verify(db, &list->checkpoints[i], err);
    return r;
}

static void answer(Request *request)
{
    const List *list = (List *)request;
    bool failed = request->result < 0;
    list->listed(request->data, request->result, request_error(request),
                 failed ? NULL : list->checkpoints, failed ? 0 : list->n);
}

static void release(Request *request)
{
    List *list = (List *)request;
    for (size_t i = 0; i < list->n; i++) {
        free(list->checkpoints[i].meta);
        free(list->checkpoints[i].problem);
    }
    free(list->checkpoints);
}

static const RequestKind kind = {
    .what = "list the checkpoints", .run = run, .answer = answer, .release = release};

int store_checkpoints_list(Store *store, uint64_t job, bool verify_all, StoreCheckpointsListed done,
                           void *data)
{
    Request *request;
    int r = request_new(store, &kind, sizeof(List), data, &request);
    if (r < 0)
        return r;
    List *list = (List *)request;
    list->job = job;
    list->verify = verify_all;
    list->listed = done;
    request_post(request);
    return 0;
}
