/* Bytes to normalised planes with AVX-512 VBMI: look-ups in a table of 256 floats, 64 at a time. A float is four bytes, and
 * each of them is looked up by itself. The values are those of the table, whatever it has. */
#ifndef LS_DATA_IMAGE_PLANES_VBMI_H
#define LS_DATA_IMAGE_PLANES_VBMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tests whether this machine has the instructions. Without them ls_vbmi_plane must not be called. */
bool ls_vbmi(void);

/* Part of an image with three channels, and where its values go. */
struct ls_vbmi_part {
    const uint8_t *pixels;  /* the first row's source of the first output */
    ptrdiff_t pixel_stride; /* bytes from a row to the next */
    bool flip;              /* the source of the next output is 3 bytes before, not behind */
    int rows, count;        /* outputs of each row */
    float *out;
    size_t out_stride; /* floats from a row to the next */
    /* Store past the cache if the alignment allows it: faster where so much is written that nothing stays. */
    bool past_cache;
};
/* Fills part of the plane of a channel (0, 1 or 2). */
void ls_vbmi_plane(const struct ls_vbmi_part *part, int channel, const float table[256]);

#endif
