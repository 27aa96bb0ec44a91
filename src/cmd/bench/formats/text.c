#include "cmd/bench/results/view.h"

#include <sys/ioctl.h>
#include <unistd.h>

/* The width of the terminal, 0: none. */
static int width_of(FILE *out)
{
    struct winsize size;
    if (!isatty(fileno(out)) || ioctl(fileno(out), TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

enum ls_status ls_bench_write_text(const struct ls_bench_table *t, FILE *out)
{
    struct ls_bench_view v;
    struct ls_table table;
    LS_TRY(ls_bench_view_make(&v, t, out == stdout ? width_of(out) : 0));
    fputs(v.about, out);
    ls_table_init(&table, v.align, v.headings);
    for (int i = 0; i < v.rows * v.columns; i++) {
        if (i % v.columns == 0)
            ls_table_row(&table);
        ls_table_cell(&table, "%s", v.cells[i]);
    }
    enum ls_status st = ls_table_print(&table, out);
    ls_table_release(&table);
    ls_bench_view_release(&v);
    return st;
}
