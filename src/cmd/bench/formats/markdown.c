#include "cmd/bench/results/view.h"

#include <string.h>

/* A backslash makes the next character plain text. */
static void put(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (strchr("\\`*_[]<>|&~$", *text))
            putc('\\', out);
        putc(*text == '\n' || *text == '\t' ? ' ' : *text, out);
    }
}

static void put_row(const char *const *cells, int columns, FILE *out)
{
    for (int c = 0; c < columns; c++) {
        fputs("| ", out);
        put(cells[c], out);
        putc(' ', out);
    }
    fputs("|\n", out);
}

/* Each line of the description becomes a paragraph. */
static void put_about(const char *text, FILE *out)
{
    while (*text) {
        char line[1024];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        put(line, out);
        fputs("\n\n", out);
        text += n + (text[n] == '\n');
    }
}

enum ls_status ls_bench_write_markdown(const struct ls_bench_table *t, FILE *out)
{
    struct ls_bench_view v;
    LS_TRY(ls_bench_view_make(&v, t, 0));
    put_about(v.about, out);
    put_row(v.headings, v.columns, out);
    for (int c = 0; c < v.columns; c++)
        fputs(v.align[c] == 'r' ? "| ---: " : "| --- ", out);
    fputs("|\n", out);
    for (int r = 0; r < v.rows; r++)
        put_row(v.cells + r * v.columns, v.columns, out);
    ls_bench_view_release(&v);
    return LS_OK;
}
