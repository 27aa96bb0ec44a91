/* Help text in two columns, names and descriptions, wrapped to the width of the terminal. */
#ifndef LS_BASE_HELP_H
#define LS_BASE_HELP_H

#include <stdio.h>

/* An array of rows ends with a NULL name. */
struct ls_help_row {
    const char *name, *text;
};

/* Prints text from the given column on, wraps it at word boundaries and ends it with a newline. A list A|B|C that is longer
 * than a line is also wrapped behind a |. The line width is that of the terminal, at most 100 columns; it is 80 if out is
 * not a terminal. */
void ls_help_text(const char *text, int column, FILE *out);
/* Prints `indent` spaces, the name, and the text from `column` on. The text of a long name starts on the next line. */
void ls_help_row(const char *name, const char *text, int indent, int column, FILE *out);
/* Prints all rows with aligned texts. */
void ls_help_rows(const struct ls_help_row *rows, int indent, FILE *out);

#endif
