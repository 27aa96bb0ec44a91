/* Matrix products that compute the sums of a batch normalisation in their epilogue, so that no kernel reads the
 * result again for them: y (rows x n) = x (rows x k) * w.
 *
 * A block computes tiles of 64 rows by WIDE columns. Its columns are fixed, and it goes from the last rows to the
 * first, as the summing kernels of bn.cuh do. The block's columns of w stay in shared memory, so k must be small.
 * Slices of x, DEEP columns each, pass through a ring buffer in shared memory, continuously across tiles, and the
 * tensor cores multiply them. A finished tile is rounded and stored in shared memory, and the epilogue processes it
 * from there like any map. The sums stay in registers to the end. */
#include "backend/cuda/kernels/conv/product_ends.cuh"
#include "backend/cuda/kernels/conv/product_wgmma.cuh"

using namespace ls_product;

namespace
{

/* --- kernel ---------------------------------------------------------------------------------------------------- */

/* Converts sums by column to sums by octet, the form that sum_rows takes. They end up in the first WARPS_HIGH rows
 * of threads. */
template <int WIDE>
__device__ __forceinline__ void hand_over(float (&sums)[2][8], float *room, int lane, int warp, int x, int y)
{
    using size = sizes<WIDE>;
#pragma unroll
    for (int i = 0; i < 16; i++)
#pragma unroll
        for (int other = 4; other < 32; other *= 2)
            sums[i / 8][i % 8] += __shfl_xor_sync(0xffffffffu, sums[i / 8][i % 8], other);
    float *const of_warp = room + warp / size::WARPS_ACROSS * 2 * WIDE + warp % size::WARPS_ACROSS * 32;
    if (lane < 4)
#pragma unroll
        for (int i = 0; i < 16; i++)
            of_warp[i / 8 * WIDE + i % 8 / 2 * 8 + lane * 2 + i % 2] = sums[i / 8][i % 8];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++)
        sums[i / 8][i % 8] = y < size::WARPS_HIGH ? room[(y * 2 + i / 8) * WIDE + x * 8 + i % 8] : 0;
    __syncthreads();
}

template <typename T, int WIDE, bool TURNED, typename E>
__global__ void __launch_bounds__(THREADS, 4)
    product(matrices m, E end, const struct ls_cuda_run *run, int64_t area, float *scratch)
{
    using size = sizes<WIDE>;
    extern __shared__ double room[];
    __shared__ typename E::affines params;
    constexpr int ROWS = size::WARP_ROWS / 16, RING = size::RING;
    const int x = threadIdx.x, t = threadIdx.y * size::OCTETS + x, warp = t / 32;
    const int octets = m.n / 8, octet = blockIdx.x * size::OCTETS + x, valid = (int)(run->valid * area);
    const int high = warp / size::WARPS_ACROSS * size::WARP_ROWS, across = warp % size::WARPS_ACROSS * 32;
    const int slices = (m.k + DEEP - 1) / DEEP;
    const uint32_t ring = (uint32_t)__cvta_generic_to_shared(room), tile = ring + RING * size::SLICE,
                   w = tile + size::TILE;
    const char *const laid_out = (const char *)room + RING * size::SLICE;
    if (threadIdx.y == 0 && octet < octets)
        end.begin(params, x, octet);

    /* Tiles go from the last to the first, each in slices. `left` slices remain to be fetched, and the next one
     * starts at row `next`. */
    const int tiles = (m.rows + HIGH - 1) / HIGH, back = (int)gridDim.y * HIGH;
    const int mine = (int)blockIdx.y < tiles ? (tiles - 1 - (int)blockIdx.y) / (int)gridDim.y + 1 : 0;
    int first = (tiles - 1 - (int)blockIdx.y) * HIGH, next = first, deep = 0, left = mine * slices;
    auto fetch_next = [&](int place) {
        if (left > 0) {
            fetch_slice(m, ring + place * size::SLICE, anew(t), next, deep * DEEP);
            left--;
            if (++deep == slices) {
                deep = 0;
                next -= back;
            }
        }
        end_slice();
    };
    fetch_weights<WIDE, TURNED>(m, w, t, slices * DEEP);
    for (int s = 0; s < RING - 1; s++)
        fetch_next(s);

    float sums[2][8] = {};
    int place = 0;
#pragma unroll 1
    for (int done = 0; done < mine; done++, first -= back) {
        float sum[ROWS][4][4] = {};
#pragma unroll 1
        for (int s = 0; s < slices; s++) {
            wait_slices<RING - 2>();
            __syncthreads(); /* the slice is complete, and no thread reads the previous one any more */
            fetch_next(place == 0 ? RING - 1 : place - 1);
            add_products<T, WIDE, TURNED>(sum, ring + place * size::SLICE, w, slices * DEEP, s * DEEP, anew(t) % 32,
                                          high, across);
            place = place == RING - 1 ? 0 : place + 1;
        }
        lay_out<T, WIDE>(sum, tile, anew(t) % 32, high, across);
        if (E::BY_COLUMN)
            end.add_columns(sum, valid - first - high - anew(t) % 32 / 4, sums[0], sums[1]);
        __syncthreads();
        rows_read<E> rows;
        if (octet < octets)
            end_tile<T, WIDE, THREADS / size::OCTETS, false>(end, laid_out, {first, valid, m.rows, octet, octets}, x,
                                                             (int)threadIdx.y, params, rows, sums[0], sums[1]);
    }
    wait_slices<0>();
    __syncthreads();
    if (E::BY_COLUMN)
        hand_over<WIDE>(sums, (float *)room, t % 32, warp, x, (int)threadIdx.y);
    sum_rows(sums[0], sums[1], octets, scratch, (float *)room,
             [&](int channel, double a, double b) { end.finish(channel, octets * 8, a, b, valid, run->stat_weight); });
}

template <typename T, int WIDE, bool TURNED, typename E>
void launch(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
            const struct ls_cuda_run *run, const void *x, const void *w, const E &end)
{
    using size = sizes<WIDE>;
    auto kernel = product<T, WIDE, TURNED, E>;
    const matrices m = {(const char *)x, (const char *)w, (int)p->rows, (int)p->k, (int)p->n};
    const size_t room = size::RING * size::SLICE + size::TILE + (size_t)ceil_div(p->k, DEEP) * DEEP * WIDE * 2;
    static_assert(size::RING * size::SLICE >= THREADS * SUMS_ROOM, "room for the sums");
    want_shared(kernel, room);
    int per_sm = 1;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, THREADS, room);
    per_sm = per_sm < 1 ? 1 : per_sm > BLOCKS_PER_SM ? BLOCKS_PER_SM : per_sm; /* limited by the scratch size */
    const int64_t across = ceil_div(p->n, WIDE), tiles = ceil_div(p->rows, HIGH);
    const int64_t most = (int64_t)per_sm * multiprocessors() / across;
    const dim3 block(size::OCTETS, THREADS / size::OCTETS);
    const dim3 grid((unsigned)across, (unsigned)(tiles < most ? tiles : most < 1 ? 1 : most));
    kernel<<<grid, block, room, s>>>(m, end, run, b->x.h * b->x.w, b->scratch);
}

template <typename T, typename E>
void choose(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
            const struct ls_cuda_run *run, const void *x, const void *w, const E &end)
{
    if (p->turned)
        (p->n > 64 ? launch<T, E::WIDEST, true, E> : launch<T, 64, true, E>)(s, p, b, run, x, w, end);
    else
        (p->n > 64 ? launch<T, E::WIDEST, false, E> : launch<T, 64, false, E>)(s, p, b, run, x, w, end);
}

} // namespace

bool ls_cuda_product_can(const struct ls_cuda_product *p, const struct ls_cuda_bn *b, bool residual)
{
    if (p->way != LS_CUDA_PRODUCT_PLAIN)
        return wgmma_can(p, b, residual);
    /* w must fit into shared memory. The scratch is sized by the segments of bn.cuh, which may be narrower than
     * these. */
    layout l = {};
    lay_segments(&l, p->n);
    const bool wide = p->n > 64 && !p->turned;
    return b->t != LS_F32 && p->k <= (wide ? 128 : 256) && l.block.x >= (wide ? 16 : 8) && p->rows < INT32_MAX &&
           !small_enough(b, residual);
}

void ls_cuda_product_stats(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                           const struct ls_cuda_run *run, const void *x, const void *w, void *y, float *mean,
                           float *rstd, float *stat)
{
    if (p->way != LS_CUDA_PRODUCT_PLAIN)
        wgmma_stats(s, p, b, run, x, w, y, mean, rstd, stat);
    else
        LS_CUDA_BY_HALF(b->t, choose<T>(s, p, b, run, x, w, statistics<T, true>{y, b->eps, mean, rstd, stat}));
}

void ls_cuda_product_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g)
{
    if (p->way != LS_CUDA_PRODUCT_PLAIN)
        wgmma_sums(s, p, b, run, x, w, g);
    else
        LS_CUDA_BY_HALF(b->t, with_sums<T>(b, g, [&](const auto &end) { choose<T>(s, p, b, run, x, w, end); }));
}
