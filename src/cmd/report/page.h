/* Pieces of the page: escaped text, figures in words, the frame of a figure. Plots are in plot.h. */
#ifndef LS_CMD_REPORT_PAGE_H
#define LS_CMD_REPORT_PAGE_H

#include <stdbool.h>
#include <stdio.h>

enum { LS_FIGURE_ROOM = 48, LS_COLOURS = 8 };

/* Writes text so that it is text in HTML and in attributes: <>&"' are escaped, bytes that are no UTF-8 and control
 * characters become visible. */
void ls_page_text(FILE *out, const char *text);
/* The first letters of a text, with … where there are more. */
void ls_page_short(FILE *out, const char *text, int letters);
/* Like printf, and then ls_page_text. */
void ls_page_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A number with about four digits, as people write it: "0.0123", "12.3", "4,560", "1.2 M"; "–" for NaN. */
const char *ls_figure(double value, char text[LS_FIGURE_ROOM]);
/* Seconds as a duration: "4.56 ms", "12.3 s", "3 min 20 s", "2 h 05 min". */
const char *ls_figure_time(double seconds, char text[LS_FIGURE_ROOM]);
/* Bytes: "12.3 MB". */
const char *ls_figure_bytes(double bytes, char text[LS_FIGURE_ROOM]);
/* A share of 1 as percent: "12.3 %". */
const char *ls_figure_share(double share, char text[LS_FIGURE_ROOM]);

/* Writes the value of a variable of page.css, such as "s0", in the light or the dark theme. */
void ls_page_print_variable(FILE *out, const char *name, size_t length, bool dark);

/* The page from the first byte to the beginning of the content, and its end. Style and script are within it. */
void ls_page_begin(FILE *out, const char *title);
void ls_page_end(FILE *out, const char *version);

/* <section> with a heading; id is its anchor. */
void ls_page_section(FILE *out, const char *id, const char *title);
void ls_page_section_end(FILE *out);

/* A figure: caption, picture, then a table that opens on demand. note may be NULL. */
void ls_page_figure(FILE *out, const char *title, const char *note, bool wide);
/* Begins the table beneath the picture; `head` are the headings, the first of them that of the rows. */
void ls_page_table(FILE *out, const char *const *head, int n);
void ls_page_table_end(FILE *out);
void ls_page_figure_end(FILE *out);
/* A cell with a number, one with text, and one that heads a row. */
void ls_page_cell(FILE *out, double value);
void ls_page_cell_text(FILE *out, const char *text);
void ls_page_row_head(FILE *out, const char *text);

/* "c3", or "c3 d1" from the ninth on: the colour and the dash of a run. */
const char *ls_page_colour(int i, char text[LS_FIGURE_ROOM]);

#endif
