#include "base/log.h"
#include "base/memory.h"
#include "data/data.h"

#include <png.h>

enum ls_status ls_png_encode(const struct ls_image *image, uint8_t **bytes, size_t *size)
{
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)image->width,
                     .height = (png_uint_32)image->height,
                     .format = image->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(png);
    *bytes = ls_alloc(room, 1);
    if (!*bytes)
        return LS_FAILED;
    if (!png_image_write_to_memory(&png, *bytes, &room, 0, image->pixels, 0, NULL)) {
        ls_free(*bytes);
        *bytes = NULL;
        return ls_fail(LS_FAILED, "an image of %dx%d cannot be encoded as PNG: %s", image->width, image->height,
                       png.message);
    }
    *size = room;
    return LS_OK;
}
