#include <string.h>

#include "store/db.h"

typedef struct Meaning {
    int rc; /* SQLite's primary code */
    int code;
    const char *sentence;
} Meaning;

static const Meaning meanings[] = {
    {SQLITE_FULL, -ENOSPC,
     "no space left; free some on that disk: what was saved before is kept, training goes on, and "
     "the next write tries again"},
    {SQLITE_READONLY, -EROFS,
     "it can only be read; mount its file system for writing and let dpsd own the file"},
    {SQLITE_CORRUPT, -EBADMSG,
     "the file is damaged; stop dpsd, move the file away (it is never deleted) and put a backup in "
     "its place or start with an empty one"},
    {SQLITE_NOTADB, -EBADMSG,
     "the file is not a database; move it away (it is never deleted) and start dpsd again"},
    {SQLITE_NOMEM, -ENOMEM, "out of memory"},
    {SQLITE_BUSY, -EBUSY, "another program is writing to it; end that program"},
    {SQLITE_LOCKED, -EBUSY, "it is in use"},
    {SQLITE_PERM, -EACCES, "permission denied; let dpsd own the file"},
    {SQLITE_AUTH, -EACCES, "permission denied; let dpsd own the file"},
    {SQLITE_TOOBIG, -EFBIG, "a text or a piece of data is larger than SQLite takes"},
    {SQLITE_CONSTRAINT, -EEXIST, "it already has such an entry"},
    {SQLITE_INTERRUPT, -ECANCELED, "interrupted"},
};

/* What the system said about the file, where SQLite only knows that reading or writing failed. */
static int code_of_system(int system_code)
{
    switch (system_code) {
    case ENOSPC:
    case EDQUOT:
        return SQLITE_FULL;
    case EROFS:
        return SQLITE_READONLY;
    case EACCES:
    case EPERM:
        return SQLITE_PERM;
    case ENOMEM:
        return SQLITE_NOMEM;
    default:
        return SQLITE_OK;
    }
}

static int refine(int rc, int system_code)
{
    if (rc == SQLITE_IOERR_NOMEM)
        return SQLITE_NOMEM;
    if (rc == SQLITE_IOERR_CORRUPTFS)
        return SQLITE_CORRUPT;
    int primary = rc & 0xff;
    if (primary != SQLITE_IOERR && primary != SQLITE_CANTOPEN)
        return primary;
    int refined = code_of_system(system_code);
    return refined == SQLITE_OK ? primary : refined;
}

int db_error(Db *db, int rc, Error *err)
{
    int system_code = errno;
    if (rc == SQLITE_CONSTRAINT_FOREIGNKEY)
        return error_set(err, -ENOENT, "%s has no such job", db_path(db));
    if (system_code == 0)
        system_code = sqlite3_system_errno(db_handle(db));
    int primary = refine(rc, system_code);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].rc == primary)
            return error_set(err, meanings[i].code, "%s: %s", db_path(db), meanings[i].sentence);
    if (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN)
        return error_set(err, -EIO, "%s: %s (%s); look at the disk and the kernel's log",
                         db_path(db), sqlite3_errstr(rc),
                         system_code ? strerror(system_code) : "no reason given");
    return error_set(err, -EIO, "%s: %s", db_path(db), sqlite3_errmsg(db_handle(db)));
}
