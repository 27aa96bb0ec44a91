/* How the depthwise kernels divide their work. A thread handles a quad of channels. A unit is `run` adjacent result
 * columns of one group of rows of one sample. A thread processes a unit from left to right with a window in
 * registers. A block processes `step` units of `segment` quads each, side by side. Consecutive units belong to
 * consecutive groups of rows, and so share rows in L1. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_DEPTHWISE_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_DEPTHWISE_CUH

#include "backend/cuda/kernels/quad.cuh"

namespace ls_device
{

#define LS_DEPTHWISE_THREADS 128

struct units {
    int quads;             /* per pixel */
    int segments, segment; /* segments per pixel, and quads per segment */
    int step;              /* units per block */
    int run, width;        /* columns per unit, and per row */
    divider groups, runs;  /* per sample */
    uint32_t count;
};

/* The work of one thread. quad < 0: there is none. */
struct unit {
    int quad, sample, group, first, end; /* columns first .. end - 1 */
};

/* Units for `height` groups of `width` columns in each of n samples with c channels. Rows are split into runs where
 * the device needs more units to stay busy for several waves of blocks. */
inline struct units units_of(int64_t n, int64_t height, int64_t width, int64_t c)
{
    struct units u;
    u.quads = (int)(c / 4);
    u.segments = (int)ceil_div(u.quads, 16);
    u.segment = (int)ceil_div(u.quads, u.segments);
    u.step = LS_DEPTHWISE_THREADS / u.segment;
    int64_t wanted = (int64_t)4096 * multiprocessors(), run = width;
    while (run > 14 && n * height * ceil_div(width, run) * u.quads < wanted)
        run = (run + 1) / 2;
    u.run = (int)run;
    u.width = (int)width;
    u.groups = divider_of(height);
    u.runs = divider_of(ceil_div(width, run));
    u.count = (uint32_t)(n * height * ceil_div(width, run));
    return u;
}

/* Unit number `at` of a segment. */
__device__ __forceinline__ struct unit unit_at(const struct units &u, uint32_t at, int segment)
{
    int quad = segment * u.segment + (int)threadIdx.x % u.segment;
    uint32_t group = at, run = divide_rest(group, u.groups), sample = divide_rest(run, u.runs);
    struct unit t = {quad, (int)sample, (int)group, (int)run * u.run, min((int)run * u.run + u.run, u.width)};
    if (at >= u.count || quad >= u.quads || (int)threadIdx.x >= u.segment * u.step)
        t.quad = -1;
    return t;
}

/* Keeps the value in a register: the compiler does not compute it again at each use. */
__device__ __forceinline__ void keep(const char *&p)
{
    asm volatile("" : "+l"(p));
    __builtin_assume(__isGlobal(p));
}
__device__ __forceinline__ void keep(int64_t &v)
{
    asm volatile("" : "+l"(v));
}
__device__ __forceinline__ void keep(float &v)
{
    asm volatile("" : "+f"(v));
}

/* A few adjacent rows of a map, which a thread processes from left to right. */
struct strip {
    const char *at; /* the thread's quad in the first row, column x */
    int64_t row;    /* bytes per row */
    int64_t pixel;  /* bytes per pixel */
    int x, width;
    uint32_t inside; /* bit i: row i is in the map */
};

/* Rows top ... top + ROWS - 1 of the unit's sample, starting at column x. Rows and columns may be outside the map. */
template <typename T, int ROWS>
__device__ __forceinline__ struct strip strip_of(const struct ls_cuda_map &m, const void *map, const struct unit &t,
                                                 int top, int x)
{
    int64_t first = ((t.sample * m.h + top) * m.w + x) * m.c + t.quad * 4;
    struct strip s = {(const char *)map + first * (int64_t)sizeof(T),
                      m.w * m.c * (int64_t)sizeof(T),
                      (int)m.c * (int)sizeof(T),
                      x,
                      (int)m.w,
                      0};
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        s.inside |= (uint32_t)(top + i >= 0 && top + i < (int)m.h) << i;
    keep(s.at);
    keep(s.row);
    return s;
}

/* Loads the next column, with zeros outside the map. */
template <typename T, int ROWS> __device__ __forceinline__ void load_column(struct strip &s, quad<T> (&q)[ROWS])
{
    uint32_t inside = (uint32_t)s.x < (uint32_t)s.width ? s.inside : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        q[i] = zero_quad<T>();
        if (inside >> i & 1)
            q[i] = load_quad<T>(s.at + i * s.row, 0);
    }
    s.at += s.pixel;
    s.x++;
}

/* Stores the next column. Values outside the map are dropped. */
template <typename T, int ROWS> __device__ __forceinline__ void store_column(struct strip &s, const float (&v)[ROWS][4])
{
    uint32_t inside = (uint32_t)s.x < (uint32_t)s.width ? s.inside : 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (inside >> i & 1)
            store_quad<T>((char *)s.at + i * s.row, 0, narrow_quad<T>(v[i]));
    s.at += s.pixel;
    s.x++;
}

template <typename T, int ROWS>
__device__ __forceinline__ void move_column(const quad<T> (&from)[ROWS], quad<T> (&to)[ROWS])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        to[i] = from[i];
}

/* Whether the fast 3x3 kernels support this convolution. */
inline bool depthwise_3x3(const struct ls_cuda_conv *c)
{
    return c->kernel_h == 3 && c->kernel_w == 3 && c->stride_h == c->stride_w && c->stride_h <= 2 &&
           c->dilation_h == 1 && c->dilation_w == 1 && c->pad_t <= 2 && c->pad_l <= 2;
}

} // namespace ls_device

/* Kernels for any window, without the optimisations for 3x3. */
void ls_cuda_depthwise_plain(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w,
                             const float *bias, void *y);
void ls_cuda_depthwise_plain_bwd_data(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *w,
                                      void *dx);

#endif
