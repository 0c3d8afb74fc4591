#include "store/db.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "store/check.h"
#include "store/lock.h"
#include "store/schema.h"
#include "store/statement.h"

struct Db {
    sqlite3 *handle;
    char *path;
    int lock_fd;
};

sqlite3 *db_handle(Db *db)
{
    return db->handle;
}

const char *db_path(const Db *db)
{
    return db->path;
}

int db_exec(Db *db, const char *sql, Error *err)
{
    errno = 0;
    int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : db_error(db, rc, err);
}

int db_number(Db *db, const char *sql, int64_t *ret, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db, sql, &statement, err);
    if (r < 0)
        return r;
    r = statement_step(&statement, err);
    if (r < 0)
        return r;
    *ret = r > 0 ? (int64_t)statement_u64(&statement, 0) : 0;
    return 0;
}

int db_settle(Db *db, Error *err)
{
    return sqlite3_get_autocommit(db->handle) ? 0 : db_exec(db, "ROLLBACK", err);
}

int db_transaction(Db *db, int (*body)(Db *db, void *data, Error *err), void *data, Error *err)
{
    int r = db_exec(db, "BEGIN IMMEDIATE", err);
    if (r < 0)
        return r;
    r = body(db, data, err);
    if (r >= 0)
        r = db_exec(db, "COMMIT", err);
    /* SQLite has rolled back by itself after some errors, a full disk among them. */
    if (r < 0)
        db_settle(db, NULL);
    return r;
}

/* Makes the file, so that what the system has against it is known exactly, and its entry in the
 * directory durable, which SQLite leaves to the file system. */
static int create_file(const char *path, const char *state_dir, Error *err)
{
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        int code = errno;
        return error_set(err, -code, "cannot open %s: %s; dpsd needs to read and write it", path,
                         strerror(code));
    }
    _cleanup_close_ int dir_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0)
        fsync(dir_fd);
    return 0;
}

static int connect_file(Db *db, Error *err)
{
    errno = 0;
    int rc =
        sqlite3_open_v2(db->path, &db->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!db->handle)
        return error_set(err, -ENOMEM, "out of memory while %s is opened", db->path);
    if (rc != SQLITE_OK)
        return db_error(db, rc, err);
    sqlite3_extended_result_codes(db->handle, 1);
    sqlite3_busy_timeout(db->handle, DB_BUSY_TIMEOUT_MS);
    return 0;
}

/* A close that moves the log into the file would change a file that is to be left as it is. */
static void set_untouched(Db *db, bool untouched)
{
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, (int)untouched, NULL);
}

static int use_wal(Db *db, Error *err)
{
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db, "PRAGMA journal_mode = WAL", &statement, err);
    if (r >= 0)
        r = statement_step(&statement, err);
    if (r < 0)
        return r;
    const char *mode = (const char *)sqlite3_column_text(statement.handle, 0);
    if (!mode || strcmp(mode, "wal") != 0)
        return error_set(err, -EIO,
                         "%s cannot use a write-ahead log; put the state directory on a local file "
                         "system",
                         db->path);
    return 0;
}

/* Page size and auto_vacuum hold only for a file that has no tables yet. Pages of 16 KiB, because
 * most of the file is large pieces of checkpoints. */
static int configure(Db *db, Error *err)
{
    int r = db_exec(db, "PRAGMA page_size = 16384; PRAGMA auto_vacuum = INCREMENTAL", err);
    if (r >= 0)
        r = use_wal(db, err);
    if (r < 0)
        return r;
    return db_exec(db,
                   "PRAGMA synchronous = FULL;"
                   "PRAGMA foreign_keys = ON;"
                   "PRAGMA cell_size_check = ON;"
                   "PRAGMA trusted_schema = OFF;"
                   "PRAGMA secure_delete = OFF;"
                   "PRAGMA temp_store = MEMORY",
                   err);
}

/* SQLite removes the log when it closes: where one is left the last dpsd was killed. */
static bool ended_unclean(const char *path)
{
    _cleanup_free_ char *wal = NULL;
    struct stat st;
    return asprintf(&wal, "%s-wal", path) >= 0 && stat(wal, &st) == 0 && st.st_size > 0;
}

static int prepare_database(Db *db, bool unclean, Error *err)
{
    set_untouched(db, true);
    int r = schema_check(db, err);
    if (r >= 0)
        r = configure(db, err);
    if (r >= 0)
        r = schema_migrate(db, err);
    if (r >= 0)
        r = check_tables(db, unclean, err);
    if (r >= 0)
        set_untouched(db, false);
    return r;
}

int db_open(const char *state_dir, Db **ret, Error *err)
{
    _cleanup_(db_closep) Db *db = calloc(1, sizeof *db);
    if (!db)
        return error_set(err, -ENOMEM, "out of memory");
    db->lock_fd = -1;
    if (asprintf(&db->path, "%s/dps.db", state_dir) < 0) {
        db->path = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    int r = lock_take(state_dir, &db->lock_fd, err);
    if (r < 0)
        return r;
    bool unclean = ended_unclean(db->path);
    r = create_file(db->path, state_dir, err);
    if (r >= 0)
        r = connect_file(db, err);
    if (r >= 0)
        r = prepare_database(db, unclean, err);
    if (r < 0)
        return r;
    *ret = MOVE(db);
    return 0;
}

Db *db_close(Db *db)
{
    if (!db)
        return NULL;
    if (sqlite3_close(db->handle) != SQLITE_OK)
        log_error("%s: a statement was still open", db->path);
    lock_release(db->lock_fd);
    free(db->path);
    free(db);
    return NULL;
}
