#include "store/request.h"
#include "store/space.h"
#include "store/statement.h"

typedef struct Rewind {
    Request request;
    uint64_t job, round, checkpoint;
    bool also_settings;
} Rewind;

/* Runs "DELETE … WHERE job = ? AND … > ?". */
static int delete_after(Db *db, const char *sql, uint64_t job, uint64_t last, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db, sql, &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, job);
    statement_bind_limit(&statement, last);
    return statement_run(&statement, err);
}

static int delete_rows(Db *db, void *data, Error *err)
{
    const Rewind *rewind = data;
    int r = delete_after(db, "DELETE FROM rounds WHERE job = ? AND round > ?", rewind->job,
                         rewind->round, err);
    if (r < 0 || !rewind->also_settings)
        return r;
    r = delete_after(db, "DELETE FROM settings WHERE job = ? AND round > ?", rewind->job,
                     rewind->round, err);
    if (r < 0)
        return r;
    return delete_after(db, "DELETE FROM checkpoints WHERE job = ? AND id > ?", rewind->job,
                        rewind->checkpoint, err);
}

static int run(Request *request, Db *db, Error *err)
{
    Rewind *rewind = (Rewind *)request;
    int r = db_transaction(db, delete_rows, rewind, err);
    if (r >= 0 && rewind->also_settings)
        space_reclaim(db);
    return r;
}

static const RequestKind kind = {
    .what = "rewind the job's records", .run = run, .answer = request_answer_done};

int store_job_rewind(Store *store, uint64_t job, uint64_t round, bool also_settings,
                     uint64_t checkpoint, StoreDone done, void *data)
{
    Request *request;
    int r = request_new(store, &kind, sizeof(Rewind), data, &request);
    if (r < 0)
        return r;
    Rewind *rewind = (Rewind *)request;
    rewind->request.done = done;
    rewind->job = job;
    rewind->round = round;
    rewind->also_settings = also_settings;
    rewind->checkpoint = checkpoint;
    request_post(request);
    return 0;
}
