/* How an image of a batch is made from stored bytes: cut out at any place, black outside, mirrored or not, then looked up in
 * a table. One arithmetic for the host and for devices (their compilers read this file too), so that values do not depend on
 * where it is done. */
#ifndef LS_BASE_CROP_H
#define LS_BASE_CROP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LS_CROP_FUNCTION static __host__ __device__ __forceinline__
#else
#define LS_CROP_FUNCTION static inline
#endif

/* In which form the images of a batch travel. */
enum ls_form {
    LS_FORM_PLANES, /* f32, C x H x W each, finished */
    LS_FORM_PIXELS, /* bytes of the final size, H x W x C each, and a crop for each */
    LS_FORM_CROPS   /* a crop for each, out of images that are where they are needed already */
};

/* One image of a batch. */
struct ls_crop {
    int64_t image;     /* number of the stored image; -1: none, all values are 0 */
    int32_t top, left; /* where the part begins, which may lie outside */
    int32_t flip;      /* 1: the part is mirrored, left to right */
};

/* What all images of a data set have in common. Stored images lie one after the other, H x W x C bytes each. */
struct ls_pixels {
    int32_t from_channels, from_height, from_width; /* stored */
    int32_t channels, height, width;                /* what comes out; channels: as stored, or 1 <-> 3 */
    float table[4][256];                            /* byte -> value, per channel that comes out */
};

LS_CROP_FUNCTION int64_t ls_pixels_bytes(const struct ls_pixels *p)
{
    return (int64_t)p->from_channels * p->from_height * p->from_width;
}

/* The luma of ITU-R 601. */
LS_CROP_FUNCTION uint8_t ls_luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 32768u) >> 16);
}

/* The first byte, in the stored image, of the pixel that comes out at (y, x); -1: outside. */
LS_CROP_FUNCTION int64_t ls_crop_source(const struct ls_pixels *p, const struct ls_crop *crop, int32_t y, int32_t x)
{
    int32_t row = crop->top + y, column = crop->left + (crop->flip ? p->width - 1 - x : x);
    bool inside = row >= 0 && row < p->from_height && column >= 0 && column < p->from_width;
    return inside ? ((int64_t)row * p->from_width + column) * p->from_channels : -1;
}

/* Channel c of that pixel; `at` is what ls_crop_source gave. */
LS_CROP_FUNCTION uint8_t ls_crop_byte(const struct ls_pixels *p, const uint8_t *image, int64_t at, int32_t c)
{
    if (at < 0)
        return 0;
    if (p->from_channels == p->channels)
        return image[at + c];
    return p->from_channels == 3 ? ls_luma(image + at) : image[at];
}

/* The whole of it on the host, plainly: `count` images as f32 planes. */
#ifdef __cplusplus
extern "C"
#endif
    void
    ls_crop_planes(const struct ls_pixels *p, const uint8_t *images, const struct ls_crop *crops, int64_t count,
                   float *planes);

#endif
