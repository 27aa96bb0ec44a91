/* The product that writes dz where x is not read (FOLD-4): dz = mask (dy * w + dy2), and the sums of dz over the rows.
 *
 * It is made like the product of fold_apply.cu: tiles of dy2 arrive in shared memory ahead of the product, dz takes the place
 * of dy2 where the sums of the product stand in registers, and the copy engine stores the tile while the next one is
 * multiplied. A sparse dy2 is no box; the threads copy its rows themselves, and zeros for the others.
 *
 * The sums are read from the finished tile, each thread the same octet of every eighth row, and warpgroups and blocks divide
 * the rows as in product_wgmma.cu: the sums have its bits, where there are as many warpgroups. */
#include "backend/cuda/kernels/conv/product_wgmma.cuh"
#include "backend/cuda/kernels/conv/wgmma.cuh"

using namespace ls_wgmma;
using namespace ls_product;

namespace
{

using T = __nv_bfloat16;

constexpr int WIDE = 128, OCTETS = WIDE / 8, SLICE = HIGH * BOX_ROW, TILE = HIGH * WIDE * 2, WEIGHTS = WIDE * BOX_ROW;
constexpr int MOST_RING = 8, MOST_TILES = 3, TY = GROUP / OCTETS;

struct task {
    int rows, columns, slices, ring, tiles; /* ring, tiles: lengths of the rings of a warpgroup */
    int64_t area;
    const struct ls_cuda_run *run;
    const char *dy2; /* SPARSE */
    picks sparse;
    const uint8_t *kept;
    float *scratch, *dbeta;
};

struct maps {
    CUtensorMap dy, more, w, dz;
};

/* Copies the warpgroup's tile of a sparse dy2: rows from `first` on. t: of the warpgroup. */
template <typename TASK>
__device__ __forceinline__ void copy_sparse(const TASK &m, uint32_t tile, int first, int valid, int octet, int t)
{
    const int lane = t % 32, x = t % OCTETS, y = t / OCTETS, octets = m.columns / 8;
    const int of_lane = first + t / 32 * 2 + lane % 2 + lane / 2 % 8 * TY; /* a row of the 16 of this warp */
    const int picked_row = of_lane < valid ? picked(m.sparse, of_lane) : -1;
#pragma unroll
    for (int u = 0; u < HIGH / TY; u++) {
        const int from = __shfl_sync(0xffffffffu, picked_row, u * 2 + y % 2);
        copy_unit(tile + x / 8 * SLICE + unit_at(y + u * TY, x % 8, 8),
                  m.dy2 + ((int64_t)(from < 0 ? 0 : from) * octets + octet) * 16, from >= 0);
    }
}

/* Turns a tile of dy2 into dz. bits: of the thread's two rows, 0 where a row does not count. */
template <extra DY2>
__device__ __forceinline__ void finish_tile(const float (&sum)[WIDE / 2], uint32_t tile, const uint4 (&kept)[2],
                                            int warp, int lane)
{
#pragma unroll
    for (int j = 0; j < OCTETS; j += 2) {
        const uint32_t at = tile + j / 8 * SLICE + unit_at(warp * 16 + (lane & 15), j % 8 + (lane >> 4), 8);
        uint32_t m[4] = {};
        if (DY2 != EXTRA_NONE)
            load_matrices<false>(m, at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int unit = j + i / 2, r = i % 2;
            const uint4 &of = kept[r];
            const uint32_t word = unit < 4 ? of.x : unit < 8 ? of.y : unit < 12 ? of.z : of.w;
            const uint32_t bits = word >> (unit % 4 * 8 + lane % 4 * 2);
            float2 d;
            widen_pair<T>(narrow_pair<T>(sum[unit * 4 + r * 2], sum[unit * 4 + r * 2 + 1]), d.x, d.y);
            if (DY2 != EXTRA_NONE) {
                float2 more;
                widen_pair<T>(m[i], more.x, more.y);
                d.x += more.x;
                d.y += more.y;
            }
            m[i] = narrow_pair<T>(bits & 1 ? d.x : 0, bits & 2 ? d.y : 0);
        }
        store_matrices(at, m);
    }
}

/* Adds the thread's rows of a finished tile. */
template <int SUMS> __device__ __forceinline__ void add_tile(const char *tile, int t, float (&sum)[SUMS][8])
{
    const int x = t % OCTETS, y = t / OCTETS;
#pragma unroll
    for (int u = 0; u < HIGH / TY; u++) {
        octet<T> o;
        float v[8];
        o.word[0] = *(const uint4 *)(tile + x / 8 * SLICE + unit_at(y + u * TY, x % 8, 8));
        widen<T>(o, v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[0][i] += v[i];
    }
}

template <extra DY2, int GROUPS>
__global__ void __launch_bounds__(GROUPS *GROUP, 1) product_dz(const __grid_constant__ maps map, const task m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ uint64_t barriers[1 + GROUPS * (MOST_RING + MOST_TILES)];
    const int t = threadIdx.y * OCTETS + threadIdx.x, group = t / GROUP, warp = t / 32 % 4, lane = t % 32;
    const int across = blockIdx.x * WIDE, valid = (int)(m.run->valid * m.area);
    const bool leads = t % GROUP == 0;

    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), w = (start + 1023) & ~1023u;
    const uint32_t rings = w + (uint32_t)m.slices * WEIGHTS, ring = rings + group * m.ring * SLICE;
    const uint32_t tiles_at = rings + GROUPS * m.ring * SLICE + group * m.tiles * TILE;
    const uint32_t w_there = (uint32_t)__cvta_generic_to_shared(barriers),
                   there = w_there + 8 + group * (MOST_RING + MOST_TILES) * 8, tile_there = there + MOST_RING * 8;
    if (t == 0) {
        for (int i = 0; i < 1 + GROUPS * (MOST_RING + MOST_TILES); i++)
            barrier_init(w_there + i * 8);
        barriers_ready();
    }
    __syncthreads();

    /* What the leading thread fetches next, of dy and of dy2. */
    const int tiles = (m.rows + HIGH - 1) / HIGH, workers = (int)gridDim.y * GROUPS;
    const int worker = (int)blockIdx.y * GROUPS + group, back = workers * HIGH;
    const int mine = worker < tiles ? (tiles - 1 - worker) / workers + 1 : 0;
    int first = (tiles - 1 - worker) * HIGH;
    int next = first, deep = 0, left = mine * m.slices, tile_next = first, tiles_left = mine;
    auto fetch_box = [&](int at) {
        if (!leads || left == 0)
            return;
        barrier_expect(there + at * 8, SLICE);
        copy_box(ring + at * SLICE, map.dy, deep * BOX_COLUMNS, next, there + at * 8);
        left--;
        if (++deep == m.slices) {
            deep = 0;
            next -= back;
        }
    };
    auto fetch_tile = [&](int at) {
        if (DY2 != EXTRA_DENSE || !leads || tiles_left == 0)
            return;
        barrier_expect(tile_there + at * 8, TILE);
        for (int b = 0; b < WIDE / BOX_COLUMNS; b++)
            copy_box_once(tiles_at + at * TILE + b * SLICE, map.more, across + b * BOX_COLUMNS, tile_next,
                          tile_there + at * 8);
        tiles_left--;
        tile_next -= back;
    };
    /* The bits of the thread's two rows of the tile that begins at row `of`. */
    auto read_bits = [&](int of, uint4(&kept)[2]) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = of + warp * 16 + lane / 4 + r * 8;
            kept[r] = make_uint4(0, 0, 0, 0);
            if (row >= 0 && row < valid)
                kept[r] = __ldcs((const uint4 *)(m.kept + (int64_t)row * (m.columns / 8) + across / 8));
        }
    };
    if (t == 0) {
        barrier_expect(w_there, m.slices * WEIGHTS);
        for (int s = 0; s < m.slices; s++)
            for (int b = 0; b < WIDE / BOX_COLUMNS; b++)
                copy_box(w + s * WEIGHTS + b * 64 * BOX_ROW, map.w, across + b * BOX_COLUMNS, s * BOX_COLUMNS, w_there);
    }
    for (int s = 0; s < m.ring; s++)
        fetch_box(s);
    for (int s = 0; s + 1 < m.tiles; s++)
        fetch_tile(s);
    const int octet = across / 8 + (int)threadIdx.x;
    if (DY2 == EXTRA_SPARSE && mine > 0)
        copy_sparse(m, tiles_at, first, valid, octet, t % GROUP);
    end_slice();
    uint4 kept[2];
    read_bits(mine > 0 ? first : -HIGH, kept);
    barrier_wait(w_there, 0);

    float total[1][8] = {};
    int at = 0, slot = 0, free = m.tiles - 1; /* free: the slot of the tile before this one */
    uint32_t parity = 0, tile_parity = 0;
#pragma unroll 1
    for (int done = 0; done < mine; done++, first -= back) {
        float sum[WIDE / 2];
        int before = 0;
#pragma unroll 1
        for (int s = 0; s < m.slices; s++) {
            barrier_wait(there + at * 8, parity);
            products_begin();
#pragma unroll
            for (int part = 0; part < BOX_COLUMNS / 16; part++)
                multiply<T, WIDE, true>(sum, matrix_at(ring + at * SLICE + part * 32, 16),
                                        matrix_at(w + s * WEIGHTS + part * 16 * BOX_ROW, 64 * BOX_ROW), s + part > 0);
            products_commit();
            if (s > 0) {
                products_wait<1>();
                group_sync(group);
                fetch_box(before);
            }
            before = at;
            if (++at == m.ring) {
                at = 0;
                parity ^= 1;
            }
        }
        products_wait<0>();
        products_done(sum);
        if (DY2 == EXTRA_SPARSE)
            wait_slices<0>();
        group_sync(group);
        fetch_box(before);
        const uint32_t tile = tiles_at + slot * TILE;
        const int following = slot + 1 == m.tiles ? 0 : slot + 1;
        if (DY2 ==
            EXTRA_SPARSE) { /* that slot's tile was stored two tiles ago, for which the leading thread has waited */
            if (done + 1 < mine)
                copy_sparse(m, tiles_at + following * TILE, first - back, valid, octet, t % GROUP);
            end_slice();
        }
        if (DY2 == EXTRA_DENSE)
            barrier_wait(tile_there + slot * 8, tile_parity);
        finish_tile<DY2>(sum, tile, kept, warp, lane);
        read_bits(done + 1 < mine ? first - back : -HIGH, kept);
        written();
        group_sync(group);
        if (leads) {
            for (int b = 0; b < WIDE / BOX_COLUMNS; b++)
                store_box(map.dz, across + b * BOX_COLUMNS, first, tile + b * SLICE);
            wait_stores<WIDE / BOX_COLUMNS>(); /* the tile before this one has left its slot */
        }
        fetch_tile(free);
        add_tile(room + (tile - start), t % GROUP, total);
        free = slot;
        slot = following;
        tile_parity ^= slot == 0;
    }
    if (leads)
        wait_stores<0>();
    __syncthreads();
    sum_all<1>(total, m.columns / 8, m.scratch, (float *)(room + (w - start)),
               [&](int channel, const double(&of)[1]) { m.dbeta[channel] = (float)of[0]; });
#endif
}

/* --- launching --------------------------------------------------------------------------------------------------- */

constexpr int64_t MOST_ROOM = 226 * 1024; /* shared memory of a block, without what the kernel declares */

/* Lengths of the rings; tiles 0: there is no room. */
struct shape {
    int ring, tiles;
};

shape shape_of(int slices, int groups)
{
    for (int tiles = MOST_TILES; tiles > 1; tiles--) {
        const int64_t ring =
            (MOST_ROOM - 1024 - (int64_t)slices * WEIGHTS - (int64_t)groups * tiles * TILE) / (groups * SLICE);
        if (ring >= 2)
            return {(int)(ring < MOST_RING ? ring : MOST_RING), tiles};
    }
    return {0, 0};
}

template <extra DY2, int GROUPS> void launch(ls_cuda_stream s, const maps &map, const task &m, const dim3 &grid)
{
    const size_t room = 1024 + (size_t)m.slices * WEIGHTS + GROUPS * ((size_t)m.ring * SLICE + (size_t)m.tiles * TILE);
    want_shared(product_dz<DY2, GROUPS>, room);
    product_dz<DY2, GROUPS><<<grid, dim3(OCTETS, GROUPS * TY), room, s>>>(map, m);
}

} // namespace

bool ls_product::wgmma_dz(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const void *dy, const void *w, const struct ls_cuda_bn_grad *g,
                          int groups, int64_t down)
{
    const int slices = (int)ceil_div(p->k, BOX_COLUMNS);
    const bool sparse = g->dy2 && g->sparse > 1;
    const shape by = shape_of(slices, groups);
    /* A dense dy2 is faster read by threads where the weights leave short rings. */
    const bool short_rings = g->dy2 && !sparse && slices > 2;
    if (short_rings || p->n % WIDE || p->k % BOX_COLUMNS || by.tiles < (sparse ? 3 : 2))
        return false;
    const task m = {(int)p->rows,
                    (int)p->n,
                    slices,
                    by.ring,
                    by.tiles,
                    b->x.h * b->x.w,
                    run,
                    (const char *)g->dy2,
                    sparse ? picks_of(b->x, g->sparse) : picks{},
                    (const uint8_t *)g->kept,
                    b->scratch,
                    g->dbeta};
    maps map;
    if (!box_map(&map.dy, LS_BF16, dy, p->rows, p->k, HIGH) || !box_map(&map.w, LS_BF16, w, p->k, p->n, BOX_COLUMNS) ||
        !box_map(&map.dz, LS_BF16, g->dresidual, p->rows, p->n, HIGH) ||
        !box_map(&map.more, LS_BF16, g->dy2 && !sparse ? g->dy2 : g->dresidual, p->rows, p->n, HIGH))
        return false;
    const dim3 grid((unsigned)(p->n / WIDE), (unsigned)down);
    if (groups == 3)
        (sparse ? launch<EXTRA_SPARSE, 3> : g->dy2 ? launch<EXTRA_DENSE, 3> : launch<EXTRA_NONE, 3>)(s, map, m, grid);
    else
        (sparse ? launch<EXTRA_SPARSE, 2> : g->dy2 ? launch<EXTRA_DENSE, 2> : launch<EXTRA_NONE, 2>)(s, map, m, grid);
    return true;
}
