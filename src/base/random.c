#include "base/random.h"

#include <math.h>

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint64_t ls_random_stream(enum ls_random_use use, uint64_t a, uint64_t b, uint64_t c)
{
    return mix(mix(mix(mix((uint64_t)use) ^ a) ^ b) ^ c);
}

uint64_t ls_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t below)
{
    /* Multiply-shift on 64 random bits. The bias is less than below / 2^64. */
    uint32_t r[4];
    ls_philox(seed, stream, index, r);
    uint64_t bits = (uint64_t)r[0] << 32 | r[1];
    return (uint64_t)(((unsigned __int128)bits * below) >> 64);
}

void ls_random_fill_uniform(uint64_t seed, uint64_t stream, float low, float high, int64_t n, float *out)
{
    float span = high - low;
#pragma omp parallel for schedule(static) if (n > 65536)
    for (int64_t block = 0; block < (n + 3) / 4; block++) {
        uint32_t r[4];
        ls_philox(seed, stream, (uint64_t)block, r);
        for (int64_t i = block * 4, k = 0; k < 4 && i < n; i++, k++)
            out[i] = low + span * ls_uniform(r[k]);
    }
}

void ls_random_fill_normal(uint64_t seed, uint64_t stream, float deviation, int64_t n, float *out)
{
#pragma omp parallel for schedule(static) if (n > 65536)
    for (int64_t block = 0; block < (n + 3) / 4; block++) {
        uint32_t r[4];
        float z[4];
        ls_philox(seed, stream, (uint64_t)block, r);
        for (int pair = 0; pair < 4; pair += 2) {
            float radius = sqrtf(-2.0f * logf(1.0f - ls_uniform(r[pair])));
            float angle = 6.28318530718f * ls_uniform(r[pair + 1]);
            z[pair] = radius * cosf(angle);
            z[pair + 1] = radius * sinf(angle);
        }
        for (int64_t i = block * 4, k = 0; k < 4 && i < n; i++, k++)
            out[i] = deviation * z[k];
    }
}
