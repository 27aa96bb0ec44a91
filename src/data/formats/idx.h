/* IDX, the format of MNIST: a magic number, the dimensions, then unsigned bytes. */
#ifndef LS_DATA_FORMATS_IDX_H
#define LS_DATA_FORMATS_IDX_H

#include "data/files/blob.h"
#include "data/dataset.h"

#define LS_IDX_MAX_RANK 3

struct ls_idx {
    int64_t dims[LS_IDX_MAX_RANK];
    const uint8_t *values; /* borrowed from the parsed bytes */
};

/* Checks the whole file: magic number, `rank` dimensions, and exactly the length that they require. */
enum ls_status ls_idx_parse(const uint8_t *bytes, size_t size, const char *name, int rank, struct ls_idx *idx);
/* Returns the largest label + 1. A label without samples is an error, except 0: some sets count from 1. */
enum ls_status ls_idx_count_classes(const struct ls_idx *labels, const char *name, int64_t *classes);

/* A data set of two parsed files, with its readers. */
struct ls_idx_set {
    struct ls_dataset base;
    char *name; /* owned; the file of the images, for messages */
    struct ls_blob images, labels;
    const uint8_t *pixels, *label; /* borrowed from the blobs */
};
void ls_idx_describe(struct ls_idx_set *set, int64_t count, int64_t height, int64_t width, int64_t classes);
enum ls_status ls_idx_read(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                           int32_t *label);
int32_t ls_idx_label(const struct ls_dataset *set, int64_t i);
void ls_idx_where(const struct ls_dataset *set, int64_t i, char *text, size_t room);
void ls_idx_close(struct ls_dataset *set);

#endif
