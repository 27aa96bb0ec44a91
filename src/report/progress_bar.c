#include "report/progress_bar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BAR_MIN 8
#define BAR_MAX 40

void ls_format_duration(double seconds, char text[32])
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(text, 32, "?");
        return;
    }
    int64_t s = (int64_t)(seconds + 0.5), hours = s / 3600;
    int minutes = (int)(s / 60 % 60);
    if (hours >= 48)
        snprintf(text, 32, "%" PRId64 "d %02dh", hours / 24, (int)(hours % 24));
    else if (hours > 0)
        snprintf(text, 32, "%" PRId64 ":%02d:%02d", hours, minutes, (int)(s % 60));
    else
        snprintf(text, 32, "%d:%02d", minutes, (int)(s % 60));
}

/* Bounded text, with the number of terminal columns it takes. */
struct strip {
    char *text;
    size_t used;
    int columns;
};

static void put(struct strip *s, const char *piece, int columns)
{
    size_t n = strlen(piece);
    if (s->used + n < LS_BAR_ROOM) {
        memcpy(s->text + s->used, piece, n + 1);
        s->used += n;
        s->columns += columns;
    }
}

/* Draws the bar; in UTF-8 with a resolution of half a cell. */
static void put_bar(struct strip *s, const struct ls_bar_style *style, double part, int cells)
{
    int halves = (int)(part * 2 * cells);
    put(s, style->colour ? "\033[36m" : "", 0);
    if (!style->utf8)
        put(s, "[", 1);
    for (int i = 0; i < cells; i++) {
        if (i == (halves + (style->utf8 ? 1 : 0)) / 2)
            put(s, style->colour ? "\033[0;2m" : "", 0);
        if (style->utf8)
            put(s, 2 * i + 1 < halves ? "━" : 2 * i < halves ? "╸" : "─", 1);
        else
            put(s, 2 * i + 1 < halves ? "#" : "-", 1);
    }
    put(s, style->colour ? "\033[0m" : "", 0);
    if (!style->utf8)
        put(s, "]", 1);
}

void ls_progress_bar(const struct ls_bar_style *style, const char *label, int64_t done, int64_t total,
                     const char *const *fields, int n_fields, char text[LS_BAR_ROOM])
{
    struct strip line = {.text = text};
    char head[64], count[64], tail[LS_BAR_ROOM] = "";
    int room = style->width - 1, frame = style->utf8 ? 1 : 3; /* columns around the bar: a space, brackets */
    text[0] = 0;
    snprintf(head, sizeof head, "%.*s", room > 40 ? 40 : room > 0 ? room : 0, label);
    put(&line, head, (int)strlen(head));

    snprintf(count, sizeof count, total > 0 ? "%" PRId64 "/%" PRId64 : "%" PRId64, done, total);
    struct strip behind = {.text = tail};
    for (int i = -1; i < n_fields; i++) {
        const char *field = i < 0 ? count : fields[i];
        if (!field || !*field)
            continue;
        const char *gap = i < 0 ? " " : "  ";
        int columns = (int)(strlen(gap) + strlen(field));
        int bar = i < 1 ? 0 : BAR_MIN + frame; /* only the count and the first field have priority over the bar */
        if (line.columns + behind.columns + columns + bar > room)
            break;
        put(&behind, gap, (int)strlen(gap));
        put(&behind, field, (int)strlen(field));
    }
    int cells = room - line.columns - behind.columns - frame;
    cells = cells > BAR_MAX ? BAR_MAX : cells;
    if (total > 0 && cells >= BAR_MIN) {
        put(&line, " ", 1);
        put_bar(&line, style, done < total ? (double)done / (double)total : 1, cells);
    }
    put(&line, tail, behind.columns);
}
