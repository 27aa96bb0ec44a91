/* How an image of a batch is made from stored bytes: cut out at any place, black outside, mirrored or not, then looked up in
 * a table. One arithmetic for the host and for devices (their compilers read this file too), so that values do not depend on
 * where it is done. */
#ifndef LS_BASE_PICK_H
#define LS_BASE_PICK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LS_PICK_FUNCTION static __host__ __device__ __forceinline__
#else
#define LS_PICK_FUNCTION static inline
#endif

/* In which form the images of a batch travel. */
enum ls_form {
    LS_FORM_PLANES, /* f32, C x H x W each, finished */
    LS_FORM_PIXELS, /* bytes of the final size, H x W x C each, and a pick for each */
    LS_FORM_PICKS   /* a pick for each, out of images that are where they are needed already */
};

/* One image of a batch. */
struct ls_pick {
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

LS_PICK_FUNCTION int64_t ls_pixels_bytes(const struct ls_pixels *p)
{
    return (int64_t)p->from_channels * p->from_height * p->from_width;
}

/* The luma of ITU-R 601. */
LS_PICK_FUNCTION uint8_t ls_luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 32768u) >> 16);
}

/* The first byte, in the stored image, of the pixel that comes out at (y, x); -1: outside. */
LS_PICK_FUNCTION int64_t ls_pick_source(const struct ls_pixels *p, const struct ls_pick *pick, int32_t y, int32_t x)
{
    int32_t row = pick->top + y, column = pick->left + (pick->flip ? p->width - 1 - x : x);
    bool inside = row >= 0 && row < p->from_height && column >= 0 && column < p->from_width;
    return inside ? ((int64_t)row * p->from_width + column) * p->from_channels : -1;
}

/* Channel c of that pixel; `at` is what ls_pick_source gave. */
LS_PICK_FUNCTION uint8_t ls_pick_byte(const struct ls_pixels *p, const uint8_t *image, int64_t at, int32_t c)
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
    ls_pick_planes(const struct ls_pixels *p, const uint8_t *images, const struct ls_pick *picks, int64_t count,
                   float *planes);

#endif
