#include "data/formats/cifar.h"
#include "data/files/blob.h"
#include "data/dataset.h"
#include "data/formats/formats.h"
#include "data/files/lines.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_FILES 5

struct cifar {
    struct ls_dataset base;
    const struct ls_cifar_kind *kind;
    int files;
    struct {
        char *path; /* owned */
        struct ls_blob blob;
        int64_t end; /* index of the first sample after this file */
    } file[MAX_FILES];
    struct ls_lines names;
};

static size_t record_bytes(const struct ls_cifar_kind *kind)
{
    return (size_t)kind->label_bytes + LS_CIFAR_PIXELS;
}

enum ls_status ls_cifar_parse(const uint8_t *bytes, size_t size, const char *name, const struct ls_cifar_kind *kind,
                              int64_t *records)
{
    size_t record = record_bytes(kind), whole = size / record;
    if (size == 0)
        return ls_fail(LS_BAD_INPUT, "%s: the file is empty", name);
    if (size % record)
        return ls_fail(LS_BAD_INPUT,
                       "%s: truncated or too long: %zu bytes are %zu records of %zu bytes and %zu bytes more", name,
                       size, whole, record, size % record);
    for (size_t r = 0; r < whole; r++) {
        size_t at = r * record + (size_t)kind->label_bytes - 1;
        if (bytes[at] >= kind->classes)
            return ls_fail(LS_BAD_INPUT, "%s: label %d at byte %zu (record %zu), expected 0 to %d", name, bytes[at], at,
                           r, kind->classes - 1);
    }
    *records = (int64_t)whole;
    return LS_OK;
}

/* The record of sample i. */
static const uint8_t *find(const struct cifar *c, int64_t i, int *file, int64_t *record)
{
    int f = 0;
    int64_t start = 0;
    while (i >= c->file[f].end)
        start = c->file[f++].end;
    *file = f;
    *record = i - start;
    return c->file[f].blob.bytes + (size_t)(i - start) * record_bytes(c->kind);
}

static enum ls_status read_record(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                                  int32_t *label)
{
    const struct cifar *c = (const struct cifar *)set;
    int file;
    int64_t record;
    const uint8_t *bytes = find(c, i, &file, &record);
    (void)view;
    LS_TRY(ls_image_reserve(image, 3, LS_CIFAR_SIDE, LS_CIFAR_SIDE));
    *label = bytes[c->kind->label_bytes - 1];
    const uint8_t *red = bytes + c->kind->label_bytes;
    const uint8_t *green = red + LS_CIFAR_SIDE * LS_CIFAR_SIDE, *blue = green + LS_CIFAR_SIDE * LS_CIFAR_SIDE;
    uint8_t *restrict out = image->pixels;
    for (int p = 0; p < LS_CIFAR_SIDE * LS_CIFAR_SIDE; p++) {
        out[3 * p] = red[p];
        out[3 * p + 1] = green[p];
        out[3 * p + 2] = blue[p];
    }
    return LS_OK;
}

static int32_t label_of(const struct ls_dataset *set, int64_t i)
{
    const struct cifar *c = (const struct cifar *)set;
    int file;
    int64_t record;
    return find(c, i, &file, &record)[c->kind->label_bytes - 1];
}

static void where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    const struct cifar *c = (const struct cifar *)set;
    int file;
    int64_t record;
    find(c, i, &file, &record);
    snprintf(text, room, "%s: record %" PRId64, c->file[file].path, record);
}

static void identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id)
{
    const struct cifar *c = (const struct cifar *)set;
    int file;
    int64_t record;
    id->bytes = find(c, i, &file, &record);
    id->size = record_bytes(c->kind);
}

static void close_set(struct ls_dataset *set)
{
    struct cifar *c = (struct cifar *)set;
    for (int f = 0; f < c->files; f++) {
        ls_blob_release(&c->file[f].blob);
        ls_free(c->file[f].path);
    }
    ls_lines_release(&c->names);
    ls_free(c);
}

static enum ls_status add_file(struct cifar *c, const char *folder, const char *name, int64_t official)
{
    int f = c->files;
    int64_t records;
    char *path = c->file[f].path = ls_format("%s/%s", folder, name);
    if (!path)
        return LS_FAILED;
    c->files++;
    LS_TRY(ls_blob_load(path, &c->file[f].blob));
    LS_TRY(ls_cifar_parse(c->file[f].blob.bytes, c->file[f].blob.size, path, c->kind, &records));
    if (records != official)
        ls_warn("%s: %" PRId64 " records where the official file has %" PRId64, path, records, official);
    c->file[f].end = c->base.info.count += records;
    return LS_OK;
}

static enum ls_status load_names(struct cifar *c, const char *folder)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, c->kind->names_file) >= (int)sizeof path || !ls_file_exists(path))
        return LS_OK;
    LS_TRY(ls_lines_load(path, &c->names));
    if (c->names.count != c->kind->classes)
        return ls_fail(LS_BAD_INPUT, "%s: %d class names, expected %d, one a line", path, c->names.count,
                       c->kind->classes);
    c->base.info.class_names = (const char *const *)c->names.line;
    return LS_OK;
}

static enum ls_status open_kind(const struct ls_cifar_kind *kind, const char *folder, const char *part,
                                struct ls_dataset **set)
{
    enum ls_status st = LS_OK;
    struct cifar *c = ls_alloc(1, sizeof *c);
    if (!c)
        return LS_FAILED;
    c->kind = kind;
    c->base.info = (struct ls_dataset_info){
        .channels = 3, .height = LS_CIFAR_SIDE, .width = LS_CIFAR_SIDE, .classes = kind->classes};
    memcpy(c->base.info.mean, kind->mean, sizeof kind->mean);
    memcpy(c->base.info.deviation, kind->deviation, sizeof kind->deviation);
    if (strcmp(part, "test") == 0)
        st = add_file(c, folder, kind->test_file, kind->test_records);
    else
        for (const char *const *name = kind->train_files; *name && st == LS_OK; name++)
            st = add_file(c, folder, *name, kind->train_records);
    if (st == LS_OK)
        st = load_names(c, folder);
    if (st != LS_OK)
        close_set(&c->base);
    else
        *set = &c->base;
    return st;
}

static bool has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && ls_file_exists(path);
}

static bool recognise10(const char *spec)
{
    return has(spec, "data_batch_1.bin") || has(spec, "test_batch.bin");
}

static bool recognise100(const char *spec)
{
    return has(spec, "train.bin") || has(spec, "test.bin");
}

static enum ls_status open10(const char *spec, const char *part, struct ls_dataset **set)
{
    return open_kind(&ls_cifar10, spec, part, set);
}

static enum ls_status open100(const char *spec, const char *part, struct ls_dataset **set)
{
    return open_kind(&ls_cifar100, spec, part, set);
}

const struct ls_cifar_kind ls_cifar10 = {
    .label_bytes = 1,
    .classes = 10,
    .train_records = 10000,
    .test_records = 10000,
    .train_files = (const char *const[]){"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                         "data_batch_5.bin", NULL},
    .test_file = "test_batch.bin",
    .names_file = "batches.meta.txt",
    .mean = {0.4914f, 0.4822f, 0.4465f},
    .deviation = {0.2470f, 0.2435f, 0.2616f},
};

const struct ls_cifar_kind ls_cifar100 = {
    .label_bytes = 2,
    .classes = 100,
    .train_records = 50000,
    .test_records = 10000,
    .train_files = (const char *const[]){"train.bin", NULL},
    .test_file = "test.bin",
    .names_file = "fine_label_names.txt",
    .mean = {0.5071f, 0.4865f, 0.4409f},
    .deviation = {0.2673f, 0.2564f, 0.2762f},
};

const struct ls_dataset_ops ls_format_cifar10 = {
    .format = "cifar10",
    .recognise = recognise10,
    .open = open10,
    .close = close_set,
    .read = read_record,
    .label = label_of,
    .where = where,
    .identify = identify,
};

const struct ls_dataset_ops ls_format_cifar100 = {
    .format = "cifar100",
    .recognise = recognise100,
    .open = open100,
    .close = close_set,
    .read = read_record,
    .label = label_of,
    .where = where,
    .identify = identify,
};
