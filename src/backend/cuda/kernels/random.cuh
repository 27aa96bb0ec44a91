/* Device versions of the functions of base/random.h, with the same bits. */
#ifndef LS_BACKEND_CUDA_KERNELS_RANDOM_CUH
#define LS_BACKEND_CUDA_KERNELS_RANDOM_CUH

#include "base/random.h"

namespace ls_device
{

__device__ __forceinline__ void philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t (&out)[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        uint32_t h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c2 = h0 ^ c3 ^ k1;
        c1 = l1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

__device__ __forceinline__ uint64_t random_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

__device__ __forceinline__ uint64_t random_stream(enum ls_random_use use, uint64_t a, uint64_t b, uint64_t c)
{
    return random_mix(random_mix(random_mix(random_mix((uint64_t)use) ^ a) ^ b) ^ c);
}

/* Uniform in [0, 1), with 24 bits. */
__device__ __forceinline__ float random_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

} // namespace ls_device

#endif
