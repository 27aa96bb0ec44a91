#include "data/dataset.h"
#include "data/formats/formats.h"
#include "data/files/layout.h"
#include "base/files/file.h"
#include "config/downloads.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define MAX_LEVELS 8

/* Returns the first format that recognises the path, or NULL. */
static const struct ls_dataset_ops *format_of(const char *path)
{
    for (const struct ls_dataset_ops *const *f = ls_dataset_formats; *f; f++)
        if ((*f)->recognise(path))
            return *f;
    return NULL;
}

/* Like format_of, but descends while the path contains only one folder. The path then becomes that folder and *down is
 * true. */
static const struct ls_dataset_ops *find_format(char path[PATH_MAX], bool *down)
{
    const struct ls_dataset_ops *format = format_of(path);
    char inner[PATH_MAX];
    *down = false;
    for (int level = 0; level < MAX_LEVELS && format == &ls_format_folder && ls_layout_inner(path, inner); level++) {
        memcpy(path, inner, PATH_MAX);
        format = format_of(path);
        *down = true;
    }
    return format;
}

void ls_dataset_warn_inner(const struct ls_dataset *set, const char *spec)
{
    if (set->inner)
        ls_warn("%s: nothing in it but a folder: %s is taken instead", spec, set->inner);
}

/* Replaces the name of a data set that was fetched by its path. A file or folder of that name comes first. */
static void use_fetched(char path[PATH_MAX])
{
    char fetched[PATH_MAX];
    const struct ls_download *set = ls_file_exists(path) ? NULL : ls_download_find(path);
    if (set && strcmp(path, "mnist") != 0 && ls_download_path(set, fetched) && ls_file_is_dir(fetched))
        memcpy(path, fetched, PATH_MAX);
}

enum ls_status ls_dataset_open(const char *spec, const char *part, struct ls_dataset **set)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s", spec) >= (int)sizeof path)
        return ls_fail(LS_USAGE, "%s: the path is too long", spec);
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--)
        path[end - 1] = 0;
    bool down;
    use_fetched(path);
    const struct ls_dataset_ops *format = find_format(path, &down);
    if (format) {
        struct ls_dataset *opened;
        char *inner = down ? ls_strdup(path) : NULL;
        enum ls_status st = !down || inner ? format->open(path, part, &opened) : LS_FAILED;
        if (st != LS_OK) {
            ls_free(inner);
            return st;
        }
        opened->ops = format;
        opened->info.format = format->format;
        opened->inner = inner;
        pthread_mutex_init(&opened->bad.lock, NULL);
        *set = opened;
        return LS_OK;
    }
    if (ls_file_exists(spec))
        return ls_fail(LS_BAD_INPUT,
                       "%s: no known data set: expected a folder with IDX files, CIFAR .bin files, or a folder of "
                       "images for each class, or a list of images (LIST.txt)",
                       spec);
    const struct ls_download *known = ls_download_find(spec);
    if (known)
        return ls_fail(LS_BAD_INPUT,
                       "%s: no such folder, and the data set was not fetched yet; type: lockstep data fetch %s", spec,
                       known->name);
    return ls_fail(LS_BAD_INPUT,
                   "%s: no such folder, and no data set of that name: --data takes mnist, "
                   "synthetic:CxHxW:CLASSES, the name of a data set that was fetched, or a path",
                   spec);
}

void ls_dataset_close(struct ls_dataset *set)
{
    if (!set)
        return;
    ls_decoding_report(&set->decoding);
    ls_free(set->inner);
    ls_free(set->relabel);
    ls_free(set->bad.list);
    pthread_mutex_destroy(&set->bad.lock);
    set->ops->close(set);
}

void ls_dataset_photographs(struct ls_dataset_info *info)
{
    info->channels = 3;
    memcpy(info->mean, (float[4]){0.485f, 0.456f, 0.406f}, sizeof info->mean);
    memcpy(info->deviation, (float[4]){0.229f, 0.224f, 0.225f}, sizeof info->deviation);
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
    if (st == LS_OK && set->relabel)
        *label = set->relabel[*label];
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

enum ls_status ls_dataset_encoded(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                                  size_t *size)
{
    *bytes = NULL;
    *size = 0;
    if (i < 0 || i >= set->info.count)
        return ls_image_refuse(image, "there are only %lld samples", (long long)set->info.count);
    return set->ops->encoded ? set->ops->encoded(set, i, image, bytes, size) : LS_OK;
}

int32_t ls_dataset_label(const struct ls_dataset *set, int64_t i)
{
    int32_t label = set->ops->label(set, i);
    return set->relabel ? set->relabel[label] : label;
}

void ls_dataset_where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    if (i >= 0 && i < set->info.count)
        set->ops->where(set, i, text, room);
    else
        snprintf(text, room, "sample %lld", (long long)i);
}

bool ls_dataset_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id)
{
    *id = (struct ls_identity){0};
    if (!set->ops->identify || i < 0 || i >= set->info.count)
        return false;
    set->ops->identify(set, i, id);
    return true;
}

int32_t ls_dataset_own_class(const struct ls_dataset *set, int64_t i)
{
    return set->ops->label(set, i);
}
