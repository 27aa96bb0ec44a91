#include "report/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BAR_LEAST 8
#define BAR_MOST 40

void ls_live_duration(double seconds, char text[32])
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

/* Text that is never longer than its room, with the columns it takes on the screen. */
struct strip {
    char *text;
    size_t used;
    int columns;
};

static void put(struct strip *s, const char *piece, int columns)
{
    size_t n = strlen(piece);
    if (s->used + n < LS_LIVE_ROOM) {
        memcpy(s->text + s->used, piece, n + 1);
        s->used += n;
        s->columns += columns;
    }
}

/* Half cells are drawn in UTF-8; the colour of the bar is the only one on the line. */
static void put_bar(struct strip *s, const struct ls_live *look, double part, int cells)
{
    int halves = (int)(part * 2 * cells);
    put(s, look->colour ? "\033[36m" : "", 0);
    if (!look->utf8)
        put(s, "[", 1);
    for (int i = 0; i < cells; i++) {
        if (i == (halves + (look->utf8 ? 1 : 0)) / 2)
            put(s, look->colour ? "\033[0;2m" : "", 0);
        if (look->utf8)
            put(s, 2 * i + 1 < halves ? "━" : 2 * i < halves ? "╸" : "─", 1);
        else
            put(s, 2 * i + 1 < halves ? "#" : "-", 1);
    }
    put(s, look->colour ? "\033[0m" : "", 0);
    if (!look->utf8)
        put(s, "]", 1);
}

void ls_live_line(const struct ls_live *look, const char *label, int64_t done, int64_t total, const char *const *fields,
                  int n_fields, char text[LS_LIVE_ROOM])
{
    struct strip line = {.text = text};
    char head[64], count[64], tail[LS_LIVE_ROOM] = "";
    int room = look->width - 1, frame = look->utf8 ? 1 : 3; /* what stands around the bar: a space, brackets */
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
        int bar = i < 1 ? 0 : BAR_LEAST + frame; /* only the count and the first field are worth more than the bar */
        if (line.columns + behind.columns + columns + bar > room)
            break;
        put(&behind, gap, (int)strlen(gap));
        put(&behind, field, (int)strlen(field));
    }
    int cells = room - line.columns - behind.columns - frame;
    cells = cells > BAR_MOST ? BAR_MOST : cells;
    if (total > 0 && cells >= BAR_LEAST) {
        put(&line, " ", 1);
        put_bar(&line, look, done < total ? (double)done / (double)total : 1, cells);
    }
    put(&line, tail, behind.columns);
}
