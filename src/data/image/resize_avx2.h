/* The sums of resize.c with AVX2: the same integers, several at a time.
 *
 * A weight has 23 bits, too many for the multiplications of 16 bits that are fast. It is cut into high * 2^14 + low; the sums
 * of both parts are exact, and so is high * 2^14 + low of the sums. */
#ifndef LS_DATA_IMAGE_RESIZE_AVX2_H
#define LS_DATA_IMAGE_RESIZE_AVX2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_WEIGHT_BITS 22

/* The weights of one direction: output i is the sum over `length[i]` inputs from `start[i]`. */
struct ls_weights {
    int taps;                     /* maximum number of weights per output */
    int *start, *length, *weight; /* borrowed from the side buffer */
};

/* Tests whether this machine has AVX2. Without it the others must not be called. */
bool ls_avx2(void);
/* Returns the bytes that the weights of a row take, cut and arranged for ls_avx2_scale_row3, which may be read 64 at a time. */
size_t ls_avx2_cut_bytes(int taps, int count);
void ls_avx2_cut(const struct ls_weights *w, int count, void *cut);
/* Scales a row of `width` RGB pixels. Returns the number of outputs, which may be less than count: the last ones would need
 * bytes behind the row. Writes one byte behind the last output. */
int ls_avx2_scale_row3(const uint8_t *row, int width, const struct ls_weights *w, const void *cut, int count,
                       uint8_t *out);
/* Computes one output row from `length` rows, `stride` bytes apart. Returns the number of bytes that are done: less than
 * `bytes` by up to 15, or 0 for many rows. */
size_t ls_avx2_blend(const uint8_t *rows, size_t stride, const int *weight, int length, size_t bytes, uint8_t *out);

#endif
