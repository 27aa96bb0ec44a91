/* The parts of a look into a table (jpeg_huffman.h). */
#ifndef LS_DATA_IMAGE_JPEG_LOOK_H
#define LS_DATA_IMAGE_JPEG_LOOK_H

#include "data/image/jpeg/jpeg_huffman.h"

enum {
    LOOK = LS_JPEG_LOOK,
    PASS = LS_JPEG_PASS,
    LONGEST = 16 /* bits of a code */,
    LARGEST = 11 /* bits of a value */
};
enum { BOTH = 8, SKIP = 16, FIRST = 24, LENGTH = 32, REST = 40, SECOND = 48 };
#define LONG_CODE ((ls_jpeg_look)255 << BOTH)

static inline unsigned part(ls_jpeg_look l, int at)
{
    return l >> at & 255;
}

static inline uint64_t skip_of(int symbol)
{
    return (symbol & 15) == 0 && symbol != 0xf0 ? LS_JPEG_ENDS : 1 + (unsigned)(symbol >> 4);
}

static inline ls_jpeg_look look_of(int length, int symbol)
{
    uint64_t size = symbol & 15, bits = (unsigned)length + size, skip = skip_of(symbol);
    return bits | skip << BOTH | skip << SKIP | bits << FIRST | (uint64_t)length << LENGTH | (63 - size) << REST;
}

/* Returns the value that the first bits stand for, 63 - rest of them. One that begins with a 0 is negative: its bits, inverted,
 * are its magnitude. */
static inline __attribute__((always_inline)) int value_of(uint64_t bits, unsigned rest)
{
    uint64_t negative = (bits >> 63) - 1;
    return (int)(((bits ^ negative) >> 1 >> (rest & 63)) ^ negative) - (int)negative;
}

#endif
