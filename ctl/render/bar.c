#include <stdlib.h>
#include <string.h>

#include "ctl/render/bar.h"

enum { LIVE_MAX_LINES = 128 };

struct LiveBlock {
    FILE *out;
    Term *term;
    size_t columns[LIVE_MAX_LINES]; /* of the lines that stand */
    size_t lines;
};

void bar_print(FILE *out, const Term *term, double share, size_t width)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    size_t room, filled, part, used;

    if (width < 3)
        return;
    if (!(share >= 0))
        share = 0;
    if (share > 1)
        share = 1;
    room = width - 2;
    filled = (size_t)(share * (double)room * 8 + 0.5);
    part = term->utf8 ? filled % 8 : 0;
    filled /= 8;
    used = filled + (part > 0);
    fputc('[', out);
    for (size_t i = 0; i < filled; i++)
        fputs(term->utf8 ? "█" : "#", out);
    fputs(eighths[part], out);
    fprintf(out, "%*s]", (int)(room - used), "");
}

LiveBlock *live_new(FILE *out, Term *term)
{
    LiveBlock *live = calloc(1, sizeof *live);

    if (!live)
        return NULL;
    live->out = out;
    live->term = term;
    fputs("\033[?25l", out);
    return live;
}

size_t live_rows(const size_t *columns, size_t count, size_t width)
{
    size_t rows = 0;

    for (size_t i = 0; i < count; i++)
        rows += columns[i] > width ? (columns[i] + width - 1) / width : 1;
    return rows;
}

void live_clear(LiveBlock *live)
{
    /* A terminal that has become narrower has wrapped the old lines. */
    size_t rows = live_rows(live->columns, live->lines, (size_t)live->term->width);

    if (rows > 0)
        fprintf(live->out, "\r\033[%zuA\033[J", rows);
    live->lines = 0;
}

void live_draw(LiveBlock *live, const char *text)
{
    size_t most = (size_t)live->term->height > 1 ? (size_t)live->term->height - 1 : 1;
    size_t width = (size_t)live->term->width > 1 ? (size_t)live->term->width - 1 : 1;

    live_clear(live);
    while (*text && live->lines < most && live->lines < LIVE_MAX_LINES) {
        size_t size = strcspn(text, "\n");
        char line[4096];
        size_t take = size < sizeof line - 1 ? size : sizeof line - 1;
        memcpy(line, text, take);
        line[take] = '\0';
        live->columns[live->lines++] = term_print_cut(live->out, line, width);
        fputc('\n', live->out);
        text += size + (text[size] == '\n');
    }
    fflush(live->out);
}

LiveBlock *live_free(LiveBlock *live)
{
    if (!live)
        return NULL;
    fputs("\033[?25h", live->out);
    fflush(live->out);
    free(live);
    return NULL;
}
