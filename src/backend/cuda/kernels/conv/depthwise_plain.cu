/* Depthwise convolutions with any window, stride and dilation. A thread computes a quad of one pixel. */
#include "backend/cuda/kernels/conv/depthwise.cuh"

using namespace ls_device;

#define THREADS 256

/* The position of quad `at` in a map. */
struct place {
    int64_t sample, y, x;
    int quad;
};

static __device__ __forceinline__ struct place place_of(const struct ls_cuda_map &m, int64_t at)
{
    int64_t quads = m.c / 4, pixel = at / quads;
    struct place p = {pixel / (m.h * m.w), pixel / m.w % m.h, pixel % m.w, (int)(at % quads)};
    return p;
}

template <typename T>
static __device__ __forceinline__ void load_at(const struct ls_cuda_map &m, const void *map, const struct place &p,
                                               int64_t y, int64_t x, float (&v)[4])
{
    widen_quad<T>(load_quad<T>(map, ((p.sample * m.h + y) * m.w + x) * (m.c / 4) + p.quad), v);
}

template <typename T, bool CLIPS>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(struct ls_cuda_conv c, int64_t count, const void *x, const void *w, const float *bias, void *y)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count)
        return;
    struct place p = place_of(c.y, at);
    float sum[4] = {0, 0, 0, 0}, top = act_top(c.act);
    if (bias)
        widen_quad<float>(load_quad<float>(bias, p.quad), sum);
    for (int ky = 0; ky < c.kernel_h; ky++)
        for (int kx = 0; kx < c.kernel_w; kx++) {
            int64_t iy = p.y * c.stride_h - c.pad_t + ky * c.dilation_h;
            int64_t ix = p.x * c.stride_w - c.pad_l + kx * c.dilation_w;
            if (iy < 0 || iy >= c.x.h || ix < 0 || ix >= c.x.w)
                continue;
            float v[4], f[4];
            load_at<T>(c.x, x, p, iy, ix, v);
            widen_quad<T>(load_quad<T>(w, (int64_t)(ky * c.kernel_w + kx) * (c.x.c / 4) + p.quad), f);
            for (int i = 0; i < 4; i++)
                sum[i] += v[i] * f[i];
        }
    for (int i = 0; i < 4; i++)
        sum[i] = act_of<CLIPS>(sum[i], top);
    store_quad<T>(y, at, narrow_quad<T>(sum));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    bwd_data_kernel(struct ls_cuda_conv c, int64_t count, const void *dy, const void *w, void *dx)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count)
        return;
    struct place p = place_of(c.x, at);
    float sum[4] = {0, 0, 0, 0};
    for (int ky = 0; ky < c.kernel_h; ky++)
        for (int kx = 0; kx < c.kernel_w; kx++) {
            int64_t y = p.y + c.pad_t - ky * c.dilation_h, x = p.x + c.pad_l - kx * c.dilation_w;
            if (y < 0 || x < 0 || y % c.stride_h || x % c.stride_w || y / c.stride_h >= c.y.h ||
                x / c.stride_w >= c.y.w)
                continue;
            float v[4], f[4];
            load_at<T>(c.y, dy, p, y / c.stride_h, x / c.stride_w, v);
            widen_quad<T>(load_quad<T>(w, (int64_t)(ky * c.kernel_w + kx) * (c.x.c / 4) + p.quad), f);
            for (int i = 0; i < 4; i++)
                sum[i] += v[i] * f[i];
        }
    store_quad<T>(dx, at, narrow_quad<T>(sum));
}

void ls_cuda_depthwise_plain(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w,
                             const float *bias, void *y)
{
    int64_t count = c->y.n * c->y.h * c->y.w * (c->y.c / 4);
    unsigned grid = (unsigned)ceil_div(count, THREADS);
    if (c->act == LS_ACT_NONE)
        LS_CUDA_BY_TYPE(c->t, forward_kernel<T, false><<<grid, THREADS, 0, s>>>(*c, count, x, w, bias, y));
    else
        LS_CUDA_BY_TYPE(c->t, forward_kernel<T, true><<<grid, THREADS, 0, s>>>(*c, count, x, w, bias, y));
}

void ls_cuda_depthwise_plain_bwd_data(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *w,
                                      void *dx)
{
    int64_t count = c->x.n * c->x.h * c->x.w * (c->x.c / 4);
    unsigned grid = (unsigned)ceil_div(count, THREADS);
    LS_CUDA_BY_TYPE(c->t, bwd_data_kernel<T><<<grid, THREADS, 0, s>>>(*c, count, dy, w, dx));
}
