#include "parallel/mesh.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(name, NAME, form) #name,
#include "config/lists/parallel.def"
};
static const char forms[] =
#define X(name, NAME, form) " " form
#include "config/lists/parallel.def"
    ;

enum { MOST_PROCESSES = 65536 };

bool ls_mesh_is_auto(const char *text)
{
    return strcmp(text, "auto") == 0;
}

static int find_axis(const char *text, size_t length)
{
    for (int i = 0; i < LS_PARALLELS; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return i;
    return -1;
}

/* One axis, NAME[:N][@WHERE], of `length` bytes at text. */
static enum ls_status parse_axis(const char *all, const char *text, int length, struct ls_mesh *m)
{
    int name = (int)strcspn(text, ":@,"), axis = find_axis(text, (size_t)name), used = name;
    long size = 0;
    if (axis < 0)
        return ls_fail(LS_USAGE, "--parallel %s: '%.*s' is no axis; use auto, or a list of%s", all, length, text,
                       forms);
    struct ls_mesh_axis *a = &m->axes[axis];
    if (a->size != 0)
        return ls_fail(LS_USAGE, "--parallel %s: %s stands there twice", all, names[axis]);
    a->size = -1; /* what is left */
    if (text[used] == ':') {
        char *end;
        size = strtol(text + used + 1, &end, 10);
        if (end == text + used + 1 || size < 1 || size > MOST_PROCESSES)
            return ls_fail(LS_USAGE, "--parallel %s: %s needs a number of processes from 1 to %d", all, names[axis],
                           MOST_PROCESSES);
        a->size = (int)size;
        used = (int)(end - text);
    }
    if (text[used] == '@' && used < length) {
        a->at = text + used + 1;
        a->at_length = length - used - 1;
        used = length;
    }
    if (used != length)
        return ls_fail(LS_USAGE, "--parallel %s: '%.*s' is not understood; use a list of%s", all, length, text, forms);
    if (size == 0 && axis != LS_PARALLEL_DATA)
        return ls_fail(LS_USAGE, "--parallel %s: say how many, as in %s:2", all, names[axis]);
    return LS_OK;
}

static enum ls_status fit(const char *text, int size, struct ls_mesh *m)
{
    int64_t product = 1;
    for (int i = 0; i < LS_PARALLELS; i++)
        if (m->axes[i].size == 0)
            m->axes[i].size = i == LS_PARALLEL_DATA ? -1 : 1;
    for (int i = 0; i < LS_PARALLELS; i++)
        product *= m->axes[i].size > 0 ? m->axes[i].size : 1;
    if (m->axes[LS_PARALLEL_DATA].size < 0) {
        m->axes[LS_PARALLEL_DATA].size = product <= size ? size / (int)product : 1;
        product *= m->axes[LS_PARALLEL_DATA].size;
    }
    if (product != size)
        return ls_fail(LS_USAGE,
                       "--parallel %s is a layout of %lld processes, and there %s %d; start as many (--workers N)",
                       text, (long long)product, size == 1 ? "is" : "are", size);
    return LS_OK;
}

static enum ls_status parse_axes(const char *text, struct ls_mesh *m)
{
    *m = (struct ls_mesh){0};
    for (const char *at = text;; at++) {
        int length = (int)strcspn(at, ",");
        LS_TRY(parse_axis(text, at, length, m));
        at += length;
        if (!*at)
            return LS_OK;
    }
}

int ls_mesh_size(const char *text)
{
    struct ls_mesh m;
    int64_t size = 1;
    bool muted = ls_log_mute(true);
    bool good = parse_axes(text, &m) == LS_OK;
    ls_log_mute(muted);
    for (int i = 0; good && i < LS_PARALLELS && size <= MOST_PROCESSES; i++)
        size *= m.axes[i].size > 0 ? m.axes[i].size : 1;
    return size <= MOST_PROCESSES ? (int)size : 1;
}

enum ls_status ls_mesh_parse(const char *text, int size, int rank, struct ls_mesh *m)
{
    LS_TRY(parse_axes(text, m));
    LS_TRY(fit(text, size, m));
    for (int i = LS_PARALLELS - 1; i >= 0; i--) {
        m->axes[i].place = rank % m->axes[i].size;
        rank /= m->axes[i].size;
    }
    return LS_OK;
}

char *ls_mesh_text(const struct ls_mesh *m)
{
    size_t room = 1, at = 0;
    for (int i = 0; i < LS_PARALLELS; i++)
        room += strlen(names[i]) + (size_t)m->axes[i].at_length + 16;
    char *text = ls_alloc(room, 1);
    for (int i = 0; text && i < LS_PARALLELS; i++) {
        const struct ls_mesh_axis *a = &m->axes[i];
        if (a->size > 1 || a->at_length > 0)
            at += (size_t)snprintf(text + at, room - at, "%s%s:%d%s%.*s", at > 0 ? "," : "", names[i], a->size,
                                   a->at_length > 0 ? "@" : "", a->at_length, a->at_length > 0 ? a->at : "");
    }
    if (text && at == 0)
        snprintf(text, room, "%s", names[LS_PARALLEL_DATA]);
    return text;
}

int ls_mesh_rank(const struct ls_mesh *m, enum ls_parallel axis, int place)
{
    int rank = 0;
    for (int i = 0; i < LS_PARALLELS; i++)
        rank = rank * m->axes[i].size + (i == (int)axis ? place : m->axes[i].place);
    return rank;
}

static bool has_axis(const char *text, enum ls_parallel axis)
{
    struct ls_mesh m;
    bool muted = ls_log_mute(true);
    bool good = parse_axes(text, &m) == LS_OK;
    ls_log_mute(muted);
    return good && m.axes[axis].size > 1;
}

bool ls_mesh_has_pipeline(const char *text)
{
    return has_axis(text, LS_PARALLEL_PIPELINE);
}

bool ls_mesh_divides_model(const char *text)
{
    return has_axis(text, LS_PARALLEL_PIPELINE) || has_axis(text, LS_PARALLEL_DENSE);
}
