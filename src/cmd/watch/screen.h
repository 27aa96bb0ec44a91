/* A frame of text for a terminal: lines that are cut at the width, and as many as fit the height. */
#ifndef LS_CMD_WATCH_SCREEN_H
#define LS_CMD_WATCH_SCREEN_H

#include <stdbool.h>
#include <stdio.h>

enum ls_style { LS_PLAIN, LS_BOLD, LS_DIM, LS_RED, LS_GREEN, LS_YELLOW, LS_BLUE, LS_MAGENTA, LS_CYAN, LS_STYLES };

struct ls_screen {
    FILE *out;         /* borrowed */
    int width, height; /* height 0: no limit */
    bool colour, utf8;
    bool live;       /* lines replace those of the frame before */
    int row, column; /* of the next character */
    int spaces;      /* before it, not written yet: a line does not end with spaces */
    enum ls_style style;
};

/* Appends text to the present line. Control characters are replaced, and so are characters that the locale lacks. */
void ls_screen_put(struct ls_screen *s, enum ls_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends the line. */
void ls_screen_end(struct ls_screen *s);
/* The columns that are left in this line, and the lines that are left. */
int ls_screen_columns(const struct ls_screen *s);
int ls_screen_rows(const struct ls_screen *s);
/* Returns the number of columns of a text. */
int ls_screen_width(const char *text);

#endif
