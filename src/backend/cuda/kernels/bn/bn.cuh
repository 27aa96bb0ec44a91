/* Layout of the batch normalisation kernels over a map, and their sums over its rows.
 *
 * A map consists of rows (the pixels of all samples) of octets. A block covers a segment, which is tx octets wide,
 * and ty rows. The grid is (segments, row blocks). There are two kinds of kernels:
 *
 *   summing   Few blocks run, and each thread handles every (row blocks * ty)-th row. Each octet has 16 sums (a
 *             first and a second sum for each of 8 channels; bn_twin.cu has a third). They go through shared memory
 *             into the scratch, and the last block of a segment adds them up.
 *   mapping   Many blocks run, and each writes `repeat` * ty adjacent rows.
 *
 * The summing kernel goes from the last row to the first. The mapping kernel after it goes from the first row to the
 * last. Each kernel thus begins with the rows that the kernel before it read or wrote last, which are still in L2.
 *
 * The scratch holds the counters (LS_CUDA_BN_ZEROS bytes), then 16 * tx sums for each block, segment by segment. */
#ifndef LS_BACKEND_CUDA_KERNELS_BN_BN_CUH
#define LS_BACKEND_CUDA_KERNELS_BN_BN_CUH

#include "backend/cuda/kernels/smooth.cuh"

namespace ls_bn
{

using namespace ls_device;

static constexpr int SEGMENT = 16;      /* maximum width in octets */
static constexpr int SUM_THREADS = 512; /* maximum threads of a summing block */
static constexpr int MAP_THREADS = 256; /* maximum threads of a mapping block */
static constexpr int BLOCKS_PER_SM = 4; /* maximum of a summing kernel; determines the scratch size */

struct layout {
    dim3 grid, block;
    int octets; /* per row */
    int repeat; /* mapping kernels: how many groups of ty rows a block handles */
};

inline void lay_segments(layout *l, int64_t c)
{
    l->octets = (int)(c / LS_CUDA_LANE);
    int64_t segments = ceil_div(l->octets, SEGMENT), tx = ceil_div(l->octets, segments);
    if (segments > 1 && tx % 2)
        tx++; /* round up to whole 32-byte sectors */
    l->block.x = (unsigned)tx;
    l->grid.x = (unsigned)ceil_div(l->octets, tx);
}

/* Layout of a summing kernel over `rows` rows. A block has `threads` threads, and per_sm blocks fit on a
 * multiprocessor. */
inline layout lay_summing(int64_t c, int64_t rows, int threads, int per_sm)
{
    layout l = {};
    lay_segments(&l, c);
    l.block.y = (unsigned)threads / l.block.x;
    int64_t most = (int64_t)per_sm * multiprocessors() / l.grid.x, wanted = ceil_div(rows, (int64_t)l.block.y * 4);
    int64_t blocks = wanted < most ? wanted : most;
    l.grid.y = (unsigned)(blocks < 1 ? 1 : blocks);
    return l;
}

/* Layout of a mapping kernel. A block handles up to 16 * ty rows, or fewer where 16 * ty would leave multiprocessors
 * idle. `batch` rows are in flight at once. */
inline layout lay_mapping(int64_t c, int64_t rows, int threads, int batch)
{
    layout l = {};
    lay_segments(&l, c);
    l.block.y = (unsigned)threads / l.block.x;
    int64_t groups = ceil_div(rows, l.block.y), enough = (int64_t)multiprocessors() * 6;
    int64_t repeat = groups * l.grid.x / enough;
    repeat = repeat < 1 ? 1 : repeat > 16 ? 16 : repeat;
    if (repeat > batch)
        repeat -= repeat % batch;
    while (ceil_div(groups, repeat) > 65535)
        repeat *= 2;
    l.repeat = (int)repeat;
    l.grid.y = (unsigned)ceil_div(groups, repeat);
    return l;
}

inline size_t sums_bytes(int64_t c)
{
    layout l = {};
    lay_segments(&l, c);
    int64_t most = (int64_t)BLOCKS_PER_SM * multiprocessors();
    int64_t blocks = most > l.grid.x ? most : l.grid.x;
    return LS_CUDA_BN_ZEROS + (size_t)blocks * 16 * l.block.x * sizeof(float);
}

/* gamma * (x - mean) * rstd + beta, with scale = gamma * rstd computed by __fmul_rn. All kernels use this function,
 * so that they get the same bits. */
__device__ __forceinline__ float normalised(float x, float mean, float scale, float beta)
{
    return __fmaf_rn(__fsub_rn(x, mean), scale, beta);
}

/* The normalisation parameters of an octet. `spread` is rstd, or the variance with `inference`. */
struct affine {
    float mean[8], scale[8], beta[8];
};

__device__ __forceinline__ void load_affine(affine &a, int octet, const float *gamma, const float *beta,
                                            const float *mean, const float *spread, bool inference, float eps)
{
    load_floats(mean, octet, a.mean);
    load_floats(beta, octet, a.beta);
    load_floats(gamma, octet, a.scale);
    float rstd[8];
    load_floats(spread, octet, rstd);
#pragma unroll
    for (int i = 0; i < 8; i++)
        a.scale[i] = __fmul_rn(a.scale[i], inference ? 1.0f / sqrtf(rstd[i] + eps) : rstd[i]);
}

/* Parameters of a segment in shared memory. They stay out of the registers, which the loads in flight need. They are
 * stored in pairs: parameter k of octet x of the block, channels 2p and 2p + 1. */
template <int COUNT> struct parameters {
    float2 v[COUNT * 4 * SEGMENT];

    __device__ __forceinline__ void put(int k, int x, const float (&of)[8])
    {
#pragma unroll
        for (int p = 0; p < 4; p++)
            v[(k * 4 + p) * SEGMENT + x] = make_float2(of[2 * p], of[2 * p + 1]);
    }
    /* The load is volatile, so that the compiler does not keep the value in registers. */
    __device__ __forceinline__ float2 get(int k, int x, int p) const
    {
        float2 f;
        unsigned at = (unsigned)__cvta_generic_to_shared(v + (k * 4 + p) * SEGMENT + x);
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(f.x), "=f"(f.y) : "r"(at));
        return f;
    }
};

/* The first three parameters serve both backward passes. The others serve the second pass:
 * dx = scale * dz + slope * x + offset. */
enum { P_MEAN, P_SCALE, P_BETA, P_FIRST, P_SLOPE = P_FIRST, P_OFFSET, P_ALL };

/* `count` is the number of values per channel. All kernels that use this function get the same bits. */
__device__ __forceinline__ void load_second(float (&slope)[8], float (&offset)[8], const affine &a, int octet,
                                            const struct ls_cuda_bn_grad &g, int64_t count)
{
    float rstd[8];
    load_floats(g.rstd, octet, rstd);
    load_floats(g.dgamma, octet, slope);
    load_floats(g.dbeta, octet, offset);
    const float share = count > 0 ? 1 / (float)count : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        slope[i] = -a.scale[i] * rstd[i] * slope[i] * share;
        offset[i] = __fmaf_rn(-slope[i], a.mean[i], -a.scale[i] * offset[i] * share);
    }
}

template <bool SECOND, int COUNT>
__device__ __forceinline__ void put_backward(parameters<COUNT> &params, int x, int octet,
                                             const struct ls_cuda_bn_grad &g, int64_t count)
{
    affine a;
    load_affine(a, octet, g.gamma, g.beta, g.mean, g.rstd, false, 0);
    params.put(P_MEAN, x, a.mean);
    params.put(P_SCALE, x, a.scale);
    params.put(P_BETA, x, a.beta);
    if (!SECOND)
        return;
    float slope[8], offset[8];
    load_second(slope, offset, a, octet, g, count);
    params.put(P_SLOPE, x, slope);
    params.put(P_OFFSET, x, offset);
}

/* Source of the activation's mask. Activations that do not clip have a slope instead, which is computed from x. */
enum mask { MASK_NONE, MASK_Y, MASK_X, MASK_BITS, SLOPE_SILU, SLOPE_HARDSWISH, SLOPE_GELU };

/* The activation of a slope; LS_ACT_NONE for masks. */
constexpr enum ls_act slope_act(mask m)
{
    return m == SLOPE_SILU        ? LS_ACT_SILU
           : m == SLOPE_HARDSWISH ? LS_ACT_HARDSWISH
           : m == SLOPE_GELU      ? LS_ACT_GELU
                                  : LS_ACT_NONE;
}

/* Whether the input of the activation is computed from x. */
constexpr bool reads_z(mask m)
{
    return m == MASK_X || slope_act(m) != LS_ACT_NONE;
}

/* How dy2 is stored. */
enum extra { EXTRA_NONE, EXTRA_DENSE, EXTRA_SPARSE };

/* The rows that a sparse dy2 stores: every stride-th pixel in both directions. */
struct picks {
    divider by_width, by_height, by_stride;
    int width, height; /* of the stored dy2 */
};

inline picks picks_of(const struct ls_cuda_map &m, int stride)
{
    return {divider_of(m.w), divider_of(m.h), divider_of(stride), (int)ceil_div(m.w, stride),
            (int)ceil_div(m.h, stride)};
}

/* The index in dy2 of a row of the map, or -1 where dy2 does not store the row and its value is 0. */
__device__ __forceinline__ int picked(const picks &k, int row)
{
    uint32_t x = (uint32_t)row, y = divide_rest(x, k.by_width);
    const uint32_t n = divide_rest(y, k.by_height), up = divide_rest(y, k.by_stride),
                   left = divide_rest(x, k.by_stride);
    return x | y ? -1 : (int)((n * k.height + up) * k.width + left);
}

/* One row of an octet: the inputs of dz, and x. */
template <typename T, mask MASK, extra DY2> struct terms {
    octet<T> dy, dy2, x, y;
    uint32_t bits;

    /* ONCE: the inputs of dz are not read again. ALL: x is not read again either. */
    template <bool ONCE, bool ALL> __device__ __forceinline__ void read(const struct ls_cuda_bn_grad &g, int64_t at)
    {
        dy = ONCE ? load_once<T>(g.dy, at) : load<T>(g.dy, at);
        read_rest<ONCE, ALL>(g, at);
    }
    template <bool ONCE, bool ALL>
    __device__ __forceinline__ void read_rest(const struct ls_cuda_bn_grad &g, int64_t at)
    {
        x = ALL ? load_once<T>(g.x, at) : load<T>(g.x, at);
        if (DY2 == EXTRA_DENSE)
            dy2 = ONCE ? load_once<T>(g.dy2, at) : load<T>(g.dy2, at);
        if (MASK == MASK_Y)
            y = ONCE ? load_once<T>(g.y, at) : load<T>(g.y, at);
        if (MASK == MASK_BITS)
            bits = ONCE ? __ldcs((const uint8_t *)g.kept + at) : __ldcg((const uint8_t *)g.kept + at);
    }
    /* Reads the value of a sparse dy2 for `row`, the row of index `at`. */
    __device__ __forceinline__ void read_sparse(const struct ls_cuda_bn_grad &g, const picks &k, int row, int64_t at,
                                                int octets)
    {
        const int from = picked(k, row);
        dy2 = from < 0 ? zero_octet<T>() : load_once<T>(g.dy2, at + (int64_t)(from - row) * octets);
    }
    __device__ __forceinline__ void clear()
    {
        dy = dy2 = x = y = zero_octet<T>();
        bits = 0;
    }
    /* dz of channels 2p and 2p + 1. z is the input of the activation, where it reads_z. */
    __device__ __forceinline__ float2 dz(int p, float2 z, float top) const
    {
        float2 d = pair_of<T>(dy, p);
        if (DY2) {
            float2 more = pair_of<T>(dy2, p);
            d.x += more.x;
            d.y += more.y;
        }
        if (MASK == MASK_Y)
            z = pair_of<T>(y, p);
        if constexpr (slope_act(MASK) != LS_ACT_NONE) {
            d.x *= slope_of<slope_act(MASK)>(z.x);
            d.y *= slope_of<slope_act(MASK)>(z.y);
        } else if (MASK == MASK_BITS) {
            d.x = bits & 1u << 2 * p ? d.x : 0;
            d.y = bits & 2u << 2 * p ? d.y : 0;
        } else if (MASK != MASK_NONE) {
            d.x = act_passes(z.x, top) ? d.x : 0;
            d.y = act_passes(z.y, top) ? d.y : 0;
        }
        return d;
    }
};

/* Adds channels 2p and 2p + 1 of a row to the sums of dz and of dz * (x - mean). What reads_z uses scale and beta. With
 * WRITES, dz replaces dy, and the sums use the rounded dz because the second pass reads the rounded value. */
template <typename T, mask MASK, extra DY2, bool WRITES>
__device__ __forceinline__ void add_dz(terms<T, MASK, DY2> &in, int p, float2 mean, float2 scale, float2 beta,
                                       float top, float (&first)[8], float (&second)[8])
{
    const float2 v = pair_of<T>(in.x, p);
    float2 z;
    if (reads_z(MASK))
        z = make_float2(normalised(v.x, mean.x, scale.x, beta.x), normalised(v.y, mean.y, scale.y, beta.y));
    float2 d = in.dz(p, z, top);
    if (WRITES) {
        set_pair<T>(in.dy, p, d);
        d = pair_of<T>(in.dy, p);
    }
    first[2 * p] += d.x;
    first[2 * p + 1] += d.y;
    second[2 * p] = fmaf(d.x, v.x - mean.x, second[2 * p]);
    second[2 * p + 1] = fmaf(d.y, v.y - mean.y, second[2 * p + 1]);
}

/* The same for all channels of several rows. */
template <typename T, mask MASK, extra DY2, bool WRITES, int ROWS, int COUNT>
__device__ __forceinline__ void add_rows(terms<T, MASK, DY2> (&in)[ROWS], const parameters<COUNT> &params, int x,
                                         float top, float (&first)[8], float (&second)[8])
{
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const float2 mean = params.get(P_MEAN, x, p);
        float2 scale, beta;
        if (reads_z(MASK)) {
            scale = params.get(P_SCALE, x, p);
            beta = params.get(P_BETA, x, p);
        }
#pragma unroll
        for (int u = 0; u < ROWS; u++)
            add_dz<T, MASK, DY2, WRITES>(in[u], p, mean, scale, beta, top, first, second);
    }
}

/* Adds `mine` over the whole grid. `mine` has SUMS sums for each channel of the thread's octet. The last block of
 * each segment calls finish(channel, sums) once for each channel. The order of all additions is fixed.
 *
 * All threads of the block call this function. Threads beyond the last octet of the row pass zeros. `room` is shared
 * memory, sums_room<SUMS> bytes for each thread, aligned to 8 bytes. The size of the scratch allows two sums with
 * BLOCKS_PER_SM blocks per multiprocessor, or three sums with half as many blocks. */
template <int SUMS> constexpr int sums_room = 8 * SUMS * sizeof(float);
static constexpr int SUMS_ROOM = sums_room<2>;

template <int SUMS, typename F>
__device__ __forceinline__ void sum_all(const float (&mine)[SUMS][8], int octets, float *scratch, float *room, F finish)
{
    const int tx = blockDim.x, ty = blockDim.y, columns = 8 * SUMS * tx, threads = tx * ty;
    const int t = threadIdx.y * tx + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 8 * SUMS; i++)
        room[(threadIdx.y * 8 * SUMS + i) * tx + threadIdx.x] = mine[i / 8][i % 8];
    __syncthreads();

    /* Sums over the rows of this block: each thread adds every parts-th row of one column, and the parts are added
     * after that. Neither the parts nor the groups below depend on SUMS, so a sum has the same bits whatever the
     * other sums are. */
    const int parts = ty >= 16 ? ty / 16 : 1;
    float *to = scratch + LS_CUDA_BN_ZEROS / sizeof(float) + ((int64_t)blockIdx.x * gridDim.y + blockIdx.y) * columns;
    for (int j = t; j < parts * columns; j += threads) {
        const int part = j / columns, column = j - part * columns;
        float sum = 0;
        for (int r = part; r < ty; r += parts)
            sum += room[r * columns + column];
        room[j] = sum; /* only this thread reads this element */
    }
    __syncthreads();
    for (int j = t; j < columns; j += threads) {
        float sum = room[j];
        for (int p = 1; p < parts; p++)
            sum += room[p * columns + j];
        to[j] = sum;
    }
    if (!last_of((unsigned *)scratch + blockIdx.x, gridDim.y))
        return;

    /* Sums over all blocks: each thread adds four columns of every groups-th block, and the groups are added after
     * that. */
    double *sums = (double *)room;
    const int quads = columns / 4, groups = ty >= 4 ? ty / 4 : 1, blocks = gridDim.y;
    const float4 *all =
        (const float4 *)(scratch + LS_CUDA_BN_ZEROS / sizeof(float) + (int64_t)blockIdx.x * gridDim.y * columns);
    for (int j = t; j < groups * quads; j += threads) {
        const int group = j / quads, step = groups * quads;
        const float4 *from = all + j, *end = all + blocks * quads;
        double sum[4] = {0, 0, 0, 0};
        for (int b = group; b < blocks; b += 8 * groups, from += 8 * step) {
            float4 v[8];
#pragma unroll
            for (int u = 0; u < 8; u++)
                v[u] = from + u * step < end ? __ldcg(from + u * step) : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int u = 0; u < 8; u++) {
                sum[0] += v[u].x;
                sum[1] += v[u].y;
                sum[2] += v[u].z;
                sum[3] += v[u].w;
            }
        }
        for (int i = 0; i < 4; i++)
            sums[j * 4 + i] = sum[i];
    }
    __syncthreads();
    for (int j = t; j < 8 * tx; j += threads) {
        int octet = blockIdx.x * tx + j % tx;
        double of[SUMS] = {};
        for (int g = 0; g < groups; g++)
#pragma unroll
            for (int k = 0; k < SUMS; k++)
                of[k] += sums[g * columns + k * 8 * tx + j];
        if (octet < octets)
            finish(octet * 8 + j / tx, of);
    }
}

/* The same for two sums; calls finish(channel, first sum, second sum). */
template <typename F>
__device__ __forceinline__ void sum_rows(const float (&first)[8], const float (&second)[8], int octets, float *scratch,
                                         float *room, F finish)
{
    float both[2][8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        both[0][i] = first[i];
        both[1][i] = second[i];
    }
    sum_all<2>(both, octets, scratch, room, [&](int channel, const double(&of)[2]) { finish(channel, of[0], of[1]); });
}

/* Defined in bn_pool.cu and bn_pool_bwd.cu, for batch normalisation with a pooling. fast_pool returns the window
 * size, 2 or 3, where the fast kernels support the pooling, else 0. Only the fast kernels store the x of each
 * maximum. */
int fast_pool(const struct ls_cuda_bn *b, bool residual);
void pool_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual, const float *gamma,
                const float *beta, const float *mean, const float *spread, bool inference, void *y, uint8_t *index,
                void *kept);
void pool_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
              const struct ls_cuda_bn_grad *g);

/* Defined in bn_small.cu: both passes of forward, or of backward, in one launch, for small maps. With a pooling,
 * forward does not store the x of the maxima. */
bool small_enough(const struct ls_cuda_bn *b, bool residual);
void small_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *x,
                 const void *residual, const float *gamma, const float *beta, float *mean, float *rstd, float *stat,
                 void *y, uint8_t *index, void *kept);
void small_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
               const struct ls_cuda_bn_grad *g);

/* Defined in bn_bwd.cu: the first backward pass alone, over a map y of pooled values. g->kept holds the x of each
 * maximum on entry and dz on return. */
void pooled_sums(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                 const struct ls_cuda_bn_grad *g);

} // namespace ls_bn

#endif
