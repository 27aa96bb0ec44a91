/* How an image of a batch is made from stored bytes: crop at any position (outside black or reflected), mirror or not, then
 * map bytes to floats with a table. The host and the device kernels both compile this file, so they compute equal values. */
#ifndef LS_BASE_CROP_H
#define LS_BASE_CROP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LS_CROP_FUNCTION static __host__ __device__ __forceinline__
#else
#define LS_CROP_FUNCTION static inline
#endif

/* The form in which the images of a batch reach the backend. */
enum ls_form {
    LS_FORM_PLANES, /* f32, C x H x W each, final values */
    LS_FORM_PIXELS, /* bytes of the final size, H x W x C each, with one crop per image */
    LS_FORM_CROPS   /* one crop per image; the images are in device memory already */
};

/* One image of a batch. */
struct ls_crop {
    int64_t image;     /* index of the stored image; -1: none, all values are 0 */
    int32_t top, left; /* first row and column; may lie outside of the image */
    int32_t flip;      /* 1: mirror left to right */
};

/* The format of all images of a data set. Stored images are contiguous, H x W x C bytes each. */
struct ls_pixels {
    int32_t from_channels, from_height, from_width; /* stored */
    int32_t channels, height, width;                /* output; channels: as stored, or 1 <-> 3 */
    int32_t reflect;     /* 1: beyond the border the image goes on mirrored, else it is black */
    float table[4][256]; /* byte -> value, per output channel */
};

LS_CROP_FUNCTION int64_t ls_pixels_bytes(const struct ls_pixels *p)
{
    return (int64_t)p->from_channels * p->from_height * p->from_width;
}

/* Luma of ITU-R BT.601. */
LS_CROP_FUNCTION uint8_t ls_luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 32768u) >> 16);
}

/* Row or column i of an image that is mirrored at its borders; the border itself is not repeated. */
LS_CROP_FUNCTION int32_t ls_reflect(int32_t i, int32_t size)
{
    i = i < 0 ? -i : i;
    return i < size ? i : 2 * size - 2 - i;
}

/* Returns the offset in the stored image of the pixel for output position (y, x), or -1 if it lies outside. */
LS_CROP_FUNCTION int64_t ls_crop_source(const struct ls_pixels *p, const struct ls_crop *crop, int32_t y, int32_t x)
{
    int32_t row = crop->top + y, column = crop->left + (crop->flip ? p->width - 1 - x : x);
    if (p->reflect) {
        row = ls_reflect(row, p->from_height);
        column = ls_reflect(column, p->from_width);
    }
    bool inside = row >= 0 && row < p->from_height && column >= 0 && column < p->from_width;
    return inside ? ((int64_t)row * p->from_width + column) * p->from_channels : -1;
}

/* Returns channel c of a pixel; `at` is the result of ls_crop_source. */
LS_CROP_FUNCTION uint8_t ls_crop_byte(const struct ls_pixels *p, const uint8_t *image, int64_t at, int32_t c)
{
    if (at < 0)
        return 0;
    if (p->from_channels == p->channels)
        return image[at + c];
    return p->from_channels == 3 ? ls_luma(image + at) : image[at];
}

/* Makes `count` images as f32 planes on the host. The reference for devices. */
#ifdef __cplusplus
extern "C"
#endif
    void
    ls_crop_planes(const struct ls_pixels *p, const uint8_t *images, const struct ls_crop *crops, int64_t count,
                   float *planes);

#endif
