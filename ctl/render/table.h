/* Aligned tables. Cells are copied and sanitised. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "ctl/render/term.h"

typedef struct Table Table;

typedef struct TableColumn {
    const char *title;
    bool right; /* numbers */
} TableColumn;

enum { TABLE_MAX_COLUMNS = 16 };

/* `columns` must outlive the table. NULL: out of memory. */
Table *table_new(const TableColumn *columns, size_t count);
Table *table_free(Table *table); /* NULL is fine; returns NULL */

/* The next cell, row by row. Running out of memory is remembered and told by table_print. */
void table_cell(Table *table, const char *text);
__attribute__((format(printf, 2, 3))) void table_cellf(Table *table, const char *format, ...);
/* A colour for the cell that was added last. */
void table_colour(Table *table, TermColour colour);
size_t table_rows(const Table *table);

/* Prints title and rows, each line after `indent` blanks. Where the terminal is too narrow the last
 * columns are left out, but never the first two, which are cut. 0 or -ENOMEM. */
int table_print(const Table *table, FILE *out, const Term *term, size_t indent);
