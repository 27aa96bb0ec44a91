/* Tiny ImageNet as it is distributed: wnids.txt lists the classes, words.txt their English names. Training
 * images are in train/WNID/images, validation images in val/images, their classes in val/val_annotations.txt. */
#include "data/files/files.h"
#include "data/formats/formats.h"
#include "data/files/lines.h"
#include "base/files/file.h"
#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 64

static bool join(char path[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX && ls_file_exists(path);
}

static bool recognise(const char *spec)
{
    char path[PATH_MAX];
    return join(path, spec, "wnids.txt") && join(path, spec, "train") &&
           (join(path, spec, "val/val_annotations.txt") || join(path, spec, "val/images"));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the class of a wnid, or -1. */
static int32_t find(const struct ls_lines *wnids, const char *wnid)
{
    char **known = bsearch(&wnid, wnids->line, (size_t)wnids->count, sizeof *known, by_text);
    return known ? (int32_t)(known - wnids->line) : -1;
}

static enum ls_status load_wnids(const char *spec, struct ls_lines *wnids)
{
    char path[PATH_MAX];
    join(path, spec, "wnids.txt");
    LS_TRY(ls_lines_load(path, wnids));
    if (wnids->count == 0)
        return ls_fail(LS_BAD_INPUT, "%s: no class in it", path);
    qsort(wnids->line, (size_t)wnids->count, sizeof *wnids->line, by_text);
    for (int c = 1; c < wnids->count; c++)
        if (strcmp(wnids->line[c - 1], wnids->line[c]) == 0)
            return ls_fail(LS_BAD_INPUT, "%s: class %s is listed twice", path, wnids->line[c]);
    return LS_OK;
}

static enum ls_status keep_wnids(struct ls_files *f, const struct ls_lines *wnids)
{
    f->class_ids = ls_alloc((size_t)wnids->count, sizeof *f->class_ids);
    for (int c = 0; f->class_ids && c < wnids->count; c++)
        if (!(f->class_ids[c] = ls_arena_strdup(&f->arena, wnids->line[c])))
            return LS_FAILED;
    return f->class_ids ? LS_OK : LS_FAILED;
}

/* "n01443537<tab>goldfish, Carassius auratus"; a class without a name keeps its wnid. */
static enum ls_status name_classes(struct ls_files *f, const char *spec, const struct ls_lines *wnids)
{
    char path[PATH_MAX];
    struct ls_lines words = {0};
    f->class_names = ls_alloc((size_t)wnids->count, sizeof *f->class_names);
    if (!f->class_names)
        return LS_FAILED;
    if (join(path, spec, "words.txt"))
        LS_TRY(ls_lines_load(path, &words));
    for (int i = 0; i < words.count; i++) {
        char *rest = words.line[i];
        int32_t c = find(wnids, ls_lines_field(&rest));
        if (c >= 0 && rest)
            f->class_names[c] = ls_arena_strdup(&f->arena, rest);
    }
    ls_lines_release(&words);
    for (int c = 0; c < wnids->count; c++)
        if (!f->class_names[c] && !(f->class_names[c] = ls_arena_strdup(&f->arena, wnids->line[c])))
            return LS_FAILED;
    return LS_OK;
}

static enum ls_status add_training(struct ls_files *f, const char *spec, const struct ls_lines *wnids)
{
    for (int c = 0; c < wnids->count; c++) {
        int64_t added;
        const char *folder = ls_arena_format(&f->arena, "%s/train/%s", spec, wnids->line[c]);
        if (!folder)
            return LS_FAILED;
        LS_TRY(ls_files_add_tree(f, folder, c, &added));
        if (added == 0)
            ls_warn("%s: the class has no images", folder);
    }
    return f->base.info.count > 0 ? LS_OK : ls_fail(LS_BAD_INPUT, "%s/train: every class is empty", spec);
}

static enum ls_status add_annotated(struct ls_files *f, const char *spec, const struct ls_lines *wnids)
{
    char path[PATH_MAX];
    struct ls_lines lines = {0};
    const char *folder = ls_arena_format(&f->arena, "%s/val/images", spec);
    if (!folder || snprintf(path, sizeof path, "%s/val/val_annotations.txt", spec) >= (int)sizeof path)
        return LS_FAILED;
    LS_TRY(ls_lines_load(path, &lines));
    enum ls_status st = LS_OK;
    for (int i = 0; st == LS_OK && i < lines.count; i++) {
        char *rest = lines.line[i];
        char *name = ls_lines_field(&rest), *wnid = ls_lines_field(&rest);
        int32_t c = wnid ? find(wnids, wnid) : -1;
        if (c < 0 || strchr(name, '/'))
            st = ls_fail(LS_BAD_INPUT,
                         "%s: line %d: expected a file name, a tab and a class of wnids.txt, found '%s' '%s'", path,
                         i + 1, name, wnid ? wnid : "");
        else if (!(name = ls_arena_strdup(&f->arena, name)))
            st = LS_FAILED;
        else
            st = ls_files_add(f, folder, name, c);
    }
    if (st == LS_OK && lines.count == 0)
        st = ls_fail(LS_BAD_INPUT, "%s: the file is empty", path);
    ls_lines_release(&lines);
    return st;
}

static enum ls_status open_set(const char *spec, const char *part, struct ls_dataset **set)
{
    struct ls_files *f;
    struct ls_lines wnids = {0};
    enum ls_status st;
    LS_TRY(ls_files_new(&f));
    LS_TRY_GOTO(release_wnids, load_wnids(spec, &wnids));
    LS_TRY_GOTO(release_wnids, keep_wnids(f, &wnids));
    LS_TRY_GOTO(release_wnids, name_classes(f, spec, &wnids));
    if (strcmp(part, "test") == 0)
        st = add_annotated(f, spec, &wnids);
    else
        st = add_training(f, spec, &wnids);
release_wnids:
    if (st == LS_OK) {
        ls_files_describe(f, spec, wnids.count);
        f->base.info.height = f->base.info.width = SIDE;
        *set = &f->base;
    } else {
        ls_files_close(&f->base);
    }
    ls_lines_release(&wnids);
    return st;
}

const struct ls_dataset_ops ls_format_tiny_imagenet = {
    .format = "tiny-imagenet",
    .recognise = recognise,
    .open = open_set,
    .close = ls_files_close,
    .read = ls_files_read,
    .encoded = ls_files_encoded,
    .label = ls_files_label,
    .where = ls_files_where,
    .identify = ls_files_identify,
};
