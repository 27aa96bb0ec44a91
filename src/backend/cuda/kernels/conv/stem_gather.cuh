/* What stem_gather.cu and stem_mapped.cu share: a tile of the gradient times the lines of the images, and the sums' way out. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_STEM_GATHER_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_STEM_GATHER_CUH

#include "backend/cuda/kernels/conv/product.cuh"
#include "backend/cuda/kernels/conv/stem_wgmma.cuh"

namespace ls_stem
{

using ls_product::load_matrices;

constexpr int WIDE = OCTETS * 8; /* values of a row of the window */

/* sum += tile * lines, by a warpgroup. The tile has TILE pixels of a row whose window begins in `slot`; lines begin where the
 * first pixel's do. A lane has their dy in registers, a part while the part before is multiplied. `between` is called while
 * the first part is. */
template <typename T, int SIDE, int STRIDE, int TILE, typename F>
__device__ __forceinline__ void gather_tile(float (&sum)[SIDE][WIDE / 2], uint32_t tile, uint64_t lines,
                                            const source &from, int slot, int warp, int lane, F between)
{
    constexpr int PARTS = 4, STEPS = (TILE / 16 + PARTS - 1) / PARTS;
    uint32_t dy[2][STEPS][4]; /* of parts by turns */
    auto load = [&](int part) {
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            if (part * STEPS + i < TILE / 16)
                load_matrices<true>(dy[part % 2][i], tile + unit_at((part * STEPS + i) * 16 + lane % 8 + lane / 16 * 8,
                                                                    warp * 2 + lane / 8 % 2, 8));
    };
    load(0);
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        products_begin();
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int r = 0; r < SIDE; r++)
                if (part * STEPS + i < TILE / 16) {
                    const int x = units_before<SIDE, STRIDE>(from, slot, r) + (part * STEPS + i) * 16;
                    multiply_held<T, WIDE, true>(sum[r], dy[part % 2][i], lines + (uint64_t)x, 1);
                }
        products_commit();
        if (part == 0)
            between();
        products_wait<1>();
        if (part + 1 < PARTS)
            load(part + 1);
    }
    products_wait<0>();
}

/* Stores a block's sums; collect leaves out what is outside of the window, which stays unwritten. */
template <int SIDE, int STRIDE>
__device__ __forceinline__ void put_sums(const task &m, const float (&sum)[SIDE][WIDE / 2], int before, int warp,
                                         int lane)
{
    using W = window<SIDE, STRIDE>;
    float *const to = m.scratch + (int64_t)blockIdx.x * m.out * W::WEIGHTS;
#pragma unroll
    for (int k = 0; k < WIDE / 2; k++) {
        const int row = before + warp * 16 + lane / 4 + k / 2 % 2 * 8, pixel = k / 4 * 2 + lane % 4 / 2,
                  channel = lane % 2 * 2 + k % 2;
        if (row < m.out && pixel < SIDE && channel < CHANNELS)
#pragma unroll
            for (int r = 0; r < SIDE; r++)
                to[(int64_t)row * W::WEIGHTS + (r + W::SHIFT) * W::ROW + pixel * CHANNELS + channel] = sum[r][k];
    }
}

/* stem_gather.cu: dw, of what `blocks` blocks have put. */
void collect_sums(ls_cuda_stream s, const struct ls_cuda_stem *c, const float *scratch, int blocks, float *dw);

} // namespace ls_stem

#endif
