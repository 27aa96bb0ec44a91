/* The contact sheet as one PNG image. */
#include "cmd/data/sheet/sheet.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/utf8.h"
#include "report/formats/letters.h"
#include "report/formats/png.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TILE = 132,     /* smallest width of a tile: 11 letters */
    GAP = 12,       /* between tiles */
    SCALE = 2,      /* of the letters */
    NAME_LINES = 2, /* of a class name */
    LINE = SCALE * LS_LETTER_HEIGHT,
    MOST_PIXELS = 1 << 28,
};

static const uint8_t ink[3] = {28, 35, 48}, soft[3] = {91, 100, 114}, paper = 255;

struct grid {
    int zoom;          /* pixels of the sheet for one of a sample */
    int width, height; /* of a tile: a sample and the text below it */
    int64_t columns, rows;
    int letters; /* that fit on a line of a tile */
};

/* About four columns for three rows. */
static struct grid make_grid(const struct ls_sheet *s)
{
    const struct ls_augment *a = &s->task.augment;
    struct grid g = {.zoom = 1};
    while (g.zoom * a->width < TILE && g.zoom * a->width + a->width <= 2 * TILE)
        g.zoom++;
    int64_t width = g.zoom * a->width;
    g.width = (int)(width < TILE ? TILE : width);
    g.height = (int)(g.zoom * a->height) + 6 + (NAME_LINES + 1) * LINE;
    g.letters = g.width / (SCALE * LS_LETTER_WIDTH);
    g.columns = (int64_t)ceil(sqrt((double)s->count * 4 / 3 * g.height / g.width));
    g.columns = g.columns > s->count ? s->count : g.columns;
    g.rows = (s->count + g.columns - 1) / g.columns;
    return g;
}

static void draw_sample(const struct ls_sheet *s, const struct grid *g, const struct ls_canvas *c, int64_t i, int left,
                        int top)
{
    const uint8_t *from = ls_sheet_pixels(s, i);
    int height = (int)s->task.augment.height, width = (int)s->task.augment.width;
    for (int y = 0; y < height * g->zoom; y++)
        for (int x = 0; x < width * g->zoom; x++) {
            const uint8_t *p = from + ((int64_t)(y / g->zoom) * width + x / g->zoom) * s->channels;
            for (int k = 0; k < 3; k++)
                c->pixels[((int64_t)(top + y) * c->width + left + x) * 3 + k] = p[s->channels == 3 ? k : 0];
        }
}

/* Returns how many bytes the first letters of a text have. */
static size_t bytes_of(const char *text, int letters)
{
    size_t n = 0;
    for (; text[n] && letters > 0; letters--)
        do
            n++;
        while (((unsigned char)text[n] & 0xC0) == 0x80);
    return n;
}

/* Draws a class name on the lines of a tile, cut between words where that is possible. */
static void draw_name(const struct grid *g, const struct ls_canvas *c, const char *name, int left, int *top)
{
    for (int line = 0; line < NAME_LINES && *name; line++) {
        size_t fits = bytes_of(name, g->letters), taken = fits;
        bool last = line == NAME_LINES - 1;
        for (size_t i = fits; name[fits] && !last && i > fits / 3 && taken == fits; i--)
            if (name[i] == ' ' || name[i - 1] == ' ')
                taken = i;
        char text[LS_PRINTABLE_SIZE];
        bool cut = last && name[fits];
        size_t shown = cut ? bytes_of(name, g->letters - 2) : taken;
        snprintf(text, sizeof text, "%.*s%s", (int)shown, name, cut ? ".." : "");
        ls_letters_draw(c, left, *top, SCALE, ink, text, g->letters);
        name += taken;
        name += strspn(name, " ");
        *top += LINE;
    }
}

static void draw_tile(const struct ls_sheet *s, const struct grid *g, const struct ls_canvas *c, int64_t i, int left,
                      int top)
{
    char room[32], printable[LS_PRINTABLE_SIZE], number[32];
    draw_sample(s, g, c, i, left, top);
    top += (int)s->task.augment.height * g->zoom + 6;
    const char *name = ls_utf8_printable(ls_sheet_class(s, i, room), printable, sizeof printable);
    draw_name(g, c, name, left, &top);
    snprintf(number, sizeof number, "#%" PRId64, s->sample[i]);
    ls_letters_draw(c, left, top, SCALE, soft, number, g->letters);
}

enum ls_status ls_sheet_png(const struct ls_sheet *s, const struct ls_options *o, uint8_t **bytes, size_t *size)
{
    struct grid g = make_grid(s);
    char title[512];
    int64_t width = g.columns * (g.width + GAP) + GAP, height = g.rows * (g.height + GAP) + 2 * GAP + LINE;
    if (width > 65535 || height > 65535 || width * height > MOST_PIXELS)
        return ls_fail(LS_USAGE,
                       "--samples %" PRId64 ": the image would have %" PRId64 "x%" PRId64
                       " pixels; show fewer samples, or write FILE.html",
                       s->count, width, height);
    struct ls_canvas c = {ls_alloc((size_t)(width * height), 3), (int)height, (int)width};
    if (!c.pixels)
        return LS_FAILED;
    memset(c.pixels, paper, (size_t)(width * height * 3));
    ls_sheet_title(s, o, title);
    ls_letters_draw(&c, GAP, GAP, SCALE, soft, title, c.width / (SCALE * LS_LETTER_WIDTH) - 2);
    for (int64_t i = 0; i < s->count; i++)
        draw_tile(s, &g, &c, i, (int)(GAP + i % g.columns * (g.width + GAP)),
                  (int)(2 * GAP + LINE + i / g.columns * (g.height + GAP)));
    enum ls_status st = ls_png_encode(c.pixels, 3, c.height, c.width, bytes, size);
    ls_free(c.pixels);
    return st;
}
