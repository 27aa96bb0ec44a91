/* A codec encodes the values of a sum for the wire. In a reduce-scatter each rank encodes the range that it sends to the
 * range's owner. The owner decodes, adds in f32 in the order of the tree, encodes the sum and sends it to all. A value is
 * encoded at most twice, and the sum itself is not rounded.
 *
 * Ranges are cut into blocks of LS_CODEC_BLOCK values (algorithms/sum.h); each call encodes one block. An owner does not
 * encode its own parts.
 *
 * The wire size depends on the count alone, is a multiple of 4 and at most 4 * count + 256. A codec may keep the rounding
 * error and add it the next time (error feedback): `feedback` holds count floats for these values, zero at first, NULL
 * for codecs without feedback. The encoding of the sum has feedback memory of its own. */
#ifndef LS_COMM_CODEC_H
#define LS_COMM_CODEC_H

#include <stdbool.h>
#include <stddef.h>

struct ls_codec {
    const char *name;
    bool feedback;      /* needs feedback memory */
    bool fills_padding; /* a zero may decode as another value, so that padding must be cleared after a sum */
    /* A value that is not finite decodes as such and leaves no trace in later steps, and no finite gradient is clipped. So
     * fp16 training sees the overflow of a gradient. */
    bool shows_overflow;
    size_t (*bytes)(size_t count);
    void (*encode)(const float *values, float *feedback, size_t count, void *wire);
    void (*decode)(const void *wire, size_t count, float *values);
    /* values += decoded */
    void (*decode_add)(const void *wire, size_t count, float *values);
};

#endif
