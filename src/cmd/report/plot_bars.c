/* Plots without a common frame: rows of bars, a histogram. */
#include "base/text/utf8.h"
#include "cmd/report/page.h"
#include "cmd/report/plot.h"

#include <math.h>

enum { ROW = 22, BAR = 15, MOST_LETTERS = 30 };

/* The number of letters that the names of rows get. */
static int letters_of(const char *const *names, int n)
{
    int most = 4;
    for (int i = 0; i < n; i++) {
        int length = ls_utf8_length(names[i]);
        most = length > most ? length : most;
    }
    return most < MOST_LETTERS ? most : MOST_LETTERS;
}

void ls_plot_bars(FILE *out, const char *title, const char *const *names, int n_rows, const struct ls_part *parts,
                  int n_parts, const double *values, double full, const char *unit)
{
    int letters = letters_of(names, n_rows), left = 16 + 7 * letters;
    int width = LS_PLOT_WIDTH - left - LS_PLOT_RIGHT, height = n_rows * ROW + LS_PLOT_BOTTOM;
    double ticks[16];
    char text[32];
    fprintf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", LS_PLOT_WIDTH, height);
    ls_page_text(out, title);
    fputs("\">\n", out);
    int n = ls_plot_ticks(0, full, 5, ticks);
    for (int i = 0; i < n; i++) {
        double x = left + width * ticks[i] / full;
        fprintf(out, "<path class=\"rule\" d=\"M%.1f 0v%d\"/><text class=\"tx\" x=\"%.1f\" y=\"%d\">%s</text>", x,
                n_rows * ROW, x, n_rows * ROW + 15, ls_plot_tick_text(ticks[i], text));
    }
    fprintf(out, "<text class=\"nx\" x=\"%d\" y=\"%d\">", LS_PLOT_WIDTH - LS_PLOT_RIGHT, n_rows * ROW + 30);
    ls_page_text(out, unit);
    fputs("</text>\n", out);
    for (int row = 0; row < n_rows; row++) {
        double at = left;
        fprintf(out, "<text class=\"ty\" x=\"%d\" y=\"%d\">", left - 6, row * ROW + 15);
        ls_page_short(out, names[row], letters);
        fputs("</text>", out);
        for (int k = 0; k < n_parts; k++) {
            double value = values[row * n_parts + k], length = value > 0 ? width * fmin(value, full) / full : 0;
            fprintf(out, "<rect class=\"bar %s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>",
                    parts[k].colour, at, row * ROW + 4, length, BAR);
            ls_page_print(out, "%s, %s: %s %s", names[row], parts[k].name, ls_figure(value, (char[LS_FIGURE_ROOM]){0}),
                          unit);
            fputs("</title></rect>", out);
            at += length;
        }
        fputs("\n", out);
    }
    fputs("</svg>\n", out);
}

void ls_plot_histogram(FILE *out, const char *title, const double *values, int n, const char *x_name)
{
    enum { MOST = 24 };
    double low = values[0], high = values[0], x[MOST + 1];
    int counts[MOST] = {0}, largest = 0, bins = n < 10 ? 6 : n < 60 ? 12 : MOST;
    for (int i = 1; i < n; i++) {
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    if (!(high > low))
        high = low + fmax(fabs(low), 1) / 10;
    for (int i = 0; i < n; i++) {
        int bin = (int)((values[i] - low) / (high - low) * bins);
        bin = bin < bins ? bin : bins - 1;
        largest = ++counts[bin] > largest ? counts[bin] : largest;
    }
    for (int i = 0; i <= bins; i++)
        x[i] = low + (high - low) * i / bins;
    struct ls_plot p = {.out = out,
                        .title = title,
                        .x_name = x_name,
                        .y_name = "runs",
                        .x0 = low,
                        .x1 = high,
                        .y0 = 0,
                        .y1 = largest,
                        .has_counts = true};
    ls_plot_begin(&p);
    for (int i = 0; i < bins; i++) {
        double left = p.width * (x[i] - low) / (high - low), height = p.height * counts[i] / p.y1;
        if (counts[i] > 0)
            fprintf(
                out,
                "<rect class=\"bar c0\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%d of %d between %.4g and "
                "%.4g</title></rect>\n",
                left + 1, p.height - height, (double)p.width / bins - 2, height, counts[i], n, x[i], x[i + 1]);
    }
    ls_plot_end(&p);
    const char *head[] = {"from", "to", "runs"};
    ls_page_table(out, head, 3);
    for (int i = 0; i < bins; i++)
        fprintf(out, "<tr><td>%.4g</td><td>%.4g</td><td>%d</td></tr>\n", x[i], x[i + 1], counts[i]);
    ls_page_table_end(out);
}
