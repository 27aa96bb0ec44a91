/* A table of results for people: the cells that the formats text, markdown and latex write. */
#ifndef LS_CMD_BENCH_VIEW_H
#define LS_CMD_BENCH_VIEW_H

#include "base/memory.h"
#include "cmd/bench/results/results.h"
#include "report/formats/table.h"
#include <stdbool.h>

struct ls_bench_view {
    struct ls_arena strings;
    int columns, rows;
    const char *headings[LS_TABLE_COLUMNS];
    char align[LS_TABLE_COLUMNS + 1]; /* 'l' or 'r' */
    const char **cells;               /* owned; rows x columns */
    char *about;                      /* owned; what all rows have in common */
    int repetitions;                  /* of the row with the most */
    int left_out;                     /* repetitions without a column */
};

/* Makes the cells. An axis has a column if its value differs between rows, or with --verbose. Each repetition has a column if
 * they fit in `width` characters, or with --verbose; width 0: if there are at most eight. */
enum ls_status ls_bench_view_make(struct ls_bench_view *v, const struct ls_bench_table *t, int width);
void ls_bench_view_release(struct ls_bench_view *v);

/* The formats, one file each in formats/. */
#define X(name, ending) enum ls_status ls_bench_write_##name(const struct ls_bench_table *t, FILE *out);
#include "config/lists/table_formats.def"

#endif
