/* How the values of a sum travel: as f32, or smaller. In a reduce-scatter each rank encodes the range it sends to its
 * owner; the owner decodes, adds in f32 in the order of the tree, encodes the sum and sends it to all. So a codec sees
 * each value at most twice, and the sum itself never rounds.
 *
 * Ranges are cut into blocks of LS_CODEC_BLOCK values (sum.h), each encoded by a call of its own. A rank's parts for its
 * own range stay as they are.
 *
 * The wire size depends on the count alone, is a multiple of 4 and at most 4 * count + 256 for any count. Encoding may
 * keep what it rounded away and add it next time (error feedback): `feedback` is count floats that belong to this place
 * in this bucket, zero at first; NULL for codecs that keep nothing. The owner's second encoding has a feedback of its
 * own. */
#ifndef LS_COMM_CODEC_H
#define LS_COMM_CODEC_H

#include <stdbool.h>
#include <stddef.h>

struct ls_codec {
    const char *name;
    bool feedback;      /* wants that memory */
    bool fills_padding; /* a zero may decode as another value, so padding must be cleared after a sum */
    bool
        shows_overflow; /* a value that is not finite decodes as such and leaves no trace in later steps, and no finite value
                            is clipped that a gradient can reach: fp16 training can tell when a gradient overflows */
    float limit;        /* finite values of this size or more are sent as the type's largest; 0: there is no limit */
    size_t (*bytes)(size_t count);
    void (*encode)(const float *values, float *feedback, size_t count, void *wire);
    void (*decode)(const void *wire, size_t count, float *values);
    /* values += decoded; the order of additions within a value is that of the calls. */
    void (*decode_add)(const void *wire, size_t count, float *values);
};

#endif
