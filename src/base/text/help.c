#include "base/text/help.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDEST 100
#define USUAL 80
#define LEAST 20 /* smallest width of the text column */
#define NAMES 24 /* largest width of the name column */

static int width_of(FILE *out, int column)
{
    struct winsize size = {0};
    int fd = fileno(out), width = USUAL;
    if (fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        width = size.ws_col < WIDEST ? size.ws_col : WIDEST;
    return width > column + LEAST ? width : column + LEAST;
}

/* The length of the first word, or, if that is longer than `room`, of as many of its choices A|B|C as fit. */
static int piece_of(const char *text, int room)
{
    int length = (int)strcspn(text, " ");
    for (int i = room; i > 0 && length > room; i--)
        if (text[i - 1] == '|')
            return i;
    return length;
}

void ls_help_text(const char *text, int column, FILE *out)
{
    int at = column, width = width_of(out, column);
    while (*text) {
        int length = piece_of(text, width - column);
        if (at > column && at + 1 + length > width) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(out, "%s%.*s", at > column ? " " : "", length, text);
        text += length + (text[length] == ' ');
    }
    putc('\n', out);
}

void ls_help_row(const char *name, const char *text, int indent, int column, FILE *out)
{
    int at = fprintf(out, "%*s%s", indent, "", name);
    if (at + 2 > column) {
        putc('\n', out);
        at = 0;
    }
    fprintf(out, "%*s", column - at, "");
    ls_help_text(text, column, out);
}

void ls_help_rows(const struct ls_help_row *rows, int indent, FILE *out)
{
    int column = indent;
    for (const struct ls_help_row *row = rows; row->name; row++) {
        int end = indent + (int)strlen(row->name) + 2;
        column = end > column && end <= indent + NAMES ? end : column;
    }
    for (const struct ls_help_row *row = rows; row->name; row++)
        ls_help_row(row->name, row->text, indent, column, out);
}
