/* Activations that do not clip. A thread handles an octet. A result may be the same memory as an operand. */
#include "backend/cuda/kernels/device.cuh"

using namespace ls_device;

#define THREADS 256

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* x / 6 + 1/2 within 0 and 1. */
static __device__ __forceinline__ float hard_sigmoid(float x)
{
    return act_of<true>((x + 3) * (1.0f / 6), 1);
}

static __device__ __forceinline__ float smooth_of(enum ls_act act, float x)
{
    switch (act) {
    case LS_ACT_SILU:
        return x * sigmoid(x);
    case LS_ACT_HARDSWISH:
        return x * hard_sigmoid(x);
    case LS_ACT_SIGMOID:
        return sigmoid(x);
    case LS_ACT_HARDSIGMOID:
        return hard_sigmoid(x);
    default: /* LS_ACT_GELU */
        return 0.5f * x * (1 + erff(x * 0.707106781f));
    }
}

static __device__ __forceinline__ float slope_of(enum ls_act act, float x)
{
    bool inside = !(x <= -3 || x >= 3);
    float s;
    switch (act) {
    case LS_ACT_SILU:
        s = sigmoid(x);
        return s * (1 + x * (1 - s));
    case LS_ACT_HARDSWISH:
        return inside ? x * (1.0f / 3) + 0.5f : x >= 3;
    case LS_ACT_SIGMOID:
        s = sigmoid(x);
        return s * (1 - s);
    case LS_ACT_HARDSIGMOID:
        return inside ? 1.0f / 6 : 0;
    default: /* LS_ACT_GELU */
        return 0.5f * (1 + erff(x * 0.707106781f)) + x * expf(-0.5f * x * x) * 0.398942280f;
    }
}

struct job {
    uint32_t octets;
    divider columns; /* octets of a row */
    uint32_t channels;
    enum ls_act act;
};

/* Padding channels stay zero, because sigmoids do not map 0 to 0. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) smooth_kernel(struct job j, const void *x, void *y)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    uint32_t column = at;
    divide_rest(column, j.columns);
    float v[8];
    widen<T>(load<T>(x, at), v);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = column * 8 + i < j.channels ? smooth_of(j.act, v[i]) : 0;
    store<T>(y, at, narrow<T>(v));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    smooth_bwd_kernel(struct job j, const void *dy, const void *x, void *dx)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    octet<T> od = load<T>(dy, at), ox = load<T>(x, at);
    float d[8], v[8];
    widen<T>(od, d);
    widen<T>(ox, v);
#pragma unroll
    for (int i = 0; i < 8; i++)
        d[i] *= slope_of(j.act, v[i]);
    store<T>(dx, at, narrow<T>(d));
}

static unsigned grid_for(const struct job &j)
{
    return (unsigned)ceil_div(j.octets, THREADS);
}

void ls_cuda_smooth(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *x, void *y, int64_t count,
                    int64_t c, int64_t channels)
{
    struct job j = {(uint32_t)(count / 8), divider_of(c / 8), (uint32_t)channels, act};
    if (j.octets)
        LS_CUDA_BY_TYPE(t, smooth_kernel<T><<<grid_for(j), THREADS, 0, s>>>(j, x, y));
}

void ls_cuda_smooth_bwd(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *dy, const void *x, void *dx,
                        int64_t count)
{
    struct job j = {(uint32_t)(count / 8), divider_of(1), 0, act};
    if (j.octets)
        LS_CUDA_BY_TYPE(t, smooth_bwd_kernel<T><<<grid_for(j), THREADS, 0, s>>>(j, dy, x, dx));
}
