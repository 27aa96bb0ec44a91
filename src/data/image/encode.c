/* Encoding of images, and the facts about encoded ones that their heads tell. */
#include "data/image/encode.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <png.h>

struct failure {
    struct jpeg_error_mgr base;
    jmp_buf back;
};

static void fail_jpeg(j_common_ptr c)
{
    longjmp(((struct failure *)c->err)->back, 1);
}

static void say_nothing(j_common_ptr c)
{
    (void)c;
}

static void compress(struct jpeg_compress_struct *c, const struct ls_image *image, int quality)
{
    c->image_width = (JDIMENSION)image->width;
    c->image_height = (JDIMENSION)image->height;
    c->input_components = image->channels;
    c->in_color_space = image->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        JSAMPROW row = image->pixels + (size_t)c->next_scanline * (size_t)image->width * (size_t)image->channels;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

enum ls_status ls_jpeg_encode(struct ls_image *image, int quality, uint8_t **bytes, size_t *size)
{
    struct jpeg_compress_struct c;
    struct failure failure;
    unsigned char *out = NULL;
    unsigned long length = 0;
    c.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = fail_jpeg;
    failure.base.output_message = say_nothing;
    if (setjmp(failure.back)) {
        char why[JMSG_LENGTH_MAX];
        failure.base.format_message((j_common_ptr)&c, why);
        ls_image_refuse(image, "cannot be encoded as JPEG: %.120s", why);
        jpeg_destroy_compress(&c);
        free(out);
        return LS_FAILED;
    }
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &length);
    compress(&c, image, quality);
    jpeg_destroy_compress(&c);
    *bytes = ls_alloc(length, 1);
    *size = length;
    if (*bytes)
        memcpy(*bytes, out, length);
    else
        ls_image_refuse(image, "out of memory");
    free(out);
    return *bytes ? LS_OK : LS_FAILED;
}

enum ls_status ls_png_store(struct ls_image *image, uint8_t **bytes, size_t *size)
{
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)image->width,
                     .height = (png_uint_32)image->height,
                     .format = image->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(png);
    *bytes = ls_alloc(room, 1);
    if (!*bytes || !png_image_write_to_memory(&png, *bytes, &room, 0, image->pixels, 0, NULL)) {
        ls_image_refuse(image, "cannot be encoded as PNG: %.100s", *bytes ? png.message : "out of memory");
        ls_free(*bytes);
        *bytes = NULL;
        return LS_FAILED;
    }
    *size = room;
    return LS_OK;
}

/* --- heads -------------------------------------------------------------------------------------------------------------- */

const char *ls_image_extension(const uint8_t *b, size_t size)
{
    if (size >= 3 && memcmp(b, "\xff\xd8\xff", 3) == 0)
        return "jpg";
    if (size >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0)
        return "png";
    if (size >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0)
        return "webp";
    if (size >= 4 && memcmp(b, "GIF8", 4) == 0)
        return "gif";
    if (size >= 2 && b[0] == 'B' && b[1] == 'M')
        return "bmp";
    if (size >= 2 && b[0] == 'P' && (b[1] == '2' || b[1] == '5'))
        return "pgm";
    if (size >= 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '7')
        return "ppm";
    return NULL;
}

static int big16(const uint8_t *b)
{
    return b[0] << 8 | b[1];
}

/* Walks the segments of a JPEG to its frame header. */
static bool jpeg_size(const uint8_t *b, size_t size, int *height, int *width)
{
    for (size_t at = 2; at + 9 < size && b[at] == 0xff;) {
        int marker = b[at + 1];
        bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
        if (frame) {
            *height = big16(b + at + 5);
            *width = big16(b + at + 7);
            return *height > 0 && *width > 0;
        }
        at += marker == 0xff ? 1 : 2 + (size_t)big16(b + at + 2);
    }
    return false;
}

enum ls_status ls_image_measure(const uint8_t *bytes, size_t size, struct ls_image *scratch, int *height, int *width)
{
    const char *kind = ls_image_extension(bytes, size);
    bool known = false;
    if (kind && strcmp(kind, "jpg") == 0)
        known = jpeg_size(bytes, size, height, width);
    if (kind && strcmp(kind, "png") == 0 && size >= 24) {
        *width = big16(bytes + 16) << 16 | big16(bytes + 18);
        *height = big16(bytes + 20) << 16 | big16(bytes + 22);
        known = *width > 0 && *height > 0;
    }
    if (known) {
        LS_TRY(ls_image_check_size(scratch, *height, *width));
        ls_orient_size(ls_exif_orientation(bytes, size), height, width);
        return LS_OK;
    }
    LS_TRY(ls_image_decode(bytes, size, NULL, 3, scratch));
    *height = scratch->height;
    *width = scratch->width;
    return LS_OK;
}
