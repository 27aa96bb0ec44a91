/* Conversions of bf16, apart from those of the kernels under test: to the nearest, ties to even. Finite values only. */
#ifndef LS_TESTS_BF16_H
#define LS_TESTS_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
