/* Drawn digits: sample i of (seed, split) is a pure function of the three, made when it is asked
 * for. Only sums, products, quotients and square roots are used, which IEEE 754 rounds alike
 * everywhere, so that every machine draws the same bytes. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/data/counter.h"
#include "ctl/data/glyphs.h"
#include "ctl/data/problem.h"
#include "ctl/data/source.h"

enum {
    SIDE = 28,
    PIECES = 4, /* straight pieces between two points of a curve */
    FAR = 1000, /* squared distance that no pen reaches */
};

typedef struct DigitSet {
    uint64_t key;
} DigitSet;

/* How one digit is written: from the box of its glyph to the picture, and with what pen. */
typedef struct Hand {
    float xx, xy, yx, yy, x0, y0; /* x' = xx·x + xy·y + x0, and so y' */
    float radius;                 /* of the pen, in pixels */
    float wobble;                 /* of the points, in the glyph's box */
} Hand;

static Hand draw_hand(Counter *c)
{
    float height = counter_between(c, 17.0F, 21.0F);
    float width = height * counter_between(c, 0.52F, 0.80F);
    float slant = 0.30F * counter_bell(c) - 0.06F;
    float turn = 0.10F * counter_bell(c); /* tangent of half the angle */
    float cosine = (1 - turn * turn) / (1 + turn * turn), sine = 2 * turn / (1 + turn * turn);
    Hand h = {.radius = counter_between(c, 1.0F, 1.9F), .wobble = 0.05F};
    float cx, cy;

    /* slant, then turn: (x, y) → (w·x − s·h·y, h·y) → rotated */
    h.xx = cosine * width;
    h.xy = -cosine * slant * height - sine * height;
    h.yx = sine * width;
    h.yy = -sine * slant * height + cosine * height;
    /* the middle of the box goes to the middle of the picture, and a bit aside */
    cx = 0.5F * (h.xx + h.xy);
    cy = 0.5F * (h.yx + h.yy);
    h.x0 = (SIDE - 1) * 0.5F - cx + 2.0F * counter_bell(c);
    h.y0 = (SIDE - 1) * 0.5F - cy + 2.0F * counter_bell(c);
    return h;
}

static GlyphPoint place(const Hand *h, GlyphPoint p)
{
    return (GlyphPoint){h->xx * p.x + h->xy * p.y + h->x0, h->yx * p.x + h->yy * p.y + h->y0};
}

/* fminf and fmaxf are calls, for the sake of NaN. */
static inline float least(float a, float b)
{
    return a < b ? a : b;
}

static inline float most(float a, float b)
{
    return a > b ? a : b;
}

/* How much ink the pen leaves at distance² from its middle: a disc with an edge one pixel wide. */
static inline float coverage(float distance2, float radius)
{
    return most(0, least(1, radius + 0.5F - sqrtf(distance2)));
}

static int clamp_side(float v)
{
    return v < 0 ? 0 : v > SIDE - 1 ? SIDE - 1 : (int)v;
}

/* near (28,28) = min(near, squared distance to the line from a to b), where the pen may reach. No
 * branches within, so that compilers use vectors. */
static void draw_line(float *near, GlyphPoint a, GlyphPoint b, float radius)
{
    float dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy, reach = radius + 0.5F;
    float inverse = length2 > 1e-6F ? 1 / length2 : 0;
    int x0 = clamp_side(least(a.x, b.x) - reach), x1 = clamp_side(most(a.x, b.x) + reach + 1);
    int y0 = clamp_side(least(a.y, b.y) - reach), y1 = clamp_side(most(a.y, b.y) + reach + 1);

    for (int y = y0; y <= y1; y++) {
        float py = (float)y - a.y, *row = near + y * SIDE;

        for (int x = x0; x <= x1; x++) {
            float px = (float)x - a.x;
            float t = most(0, least(1, (px * dx + py * dy) * inverse));
            float ex = px - t * dx, ey = py - t * dy;

            row[x] = least(row[x], ex * ex + ey * ey);
        }
    }
}

/* A point of the Catmull-Rom curve from b to c; a and d are their neighbours. */
static GlyphPoint curve(GlyphPoint a, GlyphPoint b, GlyphPoint c, GlyphPoint d, float t)
{
    float t2 = t * t, t3 = t2 * t;
    float wa = -0.5F * t3 + t2 - 0.5F * t, wb = 1.5F * t3 - 2.5F * t2 + 1;
    float wc = -1.5F * t3 + 2 * t2 + 0.5F * t, wd = 0.5F * t3 - 0.5F * t2;

    return (GlyphPoint){wa * a.x + wb * b.x + wc * c.x + wd * d.x,
                        wa * a.y + wb * b.y + wc * c.y + wd * d.y};
}

static void draw_stroke(float *near, const GlyphStroke *stroke, const Hand *hand, Counter *c)
{
    GlyphPoint p[GLYPH_MAX_POINTS + 2] = {{0}}; /* with the ends doubled */
    int n = stroke->points;

    for (int i = 0; i < n; i++) {
        GlyphPoint q = stroke->point[i];

        q.x += hand->wobble * 2 * counter_bell(c);
        q.y += hand->wobble * counter_bell(c);
        p[i + 1] = place(hand, q);
    }
    p[0] = p[1];
    p[n + 1] = p[n];
    for (int i = 1; i < n; i++) {
        GlyphPoint from = p[i];

        for (int k = 1; stroke->curved && k < PIECES; k++) {
            GlyphPoint to = curve(p[i - 1], p[i], p[i + 1], p[i + 2], (float)k / PIECES);

            draw_line(near, from, to, hand->radius);
            from = to;
        }
        draw_line(near, from, p[i + 1], hand->radius);
    }
}

/* Ink and paper as bytes: an ink of its own darkness, grain on it, and specks here and there. */
static void develop(const float *near, float radius, uint8_t *x, Counter *c)
{
    float dark = counter_between(c, 200, 256);
    float grain = counter_between(c, 0, 0.25F);
    uint64_t bits = 0;

    for (int i = 0; i < SIDE * SIDE; i++) {
        float value;

        if (i % 8 == 0)
            bits = counter_next(c);
        value =
            coverage(near[i], radius) * dark * (1 - grain * (float)(bits & 0xff) * (1.0F / 256));
        bits >>= 8;
        x[i] = (uint8_t)(value < 255 ? value : 255);
    }
    for (int specks = (int)(counter_next(c) % 6); specks > 0; specks--) {
        uint64_t where = counter_next(c);

        x[where % (SIDE * SIDE)] = (uint8_t)(60 + (where >> 32) % 140);
    }
}

static void digits_read(const void *state, uint64_t index, void *x, int64_t *class_index,
                        float *target)
{
    const DigitSet *set = state;
    Counter c = {.key = counter_mix(set->key + index * 0xd1342543de82ef95U)};
    float near[SIDE * SIDE];
    uint64_t choice = counter_next(&c);
    unsigned digit = (unsigned)(choice % 10);
    const Glyph *glyph = &glyphs[digit][choice >> 32 & (GLYPH_VARIANTS - 1)];
    Hand hand = draw_hand(&c);

    (void)target;
    for (int i = 0; i < SIDE * SIDE; i++)
        near[i] = FAR;
    for (int i = 0; i < GLYPH_MAX_STROKES; i++)
        draw_stroke(near, &glyph->stroke[i], &hand, &c);
    develop(near, hand.radius, x, &c);
    if (class_index)
        *class_index = digit;
}

static const SourceOps digits_ops = {.read = digits_read, .free = free};

int digits_open(uint64_t seed, DatasetSplit split, uint64_t count, Source *ret, char *problem,
                size_t size)
{
    DigitSet *set = calloc(1, sizeof(*set));

    if (!set)
        return problem_set(problem, size, -ENOMEM, "no memory");
    set->key = counter_mix(counter_mix(seed + 1) + (uint64_t)split);
    *ret = (Source){.info = {.samples = count,
                             .dtype = DPS__V1__DTYPE__U8,
                             .ndim = 3,
                             .dims = {1, SIDE, SIDE},
                             .sample_bytes = (size_t)SIDE * SIDE,
                             .label = DATASET_CLASSES,
                             .label_dtype = DPS__V1__DTYPE__U8},
                    .ops = &digits_ops,
                    .state = set};
    return 0;
}
