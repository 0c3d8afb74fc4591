/* Where blocks of memory lie in one arena, when each is needed for a known span of time only.
 * Internal to daemon/replica. Pure functions, any thread. */
#pragma once

#include <stddef.h>

typedef struct ArenaBlock {
    size_t bytes;  /* 0: takes no place */
    int from, to;  /* first and last moment of use; blocks that share a moment never overlap */
    size_t offset; /* filled by arena_place; a multiple of 64 */
} ArenaBlock;

/* Gives every block its offset; *total is the arena's size. The largest block goes first, each to
 * the lowest place that is free through its span. -ENOMEM, -EOVERFLOW */
int arena_place(ArenaBlock *blocks, int count, size_t *total);
