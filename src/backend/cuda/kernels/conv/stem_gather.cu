/* The gradient of the weights of a first convolution, straight from the images, as stem_wgmma.cu computes it forward.
 *
 *   gather     outputs (64) x channels = dy' * lines, with pixels along the sum. The lines are those of stem_rows.cuh, which the
 *              tensor cores read the other way here; dy comes through registers. The sums of all rows of the window stay in registers to
 *              the end.
 *   collect    adds what the blocks gathered
 *
 * All sums have a fixed order. */
#include "backend/cuda/kernels/conv/stem_gather.cuh"

using namespace ls_stem;

namespace
{

constexpr int PER_SM = 3; /* blocks on a multiprocessor */

template <typename T, int SIDE, int STRIDE, int TILE>
__global__ void __launch_bounds__(GROUP, PER_SM)
    gather(const __grid_constant__ CUtensorMap dy_map, const __grid_constant__ task m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using W = window<SIDE, STRIDE>;
    extern __shared__ char room[];
    __shared__ uint64_t barriers[BUFFERS];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, before = blockIdx.y * OUT;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), tiles = (start + 1023) & ~1023u;
    const uint32_t ring = tiles + BUFFERS * TILE * BOX_ROW, there = (uint32_t)__cvta_generic_to_shared(barriers);
    const range mine = rows_of(m.rows);
    if (t == 0) {
        for (int i = 0; i < BUFFERS; i++)
            barrier_init(there + i * 8);
        barriers_ready();
    }
    maker<T, SIDE, STRIDE> of(m.from, room + (ring - start), t, mine.first, mine.last); /* a barrier, too */

    int next = mine.first, next_piece = 0;
    auto fetch_next = [&](int buffer) {
        if (t != 0 || next == mine.last)
            return;
        barrier_expect(there + buffer * 8, TILE * BOX_ROW);
        copy_box(tiles + buffer * TILE * BOX_ROW, dy_map, before, next_piece * TILE, next, there + buffer * 8);
        if (++next_piece == m.pieces) {
            next_piece = 0;
            next++;
        }
    };
    for (int i = 0; i < BUFFERS; i++)
        fetch_next(i);

    float sum[SIDE][WIDE / 2];
#pragma unroll
    for (int i = 0; i < SIDE * (WIDE / 2); i++)
        sum[i / (WIDE / 2)][i % (WIDE / 2)] = 0;
    const uint64_t lines = planes_at(ring, 128, W::APART * UNIT); /* counts units */
    const int high = m.from.high, steps = of.all;
    int y = mine.first % high, made = 0, base = 0, slot = 0, buffer = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int at = mine.first; at < mine.last; at++) {
        for (; made < base + W::TAPS; made++) {
            of.read_step();
            of.put_step();
            copies_wait();
            written();
            __syncthreads();
        }
#pragma unroll 1
        for (int piece = 0; piece < m.pieces; piece++) {
            const bool makes = piece == 0 && made < steps;
            if (makes)
                of.read_step();
            barrier_wait(there + buffer * 8, parity);
            gather_tile<T, SIDE, STRIDE, TILE>(sum, tiles + buffer * TILE * BOX_ROW, lines + (uint64_t)(piece * TILE),
                                               m.from, slot, warp, lane, [&]() {
                                                   if (makes)
                                                       of.put_step();
                                               });
            made += makes;
            copies_wait();
            written();
            __syncthreads();
            fetch_next(buffer);
            buffer ^= 1;
            parity ^= buffer == 0;
        }
        slot = slot_behind<W::SLOTS>(slot, 1);
        base++;
        if (++y == high) {
            y = 0;
            base += W::TAPS - 1;
            slot = slot_behind<W::SLOTS>(slot, W::TAPS - 1);
        }
    }
    put_sums<SIDE, STRIDE>(m, sum, before, warp, lane);
#endif
}

/* Which of the gradient's values are outside of the window (ls_cuda_cut_window). */
struct cut {
    int c, kernel, row, values, block, shift, rows;
};
__device__ __forceinline__ bool is_outside(const cut &k, int64_t at)
{
    const int channel = (int)(at % k.c), in_block = channel / k.row,
              y = (int)(at / k.c % k.kernel) * k.block + in_block - k.shift;
    return in_block >= k.block || channel % k.row >= k.values || y < 0 || y >= k.rows;
}

/* Blocks have 32 quads of values each, and their threads every eighth part of one. */
constexpr int QUADS = 32, SHARES = 8;
__global__ void __launch_bounds__(QUADS *SHARES) collect(const float4 *parts, int blocks, int quads, cut k, float4 *dw)
{
    __shared__ double held[SHARES][4][QUADS];
    const int x = threadIdx.x % QUADS, share = threadIdx.x / QUADS, at = blockIdx.x * QUADS + x;
    double sum[4] = {};
    if (at < quads)
        add_quads(parts + at, share, SHARES, blocks, quads, sum);
#pragma unroll
    for (int i = 0; i < 4; i++)
        held[share][i][x] = sum[i];
    __syncthreads();
    if (share > 0 || at >= quads)
        return;
    float out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        for (int g = 1; g < SHARES; g++)
            sum[i] += held[g][i][x];
        out[i] = is_outside(k, (int64_t)at * 4 + i) ? 0 : (float)sum[i];
    }
    dw[at] = make_float4(out[0], out[1], out[2], out[3]);
}

unsigned gather_blocks(const struct ls_cuda_stem *c)
{
    return blocks_of(c, room_by_window(c), PER_SM);
}

template <typename T, int SIDE, int STRIDE, int TILE>
void launch_gather(ls_cuda_stream s, const struct ls_cuda_stem *c, const task &m, const void *dy)
{
    CUtensorMap map;
    if (!box_map(&map, c->t, dy, m.rows, c->y.w, c->y.c, TILE))
        return;
    const size_t room = room_of<SIDE, STRIDE>(c);
    const auto kernel = gather<T, SIDE, STRIDE, TILE>;
    want_shared(kernel, room);
    const dim3 grid(gather_blocks(c), (unsigned)ceil_div(c->y.c, OUT));
    kernel<<<grid, GROUP, room, s>>>(map, m);
}

} // namespace

size_t ls_cuda_stem_scratch(const struct ls_cuda_stem *c)
{
    return (size_t)gather_blocks(c) * (size_t)(c->y.c * c->kernel * c->c) * sizeof(float);
}

void ls_cuda_stem_bwd_weights(ls_cuda_stream s, const struct ls_cuda_stem *c, const struct ls_cuda_run *run,
                              const struct ls_pixels *pixels, const void *dy, float *dw, float *scratch)
{
    by_shape(c, [&](auto side, auto stride, auto tile) {
        task m = task_of<side(), stride()>(c, run, pixels);
        m.scratch = scratch;
        LS_CUDA_BY_HALF(c->t, launch_gather<T, side(), stride(), tile()>(s, c, m, dy));
    });
    collect_sums(s, c, scratch, (int)gather_blocks(c), dw);
}

void ls_stem::collect_sums(ls_cuda_stream s, const struct ls_cuda_stem *c, const float *scratch, int blocks, float *dw)
{
    const struct ls_cuda_unfold *u = &c->u;
    const cut k = {(int)c->c, c->kernel, u->row, u->columns * u->channels, u->block, c->shift, c->rows};
    const int quads = (int)(c->y.c * c->kernel * c->c / 4);
    collect<<<(unsigned)ceil_div(quads, QUADS), QUADS * SHARES, 0, s>>>((const float4 *)scratch, blocks, quads, k,
                                                                        (float4 *)dw);
}
