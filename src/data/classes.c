#include "data/classes.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/nearest.h"
#include "base/text/utf8.h"
#include "data/dataset.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED 8 /* names listed in a message */
#define NAME_ROOM 256

struct ls_classes ls_classes_of(const struct ls_dataset_info *info, int64_t count)
{
    return (struct ls_classes){.count = count,
                               .named = info->class_names ? info->classes : 0,
                               .names = info->class_names,
                               .ids = info->class_names ? info->class_ids : NULL};
}

/* --- comparing names ---------------------------------------------------------------------------------- */

/* Names of a model file are valid UTF-8; folder names may not be, so both are compared escaped. */
bool ls_class_same(const char *a, const char *b)
{
    char room_a[NAME_ROOM], room_b[NAME_ROOM];
    if (strcmp(a, b) == 0)
        return true;
    if (ls_utf8_valid(a) && ls_utf8_valid(b))
        return false;
    return strcmp(ls_utf8_escape(a, room_a, sizeof room_a), ls_utf8_escape(b, room_b, sizeof room_b)) == 0;
}

/* Returns the number that a name spells, or -1. */
static int64_t number_of(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < 10 && strspn(name, "0123456789") == length ? strtoll(name, NULL, 10) : -1;
}

static bool all_numbers(const char *const *names, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (number_of(names[i]) < 0)
            return false;
    return n > 0;
}

/* Finds a name; tries the entry `first` before the others. Returns -1 if there is none. */
static int64_t find_name(const char *const *names, int64_t n, int64_t first, const char *name)
{
    if (!names || !name)
        return -1;
    if (first < n && ls_class_same(names[first], name))
        return first;
    for (int64_t i = 0; i < n; i++)
        if (ls_class_same(names[i], name))
            return i;
    return -1;
}

static int64_t find_number(const char *const *names, int64_t n, int64_t number)
{
    for (int64_t i = 0; i < n; i++)
        if (number_of(names[i]) == number)
            return i;
    return -1;
}

/* --- matching ----------------------------------------------------------------------------------------- */

struct match {
    const struct ls_classes *model;
    const struct ls_dataset_info *info;
    bool by_name, by_number;
    int64_t *samples; /* owned; number of samples of each class of the data */
    bool *seen;       /* owned; classes of the model that have samples */
};

/* Returns the class of the model for class c of the data, or -1. */
static int64_t find_class(const struct match *m, int64_t c)
{
    const struct ls_classes *model = m->model;
    const char *const *names = m->info->class_names, *const *ids = m->info->class_ids;
    if (m->by_name) {
        /* Ids first: two classes may have the same name. */
        const char *id = ids ? ids[c] : names[c];
        int64_t found = find_name(model->ids ? model->ids : model->names, model->named, c, id);
        if (found < 0)
            found = find_name(model->names, model->named, c, names[c]);
        if (found < 0)
            found = find_name(model->names, model->named, c, id);
        return found < 0 ? find_name(model->ids, model->named, c, names[c]) : found;
    }
    if (m->by_number)
        c = names ? number_of(names[c]) : find_number(model->names, model->named, c);
    return c < model->count ? c : -1;
}

static void decide_way(struct match *m)
{
    const struct ls_classes *model = m->model;
    bool named = m->info->class_names;
    m->by_name = named && model->named > 0;
    if (named && model->named == 0)
        m->by_number = !model->foreign && all_numbers(m->info->class_names, m->info->classes);
    if (!named && model->named > 0)
        m->by_number = all_numbers(model->names, model->named);
}

/* --- messages ----------------------------------------------------------------------------------------- */

struct text {
    char *at;
    size_t room, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at + t->used, t->room - t->used, format, args);
    va_end(args);
    t->used += n > 0 ? (size_t)n : 0;
    if (t->used >= t->room)
        t->used = t->room - 1;
}

static void class_name(const char *const *names, int64_t c, char room[NAME_ROOM])
{
    if (names)
        ls_utf8_escape(names[c], room, 48);
    else
        snprintf(room, NAME_ROOM, "%" PRId64, c);
}

/* Lists the first names of the classes of the model, only those without `seen` if it is given. */
static void list_classes(struct text *t, const struct ls_classes *model, const bool *seen)
{
    char name[NAME_ROOM];
    int64_t n = 0;
    for (int64_t c = 0; c < model->named; c++) {
        if (seen && seen[c])
            continue;
        class_name(model->names, c, name);
        if (n++ < LISTED)
            add(t, "%s%s", n > 1 ? ", " : "", name);
    }
    if (n > LISTED)
        add(t, " and %" PRId64 " more", n - LISTED);
}

static enum ls_status unknown_classes(const struct match *m, const char *spec, int64_t unknown)
{
    const struct ls_classes *model = m->model;
    char list[512] = "", all[400] = "", name[NAME_ROOM];
    struct text t = {list, sizeof list, 0}, known = {all, sizeof all, 0};
    int64_t n = 0;
    for (int64_t c = 0; c < m->info->classes && n < LISTED; c++) {
        if (m->samples[c] == 0 || find_class(m, c) >= 0)
            continue;
        class_name(m->info->class_names, c, name);
        const char *near = model->named > 0 ? ls_nearest_word(name, model->names, (int)model->named) : NULL;
        add(&t, "%s'%s'", n++ > 0 ? ", " : "", name);
        if (near)
            add(&t, " (did you mean '%.48s'?)", near);
    }
    if (unknown > n)
        add(&t, " and %" PRId64 " more", unknown - n);
    list_classes(&known, model, NULL);
    if (model->named > 0)
        return ls_fail(LS_BAD_INPUT, "%s: the model has no class%s %s; its classes are %s", spec,
                       unknown == 1 ? "" : "es", list, all);
    return ls_fail(LS_BAD_INPUT, "%s: class%s %s, but the model has only %" PRId64 " classes, which have no names",
                   spec, unknown == 1 ? "" : "es", list, model->count);
}

static void describe(const struct match *m, const char *spec, struct text *t)
{
    const struct ls_classes *model = m->model;
    int64_t missing = 0;
    if (!m->info->class_names && !m->by_number && model->named > 0)
        add(t,
            "%s: the data has no class names: its %" PRId64 " classes count as the model's first ones; their accuracy "
            "means nothing if they are others",
            spec, m->info->classes);
    if (!m->info->class_names || m->by_number)
        return;
    if (!m->by_name) {
        if (m->info->classes < model->count)
            add(t,
                "%s: the model has no class names: the %" PRId64 " classes of the data count as its first ones; their "
                "accuracy means nothing if they are others",
                spec, m->info->classes);
        return;
    }
    for (int64_t c = 0; c < model->named; c++)
        missing += !m->seen[c];
    if (missing == 0)
        return;
    add(t, "%s: %" PRId64 " of the model's %" PRId64 " classes %s no sample there: ", spec, missing, model->named,
        missing == 1 ? "has" : "have");
    list_classes(t, model, m->seen);
}

static enum ls_status fill_table(struct match *m, struct ls_dataset *set, const char *spec)
{
    int64_t unknown = 0;
    /* Without names every class counts as present; synthetic sets may be very large. */
    for (int64_t c = 0; c < m->info->classes && !m->info->class_names; c++)
        m->samples[c] = 1;
    for (int64_t i = 0; i < m->info->count && m->info->class_names; i++)
        m->samples[set->ops->label(set, i)]++;
    for (int64_t c = 0; c < m->info->classes; c++) {
        int64_t found = find_class(m, c);
        set->relabel[c] = (int32_t)found;
        if (found >= 0)
            m->seen[found] |= m->samples[c] > 0;
        else
            unknown += m->samples[c] > 0;
    }
    return unknown > 0 ? unknown_classes(m, spec, unknown) : LS_OK;
}

enum ls_status ls_classes_match(const struct ls_classes *model, struct ls_dataset *set, const char *spec, char *note,
                                size_t room)
{
    struct match m = {.model = model, .info = &set->info};
    struct text t = {note, room, 0};
    int64_t classes = set->info.classes;
    note[0] = 0;
    decide_way(&m);
    ls_free(set->relabel);
    set->relabel = ls_alloc((size_t)classes, sizeof *set->relabel);
    m.samples = ls_alloc((size_t)classes, sizeof *m.samples);
    m.seen = ls_alloc((size_t)model->count, sizeof *m.seen);
    enum ls_status st = set->relabel && m.samples && m.seen ? fill_table(&m, set, spec) : LS_FAILED;
    if (st == LS_OK)
        describe(&m, spec, &t);
    ls_free(m.samples);
    ls_free(m.seen);
    return st;
}
