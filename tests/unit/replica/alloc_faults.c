#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "alloc_faults.h"
#include "backend/backend.h"

int alloc_count;
static int fail_at; /* 0: none fails */

static bool fails(void)
{
    return ++alloc_count == fail_at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

int fail_each_allocation(int (*attempt)(void *data), void *data)
{
    for (int n = 1;; n++) {
        alloc_count = 0;
        fail_at = n;
        int r = attempt(data);
        fail_at = 0;
        if (alloc_count < n) {
            assert_int_equal(r, 0);
            return n - 1;
        }
        assert_int_equal(r, -ENOMEM);
    }
}

int fail_each_device_call(int (*attempt)(void *data), void *data)
{
    for (unsigned n = 1; n < 1000; n++) {
        backend_fail_after(n);
        int r = attempt(data);
        backend_fail_after(0);
        if (r == 0)
            return (int)n - 1;
        assert_true(r == -EIO || r == -ENOMEM);
    }
    fail_msg("no end of failures");
    return 0;
}
