/* The plots of a page, each with its title, its legend and its colours, as files. They have no variables of CSS, because
 * the programs that turn SVG into PDF do not know these. */
#define _GNU_SOURCE
#include "cmd/report/figures.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/report/page.h"
#include "cmd/report/plot.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 10, TITLE = 18, LEGEND_ROW = 18, LETTER = 7, MOST_NAME = 60, ROOM = 512, MOST_FIGURES = 1000 };

/* --- finding ----------------------------------------------------------------------------------------------------- */

/* A piece of the page. */
struct piece {
    const char *at, *end;
};

/* The text between `open` and `close` within a piece; at is NULL if it is not there. */
static struct piece between(struct piece in, const char *open, const char *close)
{
    struct piece p = {0};
    const char *from = memmem(in.at, (size_t)(in.end - in.at), open, strlen(open));
    if (!from)
        return p;
    from += strlen(open);
    const char *to = memmem(from, (size_t)(in.end - from), close, strlen(close));
    if (to)
        p = (struct piece){from, to};
    return p;
}

/* The first plot of a figure from its tag to its end; a plot has another <svg> within it. */
static struct piece find_plot(struct piece figure)
{
    struct piece p = between(figure, "<svg class=\"plot", "");
    int depth = 1;
    if (!p.at)
        return p;
    const char *at = p.at;
    p.at -= strlen("<svg class=\"plot");
    while (depth > 0 && at < figure.end) {
        depth += strncmp(at, "<svg", 4) == 0 ? 1 : strncmp(at, "</svg>", 6) == 0 ? -1 : 0;
        at++;
    }
    p.end = at + strlen("/svg>");
    return depth == 0 ? p : (struct piece){0};
}

/* Copies text of the page with its escapes undone. */
static void plain(struct piece p, char *text, size_t size)
{
    static const char *const escapes[][2] = {
        {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", "\""}, {"&#39;", "'"}};
    size_t n = 0;
    for (const char *at = p.at; at && at < p.end && n + 1 < size; n++) {
        size_t k = 0;
        while (k < 5 && strncmp(at, escapes[k][0], strlen(escapes[k][0])) != 0)
            k++;
        text[n] = k < 5 ? *escapes[k][1] : *at;
        at += k < 5 ? strlen(escapes[k][0]) : 1;
    }
    text[n] = 0;
}

/* --- colours ----------------------------------------------------------------------------------------------------- */

static const char shapes[] =
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif}\n"
    ".title{font-weight:600;font-size:14px}.ty,.nx{text-anchor:end}.tx,.tx text,.mid{text-anchor:middle}\n"
    ".rule,.axis,.line,.dots{fill:none}.data path,.data rect{vector-effect:non-scaling-stroke}\n"
    ".line{stroke-width:1.7;stroke-linejoin:round}.band{opacity:.16}.area{stroke-width:.6}\n"
    ".dots{stroke-width:5.5;stroke-linecap:round}.train .line{stroke-width:1.1;opacity:.75}.many .line{stroke-width:1.1}\n"
    ".ideal .line{stroke-dasharray:5 4;stroke-width:1.2}.d1 .line{stroke-dasharray:7 3}.d2 .line{stroke-dasharray:2 3}\n"
    ".gap{opacity:.22}.heat rect{stroke-width:2}.heat .best{fill:none;stroke-width:3}\n";

/* $NAME is the variable of page.css. */
static const char colours[] = ".card{fill:$card;stroke:$line}text{fill:$soft}.title{fill:$fg}.rule{stroke:$grid}"
                              ".axis{stroke:$line}.area{stroke:$card}.ideal .line{stroke:$soft}.gap{fill:$bad}\n"
                              ".heat rect{stroke:$card}.heat .cell{fill:$heat}.heat .none{fill:$grid}"
                              ".heat .best{stroke:$s1}.heat text{fill:$fg}.heat .on{fill:$on-heat}\n";

static void print_colours(FILE *out, bool dark)
{
    for (const char *at = colours; *at;) {
        size_t n = strcspn(at, "$");
        fwrite(at, 1, n, out);
        at += n;
        if (!*at)
            break;
        n = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789-");
        ls_page_print_variable(out, at + 1, n, dark);
        at += 1 + n;
    }
    for (int i = 0; i < LS_COLOURS; i++) {
        char name[] = {'s', (char)('0' + i), 0};
        fprintf(out, ".c%d .line,.c%d .dots{stroke:", i, i);
        ls_page_print_variable(out, name, 2, dark);
        fprintf(out, "}.c%d .band,.c%d .area,.c%d.bar{fill:", i, i, i);
        ls_page_print_variable(out, name, 2, dark);
        fputs("}\n", out);
    }
}

static void print_style(FILE *out)
{
    fprintf(out, "<style>\n%s", shapes);
    print_colours(out, false);
    fputs("@media (prefers-color-scheme: dark) {\n", out);
    print_colours(out, true);
    fputs("}\n</style>\n", out);
}

/* --- one figure -------------------------------------------------------------------------------------------------- */

/* Draws the legend in rows of at most `width`, or counts its rows where out is NULL. Returns the height. */
static int legend(FILE *out, struct piece list, int width, int y)
{
    int x = 0, rows = 0;
    for (struct piece item; list.at && (item = between(list, "<li class=\"", "</li>")).at; list.at = item.end) {
        struct piece colour = {item.at, memchr(item.at, '"', (size_t)(item.end - item.at))};
        struct piece name = between(item, "</i>", "");
        char text[ROOM];
        if (!colour.end || !name.at)
            break;
        name.end = item.end;
        plain(name, text, sizeof text);
        int wide = 32 + LETTER * (int)(name.end - name.at);
        if (rows == 0 || x + wide > width) {
            x = 0;
            rows++;
        }
        if (out) {
            int top = y + (rows - 1) * LEGEND_ROW;
            fprintf(
                out,
                "<rect class=\"bar %.*s\" x=\"%d\" y=\"%d\" width=\"11\" height=\"11\" rx=\"3\"/><text x=\"%d\" y=\"%d\">",
                (int)(colour.end - colour.at), colour.at, x, top, x + 17, top + 10);
            ls_page_short(out, text, width / LETTER);
            fputs("</text>\n", out);
        }
        x += wide;
    }
    return rows * LEGEND_ROW + (rows > 0 ? 6 : 0);
}

static void text_line(FILE *out, const char *class, int y, const char *text, int width)
{
    fprintf(out, "<text class=\"%s\" x=\"0\" y=\"%d\">", class, y);
    ls_page_short(out, text, width / LETTER + 6);
    fputs("</text>\n", out);
}

static void print_figure(FILE *out, struct piece figure, struct piece plot, const char *title)
{
    struct piece box = between(plot, "viewBox=\"0 0 ", "\""), list = between(figure, "<ul class=\"legend\">", "</ul>");
    char note[ROOM], *rest = NULL;
    plain(between(figure, "</strong> <span>", "</span>"), note, sizeof note);
    int width = box.at ? (int)strtol(box.at, &rest, 10) : LS_PLOT_WIDTH,
        height = rest ? (int)strtol(rest, NULL, 10) : 0;
    int top = TITLE + (*note ? TITLE : 0) + 4, below = legend(NULL, list, width, 0);
    int full_width = width + 2 * MARGIN, full_height = top + height + below + 2 * MARGIN;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"%d %d %d %d\">\n<title>",
            full_width, full_height, -MARGIN, -MARGIN, full_width, full_height);
    ls_page_text(out, title);
    fputs("</title>\n", out);
    print_style(out);
    fprintf(out, "<rect class=\"card\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", 0.5 - MARGIN,
            0.5 - MARGIN, full_width - 1, full_height - 1);
    text_line(out, "title", TITLE - 5, title, width);
    if (*note)
        text_line(out, "note", 2 * TITLE - 5, note, width);
    fprintf(out, "<svg y=\"%d\" width=\"%d\" height=\"%d\" overflow=\"visible\"", top, width, height);
    plot.at += strlen("<svg");
    fwrite(plot.at, 1, (size_t)(plot.end - plot.at), out);
    fputs("\n", out);
    legend(out, list, width, top + height + 6);
    fputs("</svg>\n", out);
}

/* --- files ------------------------------------------------------------------------------------------------------- */

/* The title as a name: its letters and digits in lower case, and - for everything between them. */
static void name_of(const char *title, bool of_run, char name[MOST_NAME + 8])
{
    int n = snprintf(name, MOST_NAME, "%s", of_run ? "run-" : ""), start = n;
    for (const char *p = title; *p && n < MOST_NAME; p++)
        if (isascii(*p) && isalnum(*p))
            name[n++] = (char)tolower(*p);
        else if (n > start && name[n - 1] != '-')
            name[n++] = '-';
    while (n > start && name[n - 1] == '-')
        n--;
    snprintf(name + n, 8, "%s", n == start ? "figure" : "");
}

static enum ls_status save(struct piece figure, struct piece plot, const char *title, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return ls_fail(LS_FAILED, "out of memory");
    print_figure(out, figure, plot, title);
    enum ls_status st = fclose(out) == 0 ? ls_file_write(path, text, size) : ls_fail(LS_FAILED, "out of memory");
    free(text);
    return st;
}

enum ls_status ls_figures_write(const char *page, const char *directory, int *n)
{
    char(*names)[MOST_NAME + 8] = ls_alloc(MOST_FIGURES, sizeof *names);
    struct piece rest = {page, page + strlen(page)};
    enum ls_status st = names ? ls_dir_make(directory) : LS_FAILED;
    *n = 0;
    for (struct piece f; st == LS_OK && *n < MOST_FIGURES && (f = between(rest, "<figure", "</figure>")).at;
         rest.at = f.end) {
        struct piece plot = find_plot(f);
        char title[ROOM], number[16] = "";
        int same = 1;
        if (!plot.at)
            continue;
        plain(between(f, "<strong>", "</strong>"), title, sizeof title);
        name_of(title, strncmp(f.at, " data-run", 9) == 0, names[*n]);
        for (int i = 0; i < *n; i++)
            same += strcmp(names[i], names[*n]) == 0;
        if (same > 1)
            snprintf(number, sizeof number, "-%d", same);
        char *path = ls_format("%s/%s%s.svg", directory, names[*n], number);
        st = path ? save(f, plot, title, path) : LS_FAILED;
        ls_free(path);
        *n += 1;
    }
    ls_free(names);
    return st;
}
