/* Line charts of characters: braille dots, eight to a character, or one letter a character where the locale lacks them. */
#ifndef LS_CMD_WATCH_CHART_H
#define LS_CMD_WATCH_CHART_H

#include "cmd/watch/curve.h"
#include "cmd/watch/screen.h"

enum { LS_CHART_LINES = 12, LS_CHART_WIDTH = 512, LS_CHART_HEIGHT = 64 };

struct ls_chart {
    const struct ls_curve *lines[LS_CHART_LINES]; /* borrowed */
    enum ls_style styles[LS_CHART_LINES];
    char letters[LS_CHART_LINES]; /* of a line that has no colour to be told by; 0: it needs none */
    int n_lines;
    const struct ls_curve *points; /* a mark for each value; NULL: none; borrowed */
    bool percent;                  /* values are shares */
    int width, height;             /* in characters, the labels included */
    /* Set by ls_chart_draw. */
    int columns, rows; /* of the plot itself */
    double low, high;  /* of the vertical axis */
    bool logarithmic, empty;
    int64_t last; /* the step at the right end */
    unsigned char dots[LS_CHART_HEIGHT][LS_CHART_WIDTH];
    unsigned char owner[LS_CHART_HEIGHT][LS_CHART_WIDTH]; /* 1 + the line of the character; 255: a point; 0: none */
};

/* Chooses the range and plots. Set the members above before. */
void ls_chart_draw(struct ls_chart *c, bool utf8);
/* Appends row `row` of the chart to the present line, `width` columns. There are `height` rows: the last one has the steps. */
void ls_chart_row(const struct ls_chart *c, int row, struct ls_screen *s);

#endif
