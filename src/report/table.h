/* Aligned text tables. */
#ifndef LS_REPORT_TABLE_H
#define LS_REPORT_TABLE_H

#include "base/memory.h"
#include "base/status.h"
#include <stdio.h>

#define LS_TABLE_COLUMNS 16

struct ls_table {
    struct ls_arena text;
    const char **cells; /* owned; rows x columns, the first row is the heading */
    int columns, rows, room;
    int filled;        /* cells of the last row so far */
    const char *align; /* borrowed: 'l' or 'r' for each column */
    enum ls_status status;
};

/* align has one letter a column, "lrr"; the headings follow as that many strings. Errors stick and come out
 * of ls_table_print. */
void ls_table_init(struct ls_table *t, const char *align, const char *const *headings);
/* Add a row of `columns` cells, each made by printf, with control characters spelled: start it, then fill it from the left. Cells left out are
 * empty. */
void ls_table_row(struct ls_table *t);
void ls_table_cell(struct ls_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Columns are two spaces apart, no line ends in spaces; widths count characters of UTF-8, not bytes. */
enum ls_status ls_table_print(const struct ls_table *t, FILE *out);
void ls_table_release(struct ls_table *t);

#endif
