/* Average pooling: sliding windows, and windows that adapt to the number of outputs. Backward gathers. */
#include "backend/cuda/kernels/pool/pool.cuh"

using namespace ls_pool;

namespace
{

/* --- windows --------------------------------------------------------------------------------------------------- */

/* The pixels of an output's window, without padding, and the divisor of their sum. */
struct window {
    int top, left, bottom, right; /* bottom and right are exclusive */
    int divisor;
};

struct sliding {
    int kernel_h, kernel_w, stride_h, stride_w, pad_t, pad_l, pad_b, pad_r;
    bool include_pad;

    __device__ __forceinline__ window of(const windows &win, int oy, int ox) const
    {
        const int top = oy * stride_h - pad_t, left = ox * stride_w - pad_l;
        const int bottom = top + kernel_h, right = left + kernel_w;
        window v = {max(top, 0), max(left, 0), min(bottom, win.h), min(right, win.w), 0};
        v.divisor = include_pad ? (min(bottom, win.h + pad_b) - top) * (min(right, win.w + pad_r) - left)
                                : (v.bottom - v.top) * (v.right - v.left);
        return v;
    }
    /* The first output whose window can contain a row (column), and whether the window of a later output begins at
     * or before it. */
    __device__ __forceinline__ int first_row(const windows &, int y) const
    {
        return y + pad_t < kernel_h ? 0 : (y + pad_t - kernel_h) / stride_h + 1;
    }
    __device__ __forceinline__ int first_column(const windows &, int x) const
    {
        return x + pad_l < kernel_w ? 0 : (x + pad_l - kernel_w) / stride_w + 1;
    }
    __device__ __forceinline__ bool reaches_row(const windows &, int oy, int y) const
    {
        return oy * stride_h - pad_t <= y;
    }
    __device__ __forceinline__ bool reaches_column(const windows &, int ox, int x) const
    {
        return ox * stride_w - pad_l <= x;
    }
};

struct adaptive {
    __device__ __forceinline__ window of(const windows &win, int oy, int ox) const
    {
        window v = {oy * win.h / win.oh, ox * win.w / win.ow, ((oy + 1) * win.h + win.oh - 1) / win.oh,
                    ((ox + 1) * win.w + win.ow - 1) / win.ow, 0};
        v.divisor = (v.bottom - v.top) * (v.right - v.left);
        return v;
    }
    __device__ __forceinline__ int first(int inputs, int outputs, int i) const
    {
        int o = i * outputs / inputs; /* the window of o contains i; earlier windows may too */
        while (o > 0 && (o * inputs + outputs - 1) / outputs > i)
            o--;
        return o;
    }
    __device__ __forceinline__ int first_row(const windows &win, int y) const
    {
        return first(win.h, win.oh, y);
    }
    __device__ __forceinline__ int first_column(const windows &win, int x) const
    {
        return first(win.w, win.ow, x);
    }
    __device__ __forceinline__ bool reaches_row(const windows &win, int oy, int y) const
    {
        return oy * win.h / win.oh <= y;
    }
    __device__ __forceinline__ bool reaches_column(const windows &win, int ox, int x) const
    {
        return ox * win.w / win.ow <= x;
    }
};

/* --- any windows ------------------------------------------------------------------------------------------------ */

template <typename T, typename W>
__global__ void __launch_bounds__(POOL_THREADS) average(const void *x, windows win, W kind, void *y)
{
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= win.octets)
        return;
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < win.items; item += gridDim.y * blockDim.y) {
        const place at = place_of(win, item);
        const window v = kind.of(win, at.from, at.column);
        float sum[8] = {};
        for (int iy = v.top; iy < v.bottom; iy++)
#pragma unroll 4
            for (int ix = v.left; ix < v.right; ix++) {
                float in[8];
                widen<T>(load_shared<T>(x, (int64_t)pixel_row(win, at.n, iy, ix) * win.octets + octet), in);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[i] += in[i];
            }
        const float share = 1 / (float)v.divisor;
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] *= share;
        store<T>(y, (int64_t)output_row(win, at.n, at.from, at.column) * win.octets + octet, narrow<T>(sum));
    }
}

template <typename T, typename W>
__global__ void __launch_bounds__(POOL_THREADS) average_bwd(const void *dy, windows win, W kind, void *dx)
{
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= win.octets)
        return;
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < win.items; item += gridDim.y * blockDim.y) {
        const place at = place_of(win, item);
        const int first = kind.first_column(win, at.column);
        float sum[8] = {};
        for (int oy = kind.first_row(win, at.from); oy < win.oh && kind.reaches_row(win, oy, at.from); oy++)
            for (int ox = first; ox < win.ow && kind.reaches_column(win, ox, at.column); ox++) {
                const float share = 1 / (float)kind.of(win, oy, ox).divisor;
                float d[8];
                widen<T>(load_shared<T>(dy, (int64_t)output_row(win, at.n, oy, ox) * win.octets + octet), d);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[i] = fmaf(d[i], share, sum[i]);
            }
        store<T>(dx, (int64_t)pixel_row(win, at.n, at.from, at.column) * win.octets + octet, narrow<T>(sum));
    }
}

/* --- one pixel: kernel 1x1, no padding, any stride -------------------------------------------------------------- */

static constexpr int PICKS = 4; /* loads in flight */

template <typename T> __global__ void __launch_bounds__(POOL_THREADS) pick(const void *x, windows win, void *y)
{
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= win.octets)
        return;
    const uint32_t first = blockIdx.y * blockDim.y * PICKS + threadIdx.y;
    for (uint32_t item = first; item < win.items; item += gridDim.y * blockDim.y * PICKS) {
        ls_device::octet<T> in[PICKS];
#pragma unroll
        for (int u = 0; u < PICKS; u++) {
            if (item + u * blockDim.y >= win.items)
                continue;
            const place at = place_of(win, item + u * blockDim.y);
            const uint32_t row = pixel_row(win, at.n, at.from * win.stride_h, at.column * win.stride_w);
            in[u] = load_once<T>(x, (int64_t)row * win.octets + octet);
        }
#pragma unroll
        for (int u = 0; u < PICKS; u++) /* outputs are numbered in storage order */
            if (item + u * blockDim.y < win.items)
                store<T>(y, (int64_t)(item + u * blockDim.y) * win.octets + octet, in[u]);
    }
}

template <typename T>
__global__ void __launch_bounds__(POOL_THREADS)
    pick_bwd(const void *dy, windows win, divider by_stride_h, divider by_stride_w, void *dx)
{
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    if (octet >= win.octets)
        return;
    const uint32_t first = blockIdx.y * blockDim.y * PICKS + threadIdx.y;
    for (uint32_t item = first; item < win.items; item += gridDim.y * blockDim.y * PICKS) {
        ls_device::octet<T> out[PICKS];
#pragma unroll
        for (int u = 0; u < PICKS; u++) {
            out[u] = zero_octet<T>();
            if (item + u * blockDim.y >= win.items)
                continue;
            const place at = place_of(win, item + u * blockDim.y);
            uint32_t rest_y = (uint32_t)at.from, rest_x = (uint32_t)at.column;
            const int oy = (int)divide_rest(rest_y, by_stride_h), ox = (int)divide_rest(rest_x, by_stride_w);
            if (rest_y == 0 && rest_x == 0 && oy < win.oh && ox < win.ow)
                out[u] = load_once<T>(dy, (int64_t)output_row(win, at.n, oy, ox) * win.octets + octet);
        }
#pragma unroll
        for (int u = 0; u < PICKS; u++)
            if (item + u * blockDim.y < win.items)
                store<T>(dx, (int64_t)(item + u * blockDim.y) * win.octets + octet, out[u]);
    }
}

/* --- the whole map: outputs 1x1 --------------------------------------------------------------------------------- */

static constexpr int WIDE = 32, PARTS = 8; /* octets per block, and threads per octet */

template <typename T> __global__ void __launch_bounds__(WIDE *PARTS) whole(const void *x, int area, int octets, void *y)
{
    __shared__ float part[PARTS][8][WIDE];
    const int octet = blockIdx.x * WIDE + threadIdx.x, n = blockIdx.y;
    float sum[8] = {};
    if (octet < octets) {
        x = move<T>(x, (int64_t)n * area * octets + octet);
        for (int i = threadIdx.y; i < area; i += 8 * PARTS) {
            ls_device::octet<T> in[8];
#pragma unroll
            for (int u = 0; u < 8; u++)
                in[u] = i + u * PARTS < area ? load_once<T>(x, (int64_t)(i + u * PARTS) * octets) : zero_octet<T>();
#pragma unroll
            for (int u = 0; u < 8; u++) {
                float v[8];
                widen<T>(in[u], v);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[j] += v[j];
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        part[threadIdx.y][j][threadIdx.x] = sum[j];
    __syncthreads();
    if (threadIdx.y || octet >= octets)
        return;
    const float share = 1 / (float)area;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        for (int p = 1; p < PARTS; p++)
            sum[j] += part[p][j][threadIdx.x];
        sum[j] *= share;
    }
    store<T>(y, (int64_t)n * octets + octet, narrow<T>(sum));
}

template <typename T>
__global__ void __launch_bounds__(WIDE *PARTS) whole_bwd(const void *dy, int area, int octets, void *dx)
{
    const int octet = blockIdx.x * WIDE + threadIdx.x, n = blockIdx.y;
    if (octet >= octets)
        return;
    const float share = 1 / (float)area;
    float d[8];
    widen<T>(load_shared<T>(dy, (int64_t)n * octets + octet), d);
#pragma unroll
    for (int j = 0; j < 8; j++)
        d[j] *= share;
    const ls_device::octet<T> out = narrow<T>(d);
    dx = move<T>(dx, (int64_t)n * area * octets + octet);
    for (int i = threadIdx.y; i < area; i += PARTS)
        store<T>(dx, (int64_t)i * octets, out);
}

sliding sliding_of(const struct ls_cuda_pool *p)
{
    return sliding{p->kernel_h, p->kernel_w, p->stride_h, p->stride_w,   p->pad_t,
                   p->pad_l,    p->pad_b,    p->pad_r,    p->include_pad};
}

bool picks(const struct ls_cuda_pool *p)
{
    return p->kernel_h == 1 && p->kernel_w == 1 && !p->pad_t && !p->pad_l && !p->pad_b && !p->pad_r &&
           (p->y.h - 1) * p->stride_h < p->x.h && (p->y.w - 1) * p->stride_w < p->x.w;
}

/* The grid of `whole` has one row of blocks for each sample. */
bool takes_whole(const struct ls_cuda_pool *p)
{
    return p->y.h == 1 && p->y.w == 1 && p->x.n <= 65535;
}

dim3 whole_grid(const struct ls_cuda_pool *p)
{
    return dim3((unsigned)ceil_div(p->x.c / LS_CUDA_LANE, WIDE), (unsigned)p->x.n);
}

shape pick_shape(const windows &win)
{
    return shape_of(win.octets, (uint32_t)ceil_div(win.items, PICKS));
}

} // namespace

void ls_cuda_avgpool(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *x, void *y)
{
    windows win = windows_of(p);
    number_outputs(&win, p->x.n, 1);
    const shape l = picks(p) ? pick_shape(win) : shape_of(win);
    LS_CUDA_BY_TYPE(p->t, if (picks(p)) pick<T><<<l.grid, l.block, 0, s>>>(x, win, y);
                    else average<T, sliding><<<l.grid, l.block, 0, s>>>(x, win, sliding_of(p), y));
}

void ls_cuda_avgpool_bwd(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *dy, void *dx)
{
    windows win = windows_of(p);
    number_pixels(&win, p->x.n);
    const shape l = picks(p) ? pick_shape(win) : shape_of(win);
    LS_CUDA_BY_TYPE(p->t, if (picks(p)) pick_bwd<T>
                    <<<l.grid, l.block, 0, s>>>(dy, win, divider_of(p->stride_h), divider_of(p->stride_w), dx);
                    else average_bwd<T, sliding><<<l.grid, l.block, 0, s>>>(dy, win, sliding_of(p), dx));
}

void ls_cuda_adaptive(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *x, void *y)
{
    windows win = windows_of(p);
    number_outputs(&win, p->x.n, 1);
    const shape l = shape_of(win);
    const dim3 block(WIDE, PARTS);
    LS_CUDA_BY_TYPE(p->t, if (takes_whole(p)) whole<T><<<whole_grid(p), block, 0, s>>>(x, win.h * win.w, win.octets, y);
                    else average<T, adaptive><<<l.grid, l.block, 0, s>>>(x, win, adaptive{}, y));
}

void ls_cuda_adaptive_bwd(ls_cuda_stream s, const struct ls_cuda_pool *p, const void *dy, void *dx)
{
    windows win = windows_of(p);
    number_pixels(&win, p->x.n);
    const shape l = shape_of(win);
    const dim3 block(WIDE, PARTS);
    LS_CUDA_BY_TYPE(p->t,
                    if (takes_whole(p)) whole_bwd<T><<<whole_grid(p), block, 0, s>>>(dy, win.h * win.w, win.octets, dx);
                    else average_bwd<T, adaptive><<<l.grid, l.block, 0, s>>>(dy, win, adaptive{}, dx));
}
