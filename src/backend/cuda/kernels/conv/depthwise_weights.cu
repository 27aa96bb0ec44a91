/* Gradients of depthwise weights. Each block sums its share of the pixels, first in registers and then over its
 * threads, and stores a partial gradient. A second kernel adds the partial gradients in a fixed order.
 *
 *      scratch: parts x (kh, kw, c) f32 */
#include "backend/cuda/kernels/conv/depthwise.cuh"

using namespace ls_device;

#define THREADS LS_DEPTHWISE_THREADS
#define BLOCKS 4 /* per multiprocessor */

struct job {
    struct units units;
    struct ls_cuda_conv conv;
};

/* --- 3x3, stride 1 ------------------------------------------------------------------------------------------- */

#define ROWS1 2

/* Multiplies one column of x with three columns of dy: the one at the same position and the two before it. */
template <typename T>
static __device__ __forceinline__ void add_column(const quad<T> (&q)[ROWS1 + 2], const float (&d0)[ROWS1][4],
                                                  const float (&d1)[ROWS1][4], const float (&d2)[ROWS1][4],
                                                  float (&sum)[9][4])
{
#pragma unroll
    for (int i = 0; i < ROWS1 + 2; i++) {
        float v[4];
        widen_quad<T>(q[i], v);
#pragma unroll
        for (int r = 0; r < ROWS1; r++) {
            int ky = i - r;
            if (ky < 0 || ky > 2)
                continue;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                sum[ky * 3][c] += v[c] * d0[r][c];
                sum[ky * 3 + 1][c] += v[c] * d1[r][c];
                sum[ky * 3 + 2][c] += v[c] * d2[r][c];
            }
        }
    }
}

template <typename T, int ROWS>
static __device__ __forceinline__ void widen_column(const quad<T> (&q)[ROWS], float (&v)[ROWS][4])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        widen_quad<T>(q[i], v[i]);
}

/* Adds the pixels of a unit. dy ends with the unit, x ends two columns later. dy counts as zero beyond the unit. */
template <typename T>
static __device__ __forceinline__ void add_unit1(const struct job &j, const struct unit &t, const void *dy,
                                                 const void *x, float (&sum)[9][4])
{
    int top = t.group * ROWS1, last = t.end - t.first + 1;
    struct strip in = strip_of<T, ROWS1 + 2>(j.conv.x, x, t, top - j.conv.pad_t, t.first - j.conv.pad_l);
    struct strip slope = strip_of<T, ROWS1>(j.conv.y, dy, t, top, t.first);
    slope.width = t.end;
    quad<T> now[ROWS1 + 2], ahead[ROWS1 + 2], d_now[ROWS1], d_ahead[ROWS1];
    float d[3][ROWS1][4] = {};
    load_column<T>(in, now);
    load_column<T>(slope, d_now);
#define STEP(D0, D1, D2)                          \
    load_column<T>(in, ahead);                    \
    load_column<T>(slope, d_ahead);               \
    widen_column<T>(d_now, d[D0]);                \
    add_column<T>(now, d[D0], d[D1], d[D2], sum); \
    if (i++ == last)                              \
        return;                                   \
    move_column<T>(ahead, now);                   \
    move_column<T>(d_ahead, d_now)
    for (int i = 0;;) {
        STEP(0, 1, 2);
        STEP(2, 0, 1);
        STEP(1, 2, 0);
    }
#undef STEP
}

/* --- 3x3, stride 2 ------------------------------------------------------------------------------------------- */

template <typename T>
static __device__ __forceinline__ void add_tap_column(const quad<T> (&q)[3], const float (&d)[4], int kx,
                                                      float (&sum)[9][4])
{
#pragma unroll
    for (int ky = 0; ky < 3; ky++) {
        float v[4];
        widen_quad<T>(q[ky], v);
#pragma unroll
        for (int c = 0; c < 4; c++)
            sum[ky * 3 + kx][c] += v[c] * d[c];
    }
}

/* Even columns of x are multiplied with the current and the previous column of dy, odd columns with the current one. */
template <typename T>
static __device__ __forceinline__ void add_unit2(const struct job &j, const struct unit &t, const void *dy,
                                                 const void *x, float (&sum)[9][4])
{
    int last = t.end - t.first;
    struct strip in = strip_of<T, 3>(j.conv.x, x, t, t.group * 2 - j.conv.pad_t, t.first * 2 - j.conv.pad_l);
    struct strip slope = strip_of<T, 1>(j.conv.y, dy, t, t.group, t.first);
    slope.width = t.end;
    quad<T> even[3], odd[3], even_ahead[3], odd_ahead[3], d_now[1], d_ahead[1];
    float before[1][4] = {}, own[1][4];
    load_column<T>(in, even);
    load_column<T>(in, odd);
    load_column<T>(slope, d_now);
    for (int i = 0; i <= last; i++) {
        load_column<T>(in, even_ahead);
        load_column<T>(in, odd_ahead);
        load_column<T>(slope, d_ahead);
        widen_column<T>(d_now, own);
        add_tap_column<T>(even, own[0], 0, sum);
        add_tap_column<T>(even, before[0], 2, sum);
        add_tap_column<T>(odd, own[0], 1, sum);
#pragma unroll
        for (int c = 0; c < 4; c++)
            before[0][c] = own[0][c];
        move_column<T>(even_ahead, even);
        move_column<T>(odd_ahead, odd);
        move_column<T>(d_ahead, d_now);
    }
}

/* --- sums over blocks ---------------------------------------------------------------------------------------- */

/* part[tap * c + channel] = the sum over the block's units, for TAPS taps of the segment's channels. */
template <int TAPS>
static __device__ __forceinline__ void write_part(const struct units &u, const float (&sum)[TAPS][4], float *part)
{
    __shared__ float room[TAPS * 4][THREADS];
#pragma unroll
    for (int i = 0; i < TAPS * 4; i++)
        room[i][threadIdx.x] = sum[i / 4][i % 4];
    __syncthreads();
    for (int v = (int)threadIdx.x; v < TAPS * 4 * u.segment; v += THREADS) {
        int i = v / u.segment, lane = v % u.segment, quad = (int)blockIdx.y * u.segment + lane;
        float total = 0;
        for (int k = 0; k < u.step; k++)
            total += room[i][k * u.segment + lane];
        if (quad < u.quads)
            part[(i / 4 * u.quads + quad) * 4 + i % 4] = total;
    }
}

template <typename T, int STRIDE>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    weights_kernel(struct job j, const void *dy, const void *x, float *parts)
{
    const struct units &u = j.units;
    float sum[9][4] = {};
    for (uint32_t at = blockIdx.x * u.step + threadIdx.x / u.segment; at < u.count; at += gridDim.x * u.step) {
        struct unit t = unit_at(u, at, (int)blockIdx.y);
        if (t.quad < 0)
            break;
        if (STRIDE == 1)
            add_unit1<T>(j, t, dy, x, sum);
        else
            add_unit2<T>(j, t, dy, x, sum);
    }
    write_part<9>(u, sum, parts + (int64_t)blockIdx.x * u.quads * 36);
}

/* Any window. blockIdx.z is the tap. A thread processes a unit pixel by pixel. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    plain_kernel(struct job j, const void *dy, const void *x, float *parts)
{
    const struct units &u = j.units;
    const struct ls_cuda_conv &c = j.conv;
    int tap = (int)blockIdx.z, ky = tap / c.kernel_w, kx = tap % c.kernel_w;
    float sum[1][4] = {};
    for (uint32_t at = blockIdx.x * u.step + threadIdx.x / u.segment; at < u.count; at += gridDim.x * u.step) {
        struct unit t = unit_at(u, at, (int)blockIdx.y);
        if (t.quad < 0)
            break;
        int64_t iy = (int64_t)t.group * c.stride_h - c.pad_t + (int64_t)ky * c.dilation_h;
        for (int ox = t.first; ox < t.end; ox++) {
            int64_t ix = (int64_t)ox * c.stride_w - c.pad_l + (int64_t)kx * c.dilation_w;
            if (iy < 0 || iy >= c.x.h || ix < 0 || ix >= c.x.w)
                continue;
            float d[4], v[4];
            widen_quad<T>(load_quad<T>(dy, ((t.sample * c.y.h + t.group) * c.y.w + ox) * u.quads + t.quad), d);
            widen_quad<T>(load_quad<T>(x, ((t.sample * c.x.h + iy) * c.x.w + ix) * u.quads + t.quad), v);
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[0][i] += d[i] * v[i];
        }
    }
    int64_t taps = (int64_t)c.kernel_h * c.kernel_w;
    write_part<1>(u, sum, parts + (blockIdx.x * taps + tap) * u.quads * 4);
}

#define WIDE 32
#define DEEP 32

/* dw[i] = sum over parts of parts[part][i]. A block computes WIDE values. */
static __global__ void __launch_bounds__(WIDE *DEEP) sum_parts_kernel(const float *parts, int n, int count, float *dw)
{
    __shared__ float room[DEEP][WIDE];
    int lane = (int)threadIdx.x % WIDE, y = (int)threadIdx.x / WIDE, at = (int)blockIdx.x * WIDE + lane;
    float sum = 0;
    if (at < count)
#pragma unroll 8
        for (int part = y; part < n; part += DEEP)
            sum += parts[(int64_t)part * count + at];
    room[y][lane] = sum;
    for (int half = DEEP / 2; half; half /= 2) {
        __syncthreads();
        if (y < half)
            room[y][lane] += room[y + half][lane];
    }
    if (y == 0 && at < count)
        dw[at] = room[0][lane];
}

/* --- entry points -------------------------------------------------------------------------------------------- */

static struct job job_of(const struct ls_cuda_conv *c)
{
    int64_t groups = depthwise_3x3(c) && c->stride_h == 1 ? ceil_div(c->y.h, ROWS1) : c->y.h;
    struct job j = {units_of(c->y.n, groups, c->y.w, c->y.c), *c};
    return j;
}

/* Blocks per segment, which is the number of partial gradients. */
static int parts_of(const struct job *j)
{
    int64_t taps = depthwise_3x3(&j->conv) ? 1 : (int64_t)j->conv.kernel_h * j->conv.kernel_w;
    int64_t most = (int64_t)BLOCKS * multiprocessors() / (j->units.segments * taps);
    int64_t wanted = ceil_div(j->units.count, j->units.step);
    if (most > wanted)
        most = wanted;
    return most < 1 ? 1 : (int)most;
}

size_t ls_cuda_depthwise_scratch(const struct ls_cuda_conv *c)
{
    struct job j = job_of(c);
    return (size_t)parts_of(&j) * (size_t)(c->kernel_h * c->kernel_w) * (size_t)c->y.c * sizeof(float);
}

void ls_cuda_depthwise_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x,
                                   float *dw, float *scratch)
{
    struct job j = job_of(c);
    int parts = parts_of(&j), taps = c->kernel_h * c->kernel_w, count = taps * (int)c->y.c;
    dim3 grid((unsigned)parts, (unsigned)j.units.segments);
    if (!depthwise_3x3(c)) {
        grid.z = (unsigned)taps;
        LS_CUDA_BY_TYPE(c->t, plain_kernel<T><<<grid, THREADS, 0, s>>>(j, dy, x, scratch));
    } else if (c->stride_h == 1) {
        LS_CUDA_BY_TYPE(c->t, weights_kernel<T, 1><<<grid, THREADS, 0, s>>>(j, dy, x, scratch));
    } else {
        LS_CUDA_BY_TYPE(c->t, weights_kernel<T, 2><<<grid, THREADS, 0, s>>>(j, dy, x, scratch));
    }
    sum_parts_kernel<<<(unsigned)ceil_div(count, WIDE), WIDE * DEEP, 0, s>>>(scratch, parts, count, dw);
}
