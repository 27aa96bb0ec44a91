/* 3x3 convolutions of few channels (few.cuh) with a 2x2 max pooling behind them. The map between the two is the largest of a
 * network for small images; here it is neither stored nor read.
 *
 *   forward   A thread ends with the four pixels of a window: upper ones in one tile, lower ones in the other. They are rounded
 *             before they are compared, so the result has the bits of the two operations apart.
 *   weights   dy of a strip is spread over its pixels in shared memory. */
#include "backend/cuda/kernels/conv/few.cuh"
#include "backend/cuda/kernels/pool/duo.cuh"

using namespace ls_few;
using namespace ls_pool;

namespace
{

constexpr int HIGH_WINDOWS = STRIP / 2; /* rows of windows of a strip */

/* The windows of a strip: how many, and the number of its first one. */
struct strip_windows {
    int count;
    int64_t first;
};
__device__ __forceinline__ strip_windows windows_of(const strips &s, int strip)
{
    const strip_place at = place_of_strip(s, strip);
    const int high = s.h / 2, wide = s.w / 2, top = at.top / 2;
    return {max(min(HIGH_WINDOWS, high - top), 0) * wide, ((int64_t)at.sample * high + top) * wide};
}

/* --- forward --------------------------------------------------------------------------------------------------- */

/* The largest of four, and which it is: the first of equal ones. */
template <typename T> __device__ __forceinline__ octet<T> largest(const octet<T> (&in)[4], uint2 &position)
{
    octet<T> out;
    uint32_t where[4];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        duo<T> v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = duo_of<T>(in[i], p, 0);
        const duo<T> best = larger<T>(larger<T>(v[0], v[1]), larger<T>(v[2], v[3]));
        where[p] = both(3);
#pragma unroll
        for (int i = 2; i >= 0; i--)
            where[p] = where_equal<T>(v[i], best, both(i), where[p]);
        set_duo<T>(out, p, best, 0);
    }
    position = pack_positions(where);
    return out;
}

/* A tile has the upper or the lower pixels of 8 windows: first the left ones, then the right ones. Even columns lie apart from
 * odd ones in shared memory, so that the left pixels of adjacent windows are adjacent. */
template <typename T, int OCTETS>
__global__ void __launch_bounds__(FORWARD_THREADS, 1)
    few_pool_forward(strips s, const void *x, const void *w, void *y, uint2 *index)
{
    extern __shared__ uint4 room[];
    __shared__ copies in;
    __shared__ uint16_t windows[HIGH_WINDOWS * WIDEST / 2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wide = s.w / 2, right = lane / 8 % 2;
    const int columns = blockIdx.y * COLUMNS + warp % 2 * WARP_COLUMNS;
    const int row = (s.w + 2) * pitch<OCTETS>, odd = (s.w + 3) / 2 * pitch<OCTETS>;
    const int second = right ? pitch<OCTETS> - odd : odd;
    held_weights<OCTETS> weights;
    weights.load(w, columns);
    for (int i = threadIdx.x; i < HIGH_WINDOWS * wide; i += FORWARD_THREADS)
        windows[i] = (uint16_t)((i / wide * 2 * (s.w + 2) + i % wide) * (pitch<OCTETS> / UNIT));
    each_strip<OCTETS, true>(s, x, in, shared_at(room), [&](int strip, uint32_t from) {
        const strip_windows of = windows_of(s, strip);
        for (int first = warp / 2 * 8; first < of.count; first += FORWARD_THREADS / 64 * 8) {
            const uint32_t upper = from + windows[min(first + lane % 8, of.count - 1)] * UNIT + right * odd;
            const uint32_t at[2] = {upper, upper + row};
            float sums[2][4][4] = {};
            weights.template multiply_tiles<T>(sums, at, row, second, pitch<OCTETS>);
            const octet<T> pixels[4] = {octet_of<T>(sums[0], 0), octet_of<T>(sums[0], 1), octet_of<T>(sums[1], 0),
                                        octet_of<T>(sums[1], 1)};
            const int window = first + lane / 4;
            uint2 position;
            const octet<T> best = largest<T>(pixels, position);
            if (window >= of.count)
                continue;
            const int64_t to = ((of.first + window) * s.out + columns) / 8 + lane % 4;
            store<T>(y, to, best);
            if (index)
                index[to] = position;
        }
    });
}

template <typename T, int OCTETS>
void forward(ls_cuda_stream stream, const struct ls_cuda_conv *c, const void *x, const void *w, void *y, uint8_t *index)
{
    const strips s = strips_of(c);
    const int room = FORWARD_STAGES * strip_bytes<OCTETS>(s.w);
    cudaFuncSetAttribute(few_pool_forward<T, OCTETS>, cudaFuncAttributeMaxDynamicSharedMemorySize, room);
    few_pool_forward<T, OCTETS><<<grid_of(s), FORWARD_THREADS, room, stream>>>(s, x, w, y, (uint2 *)index);
}

/* --- the gradient of the weights ------------------------------------------------------------------------------- */

constexpr int WINDOW_BYTES = COLUMNS * 2 + COLUMNS; /* dy of a window and its positions */

/* Pixels of the windows of a strip, in whole slices of 16. */
__host__ __device__ __forceinline__ int pooled_pixels(int w)
{
    return (STRIP * (w / 2 * 2) + 15) / 16 * 16;
}

/* Begins to copy dy and the positions of a strip's windows, 8 channels at a time: first all of dy. */
__device__ __forceinline__ void copy_windows(const strips &s, int strip, const void *dy, const uint8_t *index,
                                             int columns, uint32_t to)
{
    const strip_windows of = windows_of(s, strip);
    const uint32_t positions = to + HIGH_WINDOWS * (s.w / 2) * COLUMNS * 2;
    for (int i = threadIdx.x; i < of.count * (COLUMNS / 8); i += WEIGHTS_THREADS) {
        const int64_t from = (of.first + i / (COLUMNS / 8)) * s.out + columns + i % (COLUMNS / 8) * 8;
        copy_unit(to + i * UNIT, (const char *)dy + from * 2, true);
    }
    for (int i = threadIdx.x; i < of.count * (COLUMNS / 16); i += WEIGHTS_THREADS) {
        const int64_t from = (of.first + i / (COLUMNS / 16)) * s.out + columns + i % (COLUMNS / 16) * 16;
        copy_unit(positions + i * UNIT, index + from, true);
    }
}

/* Puts dy of each window at the pixel that was its largest, and 0 at the others, by channel. Pixels are in rows of
 * 2 * (w / 2). */
__device__ __forceinline__ void spread(const strips &s, const uint4 *dy, int count, char *pixels)
{
    const int wide = s.w / 2;
    const uint2 *positions = (const uint2 *)(dy + HIGH_WINDOWS * wide * (COLUMNS / 8));
    for (int i = threadIdx.x; i < HIGH_WINDOWS * wide * (COLUMNS / 8); i += WEIGHTS_THREADS) {
        const int window = i / (COLUMNS / 8), octet = i % (COLUMNS / 8), row = window / wide;
        const uint4 d = dy[i];
        const uint2 at = positions[i];
        char *to = pixels + (row * 4 * wide + (window - row * wide) * 2) * DY_PITCH + octet * UNIT;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const uint32_t low = __vcmpeq4(at.x, 0x01010101u * p), high = __vcmpeq4(at.y, 0x01010101u * p);
            uint4 v = make_uint4(d.x & __byte_perm(low, 0, 0x1100), d.y & __byte_perm(low, 0, 0x3322),
                                 d.z & __byte_perm(high, 0, 0x1100), d.w & __byte_perm(high, 0, 0x3322));
            if (window >= count)
                v = make_uint4(0, 0, 0, 0);
            *(uint4 *)(to + (p / 2 * 2 * wide + p % 2) * DY_PITCH) = v;
        }
    }
}

template <typename T, int OCTETS>
__global__ void __launch_bounds__(WEIGHTS_THREADS, 1)
    few_pool_weights(strips s, const void *dy, const uint8_t *index, const void *x, float *parts)
{
    extern __shared__ uint4 room[];
    __shared__ copies in;
    __shared__ uint16_t windows[STRIP * WIDEST];
    const int lane = threadIdx.x % 32, wide = s.w / 2 * 2;
    const int x_bytes = strip_bytes<OCTETS>(s.w), stage = x_bytes + HIGH_WINDOWS * (s.w / 2) * WINDOW_BYTES;
    const uint32_t base = shared_at(room), columns = blockIdx.y * COLUMNS;
    char *pixels = (char *)room + 2 * stage;
    weight_sums<T, OCTETS> sums;
    sums.begin((s.w + 2) * pitch<OCTETS>);

    for (int p = threadIdx.x; p < pooled_pixels(s.w); p += WEIGHTS_THREADS) {
        const int pixel = min(p, STRIP * wide - 1), down = pixel / wide;
        windows[p] = (uint16_t)((down * (s.w + 2) + pixel - down * wide) * (pitch<OCTETS> / UNIT));
    }
    for (int i = threadIdx.x; i < (pooled_pixels(s.w) - STRIP * wide) * (DY_PITCH / UNIT); i += WEIGHTS_THREADS)
        ((uint4 *)(pixels + STRIP * wide * DY_PITCH))[i] = make_uint4(0, 0, 0, 0); /* of no window */
    in.template lay<OCTETS, false>(s);
    int strip = blockIdx.x;
    if (strip < s.count) {
        in.template begin<OCTETS, WEIGHTS_THREADS>(s, strip, x, base);
        copy_windows(s, strip, dy, index, columns, base + x_bytes);
    }
    end_slice();
    for (int turn = 0; strip < s.count; strip += gridDim.x, turn = 1 - turn) {
        const int ahead = strip + gridDim.x, count = windows_of(s, strip).count;
        if (ahead < s.count) {
            in.template begin<OCTETS, WEIGHTS_THREADS>(s, ahead, x, base + (1 - turn) * stage);
            copy_windows(s, ahead, dy, index, columns, base + (1 - turn) * stage + x_bytes);
        }
        end_slice();
        wait_slices<1>();
        __syncthreads();
        spread(s, (const uint4 *)((const char *)room + turn * stage + x_bytes), count, pixels);
        __syncthreads();
        const uint32_t from_x = base + turn * stage, from_dy = shared_at(pixels) + lane / 8 % 2 * UNIT;
        for (int slice = sums.group(); slice * 16 < count * 4; slice += GROUPS)
            sums.add(from_x + windows[slice * 16 + lane / 8 % 2 * 8 + lane % 8] * UNIT,
                     from_dy + (slice * 16 + lane / 16 * 8 + lane % 8) * DY_PITCH);
        __syncthreads();
    }
    sums.write((float *)room, parts);
}

template <int OCTETS> int weights_room(int w)
{
    const int all = 2 * (strip_bytes<OCTETS>(w) + HIGH_WINDOWS * (w / 2) * WINDOW_BYTES) + pooled_pixels(w) * DY_PITCH,
              total = COLUMNS * 9 * OCTETS * 8 * (int)sizeof(float);
    return all > total ? all : total;
}

template <typename T, int OCTETS>
void bwd_weights(ls_cuda_stream stream, const struct ls_cuda_conv *c, const void *dy, const uint8_t *index,
                 const void *x, float *dw, float *parts)
{
    const strips s = strips_of(c);
    const int room = weights_room<OCTETS>(s.w);
    cudaFuncSetAttribute(few_pool_weights<T, OCTETS>, cudaFuncAttributeMaxDynamicSharedMemorySize, room);
    few_pool_weights<T, OCTETS><<<grid_of(s), WEIGHTS_THREADS, room, stream>>>(s, dy, index, x, parts);
    add_parts(stream, grid_of(s), OCTETS, parts, dw);
}

} // namespace

bool ls_cuda_few_pool_can(const struct ls_cuda_conv *c, const struct ls_cuda_pool *p)
{
    return ls_cuda_few_can(c) && c->x.w >= 2 && c->x.h >= 2 && p->kernel_h == 2 && p->kernel_w == 2 &&
           p->stride_h == 2 && p->stride_w == 2 && p->pad_t == 0 && p->pad_l == 0 && p->act == LS_ACT_NONE &&
           p->y.h == c->y.h / 2 && p->y.w == c->y.w / 2 && has_shared(weights_room<3>((int)c->x.w));
}

void ls_cuda_few_pool(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, void *y,
                      uint8_t *index)
{
    LS_FEW_BY_OCTETS(c, forward, s, c, x, w, y, index);
}

void ls_cuda_few_pool_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const uint8_t *index,
                                  const void *x, float *dw, float *scratch)
{
    LS_FEW_BY_OCTETS(c, bwd_weights, s, c, dy, index, x, dw, scratch);
}
