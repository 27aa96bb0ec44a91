#include "cmd/watch/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 7, POINT = 255 };
#define LOG_RATIO 30.0 /* a range with a larger quotient gets a logarithmic axis */

/* Steps of one column of dots: from (*from) to before (*to). */
static void steps_of(const struct ls_chart *c, int x, int columns, int64_t *from, int64_t *to)
{
    *from = (int64_t)((double)(c->last + 1) * x / columns);
    *to = (int64_t)((double)(c->last + 1) * (x + 1) / columns);
    *to = *to > *from ? *to : *from + 1;
}

/* --- the range -------------------------------------------------------------------------------------------- */

static void extend(struct ls_chart *c, double value)
{
    if (!isfinite(value))
        return;
    c->low = c->empty || value < c->low ? value : c->low;
    c->high = c->empty || value > c->high ? value : c->high;
    c->empty = false;
}

static void find_range(struct ls_chart *c, int columns)
{
    int64_t from, to;
    c->empty = true;
    c->last = 0;
    for (int i = 0; i < c->n_lines; i++)
        c->last = c->lines[i]->last > c->last ? c->lines[i]->last : c->last;
    if (c->points && c->points->last > c->last)
        c->last = c->points->last;
    for (int x = 0; x < columns; x++) {
        steps_of(c, x, columns, &from, &to);
        for (int i = 0; i < c->n_lines; i++)
            extend(c, ls_curve_mean(c->lines[i], from, to));
        if (c->points)
            extend(c, ls_curve_mean(c->points, from, to));
    }
    if (c->empty)
        return;
    c->logarithmic = c->low > 0 && c->high / c->low > LOG_RATIO;
    if (c->high - c->low < 1e-9 * fabs(c->high) || c->high == c->low) {
        c->high += c->high == 0 ? 1 : 0.1 * fabs(c->high);
        c->low -= c->low == 0 ? 0 : 0.1 * fabs(c->low);
    }
}

/* Where a value is on the vertical axis, 0 (low) to 1 (high). */
static double height_of(const struct ls_chart *c, double value)
{
    double part = c->logarithmic ? log(value / c->low) / log(c->high / c->low) : (value - c->low) / (c->high - c->low);
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

static double value_at(const struct ls_chart *c, double part)
{
    return c->logarithmic ? c->low * pow(c->high / c->low, part) : c->low + part * (c->high - c->low);
}

/* --- dots ------------------------------------------------------------------------------------------------- */

/* x and y count dots, y from the top. */
static void set_dot(struct ls_chart *c, int x, int y, int across, int down, int owner)
{
    static const unsigned char bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    c->dots[y / down][x / across] |= bits[y % down][x % across];
    c->owner[y / down][x / across] = (unsigned char)owner;
}

/* Joins the means of neighbouring columns by vertical strokes. */
static void draw_line(struct ls_chart *c, int line, int across, int down)
{
    int columns = c->columns * across, rows = c->rows * down, before = -1;
    int64_t from, to;
    for (int x = 0; x < columns; x++) {
        steps_of(c, x, columns, &from, &to);
        double value = ls_curve_mean(c->lines[line], from, to);
        if (!isfinite(value))
            continue;
        int y = (int)lrint((1 - height_of(c, value)) * (rows - 1)), end = before < 0 || down == 1 ? y : before;
        set_dot(c, x, y, across, down, line + 1);
        for (; end != y; end += end < y ? 1 : -1)
            set_dot(c, x, end, across, down, line + 1);
        before = y;
    }
}

static void draw_points(struct ls_chart *c)
{
    int64_t from, to;
    for (int x = 0; c->points && x < c->columns; x++) {
        steps_of(c, x, c->columns, &from, &to);
        double value = ls_curve_mean(c->points, from, to);
        if (isfinite(value))
            c->owner[lrint((1 - height_of(c, value)) * (c->rows - 1))][x] = POINT;
    }
}

void ls_chart_draw(struct ls_chart *c, bool utf8)
{
    bool letters = c->n_lines > 0 && c->letters[0];
    int across = utf8 && !letters ? 2 : 1, down = utf8 && !letters ? 4 : 1;
    c->width = c->width < LS_CHART_WIDTH ? c->width : LS_CHART_WIDTH;
    c->height = c->height < LS_CHART_HEIGHT ? c->height : LS_CHART_HEIGHT;
    c->columns = c->width > LABEL + 1 ? c->width - LABEL - 1 : 1;
    c->rows = c->height > 2 ? c->height - 1 : 1;
    memset(c->dots, 0, sizeof c->dots);
    memset(c->owner, 0, sizeof c->owner);
    find_range(c, c->columns * across);
    if (c->empty)
        return;
    for (int i = 0; i < c->n_lines; i++)
        draw_line(c, i, across, down);
    draw_points(c);
}

/* --- output ----------------------------------------------------------------------------------------------- */

/* Appends dots that UTF-8 has a character for. */
static void put_dots(const struct ls_chart *c, int row, int x, struct ls_screen *s)
{
    unsigned char owner = c->owner[row][x], dots = c->dots[row][x];
    if (owner == POINT)
        ls_screen_put(s, LS_YELLOW, "%s", s->utf8 ? "●" : "o");
    else if (owner == 0)
        ls_screen_put(s, LS_PLAIN, " ");
    else if (c->letters[owner - 1])
        ls_screen_put(s, c->styles[owner - 1], "%c", c->letters[owner - 1]);
    else if (s->utf8) /* U+2800 and the bits of the dots */
        ls_screen_put(s, c->styles[owner - 1], "%c%c%c", 0xe2, 0xa0 | dots >> 6, 0x80 | (dots & 0x3f));
    else
        ls_screen_put(s, c->styles[owner - 1], "*");
}

static void put_label(const struct ls_chart *c, int row, struct ls_screen *s)
{
    char label[32] = "";
    bool shown = row == 0 || row == c->rows - 1 || (row == (c->rows - 1) / 2 && c->rows > 4);
    double value = value_at(c, c->rows > 1 ? 1 - (double)row / (c->rows - 1) : 0);
    if (shown && !c->empty)
        snprintf(label, sizeof label, c->percent ? "%.3g%%" : "%.3g", c->percent ? 100 * value : value);
    ls_screen_put(s, LS_DIM, "%*s%s", LABEL, label, s->utf8 ? (*label ? "┤" : "│") : "|");
}

/* The steps below the plot. */
static void put_steps(const struct ls_chart *c, struct ls_screen *s)
{
    char end[32];
    snprintf(end, sizeof end, "step %" PRId64, c->last);
    ls_screen_put(s, LS_DIM, "%*s%s0%*s", LABEL, c->logarithmic ? "log" : "", s->utf8 ? "└" : "+",
                  c->columns > 1 ? c->columns - 1 : 0, c->empty ? "" : end);
}

void ls_chart_row(const struct ls_chart *c, int row, struct ls_screen *s)
{
    if (row >= c->rows) {
        put_steps(c, s);
        return;
    }
    put_label(c, row, s);
    for (int x = 0; x < c->columns; x++)
        put_dots(c, row, x, s);
}
