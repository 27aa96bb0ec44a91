#include "report/formats/png.h"
#include "base/log.h"
#include "base/memory.h"

#include <png.h>

enum ls_status ls_png_encode(const uint8_t *pixels, int channels, int height, int width, uint8_t **bytes, size_t *size)
{
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)width,
                     .height = (png_uint_32)height,
                     .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(png);
    *bytes = ls_alloc(room, 1);
    if (!*bytes)
        return LS_FAILED;
    if (!png_image_write_to_memory(&png, *bytes, &room, 0, pixels, 0, NULL)) {
        ls_free(*bytes);
        *bytes = NULL;
        return ls_fail(LS_FAILED, "an image of %dx%d cannot be encoded as PNG: %s", width, height, png.message);
    }
    *size = room;
    return LS_OK;
}
