/* Files for the tests of data sets: a temporary folder, and encoders for what the readers read. */
#ifndef LS_TEST_DATA_FILES_H
#define LS_TEST_DATA_FILES_H

#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#define SAID(text) assert_non_null(strstr(ls_log_last(), text))
#define BAD(call) assert_int_equal(call, LS_BAD_INPUT)
#define GOOD(call) assert_int_equal(call, LS_OK)

static char folder[64]; /* this test's own */

__attribute__((unused)) static int make_folder(void **state)
{
    (void)state;
    ls_log_mute(1);
    strcpy(folder, "/tmp/lockstep-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

__attribute__((unused)) static int remove_folder(void **state)
{
    (void)state;
    return ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

/* A path in the folder; the four last stay valid. */
__attribute__((unused, format(printf, 1, 2))) static const char *at(const char *format, ...)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    int used = snprintf(path, sizeof paths[0], "%s/", folder);
    va_list args;
    va_start(args, format);
    vsnprintf(path + used, sizeof paths[0] - (size_t)used, format, args);
    va_end(args);
    return path;
}

__attribute__((unused)) static void put(const char *path, const void *bytes, size_t size)
{
    char parent[512];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    GOOD(ls_dir_make(parent));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

__attribute__((unused)) static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

__attribute__((unused)) static void put_gz(const char *path, const void *bytes, size_t size)
{
    gzFile f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)size), size);
    assert_int_equal(gzclose(f), Z_OK);
}

/* A picture whose bytes are a function of their place, the same as in the reference values. */
__attribute__((unused)) static void paint(struct ls_image *image, int channels, int height, int width)
{
    GOOD(ls_image_reserve(image, channels, height, width));
    uint8_t *p = image->pixels;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                *p++ = (uint8_t)(x * 37 + y * 91 + c * 53 + x * y % 17 * 11);
}

/* A picture that JPEG keeps well. */
__attribute__((unused)) static void shade(struct ls_image *image, int channels, int height, int width)
{
    GOOD(ls_image_reserve(image, channels, height, width));
    uint8_t *p = image->pixels;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                *p++ = (uint8_t)(c == 0 ? 255 * x / width : c == 1 ? 255 * y / height : c == 2 ? 128 : 200);
}

__attribute__((unused)) static uint64_t fnv(const uint8_t *bytes, size_t size)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

/* The JPEG file of an image of 1, 3 or 4 (CMYK) channels; freed by free. */
__attribute__((unused)) static unsigned char *encode_jpeg(const struct ls_image *image, bool progressive,
                                                          unsigned long *size)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    unsigned char *bytes = NULL;
    *size = 0;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &bytes, size);
    c.image_width = (JDIMENSION)image->width;
    c.image_height = (JDIMENSION)image->height;
    c.input_components = image->channels;
    c.in_color_space = image->channels == 1 ? JCS_GRAYSCALE : image->channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = image->pixels + (size_t)c.next_scanline * (size_t)image->width * (size_t)image->channels;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return bytes;
}

__attribute__((unused)) static void put_jpeg(const char *path, const struct ls_image *image)
{
    unsigned long size;
    unsigned char *bytes = encode_jpeg(image, false, &size);
    put(path, bytes, size);
    free(bytes);
}

/* A PNG of any colour type; rows are as libpng wants them. */
__attribute__((unused)) static void put_png(const char *path, int width, int height, int bits, int type, int interlace,
                                            const uint8_t *rows, size_t row_bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, f);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, bits, type, interlace, 0, 0);
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_color colours[4] = {{10, 20, 30}, {200, 100, 50}, {0, 0, 255}, {255, 255, 255}};
        png_byte alpha[2] = {0, 128};
        png_set_PLTE(png, info, colours, 4);
        png_set_tRNS(png, info, alpha, 2, NULL);
    }
    png_write_info(png, info);
    int passes = png_set_interlace_handling(png);
    for (int p = 0; p < passes; p++)
        for (int y = 0; y < height; y++)
            png_write_row(png, rows + (size_t)y * row_bytes);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(f), 0);
}

__attribute__((unused)) static void put_png_image(const char *path, const struct ls_image *image)
{
    put(path, "", 0); /* makes the folder */
    put_png(path, image->width, image->height, 8, image->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
            PNG_INTERLACE_NONE, image->pixels, (size_t)image->width * (size_t)image->channels);
}

/* --- data sets on disk -------------------------------------------------------------------------------- */

__attribute__((unused)) static struct ls_dataset *opened(const char *spec, const char *part)
{
    struct ls_dataset *set = NULL;
    enum ls_status st = ls_dataset_open(spec, part, &set);
    if (st != LS_OK)
        print_error("%s\n", ls_log_last());
    assert_int_equal(st, LS_OK);
    return set;
}

__attribute__((unused)) static void refused(const char *spec, const char *part, const char *said)
{
    struct ls_dataset *set = NULL;
    BAD(ls_dataset_open(spec, part, &set));
    if (!strstr(ls_log_last(), said))
        print_error("expected '%s' in '%s'\n", said, ls_log_last());
    SAID(said);
    assert_null(set);
}

__attribute__((unused)) static void picture(const char *path, int value)
{
    struct ls_image image = {0};
    GOOD(ls_image_reserve(&image, 3, 10, 12));
    memset(image.pixels, value, 360);
    if (strstr(path, ".png") || strstr(path, ".PNG"))
        put_png_image(path, &image);
    else
        put_jpeg(path, &image);
    ls_image_release(&image);
}

__attribute__((unused)) static void expect_samples(struct ls_dataset *set, int n, const int *values, const int *labels)
{
    struct ls_image image = {0};
    int32_t label;
    assert_int_equal(ls_dataset_info(set)->count, n);
    for (int i = 0; i < n; i++) {
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        assert_int_equal(label, labels[i]);
        assert_true(abs(image.pixels[0] - values[i]) < 3);
    }
    ls_image_release(&image);
}

#endif
