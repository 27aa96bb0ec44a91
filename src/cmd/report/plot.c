#include "cmd/report/plot.h"
#include "cmd/report/page.h"

#include <math.h>
#include <string.h>

/* --- scales ------------------------------------------------------------------------------------------------------ */

static double place(double v, double low, double high, bool is_log)
{
    if (is_log)
        return (log(v) - log(low)) / (log(high) - log(low));
    return (v - low) / (high - low);
}

static double x_of(const struct ls_plot *p, double v)
{
    return p->width * place(v, p->x0, p->x1, p->log_x);
}

/* Points far outside are clipped by the inner <svg>; their numbers stay small. */
static double y_of(const struct ls_plot *p, double v)
{
    double at = p->log_y && v <= 0 ? -1 : place(v, p->y0, p->y1, p->log_y);
    return p->height * (1 - fmax(-1, fmin(2, at)));
}

/* The distance of about `about` ticks over a range: 1, 2 or 5 times a power of ten. */
static double distance(double range, int about)
{
    double rough = range / about, power = pow(10, floor(log10(rough))), rest = rough / power;
    return power * (rest <= 1.01 ? 1 : rest <= 2.01 ? 2 : rest <= 5.01 ? 5 : 10);
}

int ls_plot_ticks(double low, double high, int about, double ticks[16])
{
    int n = 0;
    if (!(high > low) || !isfinite(high - low))
        return 0;
    double each = distance(high - low, about);
    for (double k = ceil(low / each - 1e-9); n < 16 && k * each <= high + 1e-9 * each; k++)
        ticks[n++] = k == 0 ? 0 : k * each;
    return n;
}

static int y_ticks(const struct ls_plot *p)
{
    if (p->has_counts)
        return (int)fmin(5, fmax(1, p->y1));
    return p->is_small ? 3 : 5;
}

/* Powers of ten, with 2 and 5 times them where these are few. */
static int log_ticks(double low, double high, double ticks[16])
{
    static const double steps[] = {1, 2, 5};
    int n = 0, from = (int)floor(log10(low)), to = (int)ceil(log10(high)), each = to - from > 2 ? 1 : 3;
    int stride = 1 + (to - from) / 6;
    for (int e = from; e <= to; e += stride)
        for (int k = 0; k < each && n < 16; k++) {
            double v = steps[k] * pow(10, e);
            if (v >= low * 0.999 && v <= high * 1.001)
                ticks[n++] = v;
        }
    return n;
}

const char *ls_plot_tick_text(double value, char text[32])
{
    double size = fabs(value);
    if (size >= 1e13 || (size > 0 && size < 1e-4))
        snprintf(text, 32, "%.0e", value);
    else if (size >= 1e9)
        snprintf(text, 32, "%.4gG", value / 1e9);
    else if (size >= 1e6)
        snprintf(text, 32, "%.4gM", value / 1e6);
    else if (size >= 1e4)
        snprintf(text, 32, "%.4gk", value / 1e3);
    else
        snprintf(text, 32, "%.6g", value);
    return text;
}

void ls_plot_include(const struct ls_series *c, double *low, double *high)
{
    double min, max, least, most;
    if (!ls_series_range(c, false, &min, &max))
        return;
    ls_series_range(c, true, &least, &most);
    double span = fmax(max - min, 1e-9 * fabs(max)); /* a spike may not squash the curve */
    min = fmax(least, min - span / 4);
    max = fmin(most, max + span / 4);
    *low = isnan(*low) ? min : fmin(*low, min);
    *high = isnan(*high) ? max : fmax(*high, max);
}

/* --- axes -------------------------------------------------------------------------------------------------------- */

/* Widens the y axis to round numbers. */
static void settle(struct ls_plot *p)
{
    if (!(p->x1 > p->x0))
        p->x1 = p->x0 + 1;
    if (!isfinite(p->y0) || !isfinite(p->y1))
        p->y0 = 0, p->y1 = 1;
    if (p->y1 - p->y0 < 1e-9 * fmax(fabs(p->y0), fabs(p->y1)) || p->y1 <= p->y0) {
        double room = p->y1 != 0 ? fabs(p->y1) / 10 : 1;
        p->y0 = p->y0 == 0 || p->log_y ? p->y0 : p->y0 - room;
        p->y1 += room;
    }
    if (p->log_y)
        return;
    double each = distance(p->y1 - p->y0, y_ticks(p));
    p->y0 = floor(p->y0 / each + 1e-9) * each;
    p->y1 = ceil(p->y1 / each - 1e-9) * each;
}

static void draw_y_axis(const struct ls_plot *p)
{
    double ticks[16];
    char text[32];
    int n = p->log_y ? log_ticks(p->y0, p->y1, ticks) : ls_plot_ticks(p->y0, p->y1, y_ticks(p), ticks);
    for (int i = 0; i < n; i++) {
        double y = LS_PLOT_TOP + y_of(p, ticks[i]);
        fprintf(p->out, "<path class=\"rule\" d=\"M%d %.1fh%d\"/><text class=\"ty\" x=\"%d\" y=\"%.1f\">%s</text>",
                LS_PLOT_LEFT, y, p->width, LS_PLOT_LEFT - 6, y + 4, ls_plot_tick_text(ticks[i], text));
    }
}

static void draw_x_axis(const struct ls_plot *p)
{
    double ticks[16];
    char text[32];
    int bottom = LS_PLOT_TOP + p->height;
    const double *at = p->x_ticks ? p->x_ticks : ticks;
    int n = p->x_ticks ? p->n_x_ticks
            : p->log_x ? log_ticks(p->x0, p->x1, ticks)
                       : ls_plot_ticks(p->x0, p->x1, p->is_small ? 3 : 5, ticks);
    fprintf(p->out, "<path class=\"axis\" d=\"M%d %dh%d\"/><g class=\"tx\">", LS_PLOT_LEFT, bottom, p->width);
    for (int i = 0; i < n; i++)
        fprintf(p->out, "<text x=\"%.1f\" y=\"%d\">%s</text>", LS_PLOT_LEFT + x_of(p, at[i]), bottom + 17,
                ls_plot_tick_text(at[i], text));
    fprintf(p->out, "</g><text class=\"nx\" x=\"%d\" y=\"%d\">", LS_PLOT_LEFT + p->width, bottom + 32);
    ls_page_text(p->out, p->x_name);
    fputs("</text><text class=\"ny\" x=\"2\" y=\"11\">", p->out);
    ls_page_text(p->out, p->y_name);
    fputs("</text>\n", p->out);
}

void ls_plot_begin(struct ls_plot *p)
{
    int full = p->is_small ? 150 : LS_PLOT_HEIGHT;
    int wide = p->is_small ? 300 : LS_PLOT_WIDTH;
    p->width = wide - LS_PLOT_LEFT - LS_PLOT_RIGHT;
    p->height = full - LS_PLOT_TOP - LS_PLOT_BOTTOM;
    settle(p);
    fprintf(p->out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", wide, full);
    ls_page_text(p->out, p->title);
    fprintf(p->out, "\" data-x=\"%.9g %.9g %d\" data-y=\"%.9g %.9g %d\">\n", p->x0, p->x1, p->log_x, p->y0, p->y1,
            p->log_y);
    draw_y_axis(p);
    draw_x_axis(p);
    fprintf(
        p->out,
        "<svg class=\"data\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\">\n",
        LS_PLOT_LEFT, LS_PLOT_TOP, p->width, p->height, p->width, p->height);
}

void ls_plot_end(struct ls_plot *p)
{
    fputs("</svg></svg>\n", p->out);
}

/* --- curves ------------------------------------------------------------------------------------------------------ */

static void open_group(const struct ls_plot *p, const char *colour, int run, const char *name)
{
    fprintf(p->out, "<g class=\"%s\"", colour);
    if (run >= 0)
        fprintf(p->out, " data-run=\"%d\"", run);
    if (name) {
        fputs(" data-name=\"", p->out);
        ls_page_text(p->out, name);
        fputs("\"", p->out);
    }
    fputs(">", p->out);
}

static bool has_band(const struct ls_point *points, int n)
{
    for (int i = 0; i < n; i++)
        if (points[i].max > points[i].min)
            return true;
    return false;
}

/* The band of one stretch of finite points: along the largest values, and back along the smallest. */
static void draw_band(const struct ls_plot *p, const struct ls_point *points, int from, int to)
{
    for (int i = from; i < to; i++)
        fprintf(p->out, "%c%.1f %.1f", i == from ? 'M' : 'L', x_of(p, points[i].x), y_of(p, points[i].max));
    for (int i = to - 1; i >= from; i--)
        fprintf(p->out, "L%.1f %.1f", x_of(p, points[i].x), y_of(p, points[i].min));
    fputs("Z", p->out);
}

static int stretch_end(const struct ls_point *points, int n, int from)
{
    int to = from;
    while (to < n && !isnan(points[to].mean))
        to++;
    return to;
}

static void draw_bands(const struct ls_plot *p, const struct ls_point *points, int n)
{
    fputs("<path class=\"band\" d=\"", p->out);
    for (int from = 0; from < n;) {
        int to = stretch_end(points, n, from);
        if (to > from)
            draw_band(p, points, from, to);
        from = to + 1;
    }
    fputs("\"/>", p->out);
}

static void draw_line(const struct ls_plot *p, const struct ls_point *points, int n)
{
    char next = 'M';
    fputs("<path class=\"line\" d=\"", p->out);
    for (int i = 0; i < n; i++) {
        if (isnan(points[i].mean)) {
            next = 'M';
            continue;
        }
        fprintf(p->out, "%c%.1f %.1f", next, x_of(p, points[i].x), y_of(p, points[i].mean));
        next = 'L';
    }
    fputs("\"/>", p->out);
}

static void draw_dots(const struct ls_plot *p, const struct ls_point *points, int n)
{
    fputs("<path class=\"dots\" d=\"", p->out);
    for (int i = 0; i < n; i++)
        if (!isnan(points[i].mean))
            fprintf(p->out, "M%.1f %.1fh0", x_of(p, points[i].x), y_of(p, points[i].mean));
    fputs("\"/>", p->out);
}

/* Marks each stretch with values that are not finite over the whole height. */
static void draw_gaps(const struct ls_plot *p, const struct ls_point *points, int n)
{
    for (int i = 0; i < n; i++) {
        int from = i;
        double lost = 0;
        for (; i < n && points[i].lost > 0; i++)
            lost += (double)points[i].lost;
        if (lost == 0)
            continue;
        double x = x_of(p, points[from].x), end = x_of(p, points[i - 1].x_last);
        fprintf(
            p->out,
            "<rect class=\"gap\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"%d\"><title>%.0f values are not finite, from %s %.0f to %.0f</title></rect>",
            x - 1, fmax(2, end - x + 2), p->height, lost, p->x_name, points[from].x, points[i - 1].x_last);
    }
}

void ls_plot_curve(struct ls_plot *p, const struct ls_series *c, int most, const char *colour, int run,
                   const char *name, bool band, bool dots)
{
    struct ls_point points[LS_SERIES_BUCKETS];
    int n = ls_series_points(c, most, points);
    if (n == 0)
        return;
    for (int i = 0; i < n && p->x_factor > 0; i++) {
        points[i].x *= p->x_factor;
        points[i].x_last *= p->x_factor;
    }
    open_group(p, colour, run, name);
    if (band && has_band(points, n))
        draw_bands(p, points, n);
    draw_line(p, points, n);
    if (dots || n == 1)
        draw_dots(p, points, n);
    draw_gaps(p, points, n);
    fputs("</g>\n", p->out);
}

void ls_plot_points(struct ls_plot *p, const double *x, const double *y, int n, const char *colour, int run,
                    const char *name, bool dots)
{
    struct ls_point points[LS_SERIES_BUCKETS];
    n = n < LS_SERIES_BUCKETS ? n : LS_SERIES_BUCKETS;
    for (int i = 0; i < n; i++)
        points[i] = (struct ls_point){.x = x[i], .x_last = x[i], .mean = y[i], .min = y[i], .max = y[i]};
    open_group(p, colour, run, name);
    draw_line(p, points, n);
    if (dots)
        draw_dots(p, points, n);
    fputs("</g>\n", p->out);
}

/* --- stacked areas ----------------------------------------------------------------------------------------------- */

/* The value at a position; a part that a version does not write is 0. */
static double value_at(const struct ls_point *points, int n, int i, double x)
{
    while (n > 0 && i < n && points[i].x < x)
        i++;
    return n > 0 && i < n && isfinite(points[i].mean) ? points[i].mean : 0;
}

void ls_plot_stack(struct ls_plot *p, const struct ls_part *parts, int n)
{
    enum { MOST = 120 };
    struct ls_point base[LS_SERIES_BUCKETS], points[LS_SERIES_BUCKETS];
    double below[MOST] = {0}, above[MOST];
    int at = 0;
    for (int k = 0; k < n && at == 0; k++)
        at = ls_series_points(parts[k].curve, MOST, base);
    for (int k = 0; k < n; k++) {
        int of = ls_series_points(parts[k].curve, MOST, points);
        for (int i = 0; i < at; i++)
            above[i] = below[i] + value_at(points, of, i < of ? i : of, base[i].x);
        open_group(p, parts[k].colour, -1, parts[k].name);
        fputs("<path class=\"area\" d=\"", p->out);
        for (int i = 0; i < at; i++)
            fprintf(p->out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', x_of(p, base[i].x), y_of(p, above[i]));
        for (int i = at - 1; i >= 0; i--)
            fprintf(p->out, "L%.1f %.1f", x_of(p, base[i].x), y_of(p, below[i]));
        fputs("Z\"/></g>\n", p->out);
        memcpy(below, above, sizeof below);
    }
}

/* --- legend ------------------------------------------------------------------------------------------------------ */

void ls_plot_legend(FILE *out, const struct ls_part *parts, int n)
{
    fputs("<ul class=\"legend\">", out);
    for (int i = 0; i < n; i++) {
        fprintf(out, "<li class=\"%s\"><i></i>", parts[i].colour);
        ls_page_text(out, parts[i].name);
        fputs("</li>", out);
    }
    fputs("</ul>\n", out);
}
