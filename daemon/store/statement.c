#include "store/statement.h"

#include <math.h>
#include <string.h>

int statement_prepare(Db *db, const char *sql, Statement *statement, Error *err)
{
    *statement = (Statement){.db = db};
    errno = 0;
    int rc = sqlite3_prepare_v2(db_handle(db), sql, -1, &statement->handle, NULL);
    return rc == SQLITE_OK ? 0 : db_error(db, rc, err);
}

void statement_end(Statement *statement)
{
    sqlite3_finalize(statement->handle);
    statement->handle = NULL;
}

static void note(Statement *statement, int rc)
{
    if (statement->rc == SQLITE_OK)
        statement->rc = rc;
}

void statement_bind_u64(Statement *statement, uint64_t value)
{
    note(statement,
         sqlite3_bind_int64(statement->handle, ++statement->bound, (sqlite3_int64)value));
}

void statement_bind_limit(Statement *statement, uint64_t value)
{
    statement_bind_u64(statement, value > INT64_MAX ? INT64_MAX : value);
}

void statement_bind_real(Statement *statement, double value)
{
    note(statement, sqlite3_bind_double(statement->handle, ++statement->bound, value));
}

void statement_bind_text(Statement *statement, const char *text)
{
    note(statement, sqlite3_bind_text(statement->handle, ++statement->bound, text ? text : "", -1,
                                      SQLITE_STATIC));
}

void statement_bind_blob(Statement *statement, const void *data, size_t bytes)
{
    note(statement,
         sqlite3_bind_blob64(statement->handle, ++statement->bound, data, bytes, SQLITE_STATIC));
}

void statement_bind_null(Statement *statement)
{
    note(statement, sqlite3_bind_null(statement->handle, ++statement->bound));
}

int statement_step(Statement *statement, Error *err)
{
    if (statement->rc != SQLITE_OK)
        return db_error(statement->db, statement->rc, err);
    errno = 0;
    int rc = sqlite3_step(statement->handle);
    if (rc == SQLITE_ROW)
        return 1;
    return rc == SQLITE_DONE ? 0 : db_error(statement->db, rc, err);
}

int statement_run(Statement *statement, Error *err)
{
    int r;
    do
        r = statement_step(statement, err);
    while (r > 0);
    sqlite3_reset(statement->handle);
    statement->bound = 0;
    statement->rc = SQLITE_OK;
    return r;
}

uint64_t statement_u64(const Statement *statement, int column)
{
    return (uint64_t)sqlite3_column_int64(statement->handle, column);
}

double statement_real(const Statement *statement, int column)
{
    if (sqlite3_column_type(statement->handle, column) == SQLITE_NULL)
        return NAN;
    return sqlite3_column_double(statement->handle, column);
}

int statement_text(const Statement *statement, int column, char **ret, Error *err)
{
    const char *text = "";
    if (sqlite3_column_type(statement->handle, column) != SQLITE_NULL)
        text = (const char *)sqlite3_column_text(statement->handle, column);
    char *copy = text ? strdup(text) : NULL;
    if (!copy)
        return error_set(err, -ENOMEM, "out of memory");
    *ret = copy;
    return 0;
}
