#include "store/schema.h"

#include <stdio.h>

/* "dpsd", so that file(1) and schema_check know whose it is. */
#define APPLICATION_ID 0x64707364

/* Numbers that count (round, step, …) are INTEGER, times are milliseconds since 1970. */
static const Migration migrations[] = {
    {"PRAGMA application_id = 0x64707364;"

     "CREATE TABLE jobs ("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
     "  name TEXT NOT NULL,"
     "  spec TEXT NOT NULL,"
     "  owner TEXT NOT NULL,"
     "  state INTEGER NOT NULL,"
     "  reason TEXT NOT NULL,"
     "  result TEXT NOT NULL,"
     "  created_ms INTEGER NOT NULL,"
     "  updated_ms INTEGER NOT NULL"
     ") STRICT;"

     /* job is NULL for what concerns the daemon as a whole */
     "CREATE TABLE events ("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
     "  job INTEGER REFERENCES jobs (id),"
     "  unix_ms INTEGER NOT NULL,"
     "  round INTEGER NOT NULL,"
     "  kind TEXT NOT NULL,"
     "  who TEXT NOT NULL,"
     "  text TEXT NOT NULL"
     ") STRICT;"
     "CREATE INDEX events_by_job ON events (job, id);"

     "CREATE TABLE settings ("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
     "  job INTEGER NOT NULL REFERENCES jobs (id),"
     "  round INTEGER NOT NULL," /* in force from this round on */
     "  unix_ms INTEGER NOT NULL,"
     "  key TEXT NOT NULL,"
     "  value TEXT NOT NULL,"
     "  who TEXT NOT NULL"
     ") STRICT;"
     "CREATE INDEX settings_by_job ON settings (job, id);"

     /* loss, … are NULL where they were not a number */
     "CREATE TABLE rounds ("
     "  job INTEGER NOT NULL REFERENCES jobs (id),"
     "  round INTEGER NOT NULL,"
     "  rank INTEGER NOT NULL,"
     "  step INTEGER NOT NULL,"
     "  samples INTEGER NOT NULL,"
     "  bytes_in INTEGER NOT NULL,"
     "  bytes_out INTEGER NOT NULL,"
     "  loss REAL,"
     "  compute_ms REAL,"
     "  wait_ms REAL,"
     "  lr REAL,"
     "  contributed INTEGER NOT NULL,"
     "  PRIMARY KEY (job, round, rank)"
     ") STRICT, WITHOUT ROWID;"

     /* checksum: XXH3-128 over the row and over name, size and hash of every part */
     "CREATE TABLE checkpoints ("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
     "  job INTEGER NOT NULL REFERENCES jobs (id),"
     "  round INTEGER NOT NULL,"
     "  step INTEGER NOT NULL,"
     "  created_ms INTEGER NOT NULL,"
     "  bytes INTEGER NOT NULL," /* of its chunks */
     "  parts INTEGER NOT NULL," /* how many */
     "  meta TEXT NOT NULL,"
     "  checksum BLOB NOT NULL,"
     "  valid INTEGER NOT NULL DEFAULT 1,"
     "  problem TEXT NOT NULL DEFAULT ''"
     ") STRICT;"
     "CREATE INDEX checkpoints_by_job ON checkpoints (job, id);"

     /* source: the number of the part whose chunks hold the bytes, its own or that of an earlier
        part with the same bytes. Never a part of another checkpoint: checkpoints that share bytes
        would share the fate of a bad sector, too. */
     "CREATE TABLE checkpoint_parts ("
     "  checkpoint INTEGER NOT NULL REFERENCES checkpoints (id) ON DELETE CASCADE,"
     "  number INTEGER NOT NULL,"
     "  name TEXT NOT NULL,"
     "  bytes INTEGER NOT NULL,"
     "  hash BLOB NOT NULL," /* XXH3-128 of the bytes */
     "  source INTEGER NOT NULL,"
     "  PRIMARY KEY (checkpoint, number),"
     "  UNIQUE (checkpoint, name)"
     ") STRICT, WITHOUT ROWID;"

     "CREATE TABLE checkpoint_chunks ("
     "  id INTEGER PRIMARY KEY,"
     "  checkpoint INTEGER NOT NULL REFERENCES checkpoints (id) ON DELETE CASCADE,"
     "  part INTEGER NOT NULL,"
     "  number INTEGER NOT NULL,"
     "  data BLOB NOT NULL,"
     "  UNIQUE (checkpoint, part, number)"
     ") STRICT;"},

    /* checkpoint: its number, whether it is still there or not. accuracy and loss are NULL where
       they were not a number. */
    {"CREATE TABLE evaluations ("
     "  job INTEGER NOT NULL REFERENCES jobs (id),"
     "  round INTEGER NOT NULL,"
     "  checkpoint INTEGER NOT NULL,"
     "  accuracy REAL,"
     "  loss REAL,"
     "  samples INTEGER NOT NULL,"
     "  unix_ms INTEGER NOT NULL,"
     "  PRIMARY KEY (job, round)"
     ") STRICT, WITHOUT ROWID;"

     /* pins, of which each job has at most one of a kind: such a checkpoint is not pruned */
     "ALTER TABLE checkpoints ADD COLUMN in_use INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE checkpoints ADD COLUMN best INTEGER NOT NULL DEFAULT 0;"},
};

enum { VERSION = sizeof migrations / sizeof *migrations };

static int check_not_newer(Db *db, int64_t version, int known, Error *err)
{
    if (version <= known)
        return 0;
    return error_set(err, -EPROTO,
                     "%s has version %lld, this dpsd knows up to %d; run the newer dpsd that wrote "
                     "it (the file was left as it is)",
                     db_path(db), (long long)version, known);
}

int schema_check(Db *db, Error *err)
{
    int64_t version, owner, tables;
    int r = db_number(db, "PRAGMA user_version", &version, err);
    if (r >= 0)
        r = check_not_newer(db, version, VERSION, err);
    if (r >= 0)
        r = db_number(db, "PRAGMA application_id", &owner, err);
    if (r >= 0)
        r = db_number(db, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (r < 0)
        return r;
    if (tables > 0 && owner != APPLICATION_ID)
        return error_set(err, -EBADMSG,
                         "%s is another program's database; move it away and start dpsd again",
                         db_path(db));
    return 0;
}

typedef struct Move {
    const char *sql;
    int version;
} Move;

static int migrate_one(Db *db, void *data, Error *err)
{
    const Move *move = data;
    int r = db_exec(db, move->sql, err);
    if (r < 0)
        return r;
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", move->version);
    return db_exec(db, sql, err);
}

int schema_migrate_by(Db *db, const Migration *steps, int n, Error *err)
{
    int64_t version;
    int r = db_number(db, "PRAGMA user_version", &version, err);
    if (r >= 0)
        r = check_not_newer(db, version, n, err);
    for (int i = (int)version; r >= 0 && i < n; i++) {
        Move move = {.sql = steps[i].sql, .version = i + 1};
        r = db_transaction(db, migrate_one, &move, err);
        if (r < 0)
            return error_prefix(err, r, "cannot bring the database from version %d to %d", i,
                                i + 1);
    }
    return r;
}

int schema_migrate(Db *db, Error *err)
{
    return schema_migrate_by(db, migrations, VERSION, err);
}
