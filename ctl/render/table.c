#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cleanup.h"
#include "ctl/render/table.h"
#include "ctl/text.h"

enum { GAP = 2 };

typedef struct Cell {
    char *text;
    size_t columns;
    TermColour colour;
} Cell;

struct Table {
    const TableColumn *columns;
    size_t column_count;
    Cell *cells;
    size_t count, capacity;
    bool no_memory;
};

Table *table_new(const TableColumn *columns, size_t count)
{
    Table *table = calloc(1, sizeof *table);

    if (!table)
        return NULL;
    table->columns = columns;
    table->column_count = count < TABLE_MAX_COLUMNS ? count : TABLE_MAX_COLUMNS;
    return table;
}

Table *table_free(Table *table)
{
    if (!table)
        return NULL;
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i].text);
    free(table->cells);
    free(table);
    return NULL;
}

static bool grow(Table *table)
{
    size_t capacity = table->capacity ? 2 * table->capacity : 64;
    Cell *cells = realloc(table->cells, capacity * sizeof *cells);

    if (!cells)
        return false;
    table->cells = cells;
    table->capacity = capacity;
    return true;
}

void table_cell(Table *table, const char *text)
{
    char *copy = strdup(text ? text : "");

    if (!copy || (table->count == table->capacity && !grow(table))) {
        free(copy);
        table->no_memory = true;
        return;
    }
    ctl_sanitise(copy);
    table->cells[table->count++] = (Cell){.text = copy, .columns = term_columns(copy)};
}

void table_cellf(Table *table, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    table_cell(table, text);
}

void table_colour(Table *table, TermColour colour)
{
    if (table->count > 0)
        table->cells[table->count - 1].colour = colour;
}

size_t table_rows(const Table *table)
{
    return table->column_count > 0 ? table->count / table->column_count : 0;
}

static void measure(const Table *table, size_t *widths)
{
    for (size_t i = 0; i < table->column_count; i++)
        widths[i] = term_columns(table->columns[i].title);
    for (size_t i = 0, column = 0; i < table->count; i++) {
        if (table->cells[i].columns > widths[column])
            widths[column] = table->cells[i].columns;
        column = column + 1 < table->column_count ? column + 1 : 0;
    }
}

/* How many columns fit into the width. */
static size_t fitting(const Table *table, const size_t *widths, size_t indent, size_t width)
{
    size_t used = indent, count = 0;

    while (count < table->column_count) {
        used += widths[count] + (count > 0 ? GAP : 0);
        if (used > width && count >= 2)
            break;
        count++;
    }
    return count;
}

static void print_line(const Table *table, FILE *out, const Term *term, const Cell *cells,
                       const size_t *widths, size_t shown, size_t indent)
{
    size_t pending = indent, left = (size_t)term->width;

    for (size_t i = 0; i < shown; i++) {
        size_t fill = widths[i] - cells[i].columns;
        if (table->columns[i].right)
            pending += fill;
        if (cells[i].columns > 0) { /* no blanks at line ends */
            size_t blanks = pending < left ? pending : left;
            fprintf(out, "%*s%s", (int)blanks, "", term_on(term, cells[i].colour));
            left -= blanks;
            left -= term_print_cut(out, cells[i].text, left);
            fputs(cells[i].colour ? term_off(term) : "", out);
            pending = 0;
        }
        pending += (table->columns[i].right ? 0 : fill) + GAP;
    }
    fputc('\n', out);
}

int table_print(const Table *table, FILE *out, const Term *term, size_t indent)
{
    size_t widths[TABLE_MAX_COLUMNS] = {0}, shown;
    Cell titles[TABLE_MAX_COLUMNS];

    if (table->no_memory)
        return -ENOMEM;
    measure(table, widths);
    shown = fitting(table, widths, indent, (size_t)term->width);
    for (size_t i = 0; i < table->column_count; i++)
        titles[i] = (Cell){.text = (char *)table->columns[i].title,
                           .columns = term_columns(table->columns[i].title),
                           .colour = TERM_BOLD};
    print_line(table, out, term, titles, widths, shown, indent);
    for (size_t row = 0; row < table_rows(table); row++)
        print_line(table, out, term, table->cells + row * table->column_count, widths, shown,
                   indent);
    return 0;
}
