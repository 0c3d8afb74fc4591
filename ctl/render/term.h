/* What is known about where output goes, and widths of text on it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct Term {
    bool tty;    /* a terminal that can move its cursor */
    bool colour; /* a terminal, and NO_COLOR is not set */
    bool utf8;   /* bars may be drawn with block characters */
    int width, height;
} Term;

enum { TERM_NO_LIMIT = 1 << 20 }; /* the width of a pipe */

/* Looks at the stream and at TERM, NO_COLOR, LC_ALL, LC_CTYPE, LANG. */
Term term_of(FILE *stream);
/* Asks for the size again, after SIGWINCH. */
void term_resize(Term *term, FILE *stream);

/* Columns that text takes; escape sequences of colour take none. */
size_t term_columns(const char *text);
/* Prints text cut to `width` columns, colour switched off at a cut; returns the columns printed. */
size_t term_print_cut(FILE *out, const char *text, size_t width);

typedef enum TermColour {
    TERM_PLAIN,
    TERM_BOLD,
    TERM_DIM,
    TERM_RED,
    TERM_GREEN,
    TERM_YELLOW,
    TERM_BLUE,
} TermColour;

/* Escape sequences, or "" where there are no colours. */
const char *term_on(const Term *term, TermColour colour);
const char *term_off(const Term *term);
