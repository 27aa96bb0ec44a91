/* From the bytes of an image to the normalised planes that a network reads. */
#ifndef LS_DATA_IMAGE_PLANES_H
#define LS_DATA_IMAGE_PLANES_H

#include "data/dataset.h"

/* Crops the output size of `a` at (top, left), which may lie outside, mirrors it with `flip`, and looks each byte up in the
 * tables of `a`. */
void ls_planes_fill(const struct ls_augment *a, const struct ls_image *image, int top, int left, bool flip,
                    float *planes);

#endif
