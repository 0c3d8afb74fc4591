#include "fault_alloc.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int countdown, failed;
static atomic_bool active, fail_always;

void fault_alloc_set(int n, bool always)
{
    active = false;
    countdown = n;
    fail_always = always;
    failed = 0;
    active = n > 0;
}

int fault_alloc_failed(void)
{
    return failed;
}

static bool is_due(void)
{
    if (!active)
        return false;
    int left = --countdown;
    if (left > 0 || (left < 0 && !fail_always))
        return false;
    failed++;
    return true;
}

/* ---- the store's own ------------------------------------------------------------------------- */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker chose these names */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return is_due() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_due() ? NULL : __real_calloc(n, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
    return is_due() ? NULL : __real_reallocarray(old, n, size);
}

char *__wrap_strdup(const char *text)
{
    return is_due() ? NULL : __real_strdup(text);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- SQLite's -------------------------------------------------------------------------------- */

static sqlite3_mem_methods usual, failing;

static void *sqlite_malloc(int size)
{
    return is_due() ? NULL : usual.xMalloc(size);
}

static void *sqlite_realloc(void *old, int size)
{
    return is_due() ? NULL : usual.xRealloc(old, size);
}

int fault_alloc_install(void)
{
    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &usual) != SQLITE_OK)
        return -1;
    failing = usual;
    failing.xMalloc = sqlite_malloc;
    failing.xRealloc = sqlite_realloc;
    return sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) == SQLITE_OK ? 0 : -1;
}
