/* Folders of images: DIR/train/CLASS/... with DIR/val/CLASS/... (or test), or DIR/CLASS/... alone. Classes
 * are the sorted names of the folders, as everywhere; those of train hold for both parts. */
#include "data/files.h"
#include "data/formats.h"
#include "base/file.h"
#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool join(char path[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX && ls_file_is_dir(path);
}

static bool recognise(const char *spec)
{
    return ls_file_is_dir(spec);
}

/* Where the classes are defined, and where the part's images lie. */
static enum ls_status find_part(const char *spec, const char *part, char classes[PATH_MAX], char images[PATH_MAX])
{
    bool test = strcmp(part, "test") == 0;
    if (!join(classes, spec, "train")) {
        if (snprintf(classes, PATH_MAX, "%s", spec) >= PATH_MAX)
            return ls_fail(LS_USAGE, "%s: the path is too long", spec);
        if (test)
            ls_warn("%s: no train and val folders in it: all of its images are evaluated", spec);
        memcpy(images, classes, PATH_MAX);
        return LS_OK;
    }
    if (!test)
        memcpy(images, classes, PATH_MAX);
    else if (!join(images, spec, "val") && !join(images, spec, "test") && !join(images, spec, "validation"))
        return ls_fail(LS_BAD_INPUT,
                       "%s: there is a train folder but no val or test folder: give other images with --eval-data, or "
                       "train without evaluation",
                       spec);
    return LS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum ls_status add_classes(struct ls_files *f, const char *classes_in, int64_t classes, const char *images)
{
    const char **found;
    int64_t count, added;
    enum ls_status st = LS_OK;
    LS_TRY(ls_files_folders(f, images, &found, &count));
    if (count == 0)
        st = ls_fail(LS_BAD_INPUT, "%s: no folders in it: expected one for each class", images);
    for (int64_t i = 0; st == LS_OK && i < count; i++) {
        const char **known = bsearch(&found[i], f->class_names, (size_t)classes, sizeof *known, by_name);
        const char *folder = ls_arena_format(&f->arena, "%s/%s", images, found[i]);
        if (!folder)
            st = LS_FAILED;
        else if (!known)
            st = ls_fail(LS_BAD_INPUT, "%s: a class that %s does not have", folder, classes_in);
        else
            st = ls_files_add_tree(f, folder, (int32_t)(known - f->class_names), &added);
        if (st == LS_OK && added == 0)
            st = ls_fail(LS_BAD_INPUT, "%s: the class is empty: no jpg, jpeg, png, ppm or bmp file in it", folder);
    }
    ls_free(found);
    return st;
}

static enum ls_status open_folder(const char *spec, const char *part, struct ls_dataset **set)
{
    char classes_in[PATH_MAX], images[PATH_MAX];
    struct ls_files *f;
    int64_t classes = 0;
    enum ls_status st;
    LS_TRY(find_part(spec, part, classes_in, images));
    LS_TRY(ls_files_new(&f));
    LS_TRY_GOTO(close_set, ls_files_folders(f, classes_in, &f->class_names, &classes));
    LS_TRY_GOTO(close_set, add_classes(f, classes_in, classes, images));
    ls_files_describe(f, spec, classes);
    *set = &f->base;
    return LS_OK;
close_set:
    ls_files_close(&f->base);
    return st;
}

const struct ls_dataset_ops ls_format_folder = {
    .format = "folder",
    .recognise = recognise,
    .open = open_folder,
    .close = ls_files_close,
    .read = ls_files_read,
    .label = ls_files_label,
    .where = ls_files_where,
};
