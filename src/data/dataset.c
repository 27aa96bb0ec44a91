#include "data/dataset.h"
#include "base/file.h"
#include "base/log.h"

#include <stdio.h>

enum ls_status ls_dataset_open(const char *spec, const char *part, struct ls_dataset **set)
{
    for (const struct ls_dataset_ops *const *f = ls_dataset_formats; *f; f++) {
        if (!(*f)->recognise(spec))
            continue;
        struct ls_dataset *opened;
        LS_TRY((*f)->open(spec, part, &opened));
        opened->ops = *f;
        opened->info.format = (*f)->format;
        *set = opened;
        return LS_OK;
    }
    if (ls_file_exists(spec))
        return ls_fail(LS_BAD_INPUT,
                       "%s: no known data set: expected a folder with IDX files, CIFAR .bin files, or a folder of "
                       "images for each class",
                       spec);
    return ls_fail(LS_BAD_INPUT,
                   "%s: no such folder, and no data set of that name: --data takes mnist, "
                   "synthetic:CxHxW:CLASSES or a path",
                   spec);
}

void ls_dataset_close(struct ls_dataset *set)
{
    if (!set)
        return;
    ls_decoding_report(&set->decoding);
    set->ops->close(set);
}

const struct ls_dataset_info *ls_dataset_info(const struct ls_dataset *set)
{
    return &set->info;
}

enum ls_status ls_dataset_try(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                              int32_t *label)
{
    image->cropped = false;
    if (i < 0 || i >= set->info.count)
        return ls_image_refuse(image, "there are only %lld samples", (long long)set->info.count);
    image->decoding = set->decoding.ops ? &set->decoding : NULL;
    enum ls_status st = set->ops->read(set, i, view, image, label);
    image->decoding = NULL;
    return st;
}

enum ls_status ls_dataset_read(struct ls_dataset *set, int64_t i, int min_side, struct ls_image *image, int32_t *label)
{
    struct ls_view view = {.min_side = min_side};
    enum ls_status st = ls_dataset_try(set, i, &view, image, label);
    if (st != LS_OK) {
        char where[512];
        ls_dataset_where(set, i, where, sizeof where);
        return ls_fail(st, "%s: %s", where, image->why);
    }
    return LS_OK;
}

int32_t ls_dataset_label(const struct ls_dataset *set, int64_t i)
{
    return set->ops->label(set, i);
}

void ls_dataset_where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    if (i >= 0 && i < set->info.count)
        set->ops->where(set, i, text, room);
    else
        snprintf(text, room, "sample %lld", (long long)i);
}
