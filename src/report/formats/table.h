/* Aligned text tables. */
#ifndef LS_REPORT_TABLE_H
#define LS_REPORT_TABLE_H

#include "base/memory.h"
#include "base/status.h"
#include <stdio.h>

#define LS_TABLE_COLUMNS 64

struct ls_table {
    struct ls_arena text;
    const char **cells; /* owned; rows x columns; the first row is the heading */
    int columns, rows, room;
    int filled;        /* number of cells in the last row */
    const char *align; /* borrowed; 'l' or 'r' for each column */
    enum ls_status status;
};

/* align has one letter per column ("lrr") and must stay valid; headings has one string per column. Errors are kept and
 * returned by ls_table_print. */
void ls_table_init(struct ls_table *t, const char *align, const char *const *headings);
/* Starts a row. ls_table_cell fills its cells from the left, with control characters escaped; missing cells are empty. */
void ls_table_row(struct ls_table *t);
void ls_table_cell(struct ls_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the table with two spaces between columns and no trailing spaces. Widths count UTF-8 characters. */
enum ls_status ls_table_print(const struct ls_table *t, FILE *out);
void ls_table_release(struct ls_table *t);

#endif
