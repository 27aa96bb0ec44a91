/* Folders of images: DIR/train/CLASS/... with DIR/val/CLASS/... (layout.h has the other names), or DIR/CLASS/... alone. A
 * DIR/val without class folders has a label file (flat_part.h).
 * Classes are the sorted names of the folders; both parts use those of train. A class without images stays a class, so that
 * class numbers do not depend on the contents of the folders. */
#include "data/files/flat_part.h"
#include "data/files/layout.h"
#include "data/formats/formats.h"
#include "base/files/file.h"
#include "base/log.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of empty classes listed in a message. */
#define NAMED 5

static bool recognise(const char *spec)
{
    return ls_file_is_dir(spec);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Unusual properties of the folders of a part that are no errors. */
struct oddities {
    int64_t empty;    /* number of classes without images */
    char names[400];  /* of the first of them */
    bool nested;      /* every class has images in several subfolders, and none directly */
    const char *deep; /* one of those subfolders */
    const char *set;  /* a class folder that contains a folder named like a part; NULL: none */
};

static void note_empty(struct oddities *odd, const char *name)
{
    size_t used = strlen(odd->names);
    if (odd->empty++ < NAMED)
        snprintf(odd->names + used, sizeof odd->names - used, "%s%.60s", used ? ", " : "", name);
}

/* Tests whether the path contains the folder of a part directly below `folder`. */
static bool through_part(const char *path, const char *folder)
{
    char name[NAME_MAX + 1];
    size_t above = strlen(folder);
    if (strlen(path) <= above + 1)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(path + above + 1, "/"), path + above + 1);
    return ls_layout_is_part(name);
}

/* Inspects the images of one class: entries first .. count-1. */
static void note_class(struct oddities *odd, const struct ls_files *f, int64_t first, const char *folder,
                       const char *name)
{
    if (first == f->base.info.count) {
        note_empty(odd, name);
        return;
    }
    const struct ls_file_entry *e = &f->entry[first], *last = &f->entry[f->base.info.count - 1];
    if (e->folder == folder || e->folder == last->folder)
        odd->nested = false;
    else
        odd->deep = e->folder;
    if (through_part(e->folder, folder) || through_part(last->folder, folder))
        odd->set = folder;
}

/* The error for a path without folders. */
static enum ls_status refuse_bare(struct ls_files *f, const char *images)
{
    struct ls_folder_content content;
    LS_TRY(ls_files_look(f, images, &content));
    return ls_fail(LS_BAD_INPUT, "%s: no folders in it: expected one for each class, with its images in it%s", images,
                   content.images > 0 ? "; if this is one class, give the folder above it" : "");
}

static enum ls_status add_classes(struct ls_files *f, const char *classes_in, int64_t classes, const char *images,
                                  struct oddities *odd)
{
    const char **found;
    int64_t count, added;
    enum ls_status st = LS_OK;
    LS_TRY(ls_files_folders(f, images, &found, &count));
    if (count == 0)
        st = refuse_bare(f, images);
    for (int64_t i = 0; st == LS_OK && i < count; i++) {
        const char **known = bsearch(&found[i], f->class_names, (size_t)classes, sizeof *known, by_name);
        const char *folder = ls_arena_format(&f->arena, "%s/%s", images, found[i]);
        if (!folder)
            st = LS_FAILED;
        else if (!known)
            st = ls_fail(LS_BAD_INPUT, "%s: a class that %s does not have", folder, classes_in);
        else
            st = ls_files_add_tree(f, folder, (int32_t)(known - f->class_names), &added);
        if (st == LS_OK)
            note_class(odd, f, f->base.info.count - added, folder, found[i]);
    }
    ls_free(found);
    if (st == LS_OK && f->base.info.count == 0)
        st = ls_fail(LS_BAD_INPUT, "%s: every class is empty: no image file (%s) in any of the %" PRId64, images,
                     ls_image_kinds(), count);
    return st;
}

/* Reported once if both parts have the same images. */
static enum ls_status tell_oddities(struct ls_files *f, const struct ls_layout *l, int64_t classes, bool train,
                                    const struct oddities *odd)
{
    struct ls_folder_content content;
    LS_TRY(ls_files_look(f, l->images, &content));
    if (odd->empty > 0)
        ls_warn("%s: %" PRId64 " of the classes ha%s no images: %s%s", l->images, odd->empty,
                odd->empty == 1 ? "s" : "ve", odd->names, odd->empty > NAMED ? " ..." : "");
    if (content.images > 0)
        ls_warn("%s: %" PRId64 " image%s beside the folders of the classes, left out (the first: %s)", l->images,
                content.images, content.images == 1 ? " lies" : "s lie", content.image);
    if (train && odd->set)
        ls_warn("%s: the class folder %s holds folders named like parts of a data set: if it is one, give --data %s",
                l->images, odd->set, odd->set);
    else if (train && classes - odd->empty == 1)
        ls_warn("%s: there are images of one class only, %s, so every answer will be right: give the folder that holds "
                "the folders of all classes",
                l->images, f->class_names[ls_files_label(&f->base, 0)]);
    else if (train && odd->nested)
        ls_warn(
            "%s: all images lie in folders of the classes' folders, such as %s: if those are the classes, give one level "
            "deeper",
            l->images, odd->deep);
    return LS_OK;
}

static enum ls_status fill(struct ls_files *f, const char *spec, const char *part)
{
    struct ls_layout l;
    struct oddities odd = {.nested = true};
    int64_t classes = 0;
    bool test = strcmp(part, "test") == 0;
    LS_TRY(ls_layout_find(f, spec, part, &l));
    LS_TRY(ls_files_folders(f, l.classes, &f->class_names, &classes));
    LS_TRY(l.labels[0] ? ls_flat_part_add(f, &l, classes) : add_classes(f, l.classes, classes, l.images, &odd));
    if (!l.labels[0] && (!test || !l.plain))
        LS_TRY(tell_oddities(f, &l, classes, !test, &odd));
    ls_files_describe(f, l.images, classes);
    f->base.info.whole = l.plain;
    f->base.info.folder = ls_arena_strdup(&f->arena, l.images);
    return f->base.info.folder ? LS_OK : LS_FAILED;
}

static enum ls_status open_folder(const char *spec, const char *part, struct ls_dataset **set)
{
    struct ls_files *f;
    LS_TRY(ls_files_new(&f));
    enum ls_status st = fill(f, spec, part);
    if (st == LS_OK)
        *set = &f->base;
    else
        ls_files_close(&f->base);
    return st;
}

const struct ls_dataset_ops ls_format_folder = {
    .format = "folder",
    .recognise = recognise,
    .open = open_folder,
    .close = ls_files_close,
    .read = ls_files_read,
    .encoded = ls_files_encoded,
    .label = ls_files_label,
    .where = ls_files_where,
    .identify = ls_files_identify,
};
