/* 3x3 convolutions of few input channels, 8 to 24, with stride 1 and padding 1, on tensor cores. The engines of cuDNN pad the
 * channels of each tap to whole slices of their products and reach a fifth of the memory's speed. few.cu has the convolution
 * alone, few_pool.cu the one with a 2x2 max pooling behind it.
 *
 * A strip is STRIP rows of a map at its full width. Blocks stay on their multiprocessor and take every so many strips in turn;
 * while one is multiplied, the next is copied into shared memory, with a border of zeros. A pixel there is an odd number of
 * octets (pitch), so that eight adjacent pixels lie in different banks.
 *
 * The taps of a pixel are 9 * OCTETS octets. Forward, a product has them as its depth: two octets are a slice of 16, and the
 * weights stay in registers. For the gradient of the weights, they are its columns, the pixels its depth.
 *
 *   FEW-1  The order of all additions depends on the shape and the number of multiprocessors alone. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_FEW_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_FEW_CUH

#include "backend/cuda/kernels/conv/product.cuh"

namespace ls_few
{

using namespace ls_product;

constexpr int STRIP = 8; /* rows */
constexpr int WIDEST = 64;

struct strips {
    int h, w, each, count; /* each: strips of a sample */
    int out;
    divider by_each;
};

template <int OCTETS> constexpr int pitch = (OCTETS | 1) * UNIT; /* bytes of a pixel in shared memory */

/* Octet o of a pixel's taps: the row and the column of its tap, and the bytes of the octet within the tap. */
template <int OCTETS> __device__ constexpr int tap_row(int o)
{
    return o / (3 * OCTETS);
}
template <int OCTETS> __device__ constexpr int tap_column(int o)
{
    return o % (3 * OCTETS) / OCTETS;
}
template <int OCTETS> __device__ constexpr int tap_octet(int o)
{
    return o % OCTETS * UNIT;
}

__device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

template <int OCTETS> __host__ __device__ __forceinline__ int strip_bytes(int w)
{
    return (STRIP + 2) * (w + 2) * pitch<OCTETS>;
}

/* Which strip of which sample. */
struct strip_place {
    int sample, top; /* top: its first row */
};
__device__ __forceinline__ strip_place place_of_strip(const strips &s, int strip)
{
    const int sample = (int)divide((uint32_t)strip, s.by_each);
    return {sample, (strip - sample * s.each) * STRIP};
}

/* How a strip of x comes into shared memory, which is the same for all strips: for each of its units, where it goes, its row in
 * the strip, and where it comes from, counted from the left end of the row above the strip. */
struct copies {
    static constexpr int none = 0xffff; /* of the border beside the map */
    uint32_t of[(STRIP + 2) * (WIDEST + 2) * 3];

    /* With APART, even columns, counted with the border, come before odd ones. All threads of the block call it. */
    template <int OCTETS, bool APART> __device__ __forceinline__ void lay(const strips &s)
    {
        const int across = (s.w + 2) * OCTETS;
        for (int i = threadIdx.x; i < (STRIP + 2) * across; i += blockDim.x) {
            const int row = i / across, column = i % across / OCTETS, octet = i % OCTETS;
            const int place = APART ? column / 2 + column % 2 * ((s.w + 3) / 2) : column;
            const uint32_t to = (row * (s.w + 2) + place) * (pitch<OCTETS> / UNIT) + octet,
                           from = (row * s.w + column - 1) * OCTETS + octet;
            of[i] = to | row << 12 | (column > 0 && column <= s.w ? from : none) << 16;
        }
        __syncthreads();
    }
    /* Begins to copy a strip. */
    template <int OCTETS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void begin(const strips &s, int strip, const void *x, uint32_t to) const
    {
        const strip_place at = place_of_strip(s, strip);
        const uint4 *above = (const uint4 *)x + ((int64_t)at.sample * s.h + at.top - 1) * s.w * OCTETS;
#pragma unroll 4
        for (int i = threadIdx.x; i < (STRIP + 2) * (s.w + 2) * OCTETS; i += THREADS_OF_BLOCK) {
            const uint32_t unit = of[i], from = unit >> 16;
            const bool there = from != none && (uint32_t)(at.top - 1 + (int)(unit >> 12 & 15)) < (uint32_t)s.h;
            copy_unit(to + (unit & 0xfff) * UNIT, there ? above + from : (const uint4 *)x, there);
        }
    }
};

/* --- forward --------------------------------------------------------------------------------------------------- */

constexpr int FORWARD_THREADS = 256, FORWARD_STAGES = 3, WARP_COLUMNS = 32, COLUMNS = 64;

/* The weights of 32 channels of the result, in the registers of a warp. Column n of product j is channel
 * n / 2 * 8 + 2 * j + n % 2, so that a thread ends with an octet of each of its pixels. */
template <int OCTETS> struct held_weights {
    static constexpr int taps = 9 * OCTETS, slices = (taps + 1) / 2;
    uint32_t v[slices][4][2];

    __device__ __forceinline__ void load(const void *w, int columns)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < slices; k++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int channel = columns + lane / 8 * 8 + 2 * j + lane / 4 % 2;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int o = 2 * k + half;
                    v[k][j][half] = o < taps ? ((const uint32_t *)w)[((int64_t)channel * taps + o) * 4 + lane % 4] : 0;
                }
            }
    }
    /* sums of two tiles of 16 pixels += taps * weights. A lane passes the addresses of the windows of one pixel of each tile,
     * the bytes of a row in shared memory, and from the first column of a window to the second and the third. */
    template <typename T>
    __device__ __forceinline__ void multiply_tiles(float (&sums)[2][4][4], const uint32_t (&at)[2], int row, int second,
                                                   int third) const
    {
        const bool upper = threadIdx.x % 32 / 16;
#pragma unroll
        for (int k = 0; k < slices; k++) {
            const int low = 2 * k, high = 2 * k + 1 < taps ? 2 * k + 1 : low; /* of an odd number, the last meets 0 */
            const int by_low = tap_row<OCTETS>(low) * row + tap_octet<OCTETS>(low) +
                               (tap_column<OCTETS>(low) == 0   ? 0
                                : tap_column<OCTETS>(low) == 1 ? second
                                                               : third),
                      by_high = tap_row<OCTETS>(high) * row + tap_octet<OCTETS>(high) +
                                (tap_column<OCTETS>(high) == 0   ? 0
                                 : tap_column<OCTETS>(high) == 1 ? second
                                                                 : third);
            uint32_t a[2][4];
#pragma unroll
            for (int t = 0; t < 2; t++)
                load_matrices<false>(a[t], at[t] + (upper ? by_high : by_low));
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int t = 0; t < 2; t++)
                    multiply<T>(sums[t][j], a[t], v[k][j][0], v[k][j][1]);
        }
    }
};

/* The octet of a thread for pixel `half` * 8 + lane / 4 of a tile. */
template <typename T> __device__ __forceinline__ octet<T> octet_of(const float (&sums)[4][4], int half)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = sums[i / 2][half * 2 + i % 2];
    return narrow<T>(v);
}

/* Calls work(strip, address) for each strip of this block, when it has arrived in shared memory. */
template <int OCTETS, bool APART, typename F>
__device__ __forceinline__ void each_strip(const strips &s, const void *x, copies &in, uint32_t base, F work)
{
    const uint32_t stage = strip_bytes<OCTETS>(s.w);
    int strip = blockIdx.x;
    in.template lay<OCTETS, APART>(s);
#pragma unroll
    for (int i = 0; i < FORWARD_STAGES - 1; i++) {
        if (strip + i * (int)gridDim.x < s.count)
            in.template begin<OCTETS, FORWARD_THREADS>(s, strip + i * gridDim.x, x, base + i * stage);
        end_slice();
    }
    for (int turn = 0; strip < s.count; strip += gridDim.x, turn = turn + 1 == FORWARD_STAGES ? 0 : turn + 1) {
        wait_slices<FORWARD_STAGES - 2>();
        __syncthreads(); /* the strip is there, and all are done with the one before it, whose place is next */
        const int ahead = strip + (FORWARD_STAGES - 1) * gridDim.x;
        if (ahead < s.count)
            in.template begin<OCTETS, FORWARD_THREADS>(s, ahead, x,
                                                       base + (turn == 0 ? FORWARD_STAGES - 1 : turn - 1) * stage);
        end_slice();
        work(strip, base + turn * stage);
    }
}

/* --- the gradient of the weights ------------------------------------------------------------------------------- */

constexpr int QUARTERS = 4, GROUPS = 3, WEIGHTS_THREADS = 32 * QUARTERS * GROUPS; /* three warps a scheduler */
constexpr int DY_PITCH = COLUMNS * 2 + UNIT; /* bytes of a pixel of dy: an odd number of octets again */

/* Sums of a warp: 64 channels of dy by a quarter of the octets of the taps. Of the slices of 16 pixels, a warp takes every
 * GROUPS-th. */
template <typename T, int OCTETS> struct weight_sums {
    static constexpr int taps = 9 * OCTETS, own = (taps + QUARTERS - 1) / QUARTERS, loads = (own + 1) / 2;
    float v[4][own][4];
    int by[loads]; /* from a window to the octets that this lane loads */

    __device__ __forceinline__ static int quarter(void)
    {
        return threadIdx.x / 32 % QUARTERS;
    }
    __device__ __forceinline__ static int group(void)
    {
        return threadIdx.x / 32 / QUARTERS;
    }
    /* row: bytes of a row in shared memory. */
    __device__ __forceinline__ void begin(int row)
    {
#pragma unroll
        for (int i = 0; i < loads; i++) {
            const int o = min(quarter() * own + 2 * i + (int)threadIdx.x % 32 / 16, taps - 1);
            by[i] = tap_row<OCTETS>(o) * row + tap_column<OCTETS>(o) * pitch<OCTETS> + tap_octet<OCTETS>(o);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int o = 0; o < own; o++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    v[i][o][k] = 0;
    }
    /* Adds a slice of 16 pixels. A lane passes the address of the window of pixel lane / 8 % 2 * 8 + lane % 8, and that of dy
     * for pixel lane / 16 * 8 + lane % 8 and octet lane / 8 % 2. */
    __device__ __forceinline__ void add(uint32_t at_x, uint32_t at_dy)
    {
        uint32_t b[loads][4];
#pragma unroll
        for (int i = 0; i < loads; i++)
            load_matrices<true>(b[i], at_x + by[i]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t a[4];
            load_matrices<true>(a, at_dy + i * 2 * UNIT);
#pragma unroll
            for (int o = 0; o < own; o++)
                multiply<T>(v[i][o], a, b[o / 2][o % 2 * 2], b[o / 2][o % 2 * 2 + 1]);
        }
    }
    /* Adds the sums of all groups, one after another, in shared memory, and writes them as the part of this block to parts,
     * (64, taps * 8). All threads call it. */
    __device__ __forceinline__ void write(float *total, float *parts) const
    {
        const int lane = threadIdx.x % 32;
        for (int g = 0; g < GROUPS; g++) {
            if (g == group())
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int o = 0; o < own; o++)
#pragma unroll
                        for (int k = 0; k < 4; k++) {
                            const int channel = i * 16 + k / 2 * 8 + lane / 4, tap = quarter() * own + o;
                            float *to = total + (channel * taps + tap) * 8 + lane % 4 * 2 + k % 2;
                            if (tap < taps)
                                *to = g == 0 ? v[i][o][k] : *to + v[i][o][k];
                        }
            __syncthreads();
        }
        float4 *to = (float4 *)parts + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * COLUMNS * taps * 2;
        for (int i = threadIdx.x; i < COLUMNS * taps * 2; i += WEIGHTS_THREADS)
            to[i] = ((const float4 *)total)[i];
    }
};

/* --- launches -------------------------------------------------------------------------------------------------- */

inline strips strips_of(const struct ls_cuda_conv *c)
{
    strips s = {(int)c->x.h, (int)c->x.w, (int)ceil_div(c->x.h, STRIP), 0, (int)c->y.c, {}};
    s.count = (int)c->x.n * s.each;
    s.by_each = divider_of(s.each);
    return s;
}

/* One block a multiprocessor, or fewer where there is less to do. */
inline dim3 grid_of(const strips &s)
{
    const int groups = s.out / COLUMNS, most = multiprocessors() / groups > 1 ? multiprocessors() / groups : 1;
    return dim3((unsigned)(s.count < most ? s.count : most), (unsigned)groups);
}

/* Whether a block can have so much shared memory beside what kernels have for offsets. */
inline bool has_shared(int bytes)
{
    int device = 0, most = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
           bytes + 12 * 1024 <= most;
}

/* dw is the sum of the parts of all blocks of the grid, first to last (few.cu). */
void add_parts(ls_cuda_stream stream, dim3 grid, int octets, const float *parts, float *dw);

#define LS_FEW_BY_OCTETS(c, FUNCTION, ...)                            \
    if ((c)->t == LS_BF16)                                            \
        ((c)->x.c == 8    ? FUNCTION<__nv_bfloat16, 1>                \
         : (c)->x.c == 16 ? FUNCTION<__nv_bfloat16, 2>                \
                          : FUNCTION<__nv_bfloat16, 3>)(__VA_ARGS__); \
    else                                                              \
        ((c)->x.c == 8 ? FUNCTION<__half, 1> : (c)->x.c == 16 ? FUNCTION<__half, 2> : FUNCTION<__half, 3>)(__VA_ARGS__)

} // namespace ls_few

#endif
