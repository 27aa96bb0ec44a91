/* Helpers of all kernels: octets (8 adjacent channels, LS_CUDA_LANE) in packed form and as floats, the activation,
 * small reductions, division by a number known on the host, and the choice of a template by type.
 *
 *   struct octet<T>       8 values of T in registers: one 16-byte word, or two for f32
 *   load, load_once       read an octet; load_once is for octets that are not read again soon
 *   store, store_once     write an octet; store_once likewise
 *   widen, narrow         octet <-> float[8]; narrow rounds to nearest even
 *
 * To keep several loads in flight, load all octets of a batch before widening the first. */
#ifndef LS_BACKEND_CUDA_KERNELS_DEVICE_CUH
#define LS_BACKEND_CUDA_KERNELS_DEVICE_CUH

#include "backend/cuda/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>

namespace ls_device
{

/* --- octets -------------------------------------------------------------------------------------------------- */

template <typename T> struct octet {
    static constexpr int words = sizeof(T) / 2;
    uint4 word[words];
};

/* `at` counts octets. The load bypasses L1, so it is also correct where the kernel writes the same memory. */
template <typename T> __device__ __forceinline__ octet<T> load(const void *from, int64_t at)
{
    octet<T> o;
    const uint4 *p = (const uint4 *)from + at * octet<T>::words;
#pragma unroll
    for (int i = 0; i < octet<T>::words; i++)
        o.word[i] = __ldcg(p + i);
    return o;
}

/* The octet is the first to be evicted from the caches. */
template <typename T> __device__ __forceinline__ octet<T> load_once(const void *from, int64_t at)
{
    octet<T> o;
    const uint4 *p = (const uint4 *)from + at * octet<T>::words;
#pragma unroll
    for (int i = 0; i < octet<T>::words; i++)
        o.word[i] = __ldcs(p + i);
    return o;
}

/* The load goes through L1, for octets that neighbouring threads read too. The kernel must never write this memory. */
template <typename T> __device__ __forceinline__ octet<T> load_shared(const void *from, int64_t at)
{
    octet<T> o;
    const uint4 *p = (const uint4 *)from + at * octet<T>::words;
#pragma unroll
    for (int i = 0; i < octet<T>::words; i++)
        o.word[i] = __ldg(p + i);
    return o;
}

template <typename T> __device__ __forceinline__ void store(void *to, int64_t at, const octet<T> &o)
{
    uint4 *p = (uint4 *)to + at * octet<T>::words;
#pragma unroll
    for (int i = 0; i < octet<T>::words; i++)
        p[i] = o.word[i];
}

template <typename T> __device__ __forceinline__ void store_once(void *to, int64_t at, const octet<T> &o)
{
    uint4 *p = (uint4 *)to + at * octet<T>::words;
#pragma unroll
    for (int i = 0; i < octet<T>::words; i++)
        __stcs(p + i, o.word[i]);
}

template <typename T> __device__ __forceinline__ octet<T> zero_octet()
{
    octet<T> o;
#pragma unroll
    for (int i = 0; i < octet<T>::words; i++)
        o.word[i] = make_uint4(0, 0, 0, 0);
    return o;
}

/* The address `octets` octets further. */
template <typename T> __device__ __forceinline__ const void *move(const void *p, int64_t octets)
{
    return (const uint4 *)p + octets * octet<T>::words;
}
template <typename T> __device__ __forceinline__ void *move(void *p, int64_t octets)
{
    return (uint4 *)p + octets * octet<T>::words;
}

/* Two values of a 16-bit type in one register, the first in the lower half. */
template <typename T> __device__ __forceinline__ void widen_pair(uint32_t pair, float &a, float &b);
template <> __device__ __forceinline__ void widen_pair<__nv_bfloat16>(uint32_t pair, float &a, float &b)
{
    a = __uint_as_float(pair << 16);
    b = __uint_as_float(pair & 0xffff0000u);
}
template <> __device__ __forceinline__ void widen_pair<__half>(uint32_t pair, float &a, float &b)
{
    __half2_raw raw;
    raw.x = (unsigned short)pair;
    raw.y = (unsigned short)(pair >> 16);
    float2 v = __half22float2(__half2(raw));
    a = v.x;
    b = v.y;
}

template <typename T> __device__ __forceinline__ uint32_t narrow_pair(float a, float b);
template <> __device__ __forceinline__ uint32_t narrow_pair<__nv_bfloat16>(float a, float b)
{
    __nv_bfloat162_raw raw = __floats2bfloat162_rn(a, b);
    return (uint32_t)raw.x | (uint32_t)raw.y << 16;
}
template <> __device__ __forceinline__ uint32_t narrow_pair<__half>(float a, float b)
{
    __half2_raw raw = __floats2half2_rn(a, b);
    return (uint32_t)raw.x | (uint32_t)raw.y << 16;
}

template <typename T> __device__ __forceinline__ void widen(const octet<T> &o, float (&v)[8])
{
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            v[4 * i] = __uint_as_float(o.word[i].x);
            v[4 * i + 1] = __uint_as_float(o.word[i].y);
            v[4 * i + 2] = __uint_as_float(o.word[i].z);
            v[4 * i + 3] = __uint_as_float(o.word[i].w);
        }
    } else {
        widen_pair<T>(o.word[0].x, v[0], v[1]);
        widen_pair<T>(o.word[0].y, v[2], v[3]);
        widen_pair<T>(o.word[0].z, v[4], v[5]);
        widen_pair<T>(o.word[0].w, v[6], v[7]);
    }
}

template <typename T> __device__ __forceinline__ octet<T> narrow(const float (&v)[8])
{
    octet<T> o;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            o.word[i] = make_uint4(__float_as_uint(v[4 * i]), __float_as_uint(v[4 * i + 1]),
                                   __float_as_uint(v[4 * i + 2]), __float_as_uint(v[4 * i + 3]));
    } else {
        o.word[0] = make_uint4(narrow_pair<T>(v[0], v[1]), narrow_pair<T>(v[2], v[3]), narrow_pair<T>(v[4], v[5]),
                               narrow_pair<T>(v[6], v[7]));
    }
    return o;
}

/* Channels 2p and 2p + 1 of an octet. p must be a compile-time constant. */
template <typename T> __device__ __forceinline__ float2 pair_of(const octet<T> &o, int p)
{
    float2 v;
    if constexpr (sizeof(T) == 4) {
        const uint4 &w = o.word[p / 2];
        v = p % 2 ? make_float2(__uint_as_float(w.z), __uint_as_float(w.w))
                  : make_float2(__uint_as_float(w.x), __uint_as_float(w.y));
    } else {
        const uint4 &w = o.word[0];
        widen_pair<T>(p == 0 ? w.x : p == 1 ? w.y : p == 2 ? w.z : w.w, v.x, v.y);
    }
    return v;
}

template <typename T> __device__ __forceinline__ void set_pair(octet<T> &o, int p, float2 v)
{
    if constexpr (sizeof(T) == 4) {
        uint4 &w = o.word[p / 2];
        (p % 2 ? w.z : w.x) = __float_as_uint(v.x);
        (p % 2 ? w.w : w.y) = __float_as_uint(v.y);
    } else {
        uint4 &w = o.word[0];
        (p == 0 ? w.x : p == 1 ? w.y : p == 2 ? w.z : w.w) = narrow_pair<T>(v.x, v.y);
    }
}

/* 8 parameters of type f32, cached. `at` counts octets. */
__device__ __forceinline__ void load_floats(const float *from, int64_t at, float (&v)[8])
{
    widen<float>(load_shared<float>(from, at), v);
}

/* The same for memory that this kernel also writes. */
__device__ __forceinline__ void load_written(const float *from, int64_t at, float (&v)[8])
{
    widen<float>(load<float>(from, at), v);
}

/* --- single values --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float to_float(float v)
{
    return v;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}
__device__ __forceinline__ float to_float(__half v)
{
    return __half2float(v);
}

template <typename T> __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v)
{
    return v;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v)
{
    return __float2bfloat16_rn(v);
}
template <> __device__ __forceinline__ __half from_float<__half>(float v)
{
    return __float2half_rn(v);
}

/* --- activation ------------------------------------------------------------------------------------------------ */

/* The upper bound of the activation, `top` below: the only difference between relu and relu6. */
inline __host__ __device__ float act_top(enum ls_act act)
{
    return act == LS_ACT_RELU6 ? 6.0f : INFINITY;
}

/* NaN stays NaN. */
template <bool CLIPS> __device__ __forceinline__ float act_of(float z, float top)
{
    if (CLIPS)
        asm("max.NaN.f32 %0, %0, 0f00000000;\n\tmin.NaN.f32 %0, %0, %1;" : "+f"(z) : "f"(top));
    return z;
}

/* Whether the gradient passes. z is the value before or after the activation. */
__device__ __forceinline__ bool act_passes(float z, float top)
{
    return z > 0.0f && z < top;
}

/* --- reductions ------------------------------------------------------------------------------------------------ */

template <typename V> __device__ __forceinline__ V warp_sum(V v)
{
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, lane);
    return v;
}

/* Returns true, in all threads, in the last of `blocks` blocks that call it. What the other blocks wrote before
 * their call is then visible to loads through L2 (load, __ldcg). The counter is zero before the first call and after
 * the last. All threads of the block call it. */
__device__ __forceinline__ bool last_of(unsigned *counter, unsigned blocks)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
        last = atomicInc(counter, blocks - 1) == blocks - 1;
    __syncthreads();
    __threadfence();
    return last;
}

/* Adds the quads number first, first + step, ... < count to sum, in this order, with FLIGHT reads under way. They lie `apart`
 * quads from each other. */
template <int FLIGHT = 10>
__device__ __forceinline__ void add_quads(const float4 *from, int first, int step, int count, int apart,
                                          double (&sum)[4])
{
    for (int b = first; b < count; b += FLIGHT * step) {
        float4 v[FLIGHT];
#pragma unroll
        for (int u = 0; u < FLIGHT; u++)
            v[u] = b + u * step < count ? __ldcg(from + (int64_t)(b + u * step) * apart) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int u = 0; u < FLIGHT; u++) {
            sum[0] += v[u].x;
            sum[1] += v[u].y;
            sum[2] += v[u].z;
            sum[3] += v[u].w;
        }
    }
}

/* --- division -------------------------------------------------------------------------------------------------- */

/* n / by for 0 <= n < 2^31 and 1 <= by < 2^31, without a division instruction. */
struct divider {
    uint32_t by, factor, shift;
};

inline divider divider_of(int64_t by)
{
    uint32_t shift = 0;
    while (((uint64_t)1 << shift) < (uint64_t)by)
        shift++;
    uint64_t factor = (((uint64_t)1 << 32) * (((uint64_t)1 << shift) - (uint64_t)by)) / (uint64_t)by + 1;
    return divider{(uint32_t)by, (uint32_t)factor, shift};
}

__device__ __forceinline__ uint32_t divide(uint32_t n, const divider &d)
{
    return (__umulhi(n, d.factor) + n) >> d.shift;
}

/* Returns the quotient and sets n to the remainder. */
__device__ __forceinline__ uint32_t divide_rest(uint32_t &n, const divider &d)
{
    uint32_t q = divide(n, d);
    n -= q * d.by;
    return q;
}

/* --- launching --------------------------------------------------------------------------------------------------- */

inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Multiprocessors of the current device. */
inline int multiprocessors(void)
{
    int device = 0, n = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || n < 1)
        return 1;
    return n;
}

/* Prefers shared memory over L1 for a kernel whose blocks need `bytes` of shared memory each, so that many of them
 * fit on a multiprocessor. */
template <typename K> inline void want_shared(K *kernel, size_t bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

/* Whether the current device runs what was compiled for Hopper. Code for older GPUs, compiled anew by the driver, does not have
 * the instructions of wgmma.cuh. */
inline bool runs_hopper(void)
{
#ifdef LS_CUDA_WGMMA
    int device = 0, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
           minor == 0;
#else
    return false;
#endif
}

/* Compiles the statements with T as the type that `t` names. */
#define LS_CUDA_BY_TYPE(t, ...)      \
    do {                             \
        if ((t) == LS_F32) {         \
            using T = float;         \
            __VA_ARGS__;             \
        } else if ((t) == LS_BF16) { \
            using T = __nv_bfloat16; \
            __VA_ARGS__;             \
        } else {                     \
            using T = __half;        \
            __VA_ARGS__;             \
        }                            \
    } while (0)

/* The same for the 16-bit types. */
#define LS_CUDA_BY_HALF(t, ...)      \
    do {                             \
        if ((t) == LS_BF16) {        \
            using T = __nv_bfloat16; \
            __VA_ARGS__;             \
        } else {                     \
            using T = __half;        \
            __VA_ARGS__;             \
        }                            \
    } while (0)

} // namespace ls_device

#endif
