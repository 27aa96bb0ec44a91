/* PNG with libpng. Drops alpha like convert("RGB") of Pillow and scales 16 bits to 8. */
#include "data/dataset.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

#define MAX_CHUNK_BYTES ((png_alloc_size_t)64 << 20)

struct reader {
    const uint8_t *bytes; /* borrowed */
    size_t size, at;
    struct ls_image *image; /* borrowed */
    png_structp png;
    png_infop info;
};

static void on_error(png_structp png, png_const_charp message)
{
    struct reader *r = png_get_error_ptr(png);
    ls_image_refuse(r->image, "corrupt or truncated PNG: %s at byte %zu", message, r->at);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void take(png_structp png, png_bytep out, size_t n)
{
    struct reader *r = png_get_io_ptr(png);
    if (n > r->size - r->at)
        png_error(png, "the file ends too early");
    memcpy(out, r->bytes + r->at, n);
    r->at += n;
}

static void set_colours(png_structp png, png_infop info)
{
    png_set_scale_16(png);
    png_set_expand(png); /* palette to RGB, fewer than 8 bits to 8, transparency to alpha */
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

static enum ls_status decode(struct reader *r)
{
    if (setjmp(png_jmpbuf(r->png)))
        return LS_BAD_INPUT;
    png_set_user_limits(r->png, LS_IMAGE_MAX_SIDE, LS_IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(r->png, MAX_CHUNK_BYTES);
    png_set_read_fn(r->png, r, take);
    png_read_info(r->png, r->info);
    int passes = png_get_interlace_type(r->png, r->info) == PNG_INTERLACE_NONE ? 1 : PNG_INTERLACE_ADAM7_PASSES;
    set_colours(r->png, r->info);
    int channels = png_get_channels(r->png, r->info);
    size_t row = png_get_rowbytes(r->png, r->info);
    int64_t height = png_get_image_height(r->png, r->info), width = png_get_image_width(r->png, r->info);
    LS_TRY(ls_image_check_size(r->image, height, width));
    if ((channels != 1 && channels != 3) || row != (size_t)channels * (size_t)width)
        return ls_image_refuse(r->image, "a PNG of an unknown colour type");
    LS_TRY(ls_image_reserve(r->image, channels, (int)height, (int)width));
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < r->image->height; y++)
            png_read_row(r->png, r->image->pixels + (size_t)y * row, NULL);
    png_read_end(r->png, NULL);
    return LS_OK;
}

enum ls_status ls_png_decode(const uint8_t *bytes, size_t size, struct ls_image *image)
{
    struct reader r = {.bytes = bytes, .size = size, .image = image};
    enum ls_status st = LS_FAILED;
    ls_image_refuse(image, "out of memory while decoding a PNG");
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    if (r.png)
        r.info = png_create_info_struct(r.png);
    if (r.info)
        st = decode(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return st;
}
