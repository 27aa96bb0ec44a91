/* Encoding of images, and the facts about encoded ones that their heads tell. Nothing here reports an error: the cause is in
 * image->why. Any thread may call these functions. */
#ifndef LS_DATA_IMAGE_ENCODE_H
#define LS_DATA_IMAGE_ENCODE_H

#include "data/dataset.h"

/* Encode the image; free *bytes with ls_free. PNG loses nothing. quality: 1 to 100, as libjpeg counts. */
enum ls_status ls_jpeg_encode(struct ls_image *image, int quality, uint8_t **bytes, size_t *size);
enum ls_status ls_png_store(struct ls_image *image, uint8_t **bytes, size_t *size);

/* Returns the usual extension of an image file by its content, "jpg"; NULL: no image that is read. */
const char *ls_image_extension(const uint8_t *bytes, size_t size);
/* Finds the size of the upright image. Decodes it if the head of its kind of file does not tell. */
enum ls_status ls_image_measure(const uint8_t *bytes, size_t size, struct ls_image *scratch, int *height, int *width);

#endif
