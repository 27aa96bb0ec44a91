/* Pairs of values of two adjacent channels for the comparisons of max pooling; 16-bit types compare both in one
 * instruction. Also pairs of positions, 16 bits each. */
#ifndef LS_BACKEND_CUDA_KERNELS_POOL_DUO_CUH
#define LS_BACKEND_CUDA_KERNELS_POOL_DUO_CUH

#include "backend/cuda/kernels/device.cuh"

namespace ls_pool
{

using namespace ls_device;

template <typename T> struct duo {
    uint32_t v;
};
template <> struct duo<float> {
    float2 v;
};

template <typename T> __device__ __forceinline__ uint32_t larger_halves(uint32_t a, uint32_t b);
template <> __device__ __forceinline__ uint32_t larger_halves<__nv_bfloat16>(uint32_t a, uint32_t b)
{
    __nv_bfloat162 m = __hmax2_nan(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
    return *(uint32_t *)&m;
}
template <> __device__ __forceinline__ uint32_t larger_halves<__half>(uint32_t a, uint32_t b)
{
    __half2 m = __hmax2_nan(*(__half2 *)&a, *(__half2 *)&b);
    return *(uint32_t *)&m;
}

/* All ones in each half where a equals b. */
template <typename T> __device__ __forceinline__ uint32_t equal_halves(uint32_t a, uint32_t b);
template <> __device__ __forceinline__ uint32_t equal_halves<__nv_bfloat16>(uint32_t a, uint32_t b)
{
    return __heq2_mask(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
}
template <> __device__ __forceinline__ uint32_t equal_halves<__half>(uint32_t a, uint32_t b)
{
    return __heq2_mask(*(__half2 *)&a, *(__half2 *)&b);
}

/* NaN counts as the largest value, so that it propagates. */
template <typename T> __device__ __forceinline__ duo<T> larger(const duo<T> &a, const duo<T> &b)
{
    if constexpr (sizeof(T) == 4)
        return {make_float2(a.v.x >= b.v.x || a.v.x != a.v.x ? a.v.x : b.v.x,
                            a.v.y >= b.v.y || a.v.y != a.v.y ? a.v.y : b.v.y)};
    else
        return {larger_halves<T>(a.v, b.v)};
}

/* `then` in each half where a equals b, else `otherwise`. */
template <typename T>
__device__ __forceinline__ uint32_t where_equal(const duo<T> &a, const duo<T> &b, uint32_t then, uint32_t otherwise)
{
    uint32_t mask;
    if constexpr (sizeof(T) == 4)
        mask = (a.v.x == b.v.x ? 0xffffu : 0) | (a.v.y == b.v.y ? 0xffff0000u : 0);
    else
        mask = equal_halves<T>(a.v, b.v);
    return (then & mask) | (otherwise & ~mask);
}

/* Channels 2p and 2p + 1, with the sign changed in each half whose highest bit is set in `flip`; and the inverse. */
template <typename T> __device__ __forceinline__ duo<T> duo_of(const octet<T> &o, int p, uint32_t flip)
{
    if constexpr (sizeof(T) == 4) {
        const float2 f = pair_of<T>(o, p);
        return {make_float2(__uint_as_float(__float_as_uint(f.x) ^ flip << 16),
                            __uint_as_float(__float_as_uint(f.y) ^ (flip & 0x80000000u)))};
    } else {
        const uint4 &w = o.word[0];
        return {(p == 0 ? w.x : p == 1 ? w.y : p == 2 ? w.z : w.w) ^ flip};
    }
}
template <typename T> __device__ __forceinline__ void set_duo(octet<T> &o, int p, const duo<T> &d, uint32_t flip)
{
    if constexpr (sizeof(T) == 4) {
        set_pair<T>(o, p,
                    make_float2(__uint_as_float(__float_as_uint(d.v.x) ^ flip << 16),
                                __uint_as_float(__float_as_uint(d.v.y) ^ (flip & 0x80000000u))));
    } else {
        uint4 &w = o.word[0];
        (p == 0 ? w.x : p == 1 ? w.y : p == 2 ? w.z : w.w) = d.v ^ flip;
    }
}

/* A value below every other value. */
template <typename T> __device__ __forceinline__ duo<T> lowest(void)
{
    if constexpr (sizeof(T) == 4)
        return {make_float2(-INFINITY, -INFINITY)};
    else
        return {narrow_pair<T>(-INFINITY, -INFINITY)};
}

__device__ __forceinline__ uint32_t both(int pos)
{
    return (uint32_t)pos * 0x10001u;
}

/* Packs the positions of eight values, one byte each. */
__device__ __forceinline__ uint2 pack_positions(const uint32_t (&at)[4])
{
    return make_uint2(__byte_perm(at[0], at[1], 0x6420), __byte_perm(at[2], at[3], 0x6420));
}

} // namespace ls_pool

#endif
