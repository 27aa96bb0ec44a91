/* Activations that do not clip, and their slopes. Exponentials and reciprocals are those of the special function unit, within
 * two units in the last place: with the exact ones these functions would take longer than the memory traffic. */
#ifndef LS_BACKEND_CUDA_KERNELS_SMOOTH_CUH
#define LS_BACKEND_CUDA_KERNELS_SMOOTH_CUH

#include "backend/cuda/kernels/device.cuh"

namespace ls_device
{

__device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float fast_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float sigmoid(float x)
{
    return fast_reciprocal(1 + fast_exp2(-1.44269504f * x));
}

/* x / 6 + 1/2 within 0 and 1. */
__device__ __forceinline__ float hard_sigmoid(float x)
{
    return act_of<true>((x + 3) * (1.0f / 6), 1);
}

/* The share of the normal distribution below x, and exp(-x * x / 2). With erf by Abramowitz and Stegun 7.1.26: within 1e-7. */
__device__ __forceinline__ float normal_share(float x, float &e)
{
    const float t = fast_reciprocal(fmaf(fabsf(x), 0.3275911f * 0.707106781f, 1));
    e = fast_exp2(-0.72134752f * x * x);
    float tail = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
    tail = fmaf(t, tail, 0.5f * 1.421413741f);
    tail = fmaf(t, tail, 0.5f * -0.284496736f);
    tail = fmaf(t, tail, 0.5f * 0.254829592f);
    tail *= t * e; /* the share above |x| */
    return x < 0 ? tail : 1 - tail;
}

template <enum ls_act ACT> __device__ __forceinline__ float smooth_of(float x)
{
    float e;
    if (ACT == LS_ACT_SILU)
        return x * sigmoid(x);
    if (ACT == LS_ACT_HARDSWISH)
        return x * hard_sigmoid(x);
    if (ACT == LS_ACT_SIGMOID)
        return sigmoid(x);
    if (ACT == LS_ACT_HARDSIGMOID)
        return hard_sigmoid(x);
    return x * normal_share(x, e); /* LS_ACT_GELU */
}

template <enum ls_act ACT> __device__ __forceinline__ float slope_of(float x)
{
    const bool inside = !(x <= -3 || x >= 3);
    float s, e;
    if (ACT == LS_ACT_SILU) {
        s = sigmoid(x);
        return s * (1 + x * (1 - s));
    }
    if (ACT == LS_ACT_HARDSWISH)
        return inside ? x * (1.0f / 3) + 0.5f : x >= 3;
    if (ACT == LS_ACT_SIGMOID) {
        s = sigmoid(x);
        return s * (1 - s);
    }
    if (ACT == LS_ACT_HARDSIGMOID)
        return inside ? 1.0f / 6 : 0;
    s = normal_share(x, e); /* LS_ACT_GELU */
    return fmaf(x * e, 0.398942280f, s);
}

} // namespace ls_device

/* Runs the statement with ACT as the function's constant. */
#define LS_CUDA_BY_SMOOTH(act, ...)                     \
    switch (act) {                                      \
    case LS_ACT_SILU: {                                 \
        constexpr enum ls_act ACT = LS_ACT_SILU;        \
        __VA_ARGS__;                                    \
    } break;                                            \
    case LS_ACT_HARDSWISH: {                            \
        constexpr enum ls_act ACT = LS_ACT_HARDSWISH;   \
        __VA_ARGS__;                                    \
    } break;                                            \
    case LS_ACT_SIGMOID: {                              \
        constexpr enum ls_act ACT = LS_ACT_SIGMOID;     \
        __VA_ARGS__;                                    \
    } break;                                            \
    case LS_ACT_HARDSIGMOID: {                          \
        constexpr enum ls_act ACT = LS_ACT_HARDSIGMOID; \
        __VA_ARGS__;                                    \
    } break;                                            \
    default: {                                          \
        constexpr enum ls_act ACT = LS_ACT_GELU;        \
        __VA_ARGS__;                                    \
    }                                                   \
    }

#endif
