#include "data/formats/idx.h"
#include "data/formats/formats.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define IDX_UNSIGNED_BYTES 8

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

enum ls_status ls_idx_parse(const uint8_t *bytes, size_t size, const char *name, int rank, struct ls_idx *idx)
{
    size_t head = 4 + 4 * (size_t)rank;
    if (size < head)
        return ls_fail(LS_BAD_INPUT, "%s: %zu bytes are too few for the %zu of an IDX header", name, size, head);
    uint32_t magic = big_endian(bytes), expected = IDX_UNSIGNED_BYTES << 8 | (uint32_t)rank;
    if (magic != expected)
        return ls_fail(LS_BAD_INPUT,
                       "%s: magic number 0x%08" PRIx32 " at byte 0, expected 0x%08" PRIx32
                       " (IDX, unsigned bytes, %d dimension%s)",
                       name, magic, expected, rank, rank == 1 ? "" : "s");
    struct ls_idx parsed = {.values = bytes + head};
    uint64_t total = 1;
    for (int d = 0; d < rank; d++) {
        uint32_t dim = big_endian(bytes + 4 + 4 * d);
        if (dim == 0)
            return ls_fail(LS_BAD_INPUT, "%s: dimension %d (at byte %d) is 0", name, d + 1, 4 + 4 * d);
        if (d > 0 && dim > LS_IMAGE_MAX_SIDE)
            return ls_fail(LS_BAD_INPUT, "%s: dimension %d (at byte %d) is %" PRIu32 ", more than %d", name, d + 1,
                           4 + 4 * d, dim, LS_IMAGE_MAX_SIDE);
        parsed.dims[d] = dim;
        total *= dim; /* at most 2^32 * 2^16 * 2^16 */
        if (total > (uint64_t)INT64_MAX)
            return ls_fail(LS_BAD_INPUT, "%s: the dimensions multiply to more than any file holds", name);
    }
    if (total != size - head)
        return ls_fail(LS_BAD_INPUT, "%s: %s: the header asks for %" PRIu64 " bytes, the file has %zu", name,
                       total > size - head ? "truncated" : "too long", total + head, size);
    *idx = parsed;
    return LS_OK;
}

enum ls_status ls_idx_count_classes(const struct ls_idx *labels, const char *name, int64_t *classes)
{
    int64_t first[256];
    int highest = 0;
    memset(first, -1, sizeof first);
    for (int64_t i = labels->dims[0] - 1; i >= 0; i--) {
        first[labels->values[i]] = i;
        if (labels->values[i] > highest)
            highest = labels->values[i];
    }
    for (int c = 1; c < highest; c++)
        if (first[c] < 0)
            return ls_fail(LS_BAD_INPUT,
                           "%s: label %d at byte %" PRId64
                           " but no sample has label %d: a wrong label, or an empty class",
                           name, highest, first[highest] + 8, c);
    *classes = highest + 1;
    return LS_OK;
}

/* Every IDX set is normalised like MNIST. Both parts of a set must be normalised alike. */
void ls_idx_describe(struct ls_idx_set *set, int64_t count, int64_t height, int64_t width, int64_t classes)
{
    set->base.info = (struct ls_dataset_info){
        .count = count,
        .channels = 1,
        .height = height,
        .width = width,
        .classes = classes,
        .mean = {0.1307f},
        .deviation = {0.3081f},
    };
}

enum ls_status ls_idx_read(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                           int32_t *label)
{
    struct ls_idx_set *s = (struct ls_idx_set *)set;
    int height = (int)set->info.height, width = (int)set->info.width;
    size_t bytes = (size_t)height * (size_t)width;
    (void)view;
    LS_TRY(ls_image_reserve(image, 1, height, width));
    memcpy(image->pixels, s->pixels + (size_t)i * bytes, bytes);
    *label = s->label[i];
    return LS_OK;
}

int32_t ls_idx_label(const struct ls_dataset *set, int64_t i)
{
    return ((const struct ls_idx_set *)set)->label[i];
}

void ls_idx_where(const struct ls_dataset *set, int64_t i, char *text, size_t room)
{
    snprintf(text, room, "%s: image %" PRId64, ((const struct ls_idx_set *)set)->name, i);
}

static void identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id)
{
    id->size = (size_t)(set->info.height * set->info.width);
    id->bytes = ((const struct ls_idx_set *)set)->pixels + (size_t)i * id->size;
}

void ls_idx_close(struct ls_dataset *set)
{
    struct ls_idx_set *s = (struct ls_idx_set *)set;
    ls_blob_release(&s->images);
    ls_blob_release(&s->labels);
    ls_free(s->name);
    ls_free(s);
}

/* --- a folder with the four files of MNIST, each plain or .gz ----------------------------------------- */

static bool find(const char *folder, const char *part, const char *what, char path[PATH_MAX])
{
    static const char *const ends[] = {"-ubyte", "-ubyte.gz"};
    for (const char *join = "-."; *join; join++)
        for (int e = 0; e < 2; e++) {
            int n = snprintf(path, PATH_MAX, "%s/%s-%.6s%c%s%s", folder, part, what, *join, what + 7, ends[e]);
            if (n < PATH_MAX && ls_file_exists(path))
                return true;
        }
    snprintf(path, PATH_MAX, "%s/%s-%s-ubyte", folder, part, what);
    return false;
}

#define IMAGES "images-idx3"
#define LABELS "labels-idx1"

static bool recognise(const char *spec)
{
    char path[PATH_MAX];
    return find(spec, "train", IMAGES, path) || find(spec, "t10k", IMAGES, path) || find(spec, "train", LABELS, path);
}

static enum ls_status load(const char *folder, const char *part, const char *what, int rank, struct ls_blob *blob,
                           struct ls_idx *idx, char path[PATH_MAX])
{
    if (!find(folder, part, what, path))
        return ls_fail(LS_BAD_INPUT, "%s: missing, and so is %s.gz", path, path);
    LS_TRY(ls_blob_load(path, blob));
    return ls_idx_parse(blob->bytes, blob->size, path, rank, idx);
}

/* The number of classes comes from the training labels if they exist: the test part may lack the highest class. */
static enum ls_status count_classes(const char *folder, const struct ls_idx *labels, const char *path, bool test,
                                    int64_t *classes)
{
    struct ls_blob blob = {0};
    struct ls_idx train;
    char train_path[PATH_MAX];
    if (!test || !find(folder, "train", LABELS, train_path))
        return ls_idx_count_classes(labels, path, classes);
    enum ls_status st = load(folder, "train", LABELS, 1, &blob, &train, train_path);
    if (st == LS_OK)
        st = ls_idx_count_classes(&train, train_path, classes);
    for (int64_t i = 0; st == LS_OK && i < labels->dims[0]; i++)
        if (labels->values[i] >= *classes)
            st = ls_fail(LS_BAD_INPUT, "%s: label %d at byte %" PRId64 ", but the training part has only 0 to %" PRId64,
                         path, labels->values[i], i + 8, *classes - 1);
    ls_blob_release(&blob);
    return st;
}

static enum ls_status open_folder(const char *spec, const char *part, struct ls_dataset **out)
{
    char images_path[PATH_MAX], labels_path[PATH_MAX];
    bool test = strcmp(part, "test") == 0;
    const char *name = test ? "t10k" : "train";
    struct ls_idx images = {0}, labels = {0};
    int64_t classes = 0;
    enum ls_status st;
    struct ls_idx_set *set = ls_alloc(1, sizeof *set);
    if (!set)
        return LS_FAILED;
    LS_TRY_GOTO(close_set, load(spec, name, IMAGES, 3, &set->images, &images, images_path));
    LS_TRY_GOTO(close_set, load(spec, name, LABELS, 1, &set->labels, &labels, labels_path));
    if (images.dims[0] != labels.dims[0]) {
        st = ls_fail(LS_BAD_INPUT, "%s: %" PRId64 " images, but %s has %" PRId64 " labels", images_path, images.dims[0],
                     labels_path, labels.dims[0]);
        goto close_set;
    }
    LS_TRY_GOTO(close_set, count_classes(spec, &labels, labels_path, test, &classes));
    set->name = ls_strdup(images_path);
    if (!set->name) {
        st = LS_FAILED;
        goto close_set;
    }
    set->pixels = images.values;
    set->label = labels.values;
    ls_idx_describe(set, images.dims[0], images.dims[1], images.dims[2], classes);
    *out = &set->base;
    return LS_OK;
close_set:
    ls_idx_close(&set->base);
    return st;
}

const struct ls_dataset_ops ls_format_idx = {
    .format = "idx",
    .recognise = recognise,
    .open = open_folder,
    .close = ls_idx_close,
    .read = ls_idx_read,
    .label = ls_idx_label,
    .where = ls_idx_where,
    .identify = identify,
};
