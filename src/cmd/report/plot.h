/* Plots as SVG: axes with ticks, curves with bands, stacked areas, bars, heat maps. Colours come from classes of
 * page.css, so that a plot follows the theme of the page. The data are in an inner <svg> of their own, which page.js
 * zooms. */
#ifndef LS_CMD_REPORT_PLOT_H
#define LS_CMD_REPORT_PLOT_H

#include "cmd/report/inputs/series.h"
#include <stdbool.h>
#include <stdio.h>

/* Sizes in units of the drawing. A narrow screen shows it at about three quarters. */
enum {
    LS_PLOT_WIDTH = 460,
    LS_PLOT_HEIGHT = 250,
    LS_PLOT_LEFT = 50,
    LS_PLOT_TOP = 24,
    LS_PLOT_RIGHT = 12,
    LS_PLOT_BOTTOM = 36
};

struct ls_plot {
    FILE *out;
    const char *title;           /* for readers that do not see the picture */
    const char *x_name, *y_name; /* names of the axes, with units */
    double x0, x1, y0, y1;       /* ranges; ls_plot_begin widens y to its ticks */
    bool log_x, log_y;
    double x_factor;       /* the positions of curves are multiplied by it; 0: they are not */
    bool has_counts;       /* y has whole numbers alone */
    bool is_small;         /* half the height, for a grid of plots */
    const double *x_ticks; /* where the ticks of x are; NULL: at round numbers */
    int n_x_ticks;
    int width, height;
};

/* Draws the axes. */
void ls_plot_begin(struct ls_plot *p);
void ls_plot_end(struct ls_plot *p);
/* Draws a curve: the mean as a line, the extremes as a band where they differ, and a mark where values are not finite.
 * run is the number of the run (for the choice of runs), -1: none. dots: also a dot at each point. */
void ls_plot_curve(struct ls_plot *p, const struct ls_series *c, int most, const char *colour, int run,
                   const char *name, bool band, bool dots);
/* A line through points with a style ("ideal": dashed), and dots where a style is "". */
void ls_plot_points(struct ls_plot *p, const double *x, const double *y, int n, const char *colour, int run,
                    const char *name, bool dots);
/* The range of several curves. low and high start as NaN. */
void ls_plot_include(const struct ls_series *c, double *low, double *high);
/* Ticks of a range at 1, 2 or 5 times a power of ten; returns their number. */
int ls_plot_ticks(double low, double high, int about, double ticks[16]);
const char *ls_plot_tick_text(double value, char text[32]);

/* Areas on top of each other: value i of part k is share[k][i]; x rises. */
struct ls_part {
    const char *name, *colour;
    const struct ls_series *curve;
};
void ls_plot_stack(struct ls_plot *p, const struct ls_part *parts, int n);

/* Horizontal bars made of parts, one row each; values[row * n_parts + part] are shares of `full`. */
void ls_plot_bars(FILE *out, const char *title, const char *const *names, int n_rows, const struct ls_part *parts,
                  int n_parts, const double *values, double full, const char *unit);
/* Counts of values in bins of equal width. */
void ls_plot_histogram(FILE *out, const char *title, const double *values, int n, const char *x_name);
/* A legend of parts or lines. */
void ls_plot_legend(FILE *out, const struct ls_part *parts, int n);

#endif
