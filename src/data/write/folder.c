/* Writes image folders: PART/CLASS/FILE. A sample whose path begins with its class keeps the path; others get their number as
 * name. Files are not synced one by one. */
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/write/writers.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

struct folder {
    struct ls_writer base;
    struct ls_write_plan plan;
};

/* The name of a class folder: its id, or else its name, or else its number with leading zeros. */
static void class_name(const struct ls_dataset_info *info, int64_t c, char *name, size_t room)
{
    int digits = snprintf(NULL, 0, "%" PRId64, info->classes - 1);
    if (info->class_ids || info->class_names)
        snprintf(name, room, "%s", info->class_ids ? info->class_ids[c] : info->class_names[c]);
    else
        snprintf(name, room, "%0*" PRId64, digits, c);
    for (char *slash = strchr(name, '/'); slash; slash = strchr(slash, '/'))
        *slash = '_';
}

static enum ls_status make_classes(const struct ls_write_plan *plan)
{
    char name[NAME_MAX + 1], before[NAME_MAX + 1] = "";
    bool sorted = true;
    for (int64_t c = 0; c < plan->info->classes; c++) {
        char path[PATH_MAX];
        class_name(plan->info, c, name, sizeof name);
        if (!*name || *name == '.' || strlen(name) == NAME_MAX)
            return ls_fail(LS_BAD_INPUT, "class %" PRId64 " is named '%s', which cannot be the name of a folder", c,
                           name);
        if (snprintf(path, sizeof path, "%s/%s%s%s", plan->folder, plan->part, *plan->part ? "/" : "", name) >=
            (int)sizeof path)
            return ls_fail(LS_FAILED, "%s: the path is too long", plan->folder);
        if (mkdir(path, 0777) != 0)
            return errno == EEXIST ? ls_fail(LS_BAD_INPUT, "two classes would have the folder '%s'", name)
                                   : ls_fail(LS_FAILED, "%s: the folder cannot be created: %s", path, strerror(errno));
        sorted = sorted && strcmp(before, name) < 0;
        memcpy(before, name, sizeof before);
    }
    if (!sorted && strcmp(plan->part, "val") != 0)
        ls_warn("folders sort classes by name: the classes get other numbers than they have in the source");
    return LS_OK;
}

static enum ls_status open_folder(const struct ls_write_plan *plan, struct ls_writer **w)
{
    struct folder *f = ls_alloc(1, sizeof *f);
    char path[PATH_MAX];
    if (!f)
        return LS_FAILED;
    f->plan = *plan;
    *w = &f->base;
    if (snprintf(path, sizeof path, "%s/%s", plan->folder, plan->part) >= (int)sizeof path)
        return ls_fail(LS_FAILED, "%s: the path is too long", plan->folder);
    LS_TRY(ls_dir_make(path));
    return make_classes(plan);
}

/* Returns the path of a file below its class, or NULL: it has none. */
static const char *below_class(const char *path, const char *class)
{
    size_t n = strlen(class);
    return strncmp(path, class, n) == 0 && path[n] == '/' && path[n + 1] ? path + n + 1 : NULL;
}

/* Writes the path of the file without its extension. *ending: the extension in the source if it is right for the contents. */
static void choose_path(const struct ls_write_sample *s, const char *class, char path[PATH_MAX], char ending[16])
{
    char source[PATH_MAX];
    snprintf(source, sizeof source, "%s/%s", s->folder ? s->folder : "", s->name ? s->name : "");
    const char *below = s->name ? below_class(source, class) : NULL;
    if (!below && s->name)
        below = below_class(s->name, class);
    snprintf(ending, 16, "%s", s->extension);
    if (!below) {
        snprintf(path, PATH_MAX, "%08" PRId64, s->number);
        return;
    }
    snprintf(path, PATH_MAX, "%s", below);
    char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    if (!dot || (slash && dot < slash) || ls_image_by_name(path) == LS_NO_IMAGE)
        return;
    bool jpeg = strcmp(s->extension, "jpg") == 0 && strcasecmp(dot + 1, "jpeg") == 0;
    if (jpeg || strcasecmp(dot + 1, s->extension) == 0)
        snprintf(ending, 16, "%s", dot + 1);
    *dot = 0;
}

/* Makes the folders between a class and its file. */
static enum ls_status make_above(char *path, size_t class_end)
{
    for (char *slash = strchr(path + class_end + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool failed = mkdir(path, 0777) != 0 && errno != EEXIST;
        enum ls_status st =
            failed ? ls_fail(LS_FAILED, "%s: the folder cannot be created: %s", path, strerror(errno)) : LS_OK;
        *slash = '/';
        LS_TRY(st);
    }
    return LS_OK;
}

static enum ls_status put(struct ls_writer *w, const struct ls_write_sample *s)
{
    const struct ls_write_plan *plan = &((struct folder *)w)->plan;
    char class[NAME_MAX + 1], name[PATH_MAX], path[2 * PATH_MAX], ending[16], *file;
    class_name(plan->info, s->label, class, sizeof class);
    choose_path(s, class, name, ending);
    int above = snprintf(path, sizeof path, "%s/%s%s%s", plan->folder, plan->part, *plan->part ? "/" : "", class);
    snprintf(path + above, sizeof path - (size_t)above, "/%s.%s", name, ending);
    LS_TRY(make_above(path, (size_t)above));
    if (ls_file_exists(path)) /* 1.png and 1.jpg have both become 1.jpg */
        file = ls_format("%.*s/%s-%08" PRId64 ".%s", above, path, name, s->number, ending);
    else
        file = ls_strdup(path);
    struct ls_out out;
    enum ls_status st = ls_out_open(&out, file);
    if (st == LS_OK)
        st = ls_out_put(&out, s->bytes, s->size);
    if (st == LS_OK && fflush(out.file) != 0)
        st = ls_fail(LS_FAILED, "%s: writing failed: %s", file, strerror(errno));
    ls_out_release(&out);
    return st;
}

static enum ls_status finish(struct ls_writer *w)
{
    (void)w;
    return LS_OK;
}

static void close_folder(struct ls_writer *w)
{
    ls_free(w);
}

const struct ls_writer_ops ls_writer_folder = {
    .name = "folder",
    .open = open_folder,
    .put = put,
    .finish = finish,
    .close = close_folder,
};
