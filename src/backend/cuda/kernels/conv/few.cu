/* 3x3 convolutions of few channels (few.cuh), forward and the gradient of the weights. */
#include "backend/cuda/kernels/conv/few.cuh"

using namespace ls_few;

namespace
{

/* A strip's pixels, in whole slices of 16. */
__host__ __device__ __forceinline__ int padded_pixels(int w)
{
    return (STRIP * w + 15) / 16 * 16;
}

/* Writes the offsets of the windows of a strip's pixels into shared memory, in units. Those behind the last are of the last. */
template <int OCTETS> __device__ __forceinline__ void lay_windows(const strips &s, uint16_t *windows)
{
    for (int p = threadIdx.x; p < padded_pixels(s.w); p += blockDim.x) {
        const int pixel = min(p, STRIP * s.w - 1), row = pixel / s.w;
        windows[p] = (uint16_t)((row * (s.w + 2) + pixel - row * s.w) * (pitch<OCTETS> / UNIT));
    }
}

/* --- forward --------------------------------------------------------------------------------------------------- */

template <typename T, int OCTETS>
__global__ void __launch_bounds__(FORWARD_THREADS, 1) few_forward(strips s, const void *x, const void *w, void *y)
{
    extern __shared__ uint4 room[];
    __shared__ copies in;
    __shared__ uint16_t windows[STRIP * WIDEST];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int columns = blockIdx.y * COLUMNS + warp % 2 * WARP_COLUMNS;
    held_weights<OCTETS> weights;
    weights.load(w, columns);
    lay_windows<OCTETS>(s, windows);
    each_strip<OCTETS, false>(s, x, in, shared_at(room), [&](int strip, uint32_t from) {
        const strip_place place = place_of_strip(s, strip);
        const int pixels = min(STRIP, s.h - place.top) * s.w;
        const int64_t first = ((int64_t)place.sample * s.h + place.top) * s.w;
        for (int tile = warp / 2 * 2; tile * 16 < pixels; tile += FORWARD_THREADS / 32) {
            uint32_t at[2];
            float sums[2][4][4] = {};
#pragma unroll
            for (int t = 0; t < 2; t++)
                at[t] = from + windows[min((tile + t) * 16 + lane % 16, STRIP * s.w - 1)] * UNIT;
            weights.template multiply_tiles<T>(sums, at, (s.w + 2) * pitch<OCTETS>, pitch<OCTETS>, 2 * pitch<OCTETS>);
#pragma unroll
            for (int t = 0; t < 2; t++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int p = (tile + t) * 16 + half * 8 + lane / 4;
                    if (p < pixels)
                        store<T>(y, ((first + p) * s.out + columns) / 8 + lane % 4, octet_of<T>(sums[t], half));
                }
        }
    });
}

template <typename T, int OCTETS>
void forward(ls_cuda_stream stream, const struct ls_cuda_conv *c, const void *x, const void *w, void *y)
{
    const strips s = strips_of(c);
    const int room = FORWARD_STAGES * strip_bytes<OCTETS>(s.w);
    cudaFuncSetAttribute(few_forward<T, OCTETS>, cudaFuncAttributeMaxDynamicSharedMemorySize, room);
    few_forward<T, OCTETS><<<grid_of(s), FORWARD_THREADS, room, stream>>>(s, x, w, y);
}

/* --- the gradient of the weights ------------------------------------------------------------------------------- */

/* Begins to copy a strip of dy, of channels `columns` to columns + COLUMNS. Pixels behind the last are 0. */
__device__ __forceinline__ void copy_dy(const strips &s, int strip, const void *dy, int columns, uint32_t to)
{
    const strip_place at = place_of_strip(s, strip);
    const int pixels = min(STRIP, s.h - at.top) * s.w;
    const int64_t first = ((int64_t)at.sample * s.h + at.top) * s.w;
    for (int i = threadIdx.x; i < padded_pixels(s.w) * (COLUMNS / 8); i += WEIGHTS_THREADS) {
        const int p = i / (COLUMNS / 8), octet = i % (COLUMNS / 8);
        const int64_t from = p < pixels ? ((first + p) * s.out + columns) / 8 + octet : 0;
        copy_unit(to + p * DY_PITCH + octet * UNIT, (const uint4 *)dy + from, p < pixels);
    }
}

template <typename T, int OCTETS>
__global__ void __launch_bounds__(WEIGHTS_THREADS, 1) few_weights(strips s, const void *dy, const void *x, float *parts)
{
    extern __shared__ uint4 room[];
    __shared__ copies in;
    __shared__ uint16_t windows[STRIP * WIDEST];
    const int lane = threadIdx.x % 32;
    const uint32_t base = shared_at(room), x_bytes = strip_bytes<OCTETS>(s.w),
                   stage = x_bytes + padded_pixels(s.w) * DY_PITCH;
    const int columns = blockIdx.y * COLUMNS;
    weight_sums<T, OCTETS> sums;
    sums.begin((s.w + 2) * pitch<OCTETS>);

    lay_windows<OCTETS>(s, windows);
    in.template lay<OCTETS, false>(s);
    int strip = blockIdx.x;
    if (strip < s.count) {
        in.template begin<OCTETS, WEIGHTS_THREADS>(s, strip, x, base);
        copy_dy(s, strip, dy, columns, base + x_bytes);
    }
    end_slice();
    for (int turn = 0; strip < s.count; strip += gridDim.x, turn = 1 - turn) {
        const int ahead = strip + gridDim.x;
        if (ahead < s.count) {
            in.template begin<OCTETS, WEIGHTS_THREADS>(s, ahead, x, base + (1 - turn) * stage);
            copy_dy(s, ahead, dy, columns, base + (1 - turn) * stage + x_bytes);
        }
        end_slice();
        wait_slices<1>();
        __syncthreads();
        const int pixels = min(STRIP, s.h - place_of_strip(s, strip).top) * s.w;
        const uint32_t from_x = base + turn * stage, from_dy = base + turn * stage + x_bytes + lane / 8 % 2 * UNIT;
        for (int slice = sums.group(); slice * 16 < pixels; slice += GROUPS)
            sums.add(from_x + windows[slice * 16 + lane / 8 % 2 * 8 + lane % 8] * UNIT,
                     from_dy + (slice * 16 + lane / 16 * 8 + lane % 8) * DY_PITCH);
        __syncthreads();
    }
    sums.write((float *)room, parts);
}

/* Two strips of x and dy, and at last the sums. */
template <int OCTETS> int weights_room(int w)
{
    const int stages = 2 * (strip_bytes<OCTETS>(w) + padded_pixels(w) * DY_PITCH),
              total = COLUMNS * 9 * OCTETS * 8 * (int)sizeof(float);
    return stages > total ? stages : total;
}

template <typename T, int OCTETS>
void bwd_weights(ls_cuda_stream stream, const struct ls_cuda_conv *c, const void *dy, const void *x, float *dw,
                 float *parts)
{
    const strips s = strips_of(c);
    const int room = weights_room<OCTETS>(s.w);
    cudaFuncSetAttribute(few_weights<T, OCTETS>, cudaFuncAttributeMaxDynamicSharedMemorySize, room);
    few_weights<T, OCTETS><<<grid_of(s), WEIGHTS_THREADS, room, stream>>>(s, dy, x, parts);
    add_parts(stream, grid_of(s), OCTETS, parts, dw);
}

constexpr int ADD_THREADS = 64;

/* A thread adds four values. */
__global__ void __launch_bounds__(ADD_THREADS) few_add(const float4 *parts, int blocks, int quads, float4 *dw)
{
    const int at = blockIdx.x * ADD_THREADS + threadIdx.x;
    if (at >= quads)
        return;
    parts += (int64_t)blockIdx.y * blocks * quads;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int b = 0; b < blocks; b += 8) {
        float4 v[8];
#pragma unroll
        for (int u = 0; u < 8; u++)
            v[u] = b + u < blocks ? __ldcg(parts + (int64_t)(b + u) * quads + at) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int u = 0; u < 8; u++) {
            sum.x += v[u].x;
            sum.y += v[u].y;
            sum.z += v[u].z;
            sum.w += v[u].w;
        }
    }
    dw[(int64_t)blockIdx.y * quads + at] = sum;
}

} // namespace

void ls_few::add_parts(ls_cuda_stream stream, dim3 grid, int octets, const float *parts, float *dw)
{
    const int quads = COLUMNS * 9 * octets * 2;
    few_add<<<dim3((unsigned)ceil_div(quads, ADD_THREADS), grid.y), ADD_THREADS, 0, stream>>>(
        (const float4 *)parts, (int)grid.x, quads, (float4 *)dw);
}

bool ls_cuda_few_can(const struct ls_cuda_conv *c)
{
    return c->t != LS_F32 && c->x.n > 0 && c->x.c <= 24 && c->y.c % COLUMNS == 0 && c->x.w <= WIDEST &&
           c->kernel_h == 3 && c->kernel_w == 3 && c->stride_h == 1 && c->stride_w == 1 && c->pad_t == 1 &&
           c->pad_l == 1 && c->dilation_h == 1 && c->dilation_w == 1 && c->groups == 1 && c->y.h == c->x.h &&
           c->y.w == c->x.w && c->x.n * ceil_div(c->x.h, STRIP) < INT32_MAX && has_shared(weights_room<3>((int)c->x.w));
}

size_t ls_cuda_few_scratch(const struct ls_cuda_conv *c)
{
    const dim3 grid = grid_of(strips_of(c));
    return (size_t)grid.x * grid.y * COLUMNS * 9 * (size_t)c->x.c * sizeof(float);
}

void ls_cuda_few(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *x, const void *w, void *y)
{
    LS_FEW_BY_OCTETS(c, forward, s, c, x, w, y);
}

void ls_cuda_few_bwd_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x, float *dw,
                             float *scratch)
{
    LS_FEW_BY_OCTETS(c, bwd_weights, s, c, dy, x, dw, scratch);
}
