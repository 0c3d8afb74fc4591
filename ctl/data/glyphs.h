/* The digits as strokes of a pen, in a box from (0, 0) at the top left to (1, 1). */
#pragma once

#include <stdint.h>

enum {
    GLYPH_MAX_STROKES = 3,
    GLYPH_MAX_POINTS = 10,
    GLYPH_VARIANTS = 2, /* ways to write a digit */
};

typedef struct GlyphPoint {
    float x, y;
} GlyphPoint;

typedef struct GlyphStroke {
    uint8_t points; /* 0: there is no such stroke */
    uint8_t curved; /* a smooth curve through the points, else straight lines */
    GlyphPoint point[GLYPH_MAX_POINTS];
} GlyphStroke;

typedef struct Glyph {
    GlyphStroke stroke[GLYPH_MAX_STROKES];
} Glyph;

extern const Glyph glyphs[10][GLYPH_VARIANTS];
