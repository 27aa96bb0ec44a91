/* Products of matrices that make a normalisation's sums on their way, so that no kernel has to read the result again for
 * them: y (rows x n) = x (rows x k) * w.
 *
 * A block computes tiles of 64 rows by WIDE columns, always the same columns, from the last rows to the first, as bn.cuh
 * has it for summing kernels. Its columns of w stay in shared memory, so k is small; slices of x, DEEP columns each, come
 * through a ring there, on across tiles, and are multiplied by the tensor cores. A finished tile is rounded and laid out
 * in shared memory, and from there handled like any map. Sums stay in registers to the end. */
#include "backend/cuda/kernels/bn.cuh"

using namespace ls_bn;

namespace
{

constexpr int THREADS = 128, HIGH = 64, DEEP = 64;
constexpr int UNIT = 16, SLICE_UNITS = DEEP / 8; /* bytes; an octet of 16-bit values */

/* --- instructions ---------------------------------------------------------------------------------------------- */

/* 16 bytes into shared memory, by and by; zeros where there are none. */
__device__ __forceinline__ void copy_unit(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? UNIT : 0)
                 : "memory");
}

__device__ __forceinline__ void end_slice(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most LEFT slices are under way. */
template <int LEFT> __device__ __forceinline__ void wait_slices(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Four 8x8 matrices of 16-bit values; a lane gives the address of a row. */
template <bool TURNED> __device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t at)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(at)
                     : "memory");
}

/* c (16 x 8) += a (16 x 16) * b (16 x 8) */
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same number, of which the compiler knows nothing: what follows from it is computed anew instead of being kept in
 * registers, which the sums need. */
__device__ __forceinline__ int anew(int n)
{
    asm volatile("" : "+r"(n));
    return n;
}

/* --- tiles ----------------------------------------------------------------------------------------------------- */

/* Where a unit of a row of `units`, a multiple of 8, lies: eight rows' units of one column are in different banks. */
__device__ __forceinline__ uint32_t place_of(int row, int unit, int units)
{
    return (uint32_t)(row * units + (unit ^ (row & 7))) * UNIT;
}

struct matrices {
    const char *x, *w;
    int rows, k, n;
};

template <int WIDE> struct sizes {
    static constexpr int OCTETS = WIDE / 8, WARPS_ACROSS = WIDE / 32, WARPS_HIGH = THREADS / 32 / WARPS_ACROSS,
                         WARP_ROWS = HIGH / WARPS_HIGH;
    static constexpr int SLICE = HIGH * DEEP * 2, TILE = HIGH * WIDE * 2;
    static constexpr int RING = WIDE > 64 ? 2 : 4; /* slices: as many as cost no block */
};

/* Start copying a slice of x: rows first .. and columns `deep` .. */
__device__ __forceinline__ void fetch_slice(const matrices &m, uint32_t to, int t, int first, int deep)
{
    const int row = t / SLICE_UNITS, unit = t % SLICE_UNITS, column = deep + unit * 8;
    constexpr int step = THREADS / SLICE_UNITS; /* a multiple of 8 rows: the place in a row stays */
    const char *from = m.x + ((int64_t)(first + row) * m.k + column) * 2;
    const int64_t further = (int64_t)step * m.k * 2;
    to += place_of(row, unit, SLICE_UNITS);
#pragma unroll
    for (int u = 0; u < HIGH / step; u++, from += further) {
        const bool there = first + row + u * step < m.rows && column < m.k;
        copy_unit(to + u * step * DEEP * 2, there ? from : m.x, there);
    }
}

/* The block's columns of w, with zeros to a multiple of DEEP. */
template <int WIDE, bool TURNED>
__device__ __forceinline__ void fetch_weights(const matrices &m, uint32_t to, int t, int depth)
{
    const int across = blockIdx.x * WIDE, units = TURNED ? WIDE / 8 : depth / 8;
    for (int q = t; q < WIDE * depth / 8; q += THREADS) {
        const int row = q / units, unit = q % units;
        const int column = across + (TURNED ? unit * 8 : row), deep = TURNED ? row : unit * 8;
        const bool there = column < m.n && deep < m.k;
        const int64_t at = TURNED ? (int64_t)deep * m.n + column : (int64_t)column * m.k + deep;
        copy_unit(to + place_of(row, unit, units), there ? m.w + at * 2 : m.w, there);
    }
}

/* One slice's products, of a warp's rows `high` and columns `across`; w's rows from `deep` on. */
template <typename T, int WIDE, bool TURNED, int ROWS>
__device__ __forceinline__ void add_products(float (&sum)[ROWS][4][4], uint32_t slice, uint32_t w, int depth, int deep,
                                             int lane, int high, int across)
{
#pragma unroll
    for (int part = 0; part < DEEP / 16; part++) {
        uint32_t a[ROWS][4], b[2][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            load_matrices<false>(a[i],
                                 slice + place_of(high + i * 16 + (lane & 15), part * 2 + (lane >> 4), SLICE_UNITS));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int low = lane & 7, second = lane >> 3 & 1, third = lane >> 4;
            if (TURNED)
                load_matrices<true>(
                    b[j], w + place_of(deep + part * 16 + second * 8 + low, across / 8 + j * 2 + third, WIDE / 8));
            else
                load_matrices<false>(
                    b[j], w + place_of(across + j * 16 + third * 8 + low, deep / 8 + part * 2 + second, depth / 8));
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                multiply<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

/* The warp's part of the tile, rounded: four 8x8 matrices at a time, of which a lane has two neighbours in a row each. */
template <typename T, int WIDE, int ROWS>
__device__ __forceinline__ void lay_out(const float (&sum)[ROWS][4][4], uint32_t tile, int lane, int high, int across)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const uint32_t m[4] = {
                narrow_pair<T>(sum[i][j][0], sum[i][j][1]), narrow_pair<T>(sum[i][j][2], sum[i][j][3]),
                narrow_pair<T>(sum[i][j + 1][0], sum[i][j + 1][1]), narrow_pair<T>(sum[i][j + 1][2], sum[i][j + 1][3])};
            const int row = high + i * 16, unit = across / 8 + j;
#if __CUDA_ARCH__ >= 900
            const uint32_t at = tile + place_of(row + (lane & 15), unit + (lane >> 4), WIDE / 8); /* of a row */
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(m[0]),
                         "r"(m[1]), "r"(m[2]), "r"(m[3])
                         : "memory");
#else
#pragma unroll
            for (int q = 0; q < 4; q++)
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(
                                 tile + place_of(row + q % 2 * 8 + lane / 4, unit + q / 2, WIDE / 8) + lane % 4 * 4),
                             "r"(m[q])
                             : "memory");
#endif
        }
}

/* --- what becomes of a tile ------------------------------------------------------------------------------------ */

constexpr int BATCH = 4; /* rows of a thread whose reads are under way at once */

/* Forward: it is stored as it is. Sums of the values, unrounded, and of their squares, made of a warp's registers: a
 * lane has 8 columns of its warp's 32. Values are of 16 bits afterwards, so that a mean far from 0 does more harm by
 * their rounding than by these sums'. */
template <typename T> struct statistics {
    static constexpr bool BY_COLUMN = true;
    static constexpr int WIDEST = 128;
    void *y;
    float eps;
    float *mean, *rstd, *stat;

    struct row {
    };
    __device__ __forceinline__ void begin(parameters<P_FIRST> &, int, int) const
    {
    }
    /* `left`: rows that count, from the lane's first on. */
    template <int ROWS>
    __device__ __forceinline__ void add_columns(const float (&sum)[ROWS][4][4], int left, float (&first)[8],
                                                float (&second)[8]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS * 2; i++)
            if (i * 8 < left)
#pragma unroll
                for (int c = 0; c < 8; c++) {
                    const float v = sum[i / 2][c / 2][i % 2 * 2 + c % 2];
                    first[c] += v;
                    second[c] = fmaf(v, v, second[c]);
                }
    }
    __device__ __forceinline__ void read(row &, int64_t) const
    {
    }
    __device__ __forceinline__ void add(row (&)[BATCH], octet<T> (&)[BATCH], const bool (&)[BATCH],
                                        const parameters<P_FIRST> &, int, float (&)[8], float (&)[8]) const
    {
    }
    __device__ __forceinline__ void *result(void) const
    {
        return y;
    }
    __device__ __forceinline__ void finish(int channel, int channels, double sum, double squares, int rows,
                                           float weight) const
    {
        const double count = rows > 0 ? (double)rows : 1, centre = sum / count;
        double variance = squares / count - centre * centre;
        variance = variance > 0 || variance != variance ? variance : 0;
        mean[channel] = (float)centre;
        rstd[channel] = (float)(1 / sqrt(variance + (double)eps));
        stat[channel] = (float)((double)weight * centre);
        stat[channels + channel] = (float)((double)weight * variance * (rows > 1 ? count / (count - 1) : 1));
    }
};

/* Backward: it is dy; dz is stored, and summed as in bn_bwd.cu. */
template <typename T, mask MASK, bool DY2> struct gradient_sums {
    static constexpr bool BY_COLUMN = false;
    static constexpr int WIDEST = 64; /* what is read for a tile needs the registers */
    struct ls_cuda_bn_grad g;
    float top;

    using row = terms<T, MASK, DY2>;
    template <int ROWS>
    __device__ __forceinline__ void add_columns(const float (&)[ROWS][4][4], int, float (&)[8], float (&)[8]) const
    {
    }
    __device__ __forceinline__ void begin(parameters<P_FIRST> &params, int x, int octet) const
    {
        put_backward<false>(params, x, octet, g, 0);
    }
    __device__ __forceinline__ void read(row &r, int64_t at) const
    {
        r.template read_rest<true, false>(g, at);
    }
    __device__ __forceinline__ void add(row (&in)[BATCH], octet<T> (&value)[BATCH], const bool (&counts)[BATCH],
                                        const parameters<P_FIRST> &params, int x, float (&first)[8],
                                        float (&second)[8]) const
    {
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (counts[u])
                in[u].dy = value[u];
            else
                in[u].clear();
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float2 mean = params.get(P_MEAN, x, p);
            float2 scale, beta;
            if (MASK == MASK_X) {
                scale = params.get(P_SCALE, x, p);
                beta = params.get(P_BETA, x, p);
            }
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                add_dz<T, MASK, DY2, true>(in[u], p, mean, scale, beta, top, first, second);
        }
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            value[u] = in[u].dy;
    }
    __device__ __forceinline__ void *result(void) const
    {
        return g.dresidual;
    }
    __device__ __forceinline__ void finish(int channel, int, double sum, double products, int, float) const
    {
        g.dbeta[channel] = (float)sum;
        g.dgamma[channel] = (float)(products * (double)g.rstd[channel]);
    }
};

/* --- the whole ------------------------------------------------------------------------------------------------- */

/* Sums by column become sums by octet, as sum_rows wants them: those of the first WARPS_HIGH rows of threads. */
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
    __shared__ parameters<P_FIRST> params;
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

    /* Tiles from the last on, each in slices: `left` slices are still to be fetched, the next of rows `next`. */
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
            __syncthreads(); /* the slice is there for all, and all are through with the one before */
            fetch_next(place == 0 ? RING - 1 : place - 1);
            add_products<T, WIDE, TURNED>(sum, ring + place * size::SLICE, w, slices * DEEP, s * DEEP, anew(t) % 32,
                                          high, across);
            place = place == RING - 1 ? 0 : place + 1;
        }
        lay_out<T, WIDE>(sum, tile, anew(t) % 32, high, across);
        if (E::BY_COLUMN)
            end.add_columns(sum, valid - first - high - anew(t) % 32 / 4, sums[0], sums[1]);
        __syncthreads();
        if (octet < octets) {
            constexpr int ty = THREADS / size::OCTETS;
#pragma unroll 1
            for (int r = 0; r < HIGH / ty; r += BATCH) {
                typename E::row in[BATCH];
                ls_device::octet<T> value[BATCH];
                bool counts[BATCH];
                const int row = anew(threadIdx.y) + r * ty;
                const int64_t at = (int64_t)(first + row) * octets + octet;
#pragma unroll
                for (int u = 0; u < BATCH; u++) {
                    counts[u] = first + row + u * ty < valid;
                    if (counts[u])
                        end.read(in[u], at + (int64_t)(u * ty) * octets);
                }
#pragma unroll
                for (int u = 0; u < BATCH; u++)
                    value[u].word[0] = *(const uint4 *)(laid_out + place_of(row + u * ty, x, WIDE / 8));
                end.add(in, value, counts, params, x, sums[0], sums[1]);
#pragma unroll
                for (int u = 0; u < BATCH; u++)
                    if (first + row + u * ty < m.rows)
                        store<T>(end.result(), at + (int64_t)(u * ty) * octets, value[u]);
            }
        }
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
    per_sm = per_sm < 1 ? 1 : per_sm > BLOCKS_PER_SM ? BLOCKS_PER_SM : per_sm; /* what the scratch has room for */
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

template <typename T, mask MASK>
void choose_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                 const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g)
{
    if (g->dy2)
        choose<T>(s, p, b, run, x, w, gradient_sums<T, MASK, true>{*g, act_top(b->act)});
    else
        choose<T>(s, p, b, run, x, w, gradient_sums<T, MASK, false>{*g, act_top(b->act)});
}

} // namespace

bool ls_cuda_product_can(const struct ls_cuda_product *p, const struct ls_cuda_bn *b, bool residual)
{
    /* w must fit. The scratch is sized by bn.cuh's segments, which may be narrower than these. */
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
    if (b->t == LS_BF16)
        choose<__nv_bfloat16>(s, p, b, run, x, w, statistics<__nv_bfloat16>{y, b->eps, mean, rstd, stat});
    else
        choose<__half>(s, p, b, run, x, w, statistics<__half>{y, b->eps, mean, rstd, stat});
}

void ls_cuda_product_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const void *x, const void *w, const struct ls_cuda_bn_grad *g)
{
#define SUMS(T)                                               \
    do {                                                      \
        if (b->act == LS_ACT_NONE)                            \
            choose_sums<T, MASK_NONE>(s, p, b, run, x, w, g); \
        else if (g->kept)                                     \
            choose_sums<T, MASK_BITS>(s, p, b, run, x, w, g); \
        else                                                  \
            choose_sums<T, MASK_X>(s, p, b, run, x, w, g);    \
    } while (0)
    if (b->t == LS_BF16)
        SUMS(__nv_bfloat16);
    else
        SUMS(__half);
#undef SUMS
}
