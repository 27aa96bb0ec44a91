/* 3x3 depthwise convolutions: forward, and backward to the data. depthwise.cuh describes how the work is divided.
 * Each source column is added to the two or three result columns that need it, so that each value is loaded and
 * widened once. The next column is loaded while the current one is computed. */
#include "backend/cuda/kernels/conv/depthwise.cuh"

using namespace ls_device;

struct filter {
    float w[3][3][4];
};

/* flip: the filter is rotated by 180 degrees. */
template <typename T>
static __device__ __forceinline__ void load_filter(const void *w, int quads, int at, bool flip, struct filter &f)
{
#pragma unroll
    for (int ky = 0; ky < 3; ky++)
#pragma unroll
        for (int kx = 0; kx < 3; kx++) {
            int tap = ky * 3 + kx;
            widen_quad<T>(load_quad<T>(w, (int64_t)(flip ? 8 - tap : tap) * quads + at), f.w[ky][kx]);
#pragma unroll
            for (int c = 0; c < 4; c++)
                keep(f.w[ky][kx][c]);
        }
}

static __device__ __forceinline__ void load_bias(const float *bias, int at, float (&b)[4])
{
    quad<float> q = bias ? load_quad<float>(bias, at) : zero_quad<float>();
    widen_quad<float>(q, b);
}

struct slide {
    struct units units;
    struct ls_cuda_map from, to;
    int pad_t, pad_l;
    bool flip;
    float top; /* upper bound of the activation */
};

static __device__ __forceinline__ struct unit unit_of(const struct units &u)
{
    return unit_at(u, blockIdx.x * u.step + threadIdx.x / u.segment, (int)blockIdx.y);
}

/* Applies the activation and stores the results. */
template <typename T, bool CLIPS, int ROWS>
static __device__ __forceinline__ void finish(struct strip &out, float top, float (&v)[ROWS][4])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            v[i][c] = act_of<CLIPS>(v[i][c], top);
    store_column<T>(out, v);
}

/* --- stride 1: forward, and backward with the filter rotated ------------------------------------------------- */

#define ROWS1 2

/* A source column contributes to three result columns: the third tap to the one two columns before (done), the
 * second tap to the one before (next), and the first tap to the one at the same position (begun). */
template <typename T>
static __device__ __forceinline__ void add_column(const quad<T> (&q)[ROWS1 + 2], const struct filter &f,
                                                  const float (&bias)[4], float (&done)[ROWS1][4],
                                                  float (&next)[ROWS1][4], float (&begun)[ROWS1][4])
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
                begun[r][c] = v[c] * f.w[ky][0][c] + (ky == 0 ? bias[c] : begun[r][c]);
                next[r][c] += v[c] * f.w[ky][1][c];
                done[r][c] += v[c] * f.w[ky][2][c];
            }
        }
    }
}

template <typename T, bool CLIPS>
static __global__ void __launch_bounds__(LS_DEPTHWISE_THREADS, 4)
    stride1_kernel(struct slide s, const void *x, const void *w, const float *bias, void *y)
{
    struct unit t = unit_of(s.units);
    if (t.quad < 0)
        return;
    struct strip in = strip_of<T, ROWS1 + 2>(s.from, x, t, t.group * ROWS1 - s.pad_t, t.first - s.pad_l);
    struct strip out = strip_of<T, ROWS1>(s.to, y, t, t.group * ROWS1, t.first);
    struct filter f;
    float b[4], sum[3][ROWS1][4] = {};
    quad<T> now[ROWS1 + 2], ahead[ROWS1 + 2];
    load_column<T>(in, now);
    load_filter<T>(w, s.units.quads, t.quad, s.flip, f);
    load_bias(bias, t.quad, b);
    int last = t.end - t.first + 1; /* column i of the source completes result i - 2 of the run */
#define STEP(DONE, NEXT, BEGUN)                                 \
    load_column<T>(in, ahead);                                  \
    add_column<T>(now, f, b, sum[DONE], sum[NEXT], sum[BEGUN]); \
    if (i >= 2)                                                 \
        finish<T, CLIPS>(out, s.top, sum[DONE]);                \
    if (i++ == last)                                            \
        return;                                                 \
    move_column<T>(ahead, now)
    for (int i = 0;;) {
        STEP(0, 1, 2);
        STEP(1, 2, 0);
        STEP(2, 0, 1);
    }
#undef STEP
}

/* --- stride 2, forward --------------------------------------------------------------------------------------- */

/* An even source column contributes its third tap to the previous result and its first tap to the current one. An
 * odd column contributes its second tap to the current one. */
template <typename T>
static __device__ __forceinline__ void add_even(const quad<T> (&q)[3], const struct filter &f, const float (&bias)[4],
                                                float (&done)[1][4], float (&begun)[1][4])
{
#pragma unroll
    for (int ky = 0; ky < 3; ky++) {
        float v[4];
        widen_quad<T>(q[ky], v);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            done[0][c] += v[c] * f.w[ky][2][c];
            begun[0][c] = v[c] * f.w[ky][0][c] + (ky == 0 ? bias[c] : begun[0][c]);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void add_odd(const quad<T> (&q)[3], const struct filter &f, float (&sum)[1][4])
{
#pragma unroll
    for (int ky = 0; ky < 3; ky++) {
        float v[4];
        widen_quad<T>(q[ky], v);
#pragma unroll
        for (int c = 0; c < 4; c++)
            sum[0][c] += v[c] * f.w[ky][1][c];
    }
}

template <typename T, bool CLIPS>
static __global__ void __launch_bounds__(LS_DEPTHWISE_THREADS, 4)
    stride2_kernel(struct slide s, const void *x, const void *w, const float *bias, void *y)
{
    struct unit t = unit_of(s.units);
    if (t.quad < 0)
        return;
    struct strip in = strip_of<T, 3>(s.from, x, t, t.group * 2 - s.pad_t, t.first * 2 - s.pad_l);
    struct strip out = strip_of<T, 1>(s.to, y, t, t.group, t.first);
    struct filter f;
    float b[4], sum[2][1][4] = {};
    quad<T> even[3], odd[3], even_ahead[3], odd_ahead[3];
    load_column<T>(in, even);
    load_column<T>(in, odd);
    load_filter<T>(w, s.units.quads, t.quad, false, f);
    load_bias(bias, t.quad, b);
    int last = t.end - t.first; /* pair i of columns completes result i - 1 of the run */
#define STEP(DONE, BEGUN)                           \
    load_column<T>(in, even_ahead);                 \
    load_column<T>(in, odd_ahead);                  \
    add_even<T>(even, f, b, sum[DONE], sum[BEGUN]); \
    add_odd<T>(odd, f, sum[BEGUN]);                 \
    if (i >= 1)                                     \
        finish<T, CLIPS>(out, s.top, sum[DONE]);    \
    if (i++ == last)                                \
        return;                                     \
    move_column<T>(even_ahead, even);               \
    move_column<T>(odd_ahead, odd)
    for (int i = 0;;) {
        STEP(0, 1);
        STEP(1, 0);
    }
#undef STEP
}

/* --- stride 2, backward -------------------------------------------------------------------------------------- */

/* Rows 2g - pad_t and 2g - pad_t + 1 of dx depend on rows g and g - 1 of dy. Columns are alike. A group is such a
 * pair of rows, and a column of a unit is such a pair of columns. */
template <typename T>
static __global__ void __launch_bounds__(LS_DEPTHWISE_THREADS, 4)
    stride2_bwd_kernel(struct slide s, const void *dy, const void *w, void *dx)
{
    struct unit t = unit_of(s.units);
    if (t.quad < 0)
        return;
    int g = t.group + s.pad_t / 2, first = t.first + s.pad_l / 2;
    struct strip in = strip_of<T, 2>(s.from, dy, t, g - 1, first - 1);
    struct strip out = strip_of<T, 2>(s.to, dx, t, g * 2 - s.pad_t, first * 2 - s.pad_l);
    struct filter f;
    quad<T> q[2], ahead[2];
    float before[2][4]; /* the previous column of rows g - 1 and g */
    load_column<T>(in, q);
    load_column<T>(in, ahead);
    load_filter<T>(w, s.units.quads, t.quad, false, f);
    widen_quad<T>(q[0], before[0]);
    widen_quad<T>(q[1], before[1]);
#pragma unroll 2
    for (int x = t.first; x < t.end; x++) {
        float now[2][4], left[2][4], right[2][4]; /* left, right: the two columns of dx */
        move_column<T>(ahead, q);
        load_column<T>(in, ahead);
        widen_quad<T>(q[0], now[0]);
        widen_quad<T>(q[1], now[1]);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            left[0][c] = f.w[0][0][c] * now[1][c] + f.w[0][2][c] * before[1][c] + f.w[2][0][c] * now[0][c] +
                         f.w[2][2][c] * before[0][c];
            right[0][c] = f.w[0][1][c] * now[1][c] + f.w[2][1][c] * now[0][c];
            left[1][c] = f.w[1][0][c] * now[1][c] + f.w[1][2][c] * before[1][c];
            right[1][c] = f.w[1][1][c] * now[1][c];
            before[0][c] = now[0][c];
            before[1][c] = now[1][c];
        }
        store_column<T>(out, left);
        store_column<T>(out, right);
    }
}

/* --- entry points -------------------------------------------------------------------------------------------- */

static dim3 grid_of(const struct units *u)
{
    return dim3((unsigned)ceil_div(u->count, u->step), (unsigned)u->segments);
}

template <typename T, bool CLIPS>
static void forward(ls_cuda_stream s, const struct ls_cuda_conv *c, const struct slide *sl, const void *x,
                    const void *w, const float *bias, void *y)
{
    if (c->stride_h == 1)
        stride1_kernel<T, CLIPS><<<grid_of(&sl->units), LS_DEPTHWISE_THREADS, 0, s>>>(*sl, x, w, bias, y);
    else
        stride2_kernel<T, CLIPS><<<grid_of(&sl->units), LS_DEPTHWISE_THREADS, 0, s>>>(*sl, x, w, bias, y);
}

void ls_cuda_depthwise(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, const float *bias,
                       void *y)
{
    if (!depthwise_3x3(c)) {
        ls_cuda_depthwise_plain(s, c, x, w, bias, y);
        return;
    }
    int64_t groups = c->stride_h == 1 ? ceil_div(c->y.h, ROWS1) : c->y.h;
    struct slide sl = {
        units_of(c->y.n, groups, c->y.w, c->y.c), c->x, c->y, c->pad_t, c->pad_l, false, act_top(c->act)};
    if (c->act == LS_ACT_NONE)
        LS_CUDA_BY_TYPE(c->t, forward<T, false>(s, c, &sl, x, w, bias, y));
    else
        LS_CUDA_BY_TYPE(c->t, forward<T, true>(s, c, &sl, x, w, bias, y));
}

/* How many pairs (2g - pad, 2g - pad + 1), starting with g = pad / 2, cover 0 ... size - 1. */
static int64_t pairs(int64_t size, int pad)
{
    return (size - 1 + pad) / 2 - pad / 2 + 1;
}

void ls_cuda_depthwise_bwd_data(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *w, void *dx)
{
    if (!depthwise_3x3(c)) {
        ls_cuda_depthwise_plain_bwd_data(s, c, dy, w, dx);
        return;
    }
    struct slide sl = {{}, c->y, c->x, c->pad_t, c->pad_l, true, 0};
    if (c->stride_h == 1) {
        sl.pad_t = 2 - c->pad_t;
        sl.pad_l = 2 - c->pad_l;
        sl.units = units_of(c->x.n, ceil_div(c->x.h, ROWS1), c->x.w, c->x.c);
        LS_CUDA_BY_TYPE(c->t, stride1_kernel<T, false>
                        <<<grid_of(&sl.units), LS_DEPTHWISE_THREADS, 0, s>>>(sl, dy, w, NULL, dx));
    } else {
        sl.units = units_of(c->x.n, pairs(c->x.h, c->pad_t), pairs(c->x.w, c->pad_l), c->x.c);
        LS_CUDA_BY_TYPE(c->t, stride2_bwd_kernel<T><<<grid_of(&sl.units), LS_DEPTHWISE_THREADS, 0, s>>>(sl, dy, w, dx));
    }
}
