/* Direct convolutions of any kind, for cases that the libraries do not support. A thread computes one value of the
 * result; for the gradient of the weights, a block computes one weight. The kernels are not optimised for speed.
 * Weights are stored as (o, kh, kw, inputs of a group, padded). */
#include "backend/cuda/kernels/device.cuh"

using namespace ls_device;

#define THREADS 256

struct job {
    struct ls_cuda_conv c;
    int64_t inputs, outputs, stored; /* channels per group; stored: inputs with padding */
    int64_t count;
};

static struct job job_of(const struct ls_cuda_conv *c, int64_t count)
{
    struct job j = {*c, c->channels / c->groups, c->out / c->groups, 0, count};
    j.stored = ceil_div(j.inputs, LS_CUDA_LANE) * LS_CUDA_LANE;
    return j;
}

/* The position of value `at` in a map. */
struct place {
    int64_t sample, y, x, channel;
};

static __device__ __forceinline__ struct place place_of(const struct ls_cuda_map &m, int64_t at)
{
    int64_t pixel = at / m.c;
    struct place p = {pixel / (m.h * m.w), pixel / m.w % m.h, pixel % m.w, at % m.c};
    return p;
}

static __device__ __forceinline__ int64_t index_of(const struct ls_cuda_map &m, int64_t n, int64_t y, int64_t x)
{
    return ((n * m.h + y) * m.w + x) * m.c;
}

static __device__ __forceinline__ int64_t weight_at(const struct job &j, int64_t o, int ky, int kx)
{
    return ((o * j.c.kernel_h + ky) * j.c.kernel_w + kx) * j.stored;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    forward_kernel(struct job j, const T *x, const T *w, const float *bias, T *y)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.count)
        return;
    struct place p = place_of(j.c.y, at);
    float sum = 0;
    if (p.channel < j.c.out) {
        sum = bias ? bias[p.channel] : 0;
        for (int ky = 0; ky < j.c.kernel_h; ky++)
            for (int kx = 0; kx < j.c.kernel_w; kx++) {
                int64_t iy = p.y * j.c.stride_h - j.c.pad_t + ky * j.c.dilation_h;
                int64_t ix = p.x * j.c.stride_w - j.c.pad_l + kx * j.c.dilation_w;
                if (iy < 0 || iy >= j.c.x.h || ix < 0 || ix >= j.c.x.w)
                    continue;
                const T *from = x + index_of(j.c.x, p.sample, iy, ix) + p.channel / j.outputs * j.inputs;
                const T *weight = w + weight_at(j, p.channel, ky, kx);
                for (int64_t i = 0; i < j.inputs; i++)
                    sum += to_float(from[i]) * to_float(weight[i]);
            }
        if (j.c.act != LS_ACT_NONE)
            sum = act_of<true>(sum, act_top(j.c.act));
    }
    y[at] = from_float<T>(sum);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) bwd_data_kernel(struct job j, const T *dy, const T *w, T *dx)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.count)
        return;
    struct place p = place_of(j.c.x, at);
    int64_t first = p.channel / j.inputs * j.outputs, input = p.channel % j.inputs;
    float sum = 0;
    if (p.channel < j.c.channels)
        for (int ky = 0; ky < j.c.kernel_h; ky++)
            for (int kx = 0; kx < j.c.kernel_w; kx++) {
                int64_t y = p.y + j.c.pad_t - ky * j.c.dilation_h, x = p.x + j.c.pad_l - kx * j.c.dilation_w;
                if (y < 0 || x < 0 || y % j.c.stride_h || x % j.c.stride_w || y / j.c.stride_h >= j.c.y.h ||
                    x / j.c.stride_w >= j.c.y.w)
                    continue;
                const T *from = dy + index_of(j.c.y, p.sample, y / j.c.stride_h, x / j.c.stride_w);
                for (int64_t o = first; o < first + j.outputs; o++)
                    sum += to_float(from[o]) * to_float(w[weight_at(j, o, ky, kx) + input]);
            }
    dx[at] = from_float<T>(sum);
}

/* blockIdx.x is the index of a stored weight. The gradient of padding is zero. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) bwd_weights_kernel(struct job j, const T *dy, const T *x, float *dw)
{
    __shared__ double room[THREADS];
    int64_t at = blockIdx.x, input = at % j.stored, tap = at / j.stored;
    int64_t kx = tap % j.c.kernel_w, ky = tap / j.c.kernel_w % j.c.kernel_h, o = tap / j.c.kernel_w / j.c.kernel_h;
    int64_t channel = o / j.outputs * j.inputs + input, pixels = j.c.y.n * j.c.y.h * j.c.y.w;
    double sum = 0;
    for (int64_t pixel = threadIdx.x; pixel < pixels && input < j.inputs && o < j.c.out; pixel += THREADS) {
        int64_t n = pixel / (j.c.y.h * j.c.y.w), oy = pixel / j.c.y.w % j.c.y.h, ox = pixel % j.c.y.w;
        int64_t iy = oy * j.c.stride_h - j.c.pad_t + ky * j.c.dilation_h;
        int64_t ix = ox * j.c.stride_w - j.c.pad_l + kx * j.c.dilation_w;
        if (iy >= 0 && iy < j.c.x.h && ix >= 0 && ix < j.c.x.w)
            sum += to_float(dy[pixel * j.c.y.c + o]) * to_float(x[index_of(j.c.x, n, iy, ix) + channel]);
    }
    room[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            room[threadIdx.x] += room[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        dw[at] = (float)room[0];
}

void ls_cuda_direct(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, const float *bias,
                    void *y)
{
    struct job j = job_of(c, c->y.n * c->y.h * c->y.w * c->y.c);
    unsigned grid = (unsigned)ceil_div(j.count, THREADS);
    LS_CUDA_BY_TYPE(c->t, forward_kernel<T><<<grid, THREADS, 0, s>>>(j, (const T *)x, (const T *)w, bias, (T *)y));
}

void ls_cuda_direct_bwd_data(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *w, void *dx)
{
    struct job j = job_of(c, c->x.n * c->x.h * c->x.w * c->x.c);
    unsigned grid = (unsigned)ceil_div(j.count, THREADS);
    LS_CUDA_BY_TYPE(c->t, bwd_data_kernel<T><<<grid, THREADS, 0, s>>>(j, (const T *)dy, (const T *)w, (T *)dx));
}

void ls_cuda_direct_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x,
                                float *dw)
{
    struct job j = job_of(c, 0);
    unsigned grid = (unsigned)(c->y.c * c->kernel_h * c->kernel_w * j.stored);
    LS_CUDA_BY_TYPE(c->t, bwd_weights_kernel<T><<<grid, THREADS, 0, s>>>(j, (const T *)dy, (const T *)x, dw));
}
