#define _GNU_SOURCE /* RUSAGE_THREAD */
#include "data/dataset.h"
#include "base/system/clock.h"
#include "base/decoder.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/image/jpeg/jpeg_huffman.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)

enum ls_status ls_image_refuse(struct ls_image *image, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(image->why, sizeof image->why, format, args);
    va_end(args);
    return LS_BAD_INPUT;
}

/* Buffers grow by powers of two, so that a stream of images soon needs no more allocations. */
static enum ls_status grow(struct ls_image *image, uint8_t **buffer, size_t *room, size_t bytes)
{
    if (bytes <= *room)
        return LS_OK;
    size_t larger = 4096;
    while (larger < bytes && larger < SIZE_MAX / 2)
        larger *= 2;
    uint8_t *fresh = ls_alloc(larger > bytes ? larger : bytes, 1);
    if (!fresh) {
        ls_image_refuse(image, "out of memory: %zu bytes were asked for", bytes);
        return LS_FAILED;
    }
    ls_free(*buffer);
    *buffer = fresh;
    *room = larger;
    return LS_OK;
}

enum ls_status ls_image_reserve(struct ls_image *image, int channels, int height, int width)
{
    LS_TRY(grow(image, &image->buffer, &image->room, (size_t)channels * (size_t)height * (size_t)width));
    image->pixels = image->buffer;
    image->channels = channels;
    image->height = height;
    image->width = width;
    return LS_OK;
}

void ls_image_borrow(struct ls_image *image, const uint8_t *pixels, int channels, int height, int width)
{
    image->pixels = (uint8_t *)(uintptr_t)pixels;
    image->channels = channels;
    image->height = height;
    image->width = width;
}

enum ls_status ls_image_check_size(struct ls_image *image, int64_t height, int64_t width)
{
    if (height < 1 || width < 1)
        return ls_image_refuse(image, "a size of %" PRId64 " x %" PRId64 " pixels", width, height);
    if (height > LS_IMAGE_MAX_SIDE || width > LS_IMAGE_MAX_SIDE || height * width > LS_IMAGE_MAX_PIXELS)
        return ls_image_refuse(image, "%" PRId64 " x %" PRId64 " pixels are more than the %" PRId64 " that are read",
                               width, height, LS_IMAGE_MAX_PIXELS);
    return LS_OK;
}

enum ls_status ls_image_reserve_side(struct ls_image *image, size_t bytes)
{
    return grow(image, &image->side, &image->side_room, bytes);
}

void ls_image_release(struct ls_image *image)
{
    ls_free(image->buffer);
    ls_free(image->side);
    ls_jpeg_tables_free(image->jpeg);
    if (image->decoder)
        image->decoder->ops->close(image->decoder);
    *image = (struct ls_image){0};
}

/* Makes room for `bytes` bytes of pixels and keeps what the image shows: moves it there if it is borrowed or does not fit. */
static enum ls_status own_pixels(struct ls_image *image, size_t bytes)
{
    size_t shown = (size_t)image->channels * (size_t)image->height * (size_t)image->width;
    if (image->pixels == image->buffer && bytes <= image->room)
        return LS_OK;
    size_t room = bytes > shown ? bytes : shown;
    uint8_t *larger = ls_alloc(room, 1);
    if (!larger)
        return LS_FAILED;
    memcpy(larger, image->pixels, shown);
    ls_free(image->buffer);
    image->pixels = image->buffer = larger;
    image->room = room;
    return LS_OK;
}

enum ls_status ls_image_to_channels(struct ls_image *image, int channels)
{
    int had = image->channels;
    size_t pixels = (size_t)image->height * (size_t)image->width;
    if (had == channels)
        return LS_OK;
    LS_TRY(own_pixels(image, (size_t)channels * pixels));
    if (had == 3) {
        for (size_t p = 0; p < pixels; p++)
            image->pixels[p] = ls_luma(image->pixels + 3 * p);
        image->channels = 1;
        return LS_OK;
    }
    for (size_t p = pixels; p-- > 0;) {
        uint8_t grey = image->pixels[p];
        memset(image->pixels + 3 * p, grey, 3);
    }
    image->channels = 3;
    return LS_OK;
}

/* --- kinds of files ----------------------------------------------------------------------------------- */

#ifdef LS_WEBP
#define WEBP true
#else
#define WEBP false
#endif
#ifdef LS_GIF
#define GIF true
#else
#define GIF false
#endif

static const struct kind {
    const char *extension, *needs; /* needs: why files of this kind are not read */
    bool read;
} kinds[] = {
    {"jpg", NULL, true},
    {"jpeg", NULL, true},
    {"png", NULL, true},
    {"ppm", NULL, true},
    {"bmp", NULL, true},
    {"pgm", NULL, true},
    {"webp", "this Lockstep was built without WebP: install libwebp-dev and build it again", WEBP},
    {"gif", "this Lockstep was built without GIF: install libgif-dev and build it again", GIF},
    {"tif", NULL, false},
    {"tiff", NULL, false},
    {"jp2", NULL, false},
    {"heic", NULL, false},
    {"avif", NULL, false},
};

static const struct kind *kind_of(const char *extension)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (strcasecmp(extension, kinds[k].extension) == 0)
            return &kinds[k];
    return NULL;
}

enum ls_image_name ls_image_by_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    const struct kind *kind = dot ? kind_of(dot + 1) : NULL;
    return !kind ? LS_NO_IMAGE : kind->read ? LS_IMAGE_READ : LS_IMAGE_UNREAD;
}

const char *ls_image_needs(const char *extension)
{
    const struct kind *kind = kind_of(extension);
    return kind && !kind->read && kind->needs ? kind->needs : "";
}

const char *ls_image_kinds(void)
{
    return WEBP && GIF ? "JPEG, PNG, WebP, GIF, PPM and BMP"
           : WEBP      ? "JPEG, PNG, WebP, PPM and BMP"
           : GIF       ? "JPEG, PNG, GIF, PPM and BMP"
                       : "JPEG, PNG, PPM and BMP";
}

/* --- decoding ----------------------------------------------------------------------------------------- */

static enum ls_status decode_by_content(const uint8_t *b, size_t size, const struct ls_view *view,
                                        struct ls_image *image)
{
    if (size >= 3 && b[0] == 0xff && b[1] == 0xd8 && b[2] == 0xff)
        return ls_jpeg_decode(b, size, view, image);
    if (size >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0)
        return ls_png_decode(b, size, image);
    if (size >= 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '7')
        return ls_ppm_decode(b, size, image);
    if (size >= 2 && b[0] == 'B' && b[1] == 'M')
        return ls_bmp_decode(b, size, image);
    if (size >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0)
        return ls_webp_decode(b, size, image);
    if (size >= 4 && memcmp(b, "GIF8", 4) == 0)
        return ls_gif_decode(b, size, image);
    if (size == 0)
        return ls_image_refuse(image, "the file is empty");
    return ls_image_refuse(image, "not an image that is read (%s): it begins with %02x %02x", ls_image_kinds(), b[0],
                           size > 1 ? b[1] : 0);
}

enum ls_status ls_image_decode(const uint8_t *bytes, size_t size, const struct ls_view *view, int channels,
                               struct ls_image *image)
{
    image->cropped = false;
    image->orientation = ls_exif_orientation(bytes, size);
    LS_TRY(decode_by_content(bytes, size, view, image));
    LS_TRY(ls_image_orient(image->orientation, image)); /* may overwrite the bytes, if they are in image->side */
    return ls_image_to_channels(image, channels);
}

/* Returns the number of voluntary context switches of this thread: waits for storage, not preemption. */
static int64_t times_slept(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

enum ls_status ls_image_fetch(int fd, uint64_t offset, size_t bytes, struct ls_image *image)
{
    int64_t slept = times_slept();
    double start = ls_now();
    if (bytes > MAX_FILE_BYTES)
        return ls_image_refuse(image, "%zu bytes are too many for an image", bytes);
    LS_TRY(ls_image_reserve_side(image, bytes));
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, image->side + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ls_image_refuse(image, "cannot be read: %s", n < 0 ? strerror(errno) : "the file became shorter");
        done += (size_t)n;
    }
    if (times_slept() > slept)
        image->read_seconds += ls_now() - start;
    return LS_OK;
}

static enum ls_status slurp(const char *path, struct ls_image *image, size_t *size)
{
    char why[LS_FILE_WHY];
    enum ls_status st = LS_OK;
    size_t done = 0, total;
    int fd = ls_file_open(path, &total, why);
    if (fd < 0)
        return ls_image_refuse(image, "%s", why);
    if (total > MAX_FILE_BYTES)
        st = ls_image_refuse(image, "%zu bytes are too many for an image", total);
    else
        st = ls_image_reserve_side(image, total);
    while (st == LS_OK && done < total) {
        ssize_t n = read(fd, image->side + done, total - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            st = ls_image_refuse(image, "cannot be read beyond byte %zu: %s", done,
                                 n < 0 ? strerror(errno) : "it became shorter");
    }
    close(fd);
    *size = done;
    return st;
}

enum ls_status ls_image_fetch_file(const char *path, struct ls_image *image, size_t *size)
{
    int64_t slept = times_slept();
    double start = ls_now();
    enum ls_status st = slurp(path, image, size);
    if (times_slept() > slept)
        image->read_seconds += ls_now() - start;
    return st;
}

enum ls_status ls_image_load(const char *path, const struct ls_view *view, int channels, struct ls_image *image)
{
    size_t size = 0;
    LS_TRY(ls_image_fetch_file(path, image, &size));
    return ls_image_decode(image->side, size, view, channels, image);
}

enum ls_status ls_image_read_file(const char *path, int min_side, int channels, struct ls_image *image)
{
    struct ls_view view = {.min_side = min_side};
    enum ls_status st = ls_image_load(path, &view, channels, image);
    return st == LS_OK ? LS_OK : ls_fail(st, "%s: %s", path, image->why);
}
