/* Max pooling without batch normalisation. pool.cuh has the algorithms. */
#include "backend/cuda/kernels/pool/pool.cuh"

using namespace ls_pool;

namespace
{

/* x itself is pooled. The activation is applied after the pooling. */
template <bool CLIPS> struct as_it_is {
    static constexpr bool CLIPPED = false;
    float top;
    uint32_t flip[4];

    __device__ __forceinline__ float2 of(int, float2 v) const
    {
        return make_float2(after(v.x), after(v.y));
    }
    __device__ __forceinline__ void all(float (&)[8], int64_t) const
    {
    }
    __device__ __forceinline__ float after(float v) const
    {
        return act_of<CLIPS>(v, top);
    }
};

template <typename T, bool CLIPS, int K>
__global__ void __launch_bounds__(POOL_THREADS) maxpool(const void *x, windows win, float top, void *y, uint8_t *index)
{
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= win.octets)
        return;
    const as_it_is<CLIPS> value = {top, {0, 0, 0, 0}};
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < win.items; item += gridDim.y * blockDim.y)
        if constexpr (K == 0)
            pool_plainly<T>(win, place_of(win, item), octet, x, value, y, index);
        else
            pool_strip<T, K>(win, place_of(win, item), octet, x, value, y, index, NULL);
}

template <typename T, int K, bool MASKED>
__global__ void __launch_bounds__(POOL_THREADS) maxpool_bwd(source from, windows win, void *dx)
{
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= win.octets)
        return;
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < win.items; item += gridDim.y * blockDim.y) {
        const place at = place_of(win, item);
        if constexpr (K == 0) {
            float d[8];
            gather_pixel<T>(win, from, at.n, at.from, at.column, octet, d);
            store<T>(dx, (int64_t)pixel_row(win, at.n, at.from, at.column) * win.octets + octet, narrow<T>(d));
        } else {
            quad<T, K, MASKED> around;
            around.begin(win, from, at.n, at.from, at.column, octet);
            for (int q = at.from; q < at.to; q++) {
                around.fetch(win, from, at.n, q, at.column, octet);
                ls_device::octet<T> out[4];
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    float2 d[4];
                    around.pairs(p, d);
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        set_pair<T>(out[i], p, d[i]);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int iy = quad_row<K>(win, q) + i / 2, ix = quad_column<K>(win, at.column) + i % 2;
                    if (iy >= 0 && iy < win.h && ix >= 0 && ix < win.w)
                        store<T>(dx, (int64_t)pixel_row(win, at.n, iy, ix) * win.octets + octet, out[i]);
                }
            }
        }
    }
}

int fast(const struct ls_cuda_pool *p)
{
    return fast_kernel(p->kernel_h, p->kernel_w, p->stride_h, p->stride_w, p->pad_t, p->pad_l);
}

template <typename T, bool CLIPS>
void launch(ls_cuda_stream s, int K, const windows &win, float top, const void *x, void *y, uint8_t *index)
{
    const shape l = shape_of(win);
    auto kernel = K == 3 ? maxpool<T, CLIPS, 3> : K == 2 ? maxpool<T, CLIPS, 2> : maxpool<T, CLIPS, 0>;
    kernel<<<l.grid, l.block, 0, s>>>(x, win, top, y, index);
}

} // namespace

void ls_cuda_maxpool(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *x, void *y, uint8_t *index)
{
    const int K = fast(p);
    windows win = windows_of(p);
    number_outputs(&win, p->x.n, K == 3 ? 8 : K == 2 ? 2 : 1);
    LS_CUDA_BY_TYPE(p->t, auto go = p->act == LS_ACT_NONE ? launch<T, false> : launch<T, true>;
                    go(s, K, win, act_top(p->act), x, y, index));
}

void ls_cuda_maxpool_bwd(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *dy, const uint8_t *index,
                         const void *y, void *dx)
{
    const int K = fast(p);
    windows win = windows_of(p);
    if (K)
        number_quads(&win, K, p->x.n, K == 3 ? 8 : 2);
    else
        number_pixels(&win, p->x.n);
    const source from = {dy, NULL, p->act == LS_ACT_NONE ? NULL : y, index, act_top(p->act)};
    const shape l = shape_of(win);
    LS_CUDA_BY_TYPE(p->t, auto kernel = K == 0   ? maxpool_bwd<T, 0, false>
                                        : K == 3 ? from.y ? maxpool_bwd<T, 3, true> : maxpool_bwd<T, 3, false>
                                        : from.y ? maxpool_bwd<T, 2, true>
                                                 : maxpool_bwd<T, 2, false>;
                    kernel<<<l.grid, l.block, 0, s>>>(from, win, dx));
}
