#include "base/log.h"
#include "store/checkpoint.h"
#include "store/statement.h"

/* The oldest checkpoint that stays, pins aside; 0 where all may. `keep` of those that are there. */
static int find_oldest_kept(Db *db, uint64_t job, unsigned keep, uint64_t *ret, Error *err)
{
    if (keep == 0) { /* only the one to come */
        *ret = INT64_MAX;
        return 0;
    }
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db,
                              "SELECT id FROM checkpoints WHERE job = ? AND valid = 1"
                              " AND in_use = 0 AND best = 0 ORDER BY id DESC LIMIT 1 OFFSET ?",
                              &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, job);
    statement_bind_u64(&statement, keep - 1);
    r = statement_step(&statement, err);
    if (r < 0)
        return r;
    *ret = r > 0 ? statement_u64(&statement, 0) : 0;
    return 0;
}

static int delete_older(Db *db, uint64_t job, unsigned keep, Error *err)
{
    uint64_t oldest;
    int r = find_oldest_kept(db, job, keep, &oldest, err);
    if (r < 0)
        return r;
    _cleanup_(statement_end) Statement statement = {0};
    r = statement_prepare(db,
                          "DELETE FROM checkpoints WHERE job = ? AND id < ?"
                          " AND (valid = 0 OR (in_use = 0 AND best = 0))",
                          &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, job);
    statement_bind_limit(&statement, oldest);
    return statement_run(&statement, err);
}

/* Damage to an old checkpoint must not keep the new one from being saved. */
int checkpoint_prune(Db *db, uint64_t job, unsigned keep, bool adds_pinned, Error *err)
{
    if (keep == 0)
        return 0;
    int r = db_exec(db, "SAVEPOINT prune", err);
    if (r < 0)
        return r;
    Error problem = {0};
    r = delete_older(db, job, adds_pinned ? keep : keep - 1, &problem);
    if (r == -EBADMSG && db_exec(db, "ROLLBACK TO prune", err) >= 0) {
        log_job(LOG_WARNING, job, -1, "cannot prune old checkpoints: %s", problem.message);
        r = 0;
    }
    if (r < 0)
        return error_set(err, r, "%s", problem.message);
    return db_exec(db, "RELEASE prune", err);
}
