#include "report/formats/table.h"

#include "base/log.h"
#include "base/text/utf8.h"

#include <stdarg.h>
#include <string.h>

void ls_table_init(struct ls_table *t, const char *align, const char *const *headings)
{
    *t = (struct ls_table){.align = align, .columns = (int)strlen(align)};
    ls_table_row(t);
    for (int i = 0; i < t->columns; i++)
        ls_table_cell(t, "%s", headings[i]);
}

void ls_table_row(struct ls_table *t)
{
    if (t->status != LS_OK)
        return;
    if (t->rows == t->room) {
        int room = t->room ? 2 * t->room : 16;
        size_t old = (size_t)t->room * (size_t)t->columns, new = (size_t)room *(size_t)t->columns;
        const char **cells = ls_realloc(t->cells, old, new, sizeof *cells);
        if (!cells) {
            t->status = LS_FAILED;
            return;
        }
        t->cells = cells;
        t->room = room;
    }
    t->rows++;
    t->filled = 0;
}

void ls_table_cell(struct ls_table *t, const char *format, ...)
{
    char text[256], shown[LS_PRINTABLE_SIZE];
    if (t->status != LS_OK || t->filled >= t->columns)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; (c = strchr(c, '\t'));)
        *c = ' ';
    const char *cell = ls_arena_strdup(&t->text, ls_utf8_printable(text, shown, sizeof shown));
    if (!cell)
        t->status = LS_FAILED;
    t->cells[(t->rows - 1) * t->columns + t->filled++] = cell;
}

static int width_of(const char *text)
{
    return text ? ls_utf8_length(text) : 0;
}

static void print_row(const struct ls_table *t, const char *const *cells, const int *width, FILE *out)
{
    int last = t->columns - 1, owed = 0; /* spaces to write before the next cell that is not empty */
    while (last > 0 && !(cells[last] && *cells[last]))
        last--;
    for (int c = 0; c <= last; c++) {
        int pad = width[c] - width_of(cells[c]);
        int before = owed + (t->align[c] == 'r' ? pad : 0);
        fprintf(out, "%*s%s", before, "", cells[c] ? cells[c] : "");
        owed = 2 + (t->align[c] == 'r' ? 0 : pad);
    }
    putc('\n', out);
}

enum ls_status ls_table_print(const struct ls_table *t, FILE *out)
{
    if (t->status != LS_OK)
        return t->status;
    int width[LS_TABLE_COLUMNS] = {0};
    if (t->columns > LS_TABLE_COLUMNS)
        return ls_fail(LS_FAILED, "a table of %d columns; at most %d are supported", t->columns, LS_TABLE_COLUMNS);
    for (int i = 0; i < t->rows * t->columns; i++) {
        int w = width_of(t->cells[i]);
        if (w > width[i % t->columns])
            width[i % t->columns] = w;
    }
    for (int r = 0; r < t->rows; r++)
        print_row(t, t->cells + r * t->columns, width, out);
    return LS_OK;
}

void ls_table_release(struct ls_table *t)
{
    ls_arena_release(&t->text);
    ls_free(t->cells);
    *t = (struct ls_table){0};
}
