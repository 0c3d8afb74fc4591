#include "replica/arena.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"

enum { ALIGNMENT = 64 };

static int compare_sizes(const void *a, const void *b)
{
    const ArenaBlock *x = *(ArenaBlock *const *)a, *y = *(ArenaBlock *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y; /* ties in the order given, so that a plan is always the same */
}

/* Finds the lowest free offset for `block` and puts it among the n placed ones, which are sorted by
 * offset. */
static int place(ArenaBlock **placed, int n, ArenaBlock *block)
{
    size_t offset = 0;
    for (int i = 0; i < n; i++) {
        const ArenaBlock *other = placed[i];
        if (other->to < block->from || other->from > block->to)
            continue;
        if (other->offset >= offset && other->offset - offset >= block->bytes)
            break;
        size_t end = other->offset + other->bytes;
        if (end > offset)
            offset = end;
    }
    size_t end;
    if (__builtin_add_overflow(offset, block->bytes, &end))
        return -EOVERFLOW;
    block->offset = offset;
    int at = n;
    for (; at > 0 && placed[at - 1]->offset > offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = block;
    return 0;
}

int arena_place(ArenaBlock *blocks, int count, size_t *total)
{
    _cleanup_free_ ArenaBlock **order = malloc(2 * ((size_t)count + 1) * sizeof(ArenaBlock *));
    if (!order)
        return -ENOMEM;
    ArenaBlock **placed = order + count;
    int n = 0;
    for (int i = 0; i < count; i++) {
        if (blocks[i].bytes == 0)
            continue;
        if (blocks[i].bytes > SIZE_MAX - ALIGNMENT)
            return -EOVERFLOW;
        blocks[i].bytes = (blocks[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        order[n++] = &blocks[i];
    }
    if (n > 0)
        qsort(order, (size_t)n, sizeof(ArenaBlock *), compare_sizes);
    *total = 0;
    for (int i = 0; i < n; i++) {
        int r = place(placed, i, order[i]);
        if (r < 0)
            return r;
        if (order[i]->offset + order[i]->bytes > *total)
            *total = order[i]->offset + order[i]->bytes;
    }
    return 0;
}
