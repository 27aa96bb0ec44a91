/* Help text for people: rows of a name and what it means, filled to the width of the terminal. */
#ifndef LS_BASE_HELP_H
#define LS_BASE_HELP_H

#include <stdio.h>

/* A list of these ends with a NULL name. */
struct ls_help_row {
    const char *name, *text;
};

/* The words of text from the given column on, and below it where the line is full, then a newline. Lines are as wide as
 * the terminal and at most 100 columns, 80 where out is no terminal. */
void ls_help_text(const char *text, int column, FILE *out);
/* The name after `indent` spaces, its text from `column` on; a name that is too long has a line of its own. */
void ls_help_row(const char *name, const char *text, int indent, int column, FILE *out);
/* Rows below each other, with the texts in one column. */
void ls_help_rows(const struct ls_help_row *rows, int indent, FILE *out);

#endif
