/* Still WebP images with libwebp. Drops alpha like convert("RGB") of Pillow. */
#include "data/dataset.h"

#ifdef LS_WEBP

#include <webp/decode.h>

enum ls_status ls_webp_decode(const uint8_t *bytes, size_t size, struct ls_image *image)
{
    WebPBitstreamFeatures is;
    VP8StatusCode code = WebPGetFeatures(bytes, size, &is);
    if (code != VP8_STATUS_OK)
        return ls_image_refuse(image, "corrupt or truncated WebP: its header cannot be read (code %d)", (int)code);
    if (is.has_animation)
        return ls_image_refuse(image, "an animated WebP: only still ones are read");
    LS_TRY(ls_image_check_size(image, is.height, is.width));
    LS_TRY(ls_image_reserve(image, 3, is.height, is.width));
    size_t row = 3 * (size_t)is.width;
    if (!WebPDecodeRGBInto(bytes, size, image->pixels, row * (size_t)is.height, (int)row))
        return ls_image_refuse(image, "corrupt or truncated WebP: %d x %d pixels cannot be read from %zu bytes",
                               is.width, is.height, size);
    return LS_OK;
}

#else

enum ls_status ls_webp_decode(const uint8_t *bytes, size_t size, struct ls_image *image)
{
    (void)bytes, (void)size;
    return ls_image_refuse(image, "%s", ls_image_needs("webp"));
}

#endif
