#include "store/space.h"

#include <stdio.h>

#include "base/log.h"

enum {
    SLICE_PAGES = 256, /* 4 MiB a transaction, so that the log stays small meanwhile */
    SLICES_MAX = 64,   /* 256 MiB a call: the store thread has other things to do */
    SPARE_PAGES = 64,  /* 1 MiB is left for the next rows, instead of coming and going */
};

static int shrink_file(Db *db, Error *err)
{
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%d)", SLICE_PAGES);
    for (int slice = 0; slice < SLICES_MAX; slice++) {
        int64_t unused;
        int r = db_number(db, "PRAGMA freelist_count", &unused, err);
        if (r < 0 || unused <= SPARE_PAGES)
            return r;
        r = db_exec(db, sql, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A reader, such as an administrator's sqlite3, holds this up; it is not waited for. */
static int empty_log(Db *db, Error *err)
{
    sqlite3_busy_timeout(db_handle(db), 0);
    errno = 0;
    int rc = sqlite3_wal_checkpoint_v2(db_handle(db), NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_timeout(db_handle(db), DB_BUSY_TIMEOUT_MS);
    return rc == SQLITE_OK || rc == SQLITE_BUSY ? 0 : db_error(db, rc, err);
}

void space_reclaim(Db *db)
{
    Error err = {0};
    int r = shrink_file(db, &err);
    int r_log = empty_log(db, r < 0 ? NULL : &err);
    if (r < 0 || r_log < 0)
        log_notice("cannot give space back yet: %s", err.message);
}
