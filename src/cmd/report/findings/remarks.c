#include "cmd/report/findings/findings.h"

#include <stdarg.h>
#include <stdio.h>

enum { ROOM = 1024 };

static const char *keep(struct ls_remarks *r, const char *format, va_list args)
{
    char text[ROOM];
    vsnprintf(text, sizeof text, format, args);
    const char *kept = ls_arena_strdup(&r->strings, text);
    if (!kept)
        r->status = LS_FAILED;
    return kept;
}

void ls_remark(struct ls_remarks *r, enum ls_remark_kind kind, const char *run, const char *format, ...)
{
    if (r->n == r->room && r->status == LS_OK) {
        int room = r->room ? 2 * r->room : 32;
        struct ls_remark *larger = ls_realloc(r->list, (size_t)r->room, (size_t)room, sizeof *larger);
        r->status = larger ? LS_OK : LS_FAILED;
        r->list = larger ? larger : r->list;
        r->room = larger ? room : r->room;
    }
    if (r->status != LS_OK)
        return;
    va_list args;
    va_start(args, format);
    r->list[r->n++] = (struct ls_remark){.kind = kind, .run = run, .text = keep(r, format, args)};
    va_end(args);
}

void ls_remark_figures(struct ls_remarks *r, const char *format, ...)
{
    va_list args;
    if (r->status != LS_OK || r->n == 0)
        return;
    va_start(args, format);
    r->list[r->n - 1].figures = keep(r, format, args);
    va_end(args);
}

void ls_remark_advise(struct ls_remarks *r, const char *format, ...)
{
    va_list args;
    if (r->status != LS_OK || r->n == 0)
        return;
    va_start(args, format);
    r->list[r->n - 1].advice = keep(r, format, args);
    va_end(args);
}

void ls_remarks_release(struct ls_remarks *r)
{
    ls_free(r->list);
    ls_arena_release(&r->strings);
    *r = (struct ls_remarks){0};
}
