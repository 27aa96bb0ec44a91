/* Activations that do not clip. A thread handles an octet. A result may be the same memory as an operand. */
#include "backend/cuda/kernels/smooth.cuh"

using namespace ls_device;

#define THREADS 256

struct job {
    uint32_t octets;
    divider columns; /* octets of a row */
    uint32_t channels;
};

/* Padding channels stay zero, because sigmoids do not map 0 to 0. */
template <typename T, enum ls_act ACT>
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
        v[i] = column * 8 + i < j.channels ? smooth_of<ACT>(v[i]) : 0;
    store<T>(y, at, narrow<T>(v));
}

template <typename T, enum ls_act ACT>
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
        d[i] *= slope_of<ACT>(v[i]);
    store<T>(dx, at, narrow<T>(d));
}

static unsigned grid_for(const struct job &j)
{
    return (unsigned)ceil_div(j.octets, THREADS);
}

void ls_cuda_smooth(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *x, void *y, int64_t count,
                    int64_t c, int64_t channels)
{
    struct job j = {(uint32_t)(count / 8), divider_of(c / 8), (uint32_t)channels};
    if (j.octets)
        LS_CUDA_BY_TYPE(t, LS_CUDA_BY_SMOOTH(act, smooth_kernel<T, ACT><<<grid_for(j), THREADS, 0, s>>>(j, x, y)));
}

void ls_cuda_smooth_bwd(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *dy, const void *x, void *dx,
                        int64_t count)
{
    struct job j = {(uint32_t)(count / 8), divider_of(1), 0};
    if (j.octets)
        LS_CUDA_BY_TYPE(
            t, LS_CUDA_BY_SMOOTH(act, smooth_bwd_kernel<T, ACT><<<grid_for(j), THREADS, 0, s>>>(j, dy, x, dx)));
}
