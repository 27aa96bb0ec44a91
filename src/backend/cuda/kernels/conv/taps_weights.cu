/* The gradient of the weights of a 3x3 convolution with stride 1 and one pixel of padding, for Hopper.
 *
 *   gather     outputs (64) x taps of channels (9 * 64) = dy' * x, with pixels along the sum, of some of the tiles for each block
 *   collect    adds what the blocks gathered
 *
 * A tile is th x tw pixels of a sample, as in taps_wgmma.cu: the copy engine fetches x with a border and dy as rows of `pitch`
 * pixels, one after the other, so the x of a tap begins some pixels further on for all pixels of the tile. What dy has between the
 * rows is 0: there its boxes reach beyond the map, or beyond a piece of its rows. Where a tile has whole rows, one such pixel is
 * enough, as the border to the right of a row is the one to the left of the next.
 *
 * A block has a warpgroup for each row of the window. Its three taps are one product, whose second and third 64 columns begin one
 * and two pixels behind the first; dy is read by all three warpgroups. One more warp has the copy engine refill what has been
 * multiplied. The sums stay in registers to the end.
 *
 * All sums have a fixed order. */
#include "backend/cuda/kernels/conv/taps_wgmma.cuh"

#include <algorithm>
#include <numeric>

using namespace ls_wgmma;

namespace
{

constexpr int OUT = 64, TAPS = 9, SIDE = 3, THREADS = SIDE * GROUP + 32, STEP = 16;
constexpr int LEAST_SLOTS = 3, MOST_SLOTS = 4;            /* two are not refilled in time */
constexpr int WIDE = SIDE * BOX_COLUMNS, HELD = WIDE / 2; /* a warpgroup's columns; a thread's sums */
constexpr int QUADS = SIDE * GROUP * HELD / 4;            /* of what a block gathers */

struct place {
    int n, y, piece;
};

/* How maps are cut (tw divides their width), and shared memory: `slots` times rows of 64 channels of dy and of x, and behind
 * them rows that stay 0. */
struct task {
    int th, tw, pitch, h, tiles, slices; /* slices: of 64 input channels */
    divider by_across, by_down;
    int slots, slot_bytes, dy_bytes;
    float4 *parts;
};

struct maps {
    CUtensorMap dy, x;
};

__host__ __device__ __forceinline__ int steps_of(int rows, int pitch)
{
    return (rows * pitch + STEP - 1) / STEP;
}

/* Rows of x that the products of a tile read. */
__host__ __device__ __forceinline__ int rows_read(int th, int pitch)
{
    return steps_of(th, pitch) * STEP + 2 * pitch + 2;
}

template <typename T>
__global__ void __launch_bounds__(THREADS, 1) gather(const __grid_constant__ maps map, const __grid_constant__ task m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ uint64_t barriers[2 * MOST_SLOTS];
    const int t = threadIdx.x, group = __shfl_sync(0xffffffffu, t / GROUP, 0), pitch = m.pitch;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), ring = (start + 1023) & ~1023u;
    const uint32_t there = (uint32_t)__cvta_generic_to_shared(barriers), free = there + MOST_SLOTS * 8;
    const int first = blockIdx.y, workers = gridDim.y;
    const auto place_of = [&](int tile)
        -> place { /* from the last to the first (bn.cuh) */
                   const uint32_t number = (uint32_t)(m.tiles - 1 - tile), up = divide(number, m.by_across);
                   const uint32_t n = divide(up, m.by_down);
                   return {(int)n, (int)(up - n * m.by_down.by) * m.th, (int)(number - up * m.by_across.by)};
    };
    if (t == 0) {
        for (int i = 0; i < m.slots; i++) {
            barrier_init(there + i * 8);
            barrier_init(free + i * 8, SIDE * GROUP / 32);
        }
        barriers_ready();
    }
    const auto clear = [&](char *rows, int from, int to) {
        for (int q = from * 8 + t; q < to * 8; q += THREADS)
            ((uint4 *)rows)[q] = make_uint4(0, 0, 0, 0);
    };
    for (int i = 0; i < m.slots; i++) {
        char *const slot = room + (ring - start) + i * m.slot_bytes;
        clear(slot, m.th * pitch, steps_of(m.th, pitch) * STEP);
        clear(slot + m.dy_bytes, (m.th + 2) * pitch, rows_read(m.th, pitch));
    }
    written();
    __syncthreads();

    ls_taps::turn turn;
    if (group == SIDE) {
        if (t % GROUP > 0)
            return;
        const int of_dy = (int)blockIdx.x / m.slices * OUT, of_x = (int)blockIdx.x % m.slices * BOX_COLUMNS;
        for (int tile = first; tile < m.tiles; tile += workers, turn.advance(m.slots)) {
            const place p = place_of(tile);
            const uint32_t slot = ring + turn.at * m.slot_bytes;
            barrier_wait(free + turn.at * 8, turn.parity ^ 1);
            barrier_expect(there + turn.at * 8, (2 * m.th + 2) * pitch * BOX_ROW);
            ls_taps::copy_piece(slot, map.dy, of_dy, p.piece, p.y, p.n, there + turn.at * 8);
            ls_taps::copy_pixels(slot + m.dy_bytes, map.x, of_x, p.piece * m.tw - 1, p.y - 1, p.n, there + turn.at * 8);
        }
        return;
    }
    float sum[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++)
        sum[i] = 0;
    int before = -1; /* the slot of the tile before */
#pragma unroll 1
    for (int tile = first; tile < m.tiles; tile += workers, turn.advance(m.slots)) {
        const int steps = steps_of(min(m.th, m.h - place_of(tile).y), pitch);
        const uint32_t slot = ring + turn.at * m.slot_bytes;
        uint64_t dy = matrix_at(slot, 1024), x = matrix_at(slot + m.dy_bytes + group * pitch * BOX_ROW, BOX_ROW);
        barrier_wait(there + turn.at * 8, turn.parity);
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            products_begin();
            ls_taps::multiply<T, WIDE, true, true>(sum, dy, x, 1);
            products_commit();
            dy += STEP * BOX_ROW >> 4;
            x += STEP * BOX_ROW >> 4;
            products_wait<1>();
            if (step == 0 && before >= 0 && t % 32 == 0)
                barrier_arrive(free + before * 8);
        }
        before = turn.at;
    }
    products_wait<0>();
    products_done(sum);
    float4 *const to = m.parts + ((int64_t)blockIdx.x * workers + first) * QUADS + group * (HELD / 4 * GROUP);
#pragma unroll
    for (int i = 0; i < HELD / 4; i++)
        to[i * GROUP + t % GROUP] = make_float4(sum[i * 4], sum[i * 4 + 1], sum[i * 4 + 2], sum[i * 4 + 3]);
#endif
}

/* --- collecting --------------------------------------------------------------------------------------------------- */

constexpr int COLLECT = 256, MANY = 32; /* threads; parts from which on several threads share a sum */

/* A thread adds every SHARES-th part of a quad: two values of a row of dw and two of the eighth row from there. */
template <int SHARES>
__global__ void __launch_bounds__(COLLECT) collect(const float4 *parts, int count, int slices, float *dw)
{
    constexpr int EACH = COLLECT / SHARES;
    __shared__ float4 held[SHARES][EACH];
    const int x = threadIdx.x % EACH, share = threadIdx.x / EACH, quad = blockIdx.x * EACH + x;
    float4 sum = make_float4(0, 0, 0, 0);
    const auto add = [&](const float4 &v) {
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
    };
    parts += (int64_t)blockIdx.y * count * QUADS + quad;
#pragma unroll 4
    for (int part = share; part < count; part += SHARES)
        add(__ldcg(parts + (int64_t)part * QUADS));
    if (SHARES > 1) {
        held[share][x] = sum;
        __syncthreads();
        if (share > 0)
            return;
#pragma unroll
        for (int i = 1; i < SHARES; i++)
            add(held[i][x]);
    }
    const int lane = quad % 32, warp = quad / 32 % 4, octet = quad / GROUP;
    const int row = (int)blockIdx.y / slices * OUT + warp * 16 + lane / 4, tap = octet / 8;
    const int channel = (int)blockIdx.y % slices * BOX_COLUMNS + octet % 8 * 8 + lane % 4 * 2;
    const int64_t channels = (int64_t)slices * BOX_COLUMNS;
    float *const to = dw + ((int64_t)row * TAPS + tap) * channels + channel;
    *(float2 *)to = make_float2(sum.x, sum.y);
    *(float2 *)(to + 8 * TAPS * channels) = make_float2(sum.z, sum.w);
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

/* Behind the slots: memcheck takes a matrix for one piece, and so three boxes that overlap for longer than they are. */
constexpr int SLACK = 4096;
constexpr int MOST_BOX = 256;

int64_t pairs_of(const struct ls_cuda_conv *c)
{
    return c->x.c / BOX_COLUMNS * (c->y.c / OUT);
}

/* Blocks of the same channels, at most. */
int64_t most_workers(const struct ls_cuda_conv *c)
{
    return std::max<int64_t>(multiprocessors() / pairs_of(c), 1);
}

int workers_of(const struct ls_cuda_conv *c, int tiles)
{
    return (int)std::min<int64_t>(most_workers(c), tiles);
}

/* Without parts. */
task task_of(const struct ls_cuda_conv *c, int th, int tw)
{
    const int across = (int)(c->x.w / tw), down = (int)ceil_div(c->x.h, th), pitch = tw + (across == 1 ? 1 : 2);
    task m = {th,
              tw,
              pitch,
              (int)c->x.h,
              (int)c->x.n * across * down,
              (int)(c->x.c / BOX_COLUMNS),
              divider_of(across),
              divider_of(down),
              0,
              0,
              (int)ls_taps::rounded_up((int64_t)steps_of(th, pitch) * STEP * BOX_ROW),
              NULL};
    m.slot_bytes = m.dy_bytes + (int)ls_taps::rounded_up((int64_t)rows_read(th, pitch) * BOX_ROW);
    m.slots = (int)std::min<int64_t>((ls_taps::MOST_ROOM - 1024 - SLACK) / m.slot_bytes, MOST_SLOTS);
    return m;
}

/* Rows of the last row of tiles. */
int last_rows(const task &m)
{
    return m.h - (int)(m.by_down.by - 1) * m.th;
}

/* About what the longest block takes: for each tile its products, or its bytes where these take longer, as in tiles of one row.
 * A block's tiles are some of each place in a sample, but where numbers have common divisors it may never have the last row of
 * tiles. */
int64_t clocks_of(const struct ls_cuda_conv *c, const task &m)
{
    constexpr int64_t PRODUCTS = SIDE * 96, BYTES = 20, TILE = 150; /* of a step; in a clock; on top */
    const int64_t bytes = (int64_t)(2 * m.th + 2) * m.pitch * BOX_ROW;
    const auto clocks = [&](int rows) {
        return std::max(steps_of(rows, m.pitch) * PRODUCTS, bytes * rows / m.th / BYTES) + TILE;
    };
    const int across = (int)m.by_across.by, each = across * (int)m.by_down.by, workers = workers_of(c, m.tiles),
              common = std::gcd(workers, each), lasts = across / common * common;
    return ceil_div(m.tiles, workers) * (clocks(m.th) * (each - lasts) + clocks(last_rows(m)) * lasts) / each;
}

/* The way to cut the maps that is likely the fastest. false: there is room for none. */
bool best_task(const struct ls_cuda_conv *c, task *best)
{
    constexpr int MOST_PIECES = 8, LEAST_PIXELS = 96;
    int64_t least = INT64_MAX;
    for (int tw = (int)ceil_div(c->x.w, MOST_PIECES); tw <= c->x.w && tw + 2 <= MOST_BOX; tw++)
        for (int th = 1; c->x.w % tw == 0 && th <= c->x.h && th + 2 <= MOST_BOX; th++) {
            const task m = task_of(c, th, tw);
            if (m.slots < LEAST_SLOTS)
                break;
            if ((th < c->x.h && th * tw < LEAST_PIXELS) || clocks_of(c, m) >= least)
                continue;
            least = clocks_of(c, m);
            *best = m;
        }
    return least < INT64_MAX;
}

template <typename T>
void launch(ls_cuda_stream s, const struct ls_cuda_conv *c, const task &m, const void *dy, const void *x)
{
    maps map;
    if (!pieces_map(&map.dy, c->t, dy, c->y.n, c->y.h, c->y.w, c->y.c, m.tw, m.th, m.pitch) ||
        !pixels_map(&map.x, c->t, x, c->x.n, c->x.h, c->x.w, c->x.c, m.th + 2, m.pitch))
        return;
    const size_t room = 1024 + (size_t)m.slots * (size_t)m.slot_bytes + SLACK;
    want_shared(gather<T>, room);
    gather<T><<<dim3((unsigned)pairs_of(c), (unsigned)workers_of(c, m.tiles)), THREADS, room, s>>>(map, m);
}

} // namespace

bool ls_cuda_taps_weights_can(const struct ls_cuda_conv *c)
{
    constexpr double WORTH = 0.85; /* the share of the products that count */
    task m;
    if (!has_wgmma() || c->t == LS_F32 || c->x.n < 1 || c->x.c % BOX_COLUMNS || c->y.c % OUT || c->x.c != c->channels ||
        c->y.c != c->out || c->groups != 1 || c->kernel_h != SIDE || c->kernel_w != SIDE || c->stride_h != 1 ||
        c->stride_w != 1 || c->pad_t != 1 || c->pad_l != 1 || c->dilation_h != 1 || c->dilation_w != 1 ||
        c->y.h != c->x.h || c->y.w != c->x.w || c->x.n * c->x.h * c->x.w >= INT32_MAX || pairs_of(c) > UINT16_MAX ||
        !best_task(c, &m))
        return false;
    const int64_t steps = steps_of(m.th, m.pitch) * (int64_t)(m.by_down.by - 1) + steps_of(last_rows(m), m.pitch);
    return (double)(m.tw * c->x.h) >= WORTH * (double)(steps * STEP);
}

size_t ls_cuda_taps_weights_scratch(const struct ls_cuda_conv *c)
{
    return (size_t)(pairs_of(c) * most_workers(c)) * QUADS * sizeof(float4);
}

void ls_cuda_taps_weights(ls_cuda_stream s, const struct ls_cuda_conv *c, const void *dy, const void *x, float *dw,
                          float *scratch)
{
    constexpr int SHARES = 8;
    const unsigned pairs = (unsigned)pairs_of(c);
    task m;
    if (!best_task(c, &m))
        return;
    m.parts = (float4 *)scratch;
    LS_CUDA_BY_HALF(c->t, launch<T>(s, c, m, dy, x));
    const int workers = workers_of(c, m.tiles);
    if (workers < MANY)
        collect<1><<<dim3(QUADS / COLLECT, pairs), COLLECT, 0, s>>>(m.parts, workers, m.slices, dw);
    else
        collect<SHARES><<<dim3(QUADS / COLLECT * SHARES, pairs), COLLECT, 0, s>>>(m.parts, workers, m.slices, dw);
}
