/* A tabular environment that needs no package. */
#include "cmd/bench/results/view.h"

#include <string.h>

/* The text that stands for a character which LaTeX reads as a command, or NULL. */
static const char *escape_of(char c)
{
    switch (c) {
    case '\\':
        return "\\textbackslash{}";
    case '~':
        return "\\textasciitilde{}";
    case '^':
        return "\\textasciicircum{}";
    case '<':
        return "\\textless{}";
    case '>':
        return "\\textgreater{}";
    case '|':
        return "\\textbar{}";
    case '"': /* \textquotedbl is not in every font encoding */
        return "\\char34{}";
    case '-': /* two would become a dash */
        return "-{}";
    case '\'':
        return "'{}";
    case '`':
        return "`{}";
    case '\n':
    case '\t':
        return " ";
    default:
        return NULL;
    }
}

static void put(const char *text, FILE *out)
{
    for (; *text; text++) {
        const char *escape = escape_of(*text);
        if (escape)
            fputs(escape, out);
        else if (strchr("{}$&#_%", *text))
            fprintf(out, "\\%c", *text);
        else
            putc(*text, out);
    }
}

/* A row that began with [ would be read as an argument of the \\ before it; a row begins with braces. */
static void put_row(const char *const *cells, int columns, FILE *out)
{
    fputs("{}", out);
    for (int c = 0; c < columns; c++) {
        fputs(c ? " & " : "", out);
        put(cells[c], out);
    }
    fputs(" \\\\\n", out);
}

static void put_about(const char *text, FILE *out)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        fprintf(out, "%% %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

enum ls_status ls_bench_write_latex(const struct ls_bench_table *t, FILE *out)
{
    struct ls_bench_view v;
    LS_TRY(ls_bench_view_make(&v, t, 0));
    put_about(v.about, out);
    fprintf(out, "\\begin{tabular}{%s}\n\\hline\n", v.align);
    put_row(v.headings, v.columns, out);
    fputs("\\hline\n", out);
    for (int r = 0; r < v.rows; r++)
        put_row(v.cells + r * v.columns, v.columns, out);
    fputs("\\hline\n\\end{tabular}\n", out);
    ls_bench_view_release(&v);
    return LS_OK;
}
