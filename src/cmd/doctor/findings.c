#define _GNU_SOURCE
#include "cmd/doctor/doctor.h"
#include "base/text/utf8.h"

#include <stdarg.h>

static const char *const names[] = {[LS_HEALTH_OK] = "ok",
                                    [LS_HEALTH_MISSING] = "missing",
                                    [LS_HEALTH_WARNING] = "warning",
                                    [LS_HEALTH_ERROR] = "error"};
static const char *const colours[] = {[LS_HEALTH_OK] = "\033[32m",
                                      [LS_HEALTH_MISSING] = "\033[36m",
                                      [LS_HEALTH_WARNING] = "\033[33m",
                                      [LS_HEALTH_ERROR] = "\033[31m"};

void ls_findings_release(struct ls_findings *f)
{
    ls_arena_release(&f->strings);
    ls_free(f->list);
    *f = (struct ls_findings){0};
}

static const char *keep(struct ls_findings *f, const char *format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    const char *kept = ls_arena_strdup(&f->strings, text);
    if (!kept)
        f->status = LS_FAILED;
    return kept;
}

void ls_find(struct ls_findings *f, enum ls_health health, const char *topic, const char *where, const char *format,
             ...)
{
    va_list args;
    if (f->terse && health == LS_HEALTH_OK)
        return;
    if (f->status == LS_OK && f->n == f->room) {
        int room = f->room ? 2 * f->room : 32;
        struct ls_finding *list = ls_realloc(f->list, (size_t)f->room, (size_t)room, sizeof *list);
        f->status = list ? LS_OK : LS_FAILED;
        f->list = list ? list : f->list;
        f->room = list ? room : f->room;
    }
    if (f->status != LS_OK)
        return;
    va_start(args, format);
    struct ls_finding found = {.health = health, .topic = topic, .text = keep(f, format, args)};
    va_end(args);
    found.where = ls_arena_strdup(&f->strings, where);
    if (!found.where || !found.text) {
        f->status = LS_FAILED;
        return;
    }
    f->list[f->n++] = found;
    f->counts[health]++;
}

void ls_advise(struct ls_findings *f, const char *format, ...)
{
    va_list args;
    if (f->status != LS_OK || f->n == 0)
        return;
    va_start(args, format);
    f->list[f->n - 1].advice = keep(f, format, args);
    va_end(args);
}

void ls_findings_print(const struct ls_findings *f, bool quiet, bool colour, FILE *out)
{
    for (int i = 0; i < f->n; i++) {
        const struct ls_finding *x = &f->list[i];
        char where[LS_PRINTABLE_SIZE], text[4 * LS_PRINTABLE_SIZE];
        if (quiet && x->health < LS_HEALTH_WARNING)
            continue;
        fprintf(out, "%s%-7s%s  %-12s  %s%s%s\n", colour ? colours[x->health] : "", names[x->health],
                colour ? "\033[0m" : "", x->topic, ls_utf8_printable(x->where, where, sizeof where),
                *x->where ? ": " : "", ls_utf8_printable(x->text, text, sizeof text));
        if (x->advice)
            fprintf(out, "%23s%s\n", "", ls_utf8_printable(x->advice, text, sizeof text));
    }
}

json_t *ls_findings_json(const struct ls_findings *f)
{
    json_t *list = json_array();
    for (int i = 0; i < f->n; i++) {
        const struct ls_finding *x = &f->list[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s?}", "health", names[x->health], "topic",
                                              x->topic, "host", x->where, "text", x->text, "advice", x->advice));
    }
    return list;
}
