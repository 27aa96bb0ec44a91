/* Counter-based random numbers (Philox 4x32-10). A number is a pure function of (seed, stream, index): any worker or thread
 * can compute any part of a sequence, and a checkpoint stores no generator state. */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <stdint.h>

enum ls_random_use {
    LS_RANDOM_INIT = 1,
    LS_RANDOM_SHUFFLE,
    LS_RANDOM_AUGMENT,
    LS_RANDOM_DROPOUT,
    LS_RANDOM_SYNTHETIC,
    LS_RANDOM_COMPRESS,
    LS_RANDOM_MIX,
    LS_RANDOM_STRAGGLERS,
    LS_RANDOM_ARRIVALS
};

static inline void ls_philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Returns the stream for a use and up to three coordinates, such as step, replica and node. */
uint64_t ls_random_stream(enum ls_random_use use, uint64_t a, uint64_t b, uint64_t c);

/* Maps random bits to [0, 1) with 24 bits. */
static inline float ls_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}
/* The factor of element `index` under dropout with probability p: 1 / (1 - p), or 0 where it is dropped. */
static inline float ls_random_keep(uint64_t seed, uint64_t stream, int64_t index, float p)
{
    uint32_t r[4];
    ls_philox(seed, stream, (uint64_t)index / 4, r);
    return ls_uniform(r[index % 4]) >= p ? 1.0f / (1.0f - p) : 0.0f;
}
/* Returns element `index` of the stream as an integer in [0, below); below >= 1. */
uint64_t ls_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t below);
/* Fills out with uniform(low, high) or normal(0, deviation) numbers. Element i depends only on (seed, stream, i). */
void ls_random_fill_uniform(uint64_t seed, uint64_t stream, float low, float high, int64_t n, float *out);
void ls_random_fill_normal(uint64_t seed, uint64_t stream, float deviation, int64_t n, float *out);

#endif
