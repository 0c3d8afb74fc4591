/* The open database: its lock, its connection, its transactions and its errors.
 *
 * Owned by the Store. The loop's thread opens and closes it, the store thread alone uses it in
 * between. Functions return 0 or a negative errno with a sentence that names the file and the
 * remedy; db_error says which. */
#pragma once

#include <sqlite3.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

typedef struct Db Db;

/* How long a write waits for an administrator who writes with the sqlite3 tool. */
enum { DB_BUSY_TIMEOUT_MS = 5000 };

/* Takes the state directory's lock, opens state_dir/dps.db, migrates and checks it. Errors as
 * store_open. */
int db_open(const char *state_dir, Db **ret, Error *err);
Db *db_close(Db *db);
DEFINE_CLEANUP(Db, db_close);

sqlite3 *db_handle(Db *db);
const char *db_path(const Db *db);

/* Translates what SQLite last answered: SQLITE_FULL is -ENOSPC, SQLITE_READONLY -EROFS,
 * SQLITE_CORRUPT and SQLITE_NOTADB -EBADMSG, SQLITE_NOMEM -ENOMEM, a missing job (foreign key)
 * -ENOENT, other constraints -EEXIST, SQLITE_BUSY -EBUSY, the rest -EIO or what the system said.
 *
 * The latter is errno, which the caller sets to 0 before it calls SQLite: SQLite itself does not
 * keep it where a COMMIT fails. */
int db_error(Db *db, int rc, Error *err);

/* Runs SQL that has no parameters and whose rows nobody reads. */
int db_exec(Db *db, const char *sql, Error *err);
/* Runs SQL that answers with one number. */
int db_number(Db *db, const char *sql, int64_t *ret, Error *err);

/* Rolls back a transaction whose own rollback failed, for lack of memory say; the first thing that
 * a request does, so that nobody sees what was not committed. */
int db_settle(Db *db, Error *err);

/* Runs body between BEGIN and COMMIT; where either fails everything is rolled back. */
int db_transaction(Db *db, int (*body)(Db *db, void *data, Error *err), void *data, Error *err);
