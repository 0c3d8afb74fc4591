#include "store/check.h"

#include <stdio.h>
#include <string.h>

#include "store/statement.h"

typedef struct Table {
    const char *name;
    bool always; /* else only after an unclean end */
} Table;

static const Table tables[] = {
    {"jobs", true},        {"events", true},           {"settings", true},
    {"checkpoints", true}, {"checkpoint_parts", true}, {"evaluations", true},
    {"rounds", false},
};

static int check_table(Db *db, const char *table, Error *err)
{
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA quick_check('%s')", table);
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db, sql, &statement, err);
    if (r >= 0)
        r = statement_step(&statement, err);
    if (r < 0)
        return r;
    const char *answer = (const char *)sqlite3_column_text(statement.handle, 0);
    if (!answer)
        return db_error(db, SQLITE_NOMEM, err);
    if (strcmp(answer, "ok") == 0)
        return 0;
    if (errno == EIO) /* it could not be read: that says nothing about its contents */
        return db_error(db, SQLITE_IOERR_READ, err);
    return error_set(err, -EBADMSG,
                     "%s is damaged (table %s: %.200s); move the file away (it is never deleted) "
                     "and put a backup in its place or start with an empty one",
                     db_path(db), table, answer);
}

int check_tables(Db *db, bool unclean, Error *err)
{
    int r = 0;
    for (size_t i = 0; r >= 0 && i < sizeof tables / sizeof *tables; i++)
        if (tables[i].always || unclean)
            r = check_table(db, tables[i].name, err);
    return r;
}
