/* What taps_wgmma.cu does with a finished tile: the sums of a normalisation. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_TAPS_ENDS_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_TAPS_ENDS_CUH

#include "backend/cuda/kernels/conv/product_ends.cuh"
#include "backend/cuda/kernels/conv/taps_tiles.cuh"

namespace ls_taps
{

using namespace ls_bn;
using ls_product::gradient_sums;
using ls_product::place_of;
using ls_product::statistics;

/* What becomes of an octet of the finished tile. first, second: its sums. READS: it needs x of the normalisation, and three
 * numbers of each channel; else the first number is the bias. */
template <typename T> struct forward_end : statistics<T, false> {
    static constexpr bool READS = false;
    const float *bias; /* optional */
    const void *other(void) const
    {
        return NULL;
    }
    void *target(void) const
    {
        return this->y;
    }
    __device__ __forceinline__ void numbers(int channel, float (&of)[3]) const
    {
        of[0] = bias ? bias[channel] : -0.0f; /* which changes no sum */
    }
    __device__ __forceinline__ void add(uint4 &value, const uint4 &, const float (&)[3][8], float (&first)[8],
                                        float (&second)[8]) const
    {
        float v[8];
        widen<T>({{value}}, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            first[i] += v[i];
            second[i] = fmaf(v[i], v[i], second[i]);
        }
    }
};

/* The octet is dy and becomes dz, as terms::dz of bn.cuh makes it. */
template <typename T, mask MASK> struct backward_end : gradient_sums<T, MASK, EXTRA_NONE> {
    static constexpr bool READS = true;
    const void *other(void) const
    {
        return this->g.x;
    }
    void *target(void) const
    {
        return this->g.dresidual;
    }
    __device__ __forceinline__ void numbers(int channel, float (&of)[3]) const
    {
        of[0] = this->g.mean[channel];
        of[1] = __fmul_rn(this->g.gamma[channel], this->g.rstd[channel]);
        of[2] = this->g.beta[channel];
    }
    __device__ __forceinline__ void add(uint4 &value, const uint4 &x, const float (&of)[3][8], float (&first)[8],
                                        float (&second)[8]) const
    {
        float v[8], d[8];
        widen<T>({{x}}, v);
        widen<T>({{value}}, d);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float apart = __fsub_rn(v[i], of[0][i]);
            if (MASK == MASK_X)
                d[i] = act_passes(__fmaf_rn(apart, of[1][i], of[2][i]), this->top) ? d[i] : 0;
            first[i] += d[i];
            second[i] = fmaf(d[i], apart, second[i]);
        }
        if (MASK == MASK_X)
            value = narrow<T>(d).word[0];
    }
};

/* Adds up what the blocks have, SETS times 64 channels each; the last block of these channels finishes them. `room`: shared
 * memory that nothing else uses. */
template <int SETS, typename E>
__device__ __forceinline__ void finish_sums(const task &m, const E &end, const float (&first)[SETS][8],
                                            const float (&second)[SETS][8], char *room, int t)
{
    constexpr int COLUMNS = SETS * 16 * OCTETS, QUADS = COLUMNS / 4, PARTS = GROUP / QUADS, FLIGHT = 8;
    __shared__ bool last;
    float *const own = (float *)room;
    const int x = t % OCTETS, y = t / OCTETS, blocks = gridDim.y;
    float *const all = m.scratch + LS_CUDA_BN_ZEROS / sizeof(float) + (int64_t)blockIdx.x * blocks * COLUMNS;
#pragma unroll
    for (int g = 0; g < SETS; g++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            own[y * COLUMNS + (g * 16 + i) * OCTETS + x] = first[g][i];
            own[y * COLUMNS + (g * 16 + 8 + i) * OCTETS + x] = second[g][i];
        }
    group_sync(0);
    for (int j = t; j < COLUMNS; j += GROUP) {
        float sum = 0;
        for (int r = 0; r < TY; r++)
            sum += own[r * COLUMNS + j];
        all[(int64_t)blockIdx.y * COLUMNS + j] = sum;
    }
    __threadfence();
    group_sync(0);
    if (t == 0)
        last = atomicInc((unsigned *)m.scratch + blockIdx.x, blocks - 1) == (unsigned)blocks - 1;
    group_sync(0);
    __threadfence();
    if (!last)
        return;
    double *const sums = (double *)room, sum[4] = {};
    const int quad = t % QUADS, part = t / QUADS;
    add_quads<FLIGHT>((const float4 *)all + quad, part, PARTS, blocks, QUADS, sum);
#pragma unroll
    for (int i = 0; i < 4; i++)
        sums[t * 4 + i] = sum[i];
    group_sync(0);
    if (t < SETS * OUT) {
        const int set = t / OUT, octet = t % OUT / 8, i = t % 8, column = (set * 16 + i) * OCTETS + octet;
        double one = 0, two = 0;
        for (int p = 0; p < PARTS; p++) {
            one += sums[p * COLUMNS + column];
            two += sums[p * COLUMNS + column + 8 * OCTETS];
        }
        end.finish((int)blockIdx.x * SETS * OUT + t, m.octets * 8, one, two, (int)(m.run->valid * m.h * m.w),
                   m.run->stat_weight);
    }
}

/* The tiles of a block, as its two warpgroups finish them in turn. `number` counts them. */
template <bool KEEPS> __device__ __forceinline__ int finished_tile(int number)
{
    return tile_of<KEEPS>(KEEPS ? number : number / 2);
}

/* x of the pixels of a tile comes into shared memory as the tile lies there, up to RING tiles ahead; the copy engine stores the
 * tile when the next one is done. */
template <bool KEEPS, typename E>
__device__ __forceinline__ void end_all(const maps &map, const task &m, const barriers &b, const E &end,
                                        const float (*all)[2 * OUT], char *tiles, char *room, int t)
{
    constexpr int SETS = KEEPS ? 1 : 2, RING = KEEPS ? 2 : 1;
    float first[SETS][8] = {}, second[SETS][8] = {}, numbers[3][8];
    const int x = t % OCTETS, y = t / OCTETS, valid = (int)m.run->valid, before = (int)blockIdx.x * SETS * OUT;
    char *const others = tiles + 2 * m.at.tile_bytes;
    const uint32_t tiles_at = (uint32_t)__cvta_generic_to_shared(tiles), others_at = tiles_at + 2 * m.at.tile_bytes;
    auto fetch_x = [&](int number) {
        const int tile = finished_tile<KEEPS>(number);
        if (!E::READS || tile >= m.by.tiles)
            return;
        const pixel p = first_pixel(m.by, tile);
        const uint32_t barrier = b.other_there + number % RING * 8;
        barrier_expect(barrier, m.by.th * m.by.tw * BOX_ROW);
        copy_pixels(others_at + number % RING * m.at.tile_bytes, map.other, before + number % SETS * OUT, p.x, p.y, p.n,
                    barrier);
    };
    auto take_numbers = [&](int set) {
#pragma unroll
        for (int k = 0; k < 3 && E::READS; k++) {
            const float4 *const from = (const float4 *)(all[k] + set * OUT + x * 8);
            const float4 low = from[0], high = from[1];
            const float of[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; i++)
                numbers[k][i] = of[i];
        }
    };
    for (int number = 0; number < RING && t == 0; number++)
        fetch_x(number);
    take_numbers(0);
    int number = 0;
#pragma unroll 1
    for (int tile; (tile = finished_tile<KEEPS>(number)) < m.by.tiles; number++) {
        const pixel p = first_pixel(m.by, tile);
        const int group = number % 2, rows = min(m.by.th, m.h - p.y) * m.by.tw, width = m.w - p.x;
        char *const own = tiles + group * m.at.tile_bytes;
        const char *const other = others + number % RING * m.at.tile_bytes;
        if (!KEEPS)
            take_numbers(group);
        barrier_wait(b.tile_there + group * 8, number / 2 % 2);
        if (E::READS)
            barrier_wait(b.other_there + number % RING * 8, number / RING % 2);
#pragma unroll 4
        for (int row = y; row < rows; row += TY) {
            uint4 *const at = (uint4 *)(own + place_of(row, x, OCTETS));
            uint4 value = *at;
            if (p.n < valid) {
                uint32_t column = (uint32_t)row;
                if (m.by.tw <= width || (divide_rest(column, m.by.by_width), (int)column < width))
                    end.add(value, E::READS ? *(const uint4 *)(other + place_of(row, x, OCTETS)) : value, numbers,
                            first[0], second[0]);
            } else if (E::READS) {
                value = make_uint4(0, 0, 0, 0);
            }
            if (E::READS)
                *at = value;
        }
        written();
        group_sync(0);
        if (t == 0) {
            wait_stores<0>();
            if (number > 0)
                barrier_arrive(b.tile_free + (1 - group) * 8);
            store_pixels(map.y, before + number % SETS * OUT, p.x, p.y, p.n, tiles_at + group * m.at.tile_bytes);
            fetch_x(number + RING);
        }
        if (!KEEPS) /* the sums of the other warpgroup's channels */
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float one = first[0][i], two = second[0][i];
                first[0][i] = first[SETS - 1][i];
                second[0][i] = second[SETS - 1][i];
                first[SETS - 1][i] = one;
                second[SETS - 1][i] = two;
            }
    }
    if (t == 0) {
        wait_stores<0>();
        barrier_arrive(b.tile_free + (number - 1) % 2 * 8);
    }
    finish_sums<SETS>(m, end, first, second, room, t);
}

} // namespace ls_taps

#endif
