/* lockstep-classes.txt beside shards, or one folder above them: the classes in their order, one a line, NAME or ID<TAB>NAME.
 * `lockstep data convert` writes it, because numbers in shards carry no names and names no order. */
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/text.h"
#include "data/files/lines.h"
#include "data/records/records.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool find_file(const struct ls_records *r, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s", r->shards[0].path) >= (int)sizeof folder)
        return false;
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = 0;
        else
            snprintf(folder, sizeof folder, "%s", level == 0 ? "." : "..");
        if (snprintf(path, PATH_MAX, "%s/%s", folder, LS_CLASS_FILE) < PATH_MAX && ls_file_exists(path))
            return true;
    }
    return false;
}

/* The texts of a line, in the arena. */
struct classes {
    const char **name, **id; /* owned arrays; id NULL: there are none */
    int64_t count;
};

static enum ls_status take_lines(struct ls_records *r, const char *path, const struct ls_lines *lines,
                                 struct classes *c)
{
    bool ids = lines->count > 0;
    for (int i = 0; i < lines->count; i++)
        ids = ids && strchr(lines->line[i], '\t');
    if (lines->count == 0)
        return ls_fail(LS_BAD_INPUT, "%s: the file is empty; expected the name of a class in each line", path);
    c->count = lines->count;
    c->name = ls_alloc((size_t)c->count, sizeof *c->name);
    c->id = ids ? ls_alloc((size_t)c->count, sizeof *c->id) : NULL;
    if (!c->name || (ids && !c->id))
        return LS_FAILED;
    for (int i = 0; i < lines->count; i++) {
        char *rest = lines->line[i], *id = ids ? ls_lines_field(&rest) : NULL;
        c->name[i] = ls_arena_strdup(&r->arena, ids ? rest : lines->line[i]);
        if (ids)
            c->id[i] = ls_arena_strdup(&r->arena, id);
        if (!c->name[i] || (ids && !c->id[i]))
            return LS_FAILED;
    }
    return LS_OK;
}

static bool is_number(const char *text, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    return *text && !*end;
}

/* Shards with labels "01" and "02" have the classes 1 and 2. */
static bool is_same(const char *label, const char *name)
{
    int64_t a, b;
    return strcmp(label, name) == 0 || (is_number(label, &a) && is_number(name, &b) && a == b);
}

/* The line of class k of the shards: by position, or by id or name. -1: none. The search begins at line k. */
static int64_t line_of(const struct classes *c, const char *label, int64_t k, bool positions)
{
    int64_t number;
    if (positions && is_number(label, &number))
        return number >= 0 && number < c->count ? number : -1;
    for (int64_t n = 0; n < c->count; n++) {
        int64_t i = (k + n) % c->count;
        if (is_same(label, c->id ? c->id[i] : c->name[i]))
            return i;
    }
    return -1;
}

static enum ls_status relabel(struct ls_records *r, const char *path, const struct classes *c, bool positions)
{
    int32_t *line = ls_alloc((size_t)r->base.info.classes, sizeof *line);
    enum ls_status st = line ? LS_OK : LS_FAILED;
    for (int64_t k = 0; st == LS_OK && k < r->base.info.classes; k++)
        line[k] = (int32_t)line_of(c, r->class_names[k], k, positions);
    for (int64_t i = 0; st == LS_OK && i < r->base.info.count; i++) {
        int32_t found = line[r->entry[i].label];
        if (found < 0)
            st = ls_fail(LS_BAD_INPUT, "%s: %s: its class '%s' is not among the %" PRId64 " of %s",
                         r->shards[r->entry[i].shard].path, r->names + r->entry[i].name,
                         r->class_names[r->entry[i].label], c->count, path);
        r->entry[i].label = found;
    }
    ls_free(line);
    return st;
}

enum ls_status ls_records_name_classes(struct ls_records *r, bool positions)
{
    char path[PATH_MAX];
    struct ls_lines lines = {0};
    struct classes c = {0};
    if (!find_file(r, path))
        return LS_OK;
    LS_TRY(ls_lines_load(path, &lines));
    enum ls_status st = take_lines(r, path, &lines, &c);
    if (st == LS_OK)
        st = relabel(r, path, &c, positions);
    ls_lines_release(&lines);
    if (st != LS_OK) {
        ls_free(c.name);
        ls_free(c.id);
        return st;
    }
    ls_free(r->class_names);
    r->class_names = c.name;
    r->class_ids = c.id;
    r->base.info.classes = c.count;
    return LS_OK;
}
