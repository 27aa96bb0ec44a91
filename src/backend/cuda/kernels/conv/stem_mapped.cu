/* The gradient of the weights of a first convolution, as stem_gather.cu computes it, where the convolution is followed by a
 * batch normalisation with a 3x3 max pooling: what the bn_bwd's second pass would write, dx, is made in shared memory.
 *
 * A block has two warpgroups. One maps: the copy engine brings lines of x, and lines of the pooled dz with their index as
 * long as they are needed; dx takes the place of x (bn_pool_bwd.cu has the same arithmetic, in the same order). It makes the lines
 * of the images, too. The other one multiplies the line before. Registers go to where they are needed.
 *
 * All sums have a fixed order. */
#include "backend/cuda/kernels/bn/bn.cuh"
#include "backend/cuda/kernels/conv/stem_mapped.cuh"

using namespace ls_stem;

namespace
{

constexpr int PER_SM = 2;          /* blocks on a multiprocessor */
constexpr int POOLED = 2;          /* lines of the pooled map in shared memory */
constexpr int LEAST = 3, MOST = 4; /* lines of x in shared memory */

/* --- kernel ------------------------------------------------------------------------------------------------------ */

struct mapping {
    struct ls_cuda_bn_grad g;
    int high, wide; /* of the pooled map */
    int ring;       /* lines of x in shared memory */
};

/* Registers of a thread that multiplies and of one that maps; a block has 65536 / PER_SM. */
enum { MULTIPLIER_REGISTERS = 160, MAPPER_REGISTERS = 256 - MULTIPLIER_REGISTERS };

template <int TILE> constexpr int dz_bytes = (TILE / 2 + 1) * BOX_ROW;
template <int TILE> constexpr int pooled_bytes = dz_bytes<TILE> / 2 * 3;

/* The barriers of a block: lines of x that are there, that are mapped, and that were multiplied; lines of the pooled map that are
 * there. */
enum {
    THERE,
    MAPPED = THERE + MOST,
    FREE = MAPPED + MOST,
    POOLED_THERE = FREE + MOST,
    BARRIERS = POOLED_THERE + POOLED
};

template <typename T, int SIDE, int STRIDE, int TILE>
__global__ void __launch_bounds__(2 * GROUP, PER_SM)
    gather_mapped(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ task m,
                  const __grid_constant__ mapping f)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using W = window<SIDE, STRIDE>;
    constexpr int SLOT = TILE * BOX_ROW;
    extern __shared__ char room[];
    __shared__ uint64_t barriers[BARRIERS];
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), tiles = (start + 1023) & ~1023u,
                   pooled = tiles + f.ring * SLOT, ring = pooled + POOLED * pooled_bytes<TILE>,
                   barrier = (uint32_t)__cvta_generic_to_shared(barriers);
    const range mine = rows_of(m.rows);
    const int high = m.from.high, t = threadIdx.x % GROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < BARRIERS; i++)
            barrier_init(barrier + i * 8, i >= MAPPED && i < POOLED_THERE ? GROUP : 1);
        barriers_ready();
    }
    /* What copies do not reach hands on nothing. */
    for (int i = threadIdx.x; i < POOLED * pooled_bytes<TILE> / 16; i += 2 * GROUP)
        *(uint4 *)(room + (pooled - start) + i * 16) = make_uint4(0, 0, 0, 0);
    written();
    __syncthreads();
    int y = mine.first % high, buffer = 0;
    uint32_t parity = 0;

    if (threadIdx.x < GROUP) {
        grow<MULTIPLIER_REGISTERS>();
        int next = mine.first;
        auto fetch_next = [&](int to) {
            if (t != 0 || next == mine.last)
                return;
            barrier_expect(barrier + (THERE + to) * 8, SLOT);
            copy_box(tiles + to * SLOT, x_map, 0, 0, next++, barrier + (THERE + to) * 8);
        };
        for (int i = 0; i < f.ring; i++)
            fetch_next(i);
        float sum[SIDE][WIDE / 2];
#pragma unroll
        for (int i = 0; i < SIDE * (WIDE / 2); i++)
            sum[i / (WIDE / 2)][i % (WIDE / 2)] = 0;
        const uint64_t lines = planes_at(ring, 128, W::APART * UNIT); /* counts units */
        const int warp = t / 32, lane = t % 32;
        int slot = 0;
#pragma unroll 1
        for (int at = mine.first; at < mine.last; at++) {
            barrier_wait(barrier + (MAPPED + buffer) * 8, parity);
            gather_tile<T, SIDE, STRIDE, TILE>(sum, tiles + buffer * SLOT, lines, m.from, slot, warp, lane, []() {});
            written();
            group_sync(0);
            barrier_arrive(barrier + (FREE + buffer) * 8);
            fetch_next(buffer);
            if (++buffer == f.ring) {
                buffer = 0;
                parity ^= 1;
            }
            slot = slot_behind<W::SLOTS>(slot, 1);
            if (++y == high) {
                y = 0;
                slot = slot_behind<W::SLOTS>(slot, W::TAPS - 1);
            }
        }
        put_sums<SIDE, STRIDE>(m, sum, 0, warp, lane);
        return;
    }

    shrink<MAPPER_REGISTERS>();
    const int valid = m.from.run->valid, octet = t % 8;
    int n = mine.first / high;
    factors of_octet;
    ls_bn::affine a;
    ls_bn::load_affine(a, octet, f.g.gamma, f.g.beta, f.g.mean, f.g.rstd, false, 0);
    ls_bn::load_second(of_octet.slope, of_octet.offset, a, octet, f.g, (int64_t)valid * high * m.from.wide);
#pragma unroll
    for (int i = 0; i < 8; i++)
        of_octet.scale[i] = a.scale[i];
    /* Lines of the pooled map are numbered through all samples. A line of x needs line `from`, which it has alone or shares with
     * the line of x below, and where it is odd the next one. */
    const int first_pooled = n * f.high + y / 2;
    int from = first_pooled, fetched = first_pooled, end_pooled = first_pooled;
    if (mine.first < mine.last) {
        const int last_n = (mine.last - 1) / high, last_y = mine.last - 1 - last_n * high;
        end_pooled = last_n * f.high + min((last_y + 1) / 2, f.high - 1) + 1;
    }
    auto fetch_pooled = [&](int end) {
        for (; t == 0 && fetched < min(end, end_pooled); fetched++) {
            const int to = (fetched - first_pooled) % POOLED;
            const uint32_t at = pooled + to * pooled_bytes<TILE>, bytes = f.wide * BOX_ROW;
            const int64_t before = (int64_t)fetched * f.wide * OUT;
            barrier_expect(barrier + (POOLED_THERE + to) * 8, bytes / 2 * 3);
            copy_bytes(at, (const uint16_t *)f.g.kept + before, bytes, barrier + (POOLED_THERE + to) * 8);
            copy_bytes(at + dz_bytes<TILE>, f.g.index + before, bytes / 2, barrier + (POOLED_THERE + to) * 8);
        }
    };
    auto line_of = [&](int number) {
        const int k = number - first_pooled;
        barrier_wait(barrier + (POOLED_THERE + k % POOLED) * 8, (uint32_t)(k / POOLED) & 1);
        const char *const at = room + (pooled - start) + k % POOLED * pooled_bytes<TILE>;
        return pooled_line{at, at + dz_bytes<TILE>};
    };
    fetch_pooled(first_pooled + POOLED);
    maker<T, SIDE, STRIDE> of(m.from, room + (ring - start), t, mine.first, mine.last, 1);
    int made = 0, base = 0;       /* steps */
    int finished = 0, behind = 0; /* lines that were multiplied; the buffer of the next one */
    uint32_t behind_parity = 0;
#pragma unroll 1
    for (int at = mine.first; at < mine.last; at++) {
        of.read_step();
        barrier_wait(barrier + (THERE + buffer) * 8, parity);
        char *const tile = room + (tiles - start) + buffer * SLOT;
        const bool two = y % 2 && y / 2 + 1 < f.high;
        const pooled_line above = line_of(from), below = two ? line_of(from + 1) : above;
        if (n >= valid)
            for (int i = t; i < SLOT / 16; i += GROUP)
                *(uint4 *)(tile + i * 16) = make_uint4(0, 0, 0, 0);
        else if (two)
            map_line<T, TILE, true>(tile, above, 6 * EACH, below, m.from.wide, t, of_octet);
        else
            map_line<T, TILE, false>(tile, above, (y % 2 ? 6 : 3) * EACH, below, m.from.wide, t, of_octet);
        /* A step takes the slot of the line before the last one; at the beginning of a sample it takes more. */
        const int started = at - mine.first, before = y == 0 ? started : started - 1;
        for (; finished < before; finished++) {
            barrier_wait(barrier + (FREE + behind) * 8, behind_parity);
            if (++behind == f.ring) {
                behind = 0;
                behind_parity ^= 1;
            }
        }
        for (bool first = true; made < base + W::TAPS; made++, first = false) {
            if (!first)
                of.read_step();
            of.put_step();
            copies_wait();
            written();
            group_sync(1);
        }
        barrier_arrive(barrier + (MAPPED + buffer) * 8);
        if (++buffer == f.ring) {
            buffer = 0;
            parity ^= 1;
        }
        from += y % 2 || y == high - 1;
        base++;
        if (++y == high) {
            y = 0;
            n++;
            base += W::TAPS - 1;
        }
        fetch_pooled(from + POOLED);
    }
#endif
}

/* --- launching --------------------------------------------------------------------------------------------------- */

constexpr int SEVEN = 7, STEP = 2; /* the only window */

/* Shared memory with so many lines of x, and how many fit. */
size_t room_with(const struct ls_cuda_stem *c, int ring)
{
    const int tile = tile_of(c);
    return 1024 + (size_t)ring * tile * BOX_ROW + POOLED * (size_t)(tile / 2 + 1) * BOX_ROW / 2 * 3 +
           rows_bytes<SEVEN, STEP>(task_of<SEVEN, STEP>(c, NULL, NULL).from);
}

int ring_of(const struct ls_cuda_stem *c)
{
    constexpr size_t most = (228 / PER_SM - 1) * 1024 - BARRIERS * sizeof(uint64_t) - 128;
    int ring = MOST;
    while (ring >= LEAST && room_with(c, ring) > most)
        ring--;
    return ring;
}

unsigned mapped_blocks(const struct ls_cuda_stem *c)
{
    return blocks_of(c, room_with(c, LEAST), PER_SM);
}

template <typename T, int TILE>
void launch(ls_cuda_stream s, const struct ls_cuda_stem *c, const task &m, const mapping &f)
{
    CUtensorMap map;
    if (!box_map(&map, c->t, f.g.x, m.rows, c->y.w, c->y.c, TILE))
        return;
    const size_t room = room_with(c, f.ring);
    const auto kernel = gather_mapped<T, SEVEN, STEP, TILE>;
    want_shared(kernel, room);
    kernel<<<mapped_blocks(c), 2 * GROUP, room, s>>>(map, m, f);
}

} // namespace

bool ls_cuda_stem_mapped_can(const struct ls_cuda_stem *c, const struct ls_cuda_bn *b)
{
    return ls_cuda_stem_can(c, NULL, false) && c->kernel > 1 && c->y.c == OUT && c->y.w <= tile_of(c) &&
           ring_of(c) >= LEAST && b->pool && b->kernel_h == 3 && ls_bn::fast_pool(b, false) == 3 && b->pad_t == 1 &&
           b->pad_l == 1 && b->y.h == (b->x.h + 1) / 2 && b->y.w == (b->x.w + 1) / 2 && ls_act_clips(b->act) &&
           ls_cuda_bn_kept(b, false) > 0;
}

size_t ls_cuda_stem_mapped_scratch(const struct ls_cuda_stem *c)
{
    return (size_t)mapped_blocks(c) * (size_t)(c->y.c * c->kernel * c->c) * sizeof(float);
}

void ls_cuda_stem_mapped_weights(ls_cuda_stream s, const struct ls_cuda_stem *c, const struct ls_cuda_run *run,
                                 const struct ls_pixels *pixels, const struct ls_cuda_bn *b,
                                 const struct ls_cuda_bn_grad *g, float *dw, float *scratch)
{
    task m = task_of<SEVEN, STEP>(c, run, pixels);
    m.scratch = scratch;
    const mapping f = {*g, (int)b->y.h, (int)b->y.w, ring_of(c)};
    by_shape(c, [&](auto, auto, auto tile) { LS_CUDA_BY_HALF(c->t, launch<T, tile()>(s, c, m, f)); });
    collect_sums(s, c, scratch, (int)mapped_blocks(c), dw);
}
