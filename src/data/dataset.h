/* Shared by the data formats. The struct of a format starts with a struct ls_dataset. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include "data/data.h"

#include <pthread.h>
#include <stdatomic.h>

struct ls_decoder_job;
struct ls_decoder_ops;

/* The decoder that replaces libjpeg-turbo, and how many files it decoded and left to the CPU. */
struct ls_decoding {
    const struct ls_decoder_ops *ops; /* borrowed; NULL: none */
    atomic_llong done, left;
};

/* The samples that could not be read so far, sorted. */
struct ls_bad_samples {
    pthread_mutex_t lock;
    struct ls_bad_sample {
        int64_t sample;
        bool taken; /* by ls_dataset_next_bad */
    } * list;       /* owned */
    int64_t count, room;
};

struct ls_dataset {
    const struct ls_dataset_ops *ops; /* borrowed; set by ls_dataset_open */
    struct ls_dataset_info info;
    struct ls_decoding decoding;
    char *inner; /* owned; the folder that was opened if it is not the given one; else NULL */
    struct ls_bad_samples bad;
    int32_t *relabel; /* owned; class of the data -> class of the model (classes.h); NULL: identity */
};

/* Limits against headers with absurd sizes. */
#define LS_IMAGE_MAX_SIDE 65500
#define LS_IMAGE_MAX_PIXELS ((int64_t)178956970)

/* Writes the cause to image->why and returns LS_BAD_INPUT. */
enum ls_status ls_image_refuse(struct ls_image *image, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Checks a size from a file against the limits. */
enum ls_status ls_image_check_size(struct ls_image *image, int64_t height, int64_t width);
enum ls_status ls_image_reserve_side(struct ls_image *image, size_t bytes);
/* Converts 1 <-> 3 channels in place, with ls_luma. */
enum ls_status ls_image_to_channels(struct ls_image *image, int channels);

/* Reads a part of an open file into image->side. */
enum ls_status ls_image_fetch(int fd, uint64_t offset, size_t bytes, struct ls_image *image);
/* Reads a file into image->side. */
enum ls_status ls_image_fetch_file(const char *path, struct ls_image *image, size_t *size);
/* Reads a file into image->side and decodes it. */
enum ls_status ls_image_load(const char *path, const struct ls_view *view, int channels, struct ls_image *image);

/* Names of files, by extension: an image that is read, an image that is not, or something else. */
enum ls_image_name { LS_NO_IMAGE, LS_IMAGE_UNREAD, LS_IMAGE_READ };
enum ls_image_name ls_image_by_name(const char *name);
/* Lists the kinds of images that are read, for messages: "JPEG, PNG, PPM and BMP". */
const char *ls_image_kinds(void);
/* Returns which package this build lacks for images with that extension, for messages; "" if none. */
const char *ls_image_needs(const char *extension);

/* Returns the Exif orientation of a JPEG, PNG or WebP file: 1 (upright) to 8; 1 if there is none or it is damaged. */
int ls_exif_orientation(const uint8_t *bytes, size_t size);
/* Turns the size of a stored image into that of the upright one. */
void ls_orient_size(int orientation, int *height, int *width);
/* Returns the region of the stored height x width image that becomes `box` of the upright one. */
struct ls_box ls_orient_box(int orientation, const struct ls_box *box, int height, int width);
/* Turns a stored image upright. Overwrites image->side. */
enum ls_status ls_image_orient(int orientation, struct ls_image *image);

/* One decoder per file format. They return the image as it is stored; ls_image_decode turns it upright. Each returns 1
 * or 3 channels, as in the file. */
enum ls_status ls_jpeg_decode(const uint8_t *bytes, size_t size, const struct ls_view *view, struct ls_image *image);
/* Decodes with the image's alternative decoder if there is one and the file suits it. Sets *done to false if libjpeg-turbo
 * must decode the file. LS_FAILED if the decoder failed. */
enum ls_status ls_decoding_try(struct ls_image *image, bool suits, const struct ls_decoder_job *job, bool *done);
/* Reports how many files were left to the CPU: in log.txt, or as a warning if it is most of them. */
void ls_decoding_report(const struct ls_decoding *by);
enum ls_status ls_png_decode(const uint8_t *bytes, size_t size, struct ls_image *image);
/* Without libwebp or giflib these two refuse every file. */
enum ls_status ls_webp_decode(const uint8_t *bytes, size_t size, struct ls_image *image);
enum ls_status ls_gif_decode(const uint8_t *bytes, size_t size, struct ls_image *image);
enum ls_status ls_ppm_decode(const uint8_t *bytes, size_t size, struct ls_image *image);
enum ls_status ls_bmp_decode(const uint8_t *bytes, size_t size, struct ls_image *image);

/* Scales `box` of an image to height x width like BILINEAR of Pillow (a triangle filter, widened for downscaling) and
 * computes only the rectangle `window` of the result. `from` and `to` must differ. */
enum ls_status ls_image_resize(const struct ls_image *from, const struct ls_box *box, int height, int width,
                               const struct ls_box *window, struct ls_image *to);

#endif
