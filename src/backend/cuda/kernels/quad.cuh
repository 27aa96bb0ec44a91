/* Quads: 4 adjacent channels, for kernels that hold many values in registers or mix f32 with 16-bit memory, where
 * octets would be too wide. Quads stay packed until they are widened, like the octets of device.cuh. */
#ifndef LS_BACKEND_CUDA_KERNELS_QUAD_CUH
#define LS_BACKEND_CUDA_KERNELS_QUAD_CUH

#include "backend/cuda/kernels/device.cuh"

#include <type_traits>

namespace ls_device
{

template <typename T> struct quad {
    using word_t = typename std::conditional<sizeof(T) == 4, uint4, uint2>::type;
    word_t word;
};

/* `at` counts quads. The load goes through all caches. */
template <typename T> __device__ __forceinline__ quad<T> load_quad(const void *from, int64_t at)
{
    return quad<T>{((const typename quad<T>::word_t *)from)[at]};
}

/* The quad is the first to be evicted from the caches. */
template <typename T> __device__ __forceinline__ quad<T> load_quad_once(const void *from, int64_t at)
{
    return quad<T>{__ldcs((const typename quad<T>::word_t *)from + at)};
}

template <typename T> __device__ __forceinline__ void store_quad(void *to, int64_t at, const quad<T> &q)
{
    ((typename quad<T>::word_t *)to)[at] = q.word;
}

template <typename T> __device__ __forceinline__ void store_quad_once(void *to, int64_t at, const quad<T> &q)
{
    __stcs((typename quad<T>::word_t *)to + at, q.word);
}

template <typename T> __device__ __forceinline__ quad<T> zero_quad()
{
    if constexpr (sizeof(T) == 4)
        return quad<T>{make_uint4(0, 0, 0, 0)};
    else
        return quad<T>{make_uint2(0, 0)};
}

template <typename T> __device__ __forceinline__ void widen_quad(const quad<T> &q, float (&v)[4])
{
    if constexpr (sizeof(T) == 4) {
        v[0] = __uint_as_float(q.word.x);
        v[1] = __uint_as_float(q.word.y);
        v[2] = __uint_as_float(q.word.z);
        v[3] = __uint_as_float(q.word.w);
    } else {
        widen_pair<T>(q.word.x, v[0], v[1]);
        widen_pair<T>(q.word.y, v[2], v[3]);
    }
}

template <typename T> __device__ __forceinline__ quad<T> narrow_quad(const float (&v)[4])
{
    if constexpr (sizeof(T) == 4)
        return quad<T>{
            make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]))};
    else
        return quad<T>{make_uint2(narrow_pair<T>(v[0], v[1]), narrow_pair<T>(v[2], v[3]))};
}

} // namespace ls_device

#endif
