/* Packed files (packed.h): `lockstep data convert` writes them. The pixels of a sample are given to the loader where they lie.
 * The checksum of a sample is compared when this process reads it for the first time. */
#define _GNU_SOURCE
#include "data/formats/packed.h"
#include "base/files/crc32c.h"
#include "base/files/mapped.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "base/text/text.h"
#include "data/formats/formats.h"
#include "data/records/records.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_CLASSES 10000000 /* as --classes */

struct packed {
    struct ls_dataset base;
    struct ls_mapped file;
    struct ls_packed_view view;
    char *path;                            /* owned */
    const char **class_names, **class_ids; /* owned arrays, or NULL; the texts are in the file */
    atomic_uchar *checked;                 /* owned; 1: the checksum of that sample was right */
};

static const struct packed *packed_of(const struct ls_dataset *set)
{
    return (const struct packed *)set;
}

/* --- head and index --------------------------------------------------------------------------------------------------- */

void ls_packed_seal(struct ls_packed_head *head, const void *index, size_t index_bytes)
{
    head->index_crc = ls_crc32c(index, index_bytes);
    head->head_crc = 0;
    head->head_crc = ls_crc32c(head, sizeof *head);
}

static bool has_numbers(const struct ls_packed_head *h)
{
    bool size = (h->height == 0 && h->width == 0) ||
                (h->height > 0 && h->width > 0 && h->height <= LS_IMAGE_MAX_SIDE && h->width <= LS_IMAGE_MAX_SIDE);
    if ((h->channels != 1 && h->channels != 3) || !size || h->has_names > 1 || h->has_ids > h->has_names)
        return false;
    for (int c = 0; c < h->channels; c++)
        if (!isfinite(h->mean[c]) || !isfinite(h->deviation[c]) || h->deviation[c] <= 0)
            return false;
    return true;
}

static enum ls_status check_head(const uint8_t *bytes, size_t size, const char *path, struct ls_packed_head *h)
{
    if (size < sizeof *h || memcmp(bytes, LS_PACKED_MAGIC, 8) != 0)
        return ls_fail(LS_BAD_INPUT, "%s: not a packed file: expected %s at its start", path, LS_PACKED_MAGIC);
    memcpy(h, bytes, sizeof *h);
    uint32_t crc = h->head_crc;
    h->head_crc = 0;
    if (h->version != LS_PACKED_VERSION)
        return ls_fail(LS_BAD_INPUT, "%s: version %" PRIu32 " of the packed format; this program reads version %d",
                       path, h->version, LS_PACKED_VERSION);
    if (ls_crc32c(h, sizeof *h) != crc)
        return ls_fail(LS_BAD_INPUT, "%s: the checksum of its head (bytes 0 to 255) is wrong: the file is damaged",
                       path);
    h->head_crc = crc;
    if (h->samples == 0 || h->samples > size || h->classes == 0 || h->classes > MAX_CLASSES || h->index < sizeof *h ||
        h->index > INT64_MAX || h->index % 8 || h->name_bytes < 2 || h->name_bytes > INT64_MAX / 4 ||
        h->class_bytes > INT64_MAX / 4 || !has_numbers(h))
        return ls_fail(LS_BAD_INPUT, "%s: its head makes no sense: the file is damaged", path);
    uint64_t whole = h->index + h->samples * sizeof(struct ls_packed_entry) + h->name_bytes + h->class_bytes;
    if (whole != size)
        return ls_fail(LS_BAD_INPUT, "%s: expected %" PRIu64 " bytes, found %zu: the file is %s", path, whole, size,
                       size < whole ? "cut off" : "longer than it should be");
    return LS_OK;
}

static enum ls_status check_entry(const struct ls_packed_view *v, uint64_t i, const char *path)
{
    const struct ls_packed_entry *e = &v->entry[i];
    const struct ls_packed_head *h = &v->head;
    bool inside = e->offset >= sizeof *h && e->offset <= h->index && e->bytes <= h->index - e->offset &&
                  e->name < h->name_bytes - 1 && e->label >= 0 && (uint64_t)e->label < h->classes;
    bool pixels = (e->channels == 1 || e->channels == 3) && e->height > 0 && e->width > 0 &&
                  (int64_t)e->height * e->width <= LS_IMAGE_MAX_PIXELS &&
                  (uint64_t)e->channels * e->height * e->width == e->bytes;
    if (inside && (e->channels == 0 || pixels))
        return LS_OK;
    return ls_fail(LS_BAD_INPUT, "%s: at byte %" PRIu64 ": the entry of sample %" PRIu64 " makes no sense", path,
                   h->index + i * sizeof *e, i);
}

enum ls_status ls_packed_parse(const uint8_t *bytes, size_t size, const char *path, struct ls_packed_view *v)
{
    LS_TRY(check_head(bytes, size, path, &v->head));
    const struct ls_packed_head *h = &v->head;
    if (ls_crc32c(bytes + h->index, size - h->index) != h->index_crc)
        return ls_fail(LS_BAD_INPUT, "%s: at byte %" PRIu64 ": the checksum of the index is wrong: the file is damaged",
                       path, h->index);
    v->entry = (const struct ls_packed_entry *)(const void *)(bytes + h->index);
    v->names = (const char *)(v->entry + h->samples);
    v->class_names = v->names + h->name_bytes;
    for (uint64_t i = 0; i < h->samples; i++)
        LS_TRY(check_entry(v, i, path));
    uint64_t texts = 0;
    for (uint64_t b = 0; b < h->class_bytes; b++)
        texts += v->class_names[b] == 0;
    if (v->names[h->name_bytes - 1] != 0 || v->names[h->name_bytes - 2] != 0 ||
        (h->class_bytes > 0 && v->class_names[h->class_bytes - 1] != 0) ||
        texts != h->classes * (h->has_names + h->has_ids))
        return ls_fail(LS_BAD_INPUT, "%s: its names make no sense: the file is damaged", path);
    return LS_OK;
}

/* --- opening ---------------------------------------------------------------------------------------------------------- */

static bool is_packed(const char *name)
{
    return ls_ends_in(name, ".packed");
}

static bool recognise(const char *spec)
{
    static const struct ls_record_format packed = {.what = "packed", .is_shard = is_packed};
    return ls_records_recognise(spec, &packed);
}

static enum ls_status find_file(struct packed *p, const char *spec, bool test)
{
    char **paths;
    int count;
    enum ls_status st = LS_OK;
    LS_TRY(ls_shards_find(spec, test, is_packed, &paths, &count, &p->base.info.whole));
    if (count != 1)
        st = ls_fail(LS_BAD_INPUT, "%s: %d packed files for %s; expected one: give its path", spec, count,
                     test ? "validation" : "training");
    else
        p->path = ls_strdup(paths[0]);
    ls_shards_free(paths, count);
    return st == LS_OK && !p->path ? LS_FAILED : st;
}

static enum ls_status list_texts(const char **at, uint64_t count, const char ***list)
{
    *list = ls_alloc(count, sizeof **list);
    if (!*list)
        return LS_FAILED;
    for (uint64_t c = 0; c < count; c++, *at += strlen(*at) + 1)
        (*list)[c] = *at;
    return LS_OK;
}

static enum ls_status fill(struct packed *p, const char *spec, const char *part)
{
    char why[LS_FILE_WHY];
    struct ls_dataset_info *info = &p->base.info;
    const struct ls_packed_head *h = &p->view.head;
    LS_TRY(find_file(p, spec, strcmp(part, "test") == 0));
    if (!ls_mapped_open(&p->file, p->path, why))
        return ls_fail(LS_BAD_INPUT, "%s: %s", p->path, why);
    LS_TRY(ls_packed_parse(p->file.bytes, p->file.size, p->path, &p->view));
    const char *at = p->view.class_names;
    if (h->has_names)
        LS_TRY(list_texts(&at, h->classes, &p->class_names));
    if (h->has_ids)
        LS_TRY(list_texts(&at, h->classes, &p->class_ids));
    p->checked = ls_alloc(h->samples, sizeof *p->checked);
    info->count = (int64_t)h->samples;
    info->classes = (int64_t)h->classes;
    info->channels = h->channels;
    info->height = h->height;
    info->width = h->width;
    info->class_names = p->class_names;
    info->class_ids = p->class_ids;
    info->folder = p->path;
    memcpy(info->mean, h->mean, sizeof info->mean);
    memcpy(info->deviation, h->deviation, sizeof info->deviation);
    return p->checked ? LS_OK : LS_FAILED;
}

static void close_packed(struct ls_dataset *set)
{
    struct packed *p = (struct packed *)set;
    ls_mapped_release(&p->file);
    ls_free(p->path);
    ls_free(p->class_names);
    ls_free(p->class_ids);
    ls_free(p->checked);
    ls_free(p);
}

static enum ls_status open_packed(const char *spec, const char *part, struct ls_dataset **set)
{
    struct packed *p = ls_alloc(1, sizeof *p);
    enum ls_status st = p ? fill(p, spec, part) : LS_FAILED;
    if (st == LS_OK)
        *set = &p->base;
    else if (p)
        close_packed(&p->base);
    return st;
}

/* --- reading ---------------------------------------------------------------------------------------------------------- */

/* Waits for the bytes of a sample from offset `first` on, all of them at the first time, and compares its checksum then. */
static enum ls_status wait_for(struct packed *p, int64_t i, size_t first, size_t bytes, struct ls_image *image)
{
    const struct ls_packed_entry *e = &p->view.entry[i];
    bool checked = atomic_load_explicit(&p->checked[i], memory_order_relaxed);
    double start = ls_now();
    bool there =
        checked ? ls_mapped_wait(&p->file, e->offset + first, bytes) : ls_mapped_wait(&p->file, e->offset, e->bytes);
    double seconds = ls_now() - start;
    if (seconds > 1e-3)
        image->read_seconds += seconds;
    if (there && !checked) {
        if (ls_crc32c(p->file.bytes + e->offset, e->bytes) != e->crc && !atomic_load(&p->file.is_torn))
            return ls_image_refuse(image, "its checksum is wrong: the file is damaged");
        atomic_store_explicit(&p->checked[i], 1, memory_order_relaxed);
    }
    return there && !atomic_load(&p->file.is_torn) ? LS_OK
                                                   : ls_image_refuse(image, "cannot be read: the file became shorter");
}

static enum ls_status read_sample(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                                  int32_t *label)
{
    struct packed *p = (struct packed *)set;
    const struct ls_packed_entry *e = &p->view.entry[i];
    const uint8_t *bytes = p->file.bytes + e->offset;
    *label = e->label;
    if (e->channels == 0) {
        LS_TRY(wait_for(p, i, 0, e->bytes, image));
        return ls_image_decode(bytes, e->bytes, view, (int)set->info.channels, image);
    }
    size_t row = (size_t)e->channels * e->width;
    struct ls_box box = ls_view_box(view, e->height, e->width);
    LS_TRY(wait_for(p, i, (size_t)box.top * row, (size_t)box.height * row, image));
    ls_image_borrow(image, bytes, e->channels, e->height, e->width);
    return ls_image_to_channels(image, (int)set->info.channels);
}

static enum ls_status encoded(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                              size_t *size)
{
    struct packed *p = (struct packed *)set;
    const struct ls_packed_entry *e = &p->view.entry[i];
    if (e->channels > 0)
        return LS_OK;
    LS_TRY(wait_for(p, i, 0, e->bytes, image));
    *bytes = p->file.bytes + e->offset;
    *size = e->bytes;
    return LS_OK;
}

static int32_t label_of(const struct ls_dataset *set, int64_t i)
{
    return packed_of(set)->view.entry[i].label;
}

static void where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    const struct packed *p = packed_of(set);
    const struct ls_packed_entry *e = &p->view.entry[i];
    const char *folder = p->view.names + e->name, *name = folder + strlen(folder) + 1;
    if (*name)
        snprintf(text, room, "%s: %s%s%s at byte %" PRIu64, p->path, folder, *folder ? "/" : "", name, e->offset);
    else
        snprintf(text, room, "%s: sample %" PRId64 " at byte %" PRIu64, p->path, i, e->offset);
}

static void identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id)
{
    const struct packed *p = packed_of(set);
    const struct ls_packed_entry *e = &p->view.entry[i];
    const char *folder = p->view.names + e->name, *name = folder + strlen(folder) + 1;
    id->size = e->bytes;
    if (*name) {
        id->folder = folder;
        id->name = name;
    } else {
        id->bytes = p->file.bytes + e->offset;
    }
}

const struct ls_dataset_ops ls_format_packed = {
    .format = "packed",
    .recognise = recognise,
    .open = open_packed,
    .close = close_packed,
    .read = read_sample,
    .encoded = encoded,
    .label = label_of,
    .where = where,
    .identify = identify,
};
