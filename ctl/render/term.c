#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/render/term.h"

enum { DEFAULT_WIDTH = 80, DEFAULT_HEIGHT = 24 };

static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

Term term_of(FILE *stream)
{
    const char *name = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    Term term = {.width = TERM_NO_LIMIT, .height = TERM_NO_LIMIT};

    term.tty = isatty(fileno(stream)) && name && *name && strcmp(name, "dumb") != 0;
    term.colour = term.tty && !(no_colour && *no_colour);
    term.utf8 = locale_is_utf8();
    term_resize(&term, stream);
    return term;
}

void term_resize(Term *term, FILE *stream)
{
    struct winsize size = {0};

    if (!term->tty)
        return;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) < 0)
        size = (struct winsize){0};
    term->width = size.ws_col > 0 ? size.ws_col : DEFAULT_WIDTH;
    term->height = size.ws_row > 0 ? size.ws_row : DEFAULT_HEIGHT;
}

/* Bytes of the escape sequence at text, 0 if there is none. */
static size_t escape_size(const char *text)
{
    size_t size = 2;

    if (text[0] != '\033' || text[1] != '[')
        return 0;
    while (text[size] && text[size] != 'm')
        size++;
    return text[size] ? size + 1 : size;
}

/* One UTF-8 character: its bytes and its columns. Text was sanitised, so that it is well formed. */
static size_t character(const char *text, size_t *ret_columns)
{
    static const uint32_t wide[][2] = {
        {0x1100, 0x115F}, {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
        {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
        {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD},
    };
    unsigned char first = (unsigned char)text[0];
    size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    uint32_t point = size == 1 ? first : first & (0xFFU >> (size + 1));

    for (size_t i = 1; i < size; i++) {
        if (!text[i]) {
            *ret_columns = 1;
            return i;
        }
        point = point << 6 | ((unsigned char)text[i] & 0x3FU);
    }
    *ret_columns = 1;
    if ((point >= 0x300 && point <= 0x36F) || point == 0x200B || point == 0x200D ||
        (point >= 0xFE00 && point <= 0xFE0F))
        *ret_columns = 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (point >= wide[i][0] && point <= wide[i][1])
            *ret_columns = 2;
    return size;
}

size_t term_columns(const char *text)
{
    size_t total = 0;

    while (*text) {
        size_t columns = 0, size = escape_size(text);
        if (size == 0)
            size = character(text, &columns);
        total += columns;
        text += size;
    }
    return total;
}

size_t term_print_cut(FILE *out, const char *text, size_t width)
{
    size_t total = 0;
    bool coloured = false;

    while (*text) {
        size_t columns = 0, size = escape_size(text);
        if (size > 0)
            coloured = strncmp(text, "\033[0m", 4) != 0;
        else
            size = character(text, &columns);
        if (total + columns > width)
            break;
        fwrite(text, 1, size, out);
        total += columns;
        text += size;
    }
    if (*text && coloured)
        fputs("\033[0m", out);
    return total;
}

const char *term_on(const Term *term, TermColour colour)
{
    static const char *const codes[] = {
        [TERM_PLAIN] = "",        [TERM_BOLD] = "\033[1m",   [TERM_DIM] = "\033[2m",
        [TERM_RED] = "\033[31m",  [TERM_GREEN] = "\033[32m", [TERM_YELLOW] = "\033[33m",
        [TERM_BLUE] = "\033[34m",
    };

    return term->colour ? codes[colour] : "";
}

const char *term_off(const Term *term)
{
    return term->colour ? "\033[0m" : "";
}
