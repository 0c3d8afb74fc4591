#include "store/request.h"
#include "store/space.h"
#include "store/statement.h"

#include <string.h>

typedef struct Rewind {
    Request request;
    uint64_t job, round, checkpoint;
    bool also_settings;
    uint32_t n_ranks;
    uint64_t rank_rounds[];
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

static int delete_rank(Db *db, uint64_t job, uint32_t rank, uint64_t last, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db, "DELETE FROM rounds WHERE job = ? AND rank = ? AND round > ?",
                              &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, job);
    statement_bind_u64(&statement, rank);
    statement_bind_limit(&statement, last);
    return statement_run(&statement, err);
}

static int delete_rounds(Db *db, const Rewind *rewind, Error *err)
{
    int r = 0;
    if (rewind->n_ranks == 0)
        return delete_after(db, "DELETE FROM rounds WHERE job = ? AND round > ?", rewind->job,
                            rewind->round, err);
    for (uint32_t rank = 0; rank < rewind->n_ranks && r >= 0; rank++)
        r = delete_rank(db, rewind->job, rank, rewind->rank_rounds[rank], err);
    return r;
}

/* That any rank was in at the cut: its settings are in force there. */
static uint64_t furthest_round(const Rewind *rewind)
{
    uint64_t behind = rewind->round;
    for (uint32_t rank = 0; rank < rewind->n_ranks; rank++)
        if (rewind->rank_rounds[rank] > behind)
            behind = rewind->rank_rounds[rank];
    return behind + 1;
}

static int delete_rows(Db *db, void *data, Error *err)
{
    const Rewind *rewind = data;
    int r = delete_rounds(db, rewind, err);
    if (r >= 0)
        r = delete_after(db, "DELETE FROM evaluations WHERE job = ? AND round > ?", rewind->job,
                         rewind->round, err);
    if (r < 0 || !rewind->also_settings)
        return r;
    r = delete_after(db, "DELETE FROM settings WHERE job = ? AND round > ?", rewind->job,
                     furthest_round(rewind), err);
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

int store_job_rewind(Store *store, uint64_t job, uint64_t round, const uint64_t *rank_rounds,
                     uint32_t n_ranks, bool also_settings, uint64_t checkpoint, StoreDone done,
                     void *data)
{
    Request *request;
    int r =
        request_new(store, &kind, sizeof(Rewind) + n_ranks * sizeof *rank_rounds, data, &request);
    if (r < 0)
        return r;
    Rewind *rewind = (Rewind *)request;
    rewind->request.done = done;
    rewind->job = job;
    rewind->round = round;
    rewind->also_settings = also_settings;
    rewind->checkpoint = checkpoint;
    rewind->n_ranks = n_ranks;
    if (n_ranks)
        memcpy(rewind->rank_rounds, rank_rounds, n_ranks * sizeof *rank_rounds);
    request_post(request);
    return 0;
}
