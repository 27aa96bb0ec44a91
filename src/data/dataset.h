/* What the formats share. A format's own struct begins with a struct ls_dataset. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "data/data.h"

#include <stdatomic.h>

struct ls_decoder_job;
struct ls_decoder_ops;

/* Who decodes JPEGs in libjpeg-turbo's place, and how many files went which way. */
struct ls_decoding {
    const struct ls_decoder_ops *ops; /* borrowed; NULL: nobody */
    atomic_llong done, left;
};

struct ls_dataset {
    const struct ls_dataset_ops *ops; /* borrowed; set by ls_dataset_open */
    struct ls_dataset_info info;
    struct ls_decoding decoding;
    char *inner;      /* owned: the folder that was opened, where it is not the one asked for; else NULL */
    int32_t *relabel; /* owned; class of the data -> class of a model (classes.h); NULL: the same */
};

/* Limits against files that promise more than any picture has. */
#define LS_IMAGE_MAX_SIDE 65500
#define LS_IMAGE_MAX_PIXELS ((int64_t)178956970)

/* Put the cause into image->why; gives LS_BAD_INPUT back. */
enum ls_status ls_image_refuse(struct ls_image *image, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Is a size out of a file within the limits? */
enum ls_status ls_image_check_size(struct ls_image *image, int64_t height, int64_t width);
enum ls_status ls_image_reserve_side(struct ls_image *image, size_t bytes);
/* 1 <-> 3 channels in place, by ls_luma. */
enum ls_status ls_image_to_channels(struct ls_image *image, int channels);

/* Read a file into image->side and decode it from there. */
enum ls_status ls_image_load(const char *path, const struct ls_view *view, int channels, struct ls_image *image);

/* One decoder a file kind. Each gives 1 or 3 channels, whichever the file has. */
enum ls_status ls_jpeg_decode(const uint8_t *bytes, size_t size, const struct ls_view *view, struct ls_image *image);
/* Let the image's decoder make its pixels, if it has one and the file suits it; *done false: libjpeg-turbo's turn. LS_FAILED
 * when the decoder has failed. */
enum ls_status ls_decoding_try(struct ls_image *image, bool suits, const struct ls_decoder_job *job, bool *done);
/* Say how many files were left to the CPU, if any: for log.txt, or as a warning where it is most of them. */
void ls_decoding_report(const struct ls_decoding *by);
enum ls_status ls_png_decode(const uint8_t *bytes, size_t size, struct ls_image *image);
enum ls_status ls_ppm_decode(const uint8_t *bytes, size_t size, struct ls_image *image);
enum ls_status ls_bmp_decode(const uint8_t *bytes, size_t size, struct ls_image *image);

/* Scale `box` of an image to height x width as Pillow's BILINEAR does (a triangle filter, widened when
 * scaling down) and make of the result only the part `window`. The image given must not be `to`. */
enum ls_status ls_image_resize(const struct ls_image *from, const struct ls_box *box, int height, int width,
                               const struct ls_box *window, struct ls_image *to);

#endif
