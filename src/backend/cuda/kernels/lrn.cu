/* Local response normalisation across channels. A thread handles an octet of a row and also reads the octets on both
 * sides, which is enough for a window of 5 (AlexNet's). Other windows take a slower path. Padding channels are zero,
 * so windows may extend into them. */
#include "backend/cuda/kernels/device.cuh"

using namespace ls_device;

#define THREADS 256
#define WINDOW 5

struct job {
    int64_t octets; /* in total, below 2^31 */
    int columns;    /* octets per row */
    int channels, size;
    float alpha, beta, k; /* alpha is already divided by size */
};

/* scale^-beta. */
static __device__ __forceinline__ float power(float scale, float beta)
{
    if (beta == 0.75f) {
        float root = rsqrtf(scale);
        return root * sqrtf(root);
    }
    return powf(scale, -beta);
}

/* Octets at - 1, at and at + 1 of a row: v[8 + i] is channel i of octet `at`. */
template <typename T>
static __device__ __forceinline__ void load_three(const struct job &j, const void *from, int64_t at, float (&v)[24])
{
    int column = (int)((uint32_t)at % (uint32_t)j.columns);
    octet<T> o[3];
    o[0] = column > 0 ? load_shared<T>(from, at - 1) : zero_octet<T>();
    o[1] = load_shared<T>(from, at);
    o[2] = column + 1 < j.columns ? load_shared<T>(from, at + 1) : zero_octet<T>();
#pragma unroll
    for (int i = 0; i < 3; i++) {
        float part[8];
        widen<T>(o[i], part);
#pragma unroll
        for (int c = 0; c < 8; c++)
            v[i * 8 + c] = part[c];
    }
}

/* k + alpha * the sum of squares of the window around v[at]. */
static __device__ __forceinline__ float scale_of(const struct job &j, const float (&v)[24], int at)
{
    float squares = 0;
#pragma unroll
    for (int i = -(WINDOW / 2); i <= WINDOW / 2; i++)
        squares += v[at + i] * v[at + i];
    return j.k + j.alpha * squares;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) window_kernel(struct job j, const void *x, void *y)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    float v[24], out[8];
    load_three<T>(j, x, at, v);
#pragma unroll
    for (int c = 0; c < 8; c++)
        out[c] = v[8 + c] * power(scale_of(j, v, 8 + c), j.beta);
    store<T>(y, at, narrow<T>(out));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    window_bwd_kernel(struct job j, const void *dy, const void *x, void *dx)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    float v[24], d[24], own[8], share[8 + WINDOW - 1], out[8];
    load_three<T>(j, x, at, v);
    load_three<T>(j, dy, at, d);
    /* share: the gradient that the scale of a channel gives to every channel in its window. */
#pragma unroll
    for (int i = 0; i < 8 + WINDOW - 1; i++) {
        int c = 8 - WINDOW / 2 + i;
        float scale = scale_of(j, v, c), p = power(scale, j.beta);
        share[i] = d[c] * v[c] * p / scale;
        if (c >= 8 && c < 16)
            own[c - 8] = d[c] * p;
    }
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float others = 0;
#pragma unroll
        for (int i = 0; i < WINDOW; i++)
            others += share[c + i];
        out[c] = own[c] - 2 * j.alpha * j.beta * v[8 + c] * others;
    }
    store<T>(dx, at, narrow<T>(out));
}

/* --- any window, one thread per element ---------------------------------------------------------------------- */

template <typename T> static __device__ float plain_scale(const struct job &j, const T *row, int c)
{
    float squares = 0;
    for (int i = max(c - j.size / 2, 0); i <= min(c + (j.size - 1) / 2, j.channels - 1); i++)
        squares += to_float(row[i]) * to_float(row[i]);
    return j.k + j.alpha * squares;
}

template <typename T> static __global__ void __launch_bounds__(THREADS) plain_kernel(struct job j, const T *x, T *y)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets * 8)
        return;
    int c = (int)(at % (j.columns * 8));
    float v = to_float(x[at]);
    y[at] = from_float<T>(c < j.channels ? v * power(plain_scale(j, x + at - c, c), j.beta) : 0);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) plain_bwd_kernel(struct job j, const T *dy, const T *x, T *dx)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets * 8)
        return;
    int c = (int)(at % (j.columns * 8));
    const T *row = x + at - c, *drow = dy + at - c;
    float others = 0;
    if (c >= j.channels) {
        dx[at] = from_float<T>(0);
        return;
    }
    for (int i = max(c - (j.size - 1) / 2, 0); i <= min(c + j.size / 2, j.channels - 1); i++) {
        float scale = plain_scale(j, row, i);
        others += to_float(drow[i]) * to_float(row[i]) * power(scale, j.beta) / scale;
    }
    float own = to_float(drow[c]) * power(plain_scale(j, row, c), j.beta);
    dx[at] = from_float<T>(own - 2 * j.alpha * j.beta * to_float(row[c]) * others);
}

static struct job job_of(int64_t rows, int64_t c, int64_t channels, int64_t size, float alpha, float beta, float k)
{
    struct job j = {rows * c / 8, (int)(c / 8), (int)channels, (int)size, alpha / (float)size, beta, k};
    return j;
}

void ls_cuda_lrn(ls_cuda_stream s, enum ls_dtype t, int64_t rows, int64_t c, int64_t channels, int64_t size,
                 float alpha, float beta, float k, const void *x, void *y)
{
    struct job j = job_of(rows, c, channels, size, alpha, beta, k);
    if (size == WINDOW)
        LS_CUDA_BY_TYPE(t, window_kernel<T><<<(unsigned)ceil_div(j.octets, THREADS), THREADS, 0, s>>>(j, x, y));
    else
        LS_CUDA_BY_TYPE(t, plain_kernel<T>
                        <<<(unsigned)ceil_div(j.octets * 8, THREADS), THREADS, 0, s>>>(j, (const T *)x, (T *)y));
}

void ls_cuda_lrn_bwd(ls_cuda_stream s, enum ls_dtype t, int64_t rows, int64_t c, int64_t channels, int64_t size,
                     float alpha, float beta, float k, const void *dy, const void *x, void *dx)
{
    struct job j = job_of(rows, c, channels, size, alpha, beta, k);
    if (size == WINDOW)
        LS_CUDA_BY_TYPE(t,
                        window_bwd_kernel<T><<<(unsigned)ceil_div(j.octets, THREADS), THREADS, 0, s>>>(j, dy, x, dx));
    else
        LS_CUDA_BY_TYPE(t, plain_bwd_kernel<T><<<(unsigned)ceil_div(j.octets * 8, THREADS), THREADS, 0, s>>>(
                               j, (const T *)dy, (const T *)x, (T *)dx));
}
