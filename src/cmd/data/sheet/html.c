/* The contact sheet as an HTML page that needs nothing from outside. */
#include "cmd/data/sheet/sheet.h"
#include "cmd/report/page.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/base64.h"
#include "report/formats/png.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root { --bg: #f4f5f7; --card: #ffffff; --fg: #1c2330; --soft: #5b6472; --line: #d9dde3; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --bg: #12151a; --card: #1b2027; --fg: #e6e9ee; --soft: #a3acb9; --line: #333b46; }\n"
    "}\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 0 auto; padding: 20px; max-width: 1600px; background: var(--bg); color: var(--fg);\n"
    "  font: 14px/1.4 system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif; }\n"
    "h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }\n"
    "p { margin: 4px 0 16px; color: var(--soft); overflow-wrap: anywhere; }\n"
    "main { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(min(45%, 150px), 1fr)); }\n"
    "figure { margin: 0; padding: 8px; background: var(--card); border: 1px solid var(--line); border-radius: 8px;\n"
    "  min-width: 0; }\n"
    "img { display: block; width: 100%; height: auto; }\n"
    "img.small { image-rendering: pixelated; }\n"
    "figcaption { margin-top: 6px; overflow-wrap: anywhere; }\n"
    "figcaption strong { display: -webkit-box; -webkit-line-clamp: 3; -webkit-box-orient: vertical; overflow: hidden;\n"
    "  font-weight: 600; }\n"
    "figcaption span { color: var(--soft); font-size: .85rem; }\n";

static enum ls_status put_sample(const struct ls_sheet *s, int64_t i, FILE *out)
{
    const struct ls_augment *a = &s->task.augment;
    uint8_t *png;
    size_t size;
    char room[32], where[512];
    LS_TRY(ls_png_encode(ls_sheet_pixels(s, i), s->channels, (int)a->height, (int)a->width, &png, &size));
    char *text = ls_base64(png, size);
    ls_free(png);
    if (!text)
        return LS_FAILED;
    ls_dataset_where(s->task.train, s->sample[i], where, sizeof where);
    fprintf(out, "<figure title=\"");
    ls_page_text(out, where);
    fprintf(out, "\"><img%s width=\"%d\" height=\"%d\" alt=\"sample %" PRId64 "\" src=\"data:image/png;base64,%s\">",
            a->width < 128 ? " class=\"small\"" : "", (int)a->width, (int)a->height, s->sample[i], text);
    fprintf(out, "<figcaption><strong>");
    ls_page_text(out, ls_sheet_class(s, i, room));
    fprintf(out, "</strong><span>sample %" PRId64 "</span></figcaption></figure>\n", s->sample[i]);
    ls_free(text);
    return LS_OK;
}

static enum ls_status put_page(const struct ls_sheet *s, const struct ls_options *o, FILE *out)
{
    char title[512];
    ls_sheet_title(s, o, title);
    fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                 "<meta name=\"generator\" content=\"lockstep data show\">\n"
                 "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    ls_page_text(out, o->data);
    fprintf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    ls_page_text(out, o->data);
    fprintf(out, "</h1>\n<p>");
    ls_page_text(out, title);
    fprintf(out, "</p>\n<main>\n");
    for (int64_t i = 0; i < s->count; i++)
        LS_TRY(put_sample(s, i, out));
    fprintf(out, "</main>\n</body>\n</html>\n");
    return LS_OK;
}

enum ls_status ls_sheet_html(const struct ls_sheet *s, const struct ls_options *o, uint8_t **bytes, size_t *size)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return ls_fail(LS_FAILED, "out of memory");
    enum ls_status st = put_page(s, o, out);
    if (fclose(out) != 0 && st == LS_OK)
        st = ls_fail(LS_FAILED, "out of memory");
    *bytes = st == LS_OK ? ls_alloc(length + 1, 1) : NULL;
    if (*bytes)
        memcpy(*bytes, text, length);
    else if (st == LS_OK)
        st = LS_FAILED;
    *size = length;
    free(text);
    return st;
}
