#define _DEFAULT_SOURCE /* d_type */
#include "data/files/files.h"
#include "base/files/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 16
/* Folders above a class that a link is compared with. */
#define MAX_ABOVE 64

enum ls_status ls_files_new(struct ls_files **files)
{
    *files = ls_alloc(1, sizeof **files);
    return *files ? LS_OK : LS_FAILED;
}

void ls_files_close(struct ls_dataset *set)
{
    struct ls_files *f = (struct ls_files *)set;
    ls_arena_release(&f->arena);
    ls_free(f->entry);
    ls_free(f->class_names);
    ls_free(f->class_ids);
    ls_free(f);
}

enum ls_status ls_files_add(struct ls_files *f, const char *folder, const char *name, int32_t label)
{
    int64_t n = f->base.info.count;
    if (n == f->room) {
        int64_t room = n ? 2 * n : 1024;
        struct ls_file_entry *larger = ls_realloc(f->entry, (size_t)n, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        f->entry = larger;
        f->room = room;
    }
    f->entry[n] = (struct ls_file_entry){.folder = folder, .name = name, .label = label};
    f->base.info.count = n + 1;
    return LS_OK;
}

/* --- listing ------------------------------------------------------------------------------------------ */

struct list {
    const char **name; /* owned; the strings are in the arena */
    size_t count, room;
};

static enum ls_status list_add(struct list *list, struct ls_arena *arena, const char *name)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        const char **larger = ls_realloc(list->name, list->count, room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        list->name = larger;
        list->room = room;
    }
    list->name[list->count] = ls_arena_strdup(arena, name);
    return list->name[list->count++] ? LS_OK : LS_FAILED;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_sort(struct list *list)
{
    if (list->count > 1)
        qsort(list->name, list->count, sizeof *list->name, by_name);
}

/* Folders that archivers, file systems and network drives create. */
static bool is_litter(const char *name)
{
    static const char *const litter[] = {"__MACOSX", "__pycache__", "@eaDir", "lost+found", "$RECYCLE.BIN", NULL};
    for (const char *const *l = litter; *l; l++)
        if (strcmp(name, *l) == 0)
            return true;
    return name[0] == '.';
}

static bool is_folder(const char *path, const struct dirent *e)
{
    char full[PATH_MAX];
    if (e->d_type != DT_UNKNOWN && e->d_type != DT_LNK)
        return e->d_type == DT_DIR;
    return snprintf(full, sizeof full, "%s/%s", path, e->d_name) < (int)sizeof full && ls_file_is_dir(full);
}

/* Counts a file that is no sample and keeps the name of the first. */
static void note_left_out(struct ls_files *f, const char *path, const char *name)
{
    if (ls_image_by_name(name) == LS_NO_IMAGE && f->ignored++ == 0)
        f->ignored_name = ls_arena_format(&f->arena, "%s/%s", path, name);
    if (ls_image_by_name(name) == LS_IMAGE_UNREAD && f->other++ == 0)
        f->other_name = ls_arena_format(&f->arena, "%s/%s", path, name);
}

/* Lists the folders and image files in path; either list may be NULL. */
static enum ls_status list_folder(struct ls_files *f, const char *path, struct list *folders, struct list *images)
{
    DIR *dir = opendir(path);
    if (!dir)
        return ls_fail(LS_BAD_INPUT, "%s: the folder cannot be read: %s", path, strerror(errno));
    enum ls_status st = LS_OK;
    struct dirent *e;
    for (errno = 0; st == LS_OK && (e = readdir(dir)); errno = 0) {
        if (is_litter(e->d_name))
            continue;
        if (is_folder(path, e))
            st = folders ? list_add(folders, &f->arena, e->d_name) : LS_OK;
        else if (images && ls_image_by_name(e->d_name) == LS_IMAGE_READ)
            st = list_add(images, &f->arena, e->d_name);
        else if (images)
            note_left_out(f, path, e->d_name);
    }
    if (st == LS_OK && errno)
        st = ls_fail(LS_BAD_INPUT, "%s: the folder cannot be read: %s", path, strerror(errno));
    closedir(dir);
    if (folders)
        list_sort(folders);
    if (images)
        list_sort(images);
    return st;
}

/* A folder and the one above it, as the file system numbers them. */
struct level {
    dev_t device;
    ino_t number;
    const struct level *above; /* NULL: none */
};

/* Tests whether a symbolic link leads back to a folder on the way to it. */
static bool is_loop(const struct level *at)
{
    for (const struct level *l = at->above; l; l = l->above)
        if (l->number == at->number && l->device == at->device)
            return true;
    return false;
}

static enum ls_status add_tree(struct ls_files *f, const char *folder, int32_t label, int depth,
                               const struct level *above)
{
    struct list folders = {0}, images = {0};
    enum ls_status st;
    struct stat now = {0};
    if (stat(folder, &now) != 0)
        return ls_fail(LS_BAD_INPUT, "%s: the folder cannot be read: %s", folder, strerror(errno));
    struct level here = {now.st_dev, now.st_ino, above};
    if (is_loop(&here)) {
        ls_warn("%s: a link to a folder that it lies in, left out", folder);
        return LS_OK;
    }
    if (depth > MAX_DEPTH)
        return ls_fail(LS_BAD_INPUT, "%s: folders are nested more than %d deep", folder, MAX_DEPTH);
    LS_TRY_GOTO(free_lists, list_folder(f, folder, &folders, &images));
    for (size_t i = 0; i < images.count; i++)
        LS_TRY_GOTO(free_lists, ls_files_add(f, folder, images.name[i], label));
    for (size_t i = 0; i < folders.count; i++) {
        const char *inner = ls_arena_format(&f->arena, "%s/%s", folder, folders.name[i]);
        LS_TRY_GOTO(free_lists, inner ? add_tree(f, inner, label, depth + 1, &here) : LS_FAILED);
    }
free_lists:
    ls_free(folders.name);
    ls_free(images.name);
    return st;
}

/* Fills `levels` with the folders above `folder`, the innermost first. Returns their number. */
static int levels_above(const char *folder, struct level levels[MAX_ABOVE])
{
    char lexical[PATH_MAX], path[PATH_MAX];
    struct stat now;
    int n = 0;
    if (snprintf(lexical, sizeof lexical, "%s", folder) >= (int)sizeof lexical)
        return 0;
    char *slash = strrchr(lexical, '/');
    if (slash)
        slash[slash == lexical] = 0;
    if (!realpath(slash ? lexical : ".", path))
        return 0;
    for (bool root = false; n < MAX_ABOVE && !root && stat(path, &now) == 0; n++) {
        levels[n] = (struct level){.device = now.st_dev, .number = now.st_ino};
        if (n > 0)
            levels[n - 1].above = &levels[n];
        root = strcmp(path, "/") == 0;
        slash = strrchr(path, '/');
        slash[slash == path] = 0;
    }
    return n;
}

enum ls_status ls_files_add_tree(struct ls_files *f, const char *folder, int32_t label, int64_t *added)
{
    struct level above[MAX_ABOVE] = {0};
    int64_t before = f->base.info.count;
    LS_TRY(add_tree(f, folder, label, 0, levels_above(folder, above) > 0 ? above : NULL));
    *added = f->base.info.count - before;
    return LS_OK;
}

enum ls_status ls_files_look(struct ls_files *f, const char *path, struct ls_folder_content *content)
{
    struct list folders = {0}, images = {0};
    int64_t other = f->other, ignored = f->ignored;
    enum ls_status st = list_folder(f, path, &folders, &images);
    f->other = other;
    f->ignored = ignored;
    *content = (struct ls_folder_content){.folders = (int64_t)folders.count, .images = (int64_t)images.count};
    content->image = images.count > 0 ? images.name[0] : NULL;
    ls_free(folders.name);
    ls_free(images.name);
    return st;
}

enum ls_status ls_files_folders(struct ls_files *f, const char *path, const char ***names, int64_t *count)
{
    struct list folders = {0};
    enum ls_status st = list_folder(f, path, &folders, NULL);
    if (st != LS_OK) {
        ls_free(folders.name);
        return st;
    }
    *names = folders.name;
    *count = (int64_t)folders.count;
    return LS_OK;
}

static void tell_left_out(const struct ls_files *f, const char *path)
{
    const char *dot = f->other_name ? strrchr(f->other_name, '.') : NULL, *needs = dot ? ls_image_needs(dot + 1) : "";
    if (f->other)
        ls_warn("%s: %lld image files are left out, only %s are read (the first: %s%s%s)", path, (long long)f->other,
                ls_image_kinds(), f->other_name ? f->other_name : "", *needs ? "; " : "", needs);
}

void ls_files_describe(struct ls_files *f, const char *path, int64_t classes)
{
    f->base.info = (struct ls_dataset_info){
        .count = f->base.info.count,
        .classes = classes,
        .class_names = f->class_names,
        .class_ids = f->class_ids,
        .ignored = f->ignored,
        .ignored_name = f->ignored_name,
    };
    ls_dataset_photographs(&f->base.info);
    f->root = strlen(path);
    tell_left_out(f, path);
}

/* --- reading ------------------------------------------------------------------------------------------ */

enum ls_status ls_files_read(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                             int32_t *label)
{
    const struct ls_file_entry *e = &((struct ls_files *)set)->entry[i];
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", e->folder, e->name) >= (int)sizeof path)
        return ls_image_refuse(image, "the path is too long");
    LS_TRY(ls_image_load(path, view, 3, image));
    *label = e->label;
    return LS_OK;
}

enum ls_status ls_files_encoded(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                                size_t *size)
{
    const struct ls_file_entry *e = &((struct ls_files *)set)->entry[i];
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", e->folder, e->name) >= (int)sizeof path)
        return ls_image_refuse(image, "the path is too long");
    LS_TRY(ls_image_fetch_file(path, image, size));
    *bytes = image->side;
    return LS_OK;
}

int32_t ls_files_label(const struct ls_dataset *set, int64_t i)
{
    return ((const struct ls_files *)set)->entry[i].label;
}

void ls_files_where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    const struct ls_file_entry *e = &((const struct ls_files *)set)->entry[i];
    snprintf(text, room, "%s/%s", e->folder, e->name);
}

void ls_files_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id)
{
    const struct ls_files *f = (const struct ls_files *)set;
    id->folder = f->entry[i].folder + f->root;
    id->folder += strspn(id->folder, "/");
    id->name = f->entry[i].name;
}
