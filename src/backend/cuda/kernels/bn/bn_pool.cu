/* Batch normalisation, activation and max pooling in one kernel, so that the large map between them is never stored.
 * This file has the forward pass, bn_pool_bwd.cu the backward pass. A thread handles a vertical strip of outputs. */
#include "backend/cuda/kernels/bn/bn.cuh"
#include "backend/cuda/kernels/pool/pool.cuh"

using namespace ls_bn;
using namespace ls_pool;

namespace
{

struct normalise {
    const void *x, *residual;
    const float *gamma, *beta, *mean, *spread;
    bool inference;
    float eps, top;
};

/* The function that is pooled: the activation of the normalised value. pool_strip takes the parameters from shared
 * memory, pool_plainly from registers. */
template <bool CLIPS> struct from_shared {
    static constexpr bool CLIPPED = CLIPS;
    const parameters<P_FIRST> &params;
    int x;
    float top;
    uint32_t flip[4]; /* sign bits set where gamma is negative */

    __device__ __forceinline__ from_shared(const parameters<P_FIRST> &from, int octet, float clip)
        : params(from), x(octet), top(clip)
    {
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float2 scale = params.get(P_SCALE, x, p);
            flip[p] = (scale.x < 0 ? 0x8000u : 0) | (scale.y < 0 ? 0x80000000u : 0);
        }
    }
    __device__ __forceinline__ float2 of(int p, float2 v) const
    {
        const float2 mean = params.get(P_MEAN, x, p), scale = params.get(P_SCALE, x, p),
                     beta = params.get(P_BETA, x, p);
        return make_float2(act_of<CLIPS>(normalised(v.x, mean.x, scale.x, beta.x), top),
                           act_of<CLIPS>(normalised(v.y, mean.y, scale.y, beta.y), top));
    }
};

template <typename T, bool CLIPS> struct from_registers {
    const affine &a;
    const void *residual;
    float top;

    __device__ __forceinline__ void all(float (&v)[8], int64_t from) const
    {
        float more[8];
        if (residual)
            widen<T>(load_shared<T>(residual, from), more);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float z = normalised(v[i], a.mean[i], a.scale[i], a.beta[i]);
            v[i] = act_of<CLIPS>(residual ? z + more[i] : z, top);
        }
    }
    __device__ __forceinline__ float after(float v) const
    {
        return v;
    }
};

template <typename T, bool CLIPS, int K>
__global__ void __launch_bounds__(MAP_THREADS, sizeof(T) == 4 ? 3 : 4)
    pooled(normalise f, windows win, void *y, uint8_t *index, void *kept)
{
    __shared__ parameters<P_FIRST> params;
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x;
    if (threadIdx.y == 0 && octet < win.octets) {
        affine a;
        load_affine(a, octet, f.gamma, f.beta, f.mean, f.spread, f.inference, f.eps);
        params.put(P_MEAN, x, a.mean);
        params.put(P_SCALE, x, a.scale);
        params.put(P_BETA, x, a.beta);
    }
    __syncthreads();
    if (octet >= win.octets)
        return;
    const from_shared<CLIPS> value(params, x, f.top);
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < win.items; item += gridDim.y * blockDim.y)
        pool_strip<T, K>(win, place_of(win, item), octet, f.x, value, y, index, kept);
}

template <typename T, bool CLIPS>
__global__ void __launch_bounds__(MAP_THREADS) pooled_plainly(normalise f, windows win, void *y, uint8_t *index)
{
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= win.octets)
        return;
    affine a;
    load_affine(a, octet, f.gamma, f.beta, f.mean, f.spread, f.inference, f.eps);
    const from_registers<T, CLIPS> value = {a, f.residual, f.top};
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < win.items; item += gridDim.y * blockDim.y)
        pool_plainly<T>(win, place_of(win, item), octet, f.x, value, y, index);
}

template <typename T, bool CLIPS>
void launch_pooled(ls_cuda_stream s, int K, int64_t n, int64_t c, const normalise &f, windows win, void *y,
                   uint8_t *index, void *kept)
{
    layout l = {};
    lay_segments(&l, c);
    l.block.y = MAP_THREADS / l.block.x;
    number_outputs(&win, n, K == 3 ? 8 : K == 2 ? 2 : 1);
    const dim3 grid = grid_for(l.grid.x, win.items, l.block.y, 64);
    if (K == 3)
        pooled<T, CLIPS, 3><<<grid, l.block, 0, s>>>(f, win, y, index, kept);
    else if (K == 2)
        pooled<T, CLIPS, 2><<<grid, l.block, 0, s>>>(f, win, y, index, kept);
    else
        pooled_plainly<T, CLIPS><<<grid, l.block, 0, s>>>(f, win, y, index);
}

} // namespace

/* relu6 also maps all values above 6 to the same value. The fast kernels handle ties only at 0. */
int ls_bn::fast_pool(const struct ls_cuda_bn *b, bool residual)
{
    if (residual || b->act == LS_ACT_RELU6)
        return 0;
    return fast_kernel(b->kernel_h, b->kernel_w, b->stride_h, b->stride_w, b->pad_t, b->pad_l);
}

void ls_bn::pool_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual,
                       const float *gamma, const float *beta, const float *mean, const float *spread, bool inference,
                       void *y, uint8_t *index, void *kept)
{
    const normalise f = {x, residual, gamma, beta, mean, spread, inference, b->eps, act_top(b->act)};
    const windows win = windows_of(b);
    const int K = fast_pool(b, residual != NULL);
    LS_CUDA_BY_TYPE(b->t, auto launch = b->act == LS_ACT_NONE ? launch_pooled<T, false> : launch_pooled<T, true>;
                    launch(s, K, b->x.n, b->x.c, f, win, y, index, kept));
}
