#include "cmd/report/page.h"
#include "base/memory.h"
#include "base/text/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

/* page.css and page.js become part of the program. */
#define EMBED(name, file)                                        \
    __asm__(".pushsection .rodata\n"                             \
            ".global " #name "\n.hidden " #name "\n" #name ":\n" \
            ".incbin \"" LS_PAGE_DIR "/" file "\"\n"             \
            ".byte 0\n"                                          \
            ".popsection\n");                                    \
    extern const char name[] __attribute__((visibility("hidden")))

EMBED(ls_page_css, "page.css");
EMBED(ls_page_js, "page.js");

/* --- text -------------------------------------------------------------------------------------------------------- */

void ls_page_text(FILE *out, const char *text)
{
    char room[4 * LS_PRINTABLE_SIZE];
    for (const char *p = ls_utf8_printable(text, room, sizeof room); *p; p++) {
        switch (*p) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            putc(*p, out);
        }
    }
}

void ls_page_short(FILE *out, const char *text, int letters)
{
    char room[LS_PRINTABLE_SIZE];
    ls_utf8_printable(text, room, sizeof room);
    bool longer = ls_utf8_length(room) > letters;
    char *end = room;
    for (int n = longer ? letters - 1 : letters; *end && n > 0; n--)
        do
            end++;
        while (((unsigned char)*end & 0xC0) == 0x80);
    *end = 0;
    ls_page_text(out, room);
    if (longer)
        fputs("…", out);
}

void ls_page_print(FILE *out, const char *format, ...)
{
    char text[2 * LS_PRINTABLE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls_page_text(out, text);
}

/* --- figures ----------------------------------------------------------------------------------------------------- */

/* 4560 as "4,560". */
static const char *grouped(double value, char text[LS_FIGURE_ROOM])
{
    double whole = round(fabs(value));
    const char *sign = value < 0 ? "−" : "";
    if (whole >= 1000)
        snprintf(text, LS_FIGURE_ROOM, "%s%.0f,%03.0f", sign, floor(whole / 1000), fmod(whole, 1000));
    else
        snprintf(text, LS_FIGURE_ROOM, "%s%.0f", sign, whole);
    return text;
}

const char *ls_figure(double value, char text[LS_FIGURE_ROOM])
{
    double size = fabs(value);
    if (isnan(value))
        snprintf(text, LS_FIGURE_ROOM, "–");
    else if (isinf(value))
        snprintf(text, LS_FIGURE_ROOM, value > 0 ? "∞" : "−∞");
    else if (size >= 999999.5)
        snprintf(text, LS_FIGURE_ROOM, "%.4g %s",
                 value / (size >= 1e12  ? 1e12
                          : size >= 1e9 ? 1e9
                                        : 1e6),
                 size >= 1e12  ? "T"
                 : size >= 1e9 ? "G"
                               : "M");
    else if (size >= 1000 || (size == floor(size) && size > 0))
        return grouped(value, text);
    else
        snprintf(text, LS_FIGURE_ROOM, "%.4g", value);
    return text;
}

const char *ls_figure_time(double seconds, char text[LS_FIGURE_ROOM])
{
    if (isnan(seconds))
        snprintf(text, LS_FIGURE_ROOM, "–");
    else if (seconds < 1)
        snprintf(text, LS_FIGURE_ROOM, "%.3g ms", 1e3 * seconds);
    else if (seconds < 100)
        snprintf(text, LS_FIGURE_ROOM, "%.3g s", seconds);
    else if (seconds < 3600)
        snprintf(text, LS_FIGURE_ROOM, "%.0f min %02.0f s", floor(seconds / 60), floor(fmod(seconds, 60)));
    else if (seconds < 86400)
        snprintf(text, LS_FIGURE_ROOM, "%.0f h %02.0f min", floor(seconds / 3600), floor(fmod(seconds, 3600) / 60));
    else
        snprintf(text, LS_FIGURE_ROOM, "%.0f d %02.0f h", floor(seconds / 86400), floor(fmod(seconds, 86400) / 3600));
    return text;
}

const char *ls_figure_bytes(double bytes, char text[LS_FIGURE_ROOM])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int i = 0;
    for (; i < 5 && bytes >= 1000; i++)
        bytes /= 1000;
    snprintf(text, LS_FIGURE_ROOM, "%.3g %s", bytes, units[i]);
    return text;
}

const char *ls_figure_share(double share, char text[LS_FIGURE_ROOM])
{
    if (isnan(share))
        snprintf(text, LS_FIGURE_ROOM, "–");
    else
        snprintf(text, LS_FIGURE_ROOM, fabs(share) < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
    return text;
}

void ls_page_print_variable(FILE *out, const char *name, size_t length, bool dark)
{
    const char *at = dark ? strstr(ls_page_css, "prefers-color-scheme: dark") : ls_page_css;
    char key[32];
    snprintf(key, sizeof key, "--%.*s: ", (int)length, name);
    at = at ? strstr(at, key) : NULL;
    if (at)
        fwrite(at + strlen(key), 1, strcspn(at + strlen(key), ";"), out);
}

/* --- the page ---------------------------------------------------------------------------------------------------- */

void ls_page_begin(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"generator\" content=\"lockstep report\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          out);
    ls_page_text(out, title);
    fprintf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", ls_page_css);
}

void ls_page_end(FILE *out, const char *version)
{
    char when[64] = "";
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &local);
    fputs("</main>\n<footer>Made by lockstep ", out);
    ls_page_text(out, version);
    fprintf(out,
            " on %s. Plots: drag to zoom, double-click to go back.</footer>\n<script>\n%s</script>\n</body>\n</html>\n",
            when, ls_page_js);
}

void ls_page_section(FILE *out, const char *id, const char *title)
{
    fprintf(out, "<section id=\"%s\">\n<h2>", id);
    ls_page_text(out, title);
    fputs("</h2>\n", out);
}

void ls_page_section_end(FILE *out)
{
    fputs("</section>\n", out);
}

void ls_page_figure(FILE *out, const char *title, const char *note, bool wide)
{
    fprintf(out, "<figure%s>\n<figcaption><strong>", wide ? " class=\"wide\"" : "");
    ls_page_text(out, title);
    fputs("</strong>", out);
    if (note) {
        fputs(" <span>", out);
        ls_page_text(out, note);
        fputs("</span>", out);
    }
    fputs("</figcaption>\n", out);
}

void ls_page_table(FILE *out, const char *const *head, int n)
{
    fputs("<details><summary>Table</summary><div class=\"scroll\"><table><thead><tr>", out);
    for (int i = 0; i < n; i++) {
        fputs("<th scope=\"col\">", out);
        ls_page_text(out, head[i]);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
}

void ls_page_table_end(FILE *out)
{
    fputs("</tbody></table></div></details>\n", out);
}

void ls_page_figure_end(FILE *out)
{
    fputs("</figure>\n", out);
}

void ls_page_cell(FILE *out, double value)
{
    char text[LS_FIGURE_ROOM];
    fprintf(out, "<td>%s</td>", ls_figure(value, text));
}

void ls_page_cell_text(FILE *out, const char *text)
{
    fputs("<td class=\"t\">", out);
    ls_page_text(out, text);
    fputs("</td>", out);
}

void ls_page_row_head(FILE *out, const char *text)
{
    fputs("<th scope=\"row\">", out);
    ls_page_text(out, text);
    fputs("</th>", out);
}

const char *ls_page_colour(int i, char text[LS_FIGURE_ROOM])
{
    int dash = i / LS_COLOURS % 3;
    if (dash > 0)
        snprintf(text, LS_FIGURE_ROOM, "c%d d%d", i % LS_COLOURS, dash);
    else
        snprintf(text, LS_FIGURE_ROOM, "c%d", i % LS_COLOURS);
    return text;
}
