#include "fault_vfs.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>

/* The file of the VFS below follows in the same memory. */
typedef struct FaultFile {
    sqlite3_file base;
    sqlite3_file *real;
} FaultFile;

static sqlite3_vfs *below;
static sqlite3_vfs layer;
static atomic_int fault_on, countdown, fault_code, fault_always, failed;

void fault_vfs_set(FaultOn on, int n, int code, int always)
{
    fault_on = FAULT_NONE;
    countdown = n;
    fault_code = code;
    fault_always = always;
    failed = 0;
    fault_on = on;
}

int fault_vfs_failed(void)
{
    return failed;
}

static int is_due(FaultOn on)
{
    if (fault_on != (int)on)
        return 0;
    int left = --countdown;
    if (left > 0 || (left < 0 && !fault_always))
        return 0;
    failed++;
    errno = fault_code;
    return 1;
}

static sqlite3_file *real(sqlite3_file *file)
{
    return ((FaultFile *)file)->real;
}

/* ---- the operations that may fail ------------------------------------------------------------ */

static int file_read(sqlite3_file *file, void *to, int n, sqlite3_int64 at)
{
    if (is_due(FAULT_READ))
        return SQLITE_IOERR_READ;
    return real(file)->pMethods->xRead(real(file), to, n, at);
}

/* As SQLite's own: a full disk has a code of its own. */
static int file_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 at)
{
    if (is_due(FAULT_WRITE))
        return fault_code == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    return real(file)->pMethods->xWrite(real(file), from, n, at);
}

static int file_sync(sqlite3_file *file, int flags)
{
    if (is_due(FAULT_SYNC))
        return SQLITE_IOERR_FSYNC;
    return real(file)->pMethods->xSync(real(file), flags);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    if (is_due(FAULT_TRUNCATE))
        return SQLITE_IOERR_TRUNCATE;
    return real(file)->pMethods->xTruncate(real(file), size);
}

/* ---- those that are passed on ---------------------------------------------------------------- */

static int file_close(sqlite3_file *file)
{
    return real(file)->pMethods->xClose(real(file));
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real(file)->pMethods->xFileSize(real(file), size);
}

static int file_lock(sqlite3_file *file, int kind)
{
    return real(file)->pMethods->xLock(real(file), kind);
}

static int file_unlock(sqlite3_file *file, int kind)
{
    return real(file)->pMethods->xUnlock(real(file), kind);
}

static int file_check_lock(sqlite3_file *file, int *result)
{
    return real(file)->pMethods->xCheckReservedLock(real(file), result);
}

static int file_control(sqlite3_file *file, int op, void *data)
{
    return real(file)->pMethods->xFileControl(real(file), op, data);
}

static int file_sector(sqlite3_file *file)
{
    return real(file)->pMethods->xSectorSize(real(file));
}

static int file_traits(sqlite3_file *file)
{
    return real(file)->pMethods->xDeviceCharacteristics(real(file));
}

static int shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **memory)
{
    return real(file)->pMethods->xShmMap(real(file), page, size, extend, memory);
}

static int shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return real(file)->pMethods->xShmLock(real(file), offset, n, flags);
}

static void shm_barrier(sqlite3_file *file)
{
    real(file)->pMethods->xShmBarrier(real(file));
}

static int shm_unmap(sqlite3_file *file, int delete)
{
    return real(file)->pMethods->xShmUnmap(real(file), delete);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
    .xShmMap = shm_map,
    .xShmLock = shm_lock,
    .xShmBarrier = shm_barrier,
    .xShmUnmap = shm_unmap,
};

/* ---- the layer ------------------------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    FaultFile *fault = (FaultFile *)file;
    fault->real = (sqlite3_file *)(fault + 1);
    int rc = below->xOpen(below, name, fault->real, flags, out);
    fault->base.pMethods = fault->real->pMethods ? &methods : NULL;
    return rc;
}

/* The other entries of the VFS below take no notice of which VFS they are called with. */
int fault_vfs_install(void)
{
    below = sqlite3_vfs_find(NULL);
    if (!below)
        return -1;
    memcpy(&layer, below, sizeof layer);
    layer.zName = "fault";
    layer.szOsFile = (int)sizeof(FaultFile) + below->szOsFile;
    layer.pNext = NULL;
    layer.xOpen = vfs_open;
    return sqlite3_vfs_register(&layer, 1) == SQLITE_OK ? 0 : -1;
}
