/* A first convolution straight from the images, for Hopper: nothing is unfolded (stem.cu).
 *
 * A block is a warpgroup, and several blocks share a multiprocessor, so that one makes lines while others multiply. Each has
 * some adjacent rows of the output. stem_rows.cuh makes the lines of the images for them, each once but at the beginning of a
 * block's rows. The tensor cores read these as they lie, and the weights from registers, where they stay: outputs (64) x pixels
 * = weights * lines. The next lines are made meanwhile.
 *
 * A lane has two outputs, so it adds up their statistics by itself, of the rounded values. The result is turned on its way
 * into shared memory, from where the copy engine stores it. All sums have a fixed order. */
#include "backend/cuda/kernels/conv/product_ends.cuh"
#include "backend/cuda/kernels/conv/stem_wgmma.cuh"

using namespace ls_stem;
using ls_product::statistics;

namespace
{

/* Blocks of convolve on a multiprocessor. */
constexpr int blocks_with(int tile)
{
    return tile > 112 ? 2 : 3;
}

/* Adds up what the blocks have of the statistics of their 64 outputs; the last block that calls it finishes them. `room`:
 * shared memory, four values for each thread. */
template <typename T>
__device__ __forceinline__ void finish_sums(const task &m, const statistics<T, false> &end, float (&first)[2],
                                            float (&second)[2], double *room, int valid)
{
    const int t = threadIdx.x, lane = t % 32, before = blockIdx.y * OUT, columns = min(OUT, m.out - before);
    float *const all = m.scratch + LS_CUDA_BN_ZEROS / sizeof(float) + (int64_t)blockIdx.y * gridDim.x * 2 * OUT;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int other = 1; other < 4; other *= 2) {
            first[i] += __shfl_xor_sync(0xffffffffu, first[i], other);
            second[i] += __shfl_xor_sync(0xffffffffu, second[i], other);
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int column = t / 32 * 16 + lane / 4 + i * 8;
        if (lane % 4 == 0 && column < columns) {
            all[(int64_t)blockIdx.x * 2 * columns + column] = first[i];
            all[(int64_t)blockIdx.x * 2 * columns + columns + column] = second[i];
        }
    }
    if (!last_of((unsigned *)m.scratch + blockIdx.y, gridDim.x))
        return;
    const int quads = columns / 2, groups = GROUP / quads, group = t / quads;
    if (group < groups) {
        double sum[4] = {};
        add_quads((const float4 *)all + t % quads, group, groups, (int)gridDim.x, quads, sum);
#pragma unroll
        for (int i = 0; i < 4; i++)
            room[t * 4 + i] = sum[i];
    }
    __syncthreads();
    if (t < columns) {
        double sum = 0, squares = 0;
        for (int g = 0; g < groups; g++) {
            sum += room[g * 2 * columns + t];
            squares += room[g * 2 * columns + columns + t];
        }
        end.finish(before + t, m.out, sum, squares, valid, m.from.run->stat_weight);
    }
}

/* Bias, activation, rounding and statistics of a tile on its way into shared memory; `left`: columns of the map from the
 * lane's first on. ENDS: with bias or activation. COUNTS: with statistics. WHOLE: no column is beyond the map. */
template <typename T, int TILE, bool ENDS, bool COUNTS, bool WHOLE>
__device__ __forceinline__ void put_tile(const task &m, float (&sum)[TILE / 2], const float (&bias)[2], int left,
                                         float (&first)[2], float (&second)[2], uint32_t tile, int warp, int lane)
{
#pragma unroll
    for (int j = 0; j < TILE / 8; j += 2) {
        uint32_t pair[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *const v = sum + j * 4 + i * 2;
            if (ENDS) {
                v[0] += bias[i % 2];
                v[1] += bias[i % 2];
                if (m.clips) {
                    v[0] = act_of<true>(v[0], m.top);
                    v[1] = act_of<true>(v[1], m.top);
                }
            }
            pair[i] = narrow_pair<T>(v[0], v[1]);
            if (COUNTS) {
                float a, b;
                asm("" : "+r"(pair[i])); /* the compiler would take it apart and put it together again */
                widen_pair<T>(pair[i], a, b);
                if (!WHOLE) {
                    a = (j + i / 2) * 8 < left ? a : 0;
                    b = (j + i / 2) * 8 + 1 < left ? b : 0;
                }
                first[i % 2] += a;
                second[i % 2] = fmaf(a, a, second[i % 2]);
                first[i % 2] += b;
                second[i % 2] = fmaf(b, b, second[i % 2]);
            }
        }
        store_turned(tile + unit_at(j * 8 + lane % 8 + lane / 16 * 8, warp * 2 + lane / 8 % 2, 8), pair);
    }
}

/* TILE pixels at a time. The tiles take turns, so one barrier for each is enough. */
template <typename T, int SIDE, int STRIDE, int TILE>
__global__ void __launch_bounds__(GROUP, blocks_with(TILE))
    convolve(const __grid_constant__ CUtensorMap y_map, const __grid_constant__ task m, statistics<T, false> end)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using W = window<SIDE, STRIDE>;
    constexpr int STEPS = SIDE * W::DEEP;
    extern __shared__ char room[];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, quarter = lane % 4, before = blockIdx.y * OUT;
    const int row = before + warp * 16 + lane / 4; /* of the weights, and the eighth behind it */
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), tiles = (start + 1023) & ~1023u;
    const uint32_t ring = tiles + BUFFERS * TILE * BOX_ROW;
    const range mine = rows_of(m.rows);
    maker<T, SIDE, STRIDE> of(m.from, room + (ring - start), t, mine.first, mine.last);

    /* a slice is four pixels of four channels, and a lane has two channels of one and of the second behind it */
    uint32_t w[STEPS][4];
    float bias[2] = {0, 0}, first[2] = {}, second[2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool there = row + i * 8 < m.out;
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int pixel = s % W::DEEP * 4 + half * 2 + quarter / 2, channel = quarter % 2 * 2;
                const uint16_t *from = (const uint16_t *)m.w + (int64_t)(row + i * 8) * W::WEIGHTS +
                                       (s / W::DEEP + W::SHIFT) * W::ROW + pixel * CHANNELS + channel;
                uint32_t v = 0;
                if (there && pixel < SIDE)
                    v = __ldg(from) | (channel == 0 ? (uint32_t)__ldg(from + 1) << 16 : 0);
                w[s][half * 2 + i] = v;
            }
        if (m.bias && there)
            bias[i] = m.bias[row + i * 8];
    }
    const bool ends = m.bias || m.clips;
    const uint64_t lines = planes_at(ring, W::APART * UNIT, 128); /* counts units */
    const int high = m.from.high, steps = of.all, valid = m.from.run->valid;
    int n = mine.first / high, y = mine.first - n * high, made = 0, base = 0, slot = 0, buffer = 0;
#pragma unroll 1
    for (int at = mine.first; at < mine.last; at++) {
        for (; made < base + W::TAPS; made++) {
            of.read_step();
            of.put_step();
            copies_wait();
            written();
            __syncthreads();
        }
        const bool counts = end.mean && n < valid;
#pragma unroll 1
        for (int piece = 0; piece < m.pieces; piece++) {
            const bool makes = piece == 0 && made < steps;
            float sum[TILE / 2];
            if (makes)
                of.read_step();
            products_begin();
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const int x =
                    units_before<SIDE, STRIDE>(m.from, slot, s / W::DEEP) + piece * TILE + s % W::DEEP * 2 * W::APART;
                multiply_held<T, TILE, false>(sum, w[s], lines + (uint64_t)x, s > 0);
            }
            products_commit();
            if (makes) {
                of.put_step();
                made++;
            }
            products_wait<0>();

            const int left = m.from.wide - piece * TILE - quarter * 2;
            const uint32_t tile = tiles + buffer * TILE * BOX_ROW;
            const bool whole = m.from.wide - piece * TILE >= TILE;
            if (!ends && counts && whole)
                put_tile<T, TILE, false, true, true>(m, sum, bias, left, first, second, tile, warp, lane);
            else if (!ends && counts)
                put_tile<T, TILE, false, true, false>(m, sum, bias, left, first, second, tile, warp, lane);
            else if (!ends)
                put_tile<T, TILE, false, false, true>(m, sum, bias, left, first, second, tile, warp, lane);
            else if (counts)
                put_tile<T, TILE, true, true, false>(m, sum, bias, left, first, second, tile, warp, lane);
            else
                put_tile<T, TILE, true, false, true>(m, sum, bias, left, first, second, tile, warp, lane);
            copies_wait();
            written();
            if (t == 0)
                wait_stores<0>(); /* the other tile is free */
            __syncthreads();
            if (t == 0)
                store_box(y_map, before, piece * TILE, at, tile);
            buffer ^= 1;
        }
        slot = slot_behind<W::SLOTS>(slot, 1);
        base++;
        if (++y == high) {
            y = 0;
            n++;
            base += W::TAPS - 1;
            slot = slot_behind<W::SLOTS>(slot, W::TAPS - 1);
        }
    }
    if (t == 0)
        wait_stores<0>();
    __syncthreads();
    if (end.mean)
        finish_sums(m, end, first, second, (double *)(room + (tiles - start)), valid * high * m.from.wide);
#endif
}

template <typename T, int SIDE, int STRIDE, int TILE>
void launch_convolve(ls_cuda_stream s, const struct ls_cuda_stem *c, task m, void *y, const statistics<T, false> &end)
{
    CUtensorMap map;
    if (!box_map(&map, c->t, y, m.rows, c->y.w, c->y.c, TILE))
        return;
    const size_t room = room_of<SIDE, STRIDE>(c);
    want_shared(convolve<T, SIDE, STRIDE, TILE>, room);
    const dim3 grid(blocks_of(c, room, blocks_with(TILE)), (unsigned)ceil_div(c->y.c, OUT));
    convolve<T, SIDE, STRIDE, TILE><<<grid, GROUP, room, s>>>(map, m, end);
}

} // namespace

bool ls_cuda_stem_can(const struct ls_cuda_stem *c, const struct ls_cuda_bn *b, bool residual)
{
    const struct ls_cuda_unfold *u = &c->u;
    const bool seven = c->kernel == 4 && c->c == 48 && u->block == 2 && u->row == 24 && u->columns == 7 &&
                       u->stride_w == 2 && c->shift == 1,
               three = c->kernel == 1 && c->c == 32 && u->block == 3 && u->row == 9 && u->columns == 3 &&
                       (u->stride_w == 1 || u->stride_w == 2) && c->shift == 0;
    return has_wgmma() && c->t != LS_F32 && u->channels == CHANNELS && (seven || three) && u->stride_h == u->stride_w &&
           ls_act_clips(c->act) && (c->y.c < OUT || c->y.c % OUT == 0) && c->y.n * c->y.h * c->y.w < INT32_MAX / 2 &&
           room_by_window(c) <= MOST_ROOM && !(b && ls_bn::small_enough(b, residual));
}

void ls_cuda_stem(ls_cuda_stream s, const struct ls_cuda_stem *c, const struct ls_cuda_run *run,
                  const struct ls_pixels *pixels, const void *w, const float *bias, void *y, const struct ls_cuda_bn *b,
                  float *mean, float *rstd, float *stat)
{
    by_shape(c, [&](auto side, auto stride, auto tile) {
        task m = task_of<side(), stride()>(c, run, pixels);
        m.w = w;
        m.bias = bias;
        m.clips = c->act != LS_ACT_NONE;
        m.top = act_top(c->act);
        m.scratch = b ? b->scratch : NULL;
        LS_CUDA_BY_HALF(c->t, const statistics<T, false> end = {y, b ? b->eps : 0, b ? mean : NULL, rstd, stat};
                        launch_convolve<T, side(), stride(), tile()>(s, c, m, y, end));
    });
}
