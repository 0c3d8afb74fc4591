/* Progress bars, and blocks of lines that are redrawn in place. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "ctl/render/term.h"

/* "[█████▌    ]" of `width` columns, brackets included; share is clamped to 0 … 1. */
void bar_print(FILE *out, const Term *term, double share, size_t width);

/* A block at the bottom of a terminal. The cursor is hidden while it stands. */
typedef struct LiveBlock LiveBlock;

/* Draws on `out`, which must be a terminal. NULL: out of memory. */
LiveBlock *live_new(FILE *out, Term *term);
/* Puts `text` (whole lines) in the place of the block before; lines are cut to the width, and lines
 * beyond the height left out, so that nothing scrolls away. */
void live_draw(LiveBlock *live, const char *text);
/* Takes the block away, so that a line can be printed where it stood. */
void live_clear(LiveBlock *live);
/* Leaves the block standing, gives the cursor back. NULL is fine; returns NULL. */
LiveBlock *live_free(LiveBlock *live);

/* Rows that lines of these widths take on a terminal of `width` columns. */
size_t live_rows(const size_t *columns, size_t count, size_t width);
