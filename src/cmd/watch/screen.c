#define _GNU_SOURCE
#include "cmd/watch/screen.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

static const char *const codes[LS_STYLES] = {"0", "1", "2", "31", "32", "33", "34", "35", "36"};

static void set_style(struct ls_screen *s, enum ls_style style)
{
    if (!s->colour || style == s->style)
        return;
    if (s->style != LS_PLAIN && style != LS_PLAIN)
        fputs("\033[0m", s->out);
    fprintf(s->out, "\033[%sm", codes[style]);
    s->style = style;
}

/* Reads one character. Returns its bytes, 1 for one that cannot be shown: *columns is 0 then. */
static size_t next_character(const char *text, int *columns)
{
    mbstate_t state = {0};
    wchar_t wide;
    size_t n = mbrtowc(&wide, text, strlen(text), &state);
    if (n == 0 || n > 8) {
        *columns = 0;
        return 1;
    }
    int width = wcwidth(wide);
    *columns = width > 0 ? width : 0;
    return n;
}

int ls_screen_columns(const struct ls_screen *s)
{
    return s->width > s->column ? s->width - s->column : 0;
}

int ls_screen_rows(const struct ls_screen *s)
{
    return s->height == 0 ? INT_MAX : s->height > s->row ? s->height - s->row : 0;
}

int ls_screen_width(const char *text)
{
    int sum = 0, columns;
    for (size_t n; *text; text += n, sum += columns) {
        n = next_character(text, &columns);
        columns = columns ? columns : 1;
    }
    return sum;
}

static void put_spaces(struct ls_screen *s)
{
    for (; s->spaces > 0; s->spaces--)
        putc(' ', s->out);
}

void ls_screen_put(struct ls_screen *s, enum ls_style style, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (ls_screen_rows(s) == 0)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int columns;
    for (const char *p = text; *p && ls_screen_columns(s) > 0;) {
        size_t n = next_character(p, &columns);
        bool shown = columns > 0 && (s->utf8 || (n == 1 && (unsigned char)*p < 128));
        columns = shown ? columns : 1;
        if (columns > ls_screen_columns(s))
            break;
        if (*p == ' ') {
            s->spaces++;
        } else {
            put_spaces(s);
            set_style(s, style);
            fwrite(shown ? p : "?", 1, shown ? n : 1, s->out);
        }
        s->column += columns;
        p += n;
    }
}

/* The cursor stays in the last line of a full screen, which would scroll otherwise. */
void ls_screen_end(struct ls_screen *s)
{
    if (ls_screen_rows(s) == 0)
        return;
    set_style(s, LS_PLAIN);
    s->row++;
    s->column = s->spaces = 0;
    if (!s->live)
        putc('\n', s->out);
    else
        fputs(ls_screen_rows(s) == 0 ? "\033[K" : "\033[K\r\n", s->out);
}
