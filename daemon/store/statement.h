/* One prepared statement. Parameters are bound in the order of their question marks; what goes
 * wrong while binding is reported by the next step. Store thread.
 *
 *     _cleanup_(statement_end) Statement statement = {0};
 *     int r = statement_prepare(db, "…", &statement, err);
 *
 * Numbers are kept as 64 bits: what is bound as uint64_t comes back as it was. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/db.h"

typedef struct Statement {
    Db *db;
    sqlite3_stmt *handle;
    int bound;
    int rc; /* the first error while binding */
} Statement;

int statement_prepare(Db *db, const char *sql, Statement *statement, Error *err);
void statement_end(Statement *statement);

void statement_bind_u64(Statement *statement, uint64_t value);
/* For comparisons: a bound above the largest number that SQLite knows means "no bound". */
void statement_bind_limit(Statement *statement, uint64_t value);
/* NaN is kept as NULL. */
void statement_bind_real(Statement *statement, double value);
/* The text must live until the step; NULL is kept as "". */
void statement_bind_text(Statement *statement, const char *text);
void statement_bind_blob(Statement *statement, const void *data, size_t bytes);
void statement_bind_null(Statement *statement);

/* 1: there is a row; 0: done; negative: failed. */
int statement_step(Statement *statement, Error *err);
/* Runs to the end and makes ready for the next set of parameters. */
int statement_run(Statement *statement, Error *err);

uint64_t statement_u64(const Statement *statement, int column);
double statement_real(const Statement *statement, int column);
/* A copy that the caller frees; never NULL. -ENOMEM */
int statement_text(const Statement *statement, int column, char **ret, Error *err);
