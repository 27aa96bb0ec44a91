/* The forward product of fold.cu (FOLD-7): y = act(bn (a * w') + more) and its mask, more being a residual or, of TWINS,
 * another bn's x. Almost all of its bytes are those of y and more, so these pass through the copy engine (TMA).
 *
 * A block computes `halves` times WIDE columns and keeps their weights in shared memory. Its warpgroups work on tiles of 64
 * rows and WIDE columns, each on its own, from the last row to the first. A warpgroup has a ring of boxes of a, and one of
 * tiles of more, which arrive several tiles ahead. It multiplies, and then each thread replaces the values of more that
 * stand where its sums do by y: the tensor cores' layout of sums is what matrices are loaded and stored in, so the sums never
 * leave the registers. The copy engine stores the tile while the next one is multiplied.
 *
 * y and the mask have the bits that the second pass of bn.cu makes of a stored x. */
#include "backend/cuda/kernels/bn/bn.cuh"
#include "backend/cuda/kernels/conv/product.cuh"
#include "backend/cuda/kernels/conv/product_wgmma.cuh"
#include "backend/cuda/kernels/conv/wgmma.cuh"

using namespace ls_wgmma;
using namespace ls_product;

namespace
{

using T = __nv_bfloat16;

constexpr int WIDE = 128, SLICE = HIGH * BOX_ROW, TILE = HIGH * WIDE * 2, WEIGHTS = WIDE * BOX_ROW;
constexpr int GROUPS = 2, MOST_HALVES = 2, MOST_RING = 5, MOST_TILES = 3, PAIRS = MOST_HALVES * WIDE / 2;

struct task {
    int rows, columns, slices, halves, ring, tiles; /* ring, tiles: lengths of the rings of a warpgroup */
    int64_t area;
    const struct ls_cuda_run *run;
    struct ls_cuda_bn_twin a, b;
    float top;
    uint8_t *kept;
};

struct maps {
    CUtensorMap a, more, w, y;
};

/* The parameters of a bn, in pairs of adjacent columns of the block. */
template <int COUNT> struct normals {
    float2 mean[COUNT], scale[COUNT], beta[COUNT];

    __device__ __forceinline__ void put(int x, int octet, const struct ls_cuda_bn_twin &of)
    {
        affine p;
        load_affine(p, octet, of.gamma, of.beta, of.mean, of.rstd, false, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            mean[x * 4 + i] = make_float2(p.mean[2 * i], p.mean[2 * i + 1]);
            scale[x * 4 + i] = make_float2(p.scale[2 * i], p.scale[2 * i + 1]);
            beta[x * 4 + i] = make_float2(p.beta[2 * i], p.beta[2 * i + 1]);
        }
    }
    __device__ __forceinline__ float2 of(int pair, float2 x) const
    {
        const float2 m = mean[pair], s = scale[pair], b = beta[pair];
        return make_float2(normalised(x.x, m.x, s.x, b.x), normalised(x.y, m.y, s.y, b.y));
    }
};

template <bool TWINS> struct both {
    normals<PAIRS> a, b;
};
template <> struct both<false> {
    normals<PAIRS> a;
};

/* The four lanes of a row have a pair each of the bits of its 16 octets. Returns word lane % 4 of these bits. */
template <int WORDS> __device__ __forceinline__ uint32_t gather_bits(const uint32_t (&bits)[WORDS], int lane)
{
    static_assert(WORDS == 4, "a word for each lane");
    const int q = lane % 4;
    uint32_t low = q & 2 ? bits[2] : bits[0], high = q & 2 ? bits[3] : bits[1];
    low |= __shfl_xor_sync(0xffffffffu, q & 2 ? bits[0] : bits[2], 2);
    high |= __shfl_xor_sync(0xffffffffu, q & 2 ? bits[1] : bits[3], 2);
    const uint32_t other = __shfl_xor_sync(0xffffffffu, q & 1 ? low : high, 1);
    return (q & 1 ? high : low) | other;
}

/* Turns a tile of more into y. `half`: which of the block's columns the tile has; row: the thread's first one. */
template <bool TWINS>
__device__ __forceinline__ void finish_tile(const float (&sum)[WIDE / 2], uint32_t tile, const both<TWINS> &params,
                                            int half, int row, int valid, float top, int warp, int lane,
                                            uint32_t (&words)[2])
{
    const bool live[2] = {row < valid, row + 8 < valid};
    uint32_t bits[2][4] = {};
#pragma unroll
    for (int j = 0; j < WIDE / 8; j += 2) {
        const uint32_t at = tile + j / 8 * SLICE + unit_at(warp * 16 + (lane & 15), j % 8 + (lane >> 4), 8);
        uint32_t m[4];
        load_matrices<false>(m, at);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int unit = j + u, pair = (half * (WIDE / 8) + unit) * 4 + lane % 4;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float2 v, w;
                widen_pair<T>(narrow_pair<T>(sum[unit * 4 + r * 2], sum[unit * 4 + r * 2 + 1]), v.x, v.y);
                widen_pair<T>(m[u * 2 + r], w.x, w.y);
                v = params.a.of(pair, v);
                if constexpr (TWINS)
                    w = params.b.of(pair, w);
                v.x = act_of<true>(v.x + w.x, top);
                v.y = act_of<true>(v.y + w.y, top);
                bits[r][unit / 4] |= (act_passes(v.x, top) ? 1u : 0) << unit % 4 * 8;
                bits[r][unit / 4] |= (act_passes(v.y, top) ? 2u : 0) << unit % 4 * 8;
                m[u * 2 + r] = live[r] ? narrow_pair<T>(v.x, v.y) : 0;
            }
        }
        store_matrices(at, m);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            bits[r][i] <<= lane % 4 * 2;
        words[r] = gather_bits(bits[r], lane);
    }
}

template <bool TWINS>
__global__ void __launch_bounds__(GROUPS *GROUP, 1) apply(const __grid_constant__ maps map, const task m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ both<TWINS> params;
    __shared__ uint64_t barriers[1 + GROUPS * (MOST_RING + MOST_TILES)];
    const int t = threadIdx.x, group = t / GROUP, warp = t / 32 % 4, lane = t % 32;
    const int across = blockIdx.x * m.halves * WIDE, valid = (int)(m.run->valid * m.area);
    const bool leads = t % GROUP == 0;

    const uint32_t w = ((uint32_t)__cvta_generic_to_shared(room) + 1023) & ~1023u;
    const uint32_t rings = w + (uint32_t)(m.halves * m.slices) * WEIGHTS, ring = rings + group * m.ring * SLICE;
    const uint32_t tiles_at = rings + GROUPS * m.ring * SLICE + group * m.tiles * TILE;
    const uint32_t w_there = (uint32_t)__cvta_generic_to_shared(barriers),
                   there = w_there + 8 + group * (MOST_RING + MOST_TILES) * 8, tile_there = there + MOST_RING * 8;
    if (t == 0) {
        for (int i = 0; i < 1 + GROUPS * (MOST_RING + MOST_TILES); i++)
            barrier_init(w_there + i * 8);
        barriers_ready();
    }
    __syncthreads();

    /* What the leading thread fetches next, of a and of more. */
    const int tiles = (m.rows + HIGH - 1) / HIGH, workers = (int)gridDim.y * GROUPS;
    const int worker = (int)blockIdx.y * GROUPS + group, back = workers * HIGH;
    const int mine = worker < tiles ? (tiles - 1 - worker) / workers + 1 : 0;
    int first = (tiles - 1 - worker) * HIGH;
    int next = first, deep = 0, left = mine * m.slices;
    int tile_next = first, tile_half = 0, tiles_left = mine * m.halves;
    auto fetch_box = [&](int at) {
        if (!leads || left == 0)
            return;
        barrier_expect(there + at * 8, SLICE);
        copy_box(ring + at * SLICE, map.a, deep * BOX_COLUMNS, next, there + at * 8);
        left--;
        if (++deep == m.slices) {
            deep = 0;
            next -= back;
        }
    };
    auto fetch_tile = [&](int at) {
        if (!leads || tiles_left == 0)
            return;
        const int column = across + tile_half * WIDE;
        barrier_expect(tile_there + at * 8, TILE);
        copy_box_once(tiles_at + at * TILE, map.more, column, tile_next, tile_there + at * 8);
        copy_box_once(tiles_at + at * TILE + SLICE, map.more, column + BOX_COLUMNS, tile_next, tile_there + at * 8);
        tiles_left--;
        if (++tile_half == m.halves) {
            tile_half = 0;
            tile_next -= back;
        }
    };
    if (t == 0) {
        barrier_expect(w_there, m.halves * m.slices * WEIGHTS);
        for (int h = 0; h < m.halves; h++)
            for (int s = 0; s < m.slices; s++)
                copy_box(w + (h * m.slices + s) * WEIGHTS, map.w, s * BOX_COLUMNS, across + h * WIDE, w_there);
    }
    for (int s = 0; s < m.ring; s++)
        fetch_box(s);
    for (int s = 0; s + 1 < m.tiles; s++)
        fetch_tile(s);
    for (int x = t; x < m.halves * (WIDE / 8); x += GROUPS * GROUP)
        if (across / 8 + x < m.columns / 8) {
            params.a.put(x, across / 8 + x, m.a);
            if constexpr (TWINS)
                params.b.put(x, across / 8 + x, m.b);
        }
    __syncthreads();
    barrier_wait(w_there, 0);

    int at = 0, slot = 0, free = m.tiles - 1; /* free: the slot of the tile before this one */
    uint32_t parity = 0, tile_parity = 0;
#pragma unroll 1
    for (int done = 0, half = 0; done < mine;) {
        const bool last = half + 1 == m.halves; /* to read this tile's boxes of a */
        float sum[WIDE / 2];
        int box = at, before = 0;
        uint32_t box_parity = parity;
#pragma unroll 1
        for (int s = 0; s < m.slices; s++) {
            barrier_wait(there + box * 8, box_parity);
            products_begin();
#pragma unroll
            for (int part = 0; part < BOX_COLUMNS / 16; part++)
                multiply<T, WIDE, false>(sum, matrix_at(ring + box * SLICE + part * 32, 16),
                                         matrix_at(w + (half * m.slices + s) * WEIGHTS + part * 32, 16), s + part > 0);
            products_commit();
            if (last && s > 0) {
                products_wait<1>();
                group_sync(group);
                fetch_box(before);
            }
            before = box;
            if (++box == m.ring) {
                box = 0;
                box_parity ^= 1;
            }
        }
        products_wait<0>();
        products_done(sum);
        if (last) {
            group_sync(group);
            fetch_box(before);
            at = box;
            parity = box_parity;
        }

        const int row = first + warp * 16 + lane / 4, column = across + half * WIDE;
        const uint32_t tile = tiles_at + slot * TILE;
        uint32_t words[2];
        barrier_wait(tile_there + slot * 8, tile_parity);
        finish_tile<TWINS>(sum, tile, params, half, row, valid, m.top, warp, lane, words);
        written();
        group_sync(group);
        if (leads) {
            for (int b = 0; b < WIDE / BOX_COLUMNS; b++)
                if (column + b * BOX_COLUMNS < m.columns)
                    store_box(map.y, column + b * BOX_COLUMNS, first, tile + b * SLICE);
                else
                    end_stores();
            wait_stores<WIDE / BOX_COLUMNS>(); /* the tile before this one has left its slot */
        }
        fetch_tile(free);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (row + r * 8 < valid && column + lane % 4 * 32 < m.columns)
                __stcs((uint32_t *)(m.kept + (int64_t)(row + r * 8) * (m.columns / 8) + column / 8) + lane % 4,
                       words[r]);
        free = slot;
        if (++slot == m.tiles) {
            slot = 0;
            tile_parity ^= 1;
        }
        if (last) {
            half = 0;
            done++;
            first -= back;
        } else {
            half++;
        }
    }
    if (leads)
        wait_stores<0>();
#endif
}

/* --- launching --------------------------------------------------------------------------------------------------- */

/* What a block has in shared memory, by measurements. */
struct shape {
    int halves, ring, tiles;
};

shape shape_of(int slices)
{
    return slices == 1 ? shape{2, 1, 3} : slices == 2 ? shape{2, 2, 3} : shape{1, 5, 2};
}

static_assert(MOST_HALVES >= 2 && MOST_RING >= 5 && MOST_TILES >= 3, "as shape_of wants them");

template <bool TWINS> void launch(ls_cuda_stream s, const maps &map, const task &m)
{
    const size_t room = 1024 + (size_t)(m.halves * m.slices) * WEIGHTS +
                        (size_t)GROUPS * ((size_t)m.ring * SLICE + (size_t)m.tiles * TILE);
    const int64_t across = ceil_div(m.columns, WIDE * m.halves), tiles = ceil_div(m.rows, HIGH * GROUPS);
    const int64_t most = multiprocessors() / across, down = tiles < most ? tiles : most < 1 ? 1 : most;
    want_shared(apply<TWINS>, room);
    apply<TWINS><<<dim3((unsigned)across, (unsigned)down), dim3(GROUPS * GROUP), room, s>>>(map, m);
}

} // namespace

void ls_product::wgmma_apply(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                             const struct ls_cuda_run *run, const struct ls_cuda_mapped *of)
{
    const int slices = (int)ceil_div(f->n, BOX_COLUMNS);
    shape by = shape_of(slices);
    by.halves = f->k > WIDE ? by.halves : 1;
    const task m = {(int)f->rows, (int)f->k, slices,      by.halves,   by.ring,         by.tiles,
                    f->area,      run,       of->twin[0], of->twin[1], act_top(b->act), (uint8_t *)of->kept};
    const bool twins = !of->residual;
    maps map;
    if (!box_map(&map.a, LS_BF16, f->a, f->rows, f->n, HIGH) || !box_map(&map.w, LS_BF16, f->half, f->k, f->n, WIDE) ||
        !box_map(&map.more, LS_BF16, twins ? of->twin[1].x : of->residual, f->rows, f->k, HIGH) ||
        !box_map(&map.y, LS_BF16, of->y, f->rows, f->k, HIGH))
        return;
    (twins ? launch<true> : launch<false>)(s, map, m);
}
