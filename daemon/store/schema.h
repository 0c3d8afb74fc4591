/* The tables and how older databases become this one.
 *
 * PRAGMA user_version counts the migrations that a database has seen. Migrations only go forward
 * and are never edited once released: a change of the schema is one more entry at the end. */
#pragma once

#include "store/db.h"

typedef struct Migration {
    const char *sql; /* entry i makes version i + 1 */
} Migration;

/* Writes nothing. -EPROTO: made by a newer dps; -EBADMSG: not a database, or not one of dps. */
int schema_check(Db *db, Error *err);
/* Brings the database to the version of this program, one transaction a version. */
int schema_migrate(Db *db, Error *err);

/* As above, by a table of the caller's: what a test of the mechanism needs. */
int schema_migrate_by(Db *db, const Migration *migrations, int n, Error *err);
