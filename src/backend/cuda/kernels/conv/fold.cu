/* The gradients of a 1x1 convolution and of the batch normalisation behind it, without that normalisation's x.
 *
 * x = a * w' is linear in the map a that the convolution reads, so all that the gradient takes from x follows from two products
 * of a: P = dz' * a (k x n) and G = a' * a (n x n), and from s, the sums of a. With scale, slope and the means over the rows:
 *
 *   dgamma = rstd * (row by row, the sum of w * P, minus mean * dbeta)
 *   dw     = scale * (P - dbeta * mean of a) + slope * w * (G - s * mean of a)
 *   da     = dx * w = (dz - mean of dz) * (scale * w) + (a - mean of a) * (w' * slope * w)
 *
 * The last one is a product of the maps dz and a, side by side, with k + n rows of weights, which product_wgmma.cu computes:
 * the normalisation is folded into the weights. So neither x is read nor dx written, each four times as large as a in a ResNet.
 *
 *   gather    P, G and s of some of the rows for each block, by tensor cores that read both operands from the same boxes
 *   collect   adds what the blocks gathered; dgamma; scale * w
 *   finish    dw; w' * slope * w; and what the means take off da
 *
 * The means are those of the rounded weights, so that the sum over the rows of each column of da is 0 but for the rounding of
 * da. All sums have a fixed order. */
#include "backend/cuda/kernels/conv/product_wgmma.cuh"
#include "backend/cuda/kernels/conv/wgmma.cuh"

using namespace ls_wgmma;
using namespace ls_product;

namespace
{

using T = __nv_bfloat16; /* scale * w may be too large for f16, and w' * slope * w too small */

constexpr int SLICE = HIGH * BOX_ROW, GROUPS = 2, MOST_RING = 8;
constexpr int FINISH = 512, CHANNELS = 8; /* threads of a block of finish; channels of dw for each */

/* What a fold leaves in its scratch, in floats. */
struct places {
    int64_t parts, gram, sums, scale, slope, mean, shift, weights, end;
};

struct shape {
    int k, n, wide, blocks; /* columns of a, and blocks of 64 rows of P and G, for each block of threads */
    int across, down;       /* blocks of threads: over P and G; over the rows of the maps */
};

shape shape_of(const struct ls_cuda_fold *f)
{
    shape s = {(int)f->k, (int)f->n, (int)f->n, f->n > 64 ? 2 : 5, 0, 0};
    s.across = (int)ceil_div((f->k + f->n) / 64, s.blocks);
    const int64_t most = multiprocessors() / s.across, tiles = ceil_div(f->rows, HIGH * GROUPS);
    s.down = (int)(tiles < most ? tiles : most < 1 ? 1 : most);
    return s;
}

places places_of(const struct ls_cuda_fold *f)
{
    const shape s = shape_of(f);
    const int64_t k = f->k, n = f->n;
    places p = {};
    p.gram = (int64_t)s.down * (k + n + 1) * n;
    p.sums = p.gram + n * n;
    p.scale = p.sums + n;
    p.slope = p.scale + k;
    p.mean = p.slope + k;
    p.shift = p.mean + k;
    p.weights = p.shift + n;
    p.end = p.weights + (k + n) * n / 2;
    return p;
}

/* --- gather ---------------------------------------------------------------------------------------------------- */

struct task {
    int rows, k, n, ring;
    int64_t area;
    const struct ls_cuda_run *run;
    float *parts;
};

/* Rows from `live` on become 0. */
template <int BOXES> __device__ __forceinline__ void clear_rows(char *boxes, int t, int live)
{
    for (int q = t; q < BOXES * HIGH * 8; q += GROUP)
        if (q / 8 % HIGH >= live)
            ((uint4 *)boxes)[q] = make_uint4(0, 0, 0, 0);
}

/* Adds the thread's rows of a's boxes. */
template <int BOXES> __device__ __forceinline__ void add_boxes(const char *boxes, int t, float (&sum)[BOXES][8])
{
#pragma unroll
    for (int b = 0; b < BOXES; b++)
#pragma unroll
        for (int u = 0; u < 4; u++) {
            octet<T> o;
            float v[8];
            o.word[0] = *(const uint4 *)(boxes + b * SLICE + unit_at(t / 8 + u * 16, t % 8, 8));
            widen<T>(o, v);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[b][i] += v[i];
        }
}

template <int BLOCKS, int WIDE>
__global__ void __launch_bounds__(GROUPS *GROUP, 1)
    gather(const __grid_constant__ CUtensorMap dz_map, const __grid_constant__ CUtensorMap a_map, task m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ uint64_t barriers[GROUPS * MOST_RING];
    constexpr int BOXES = WIDE / 64, STAGE = (BLOCKS + BOXES) * SLICE, HELD = WIDE / 2;
    const int t = threadIdx.x % GROUP, group = threadIdx.x / GROUP, valid = (int)(m.run->valid * m.area);
    const int before = blockIdx.x * BLOCKS, of_dz = m.k / 64, total = of_dz + m.n / 64;
    const int fetched = max(0, min(BLOCKS, of_dz - before)); /* blocks of dz; the others are of a */

    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), rings = (start + 1023) & ~1023u;
    const uint32_t ring = rings + group * m.ring * STAGE;
    const uint32_t there = (uint32_t)__cvta_generic_to_shared(barriers) + group * MOST_RING * 8;
    if (threadIdx.x == 0) {
        for (int i = 0; i < GROUPS * MOST_RING; i++)
            barrier_init((uint32_t)__cvta_generic_to_shared(barriers) + i * 8);
        barriers_ready();
    }
    __syncthreads();

    const int tiles = (m.rows + HIGH - 1) / HIGH, workers = (int)gridDim.y * GROUPS;
    const int worker = (int)blockIdx.y * GROUPS + group;
    const int mine = worker < tiles ? (tiles - 1 - worker) / workers + 1 : 0;
    int next = worker * HIGH, left = mine;
    auto fetch_next = [&](int at) {
        if (t != 0 || left == 0)
            return;
        barrier_expect(there + at * 8, (fetched + BOXES) * SLICE);
        for (int b = 0; b < fetched; b++)
            copy_box(ring + at * STAGE + b * SLICE, dz_map, (before + b) * BOX_COLUMNS, next, there + at * 8);
        for (int b = 0; b < BOXES; b++)
            copy_box(ring + at * STAGE + (BLOCKS + b) * SLICE, a_map, b * BOX_COLUMNS, next, there + at * 8);
        left--;
        next += workers * HIGH;
    };
    for (int s = 0; s < m.ring; s++)
        fetch_next(s);

    float product[BLOCKS][HELD], sum[BOXES][8] = {};
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < HELD; i++)
            product[b][i] = 0;
    int at = 0, first = worker * HIGH;
    uint32_t parity = 0;
#pragma unroll 1
    for (int done = 0; done < mine; done++, first += workers * HIGH) {
        const uint32_t stage = ring + at * STAGE, a = stage + BLOCKS * SLICE;
        char *const of_a = room + (a - start);
        barrier_wait(there + at * 8, parity);
        if (first + HIGH > valid) {
            clear_rows<BOXES>(of_a, t, valid - first);
            written();
            group_sync(group);
        }
        products_begin();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const uint32_t from =
                b < fetched ? stage + b * SLICE : a + (before + b < total ? before + b - of_dz : 0) * SLICE;
#pragma unroll
            for (int part = 0; part < HIGH / 16; part++)
                multiply<T, WIDE, true, true>(product[b], matrix_at(from + part * 16 * BOX_ROW, SLICE),
                                              matrix_at(a + part * 16 * BOX_ROW, SLICE), 1);
        }
        products_commit();
        if (blockIdx.x == 0)
            add_boxes<BOXES>(of_a, t, sum);
        products_wait<0>();
        group_sync(group);
        fetch_next(at);
        if (++at == m.ring) {
            at = 0;
            parity ^= 1;
        }
    }

    /* The second warpgroup hands its sums to the first. */
    __syncthreads();
    float *const held = (float *)(room + (rings - start)), *const of_sums = held + BLOCKS * HELD * GROUP;
    if (group == 1)
#pragma unroll
        for (int i = 0; i < BLOCKS * HELD; i++)
            held[i * GROUP + t] = product[i / HELD][i % HELD];
    if (blockIdx.x == 0)
#pragma unroll
        for (int i = 0; i < BOXES * 8; i++)
            of_sums[(group * 16 + t / 8) * WIDE + i / 8 * 64 + t % 8 * 8 + i % 8] = sum[i / 8][i % 8];
    __syncthreads();
    float *const to = m.parts + (int64_t)blockIdx.y * (m.k + m.n + 1) * m.n;
    const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    if (group == 0) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            if (before + b < total)
#pragma unroll
                for (int i = 0; i < HELD; i += 2) {
                    const int at_row = (before + b) * 64 + row + i / 2 % 2 * 8, at_column = i / 4 * 8 + column;
                    const float2 v = make_float2(product[b][i] + held[(b * HELD + i) * GROUP + t],
                                                 product[b][i + 1] + held[(b * HELD + i + 1) * GROUP + t]);
                    *(float2 *)(to + (int64_t)at_row * m.n + at_column) = v;
                }
    } else if (blockIdx.x == 0 && t < WIDE) {
        float all = 0;
        for (int r = 0; r < GROUPS * 16; r++)
            all += of_sums[r * WIDE + t];
        to[(int64_t)(m.k + m.n) * m.n + t] = all;
    }
#endif
}

template <int BLOCKS, int WIDE>
void launch_gather(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run, const shape &of)
{
    constexpr int STAGE = (BLOCKS + WIDE / 64) * SLICE, RING = 216 * 1024 / (GROUPS * STAGE);
    const task m = {(int)f->rows, of.k, of.n, RING, f->area, run, f->scratch + places_of(f).parts};
    CUtensorMap dz_map, a_map;
    static_assert(RING >= 2 && RING <= MOST_RING, "boxes");
    static_assert(GROUPS * RING * STAGE >= (BLOCKS * WIDE / 2 * GROUP + GROUPS * 16 * WIDE) * 4, "room for the sums");
    if (!box_map(&dz_map, LS_BF16, f->dz, f->rows, f->k, HIGH) || !box_map(&a_map, LS_BF16, f->a, f->rows, f->n, HIGH))
        return;
    const size_t room = 1024 + (size_t)GROUPS * RING * STAGE;
    want_shared(gather<BLOCKS, WIDE>, room);
    gather<BLOCKS, WIDE><<<dim3((unsigned)of.across, (unsigned)of.down), GROUPS * GROUP, room, s>>>(dz_map, a_map, m);
}

/* --- collect, finish ------------------------------------------------------------------------------------------- */

struct outputs {
    float *gram, *sums, *scale, *slope, *mean, *shift; /* mean: of dz */
    T *weights;
};

/* The sum over the block, in every thread. `room`: a value for each warp. */
__device__ __forceinline__ float sum_of_block(float v, float *room)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, other);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    __syncthreads();
    float all = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++)
        all += room[w];
    return all;
}

/* A block for each row of P, of G, and of s. */
__global__ void __launch_bounds__(256)
    collect(struct ls_cuda_fold f, const struct ls_cuda_run *run, const float *parts, int down, outputs o)
{
    __shared__ double held[256];
    __shared__ float room[8];
    const int k = (int)f.k, n = (int)f.n, row = blockIdx.x, t = threadIdx.x, j = t % n, part = t / n, step = 256 / n;
    const int64_t further = (int64_t)(k + n + 1) * n;
    const float *from = parts + (int64_t)row * n + j;
    double v = 0;
    for (int y = part; y < down; y += 8 * step) {
        float in[8];
#pragma unroll
        for (int u = 0; u < 8; u++)
            in[u] = y + u * step < down ? __ldcg(from + (y + u * step) * further) : 0;
#pragma unroll
        for (int u = 0; u < 8; u++)
            v += in[u];
    }
    held[t] = v;
    __syncthreads();
    v = held[j];
    for (int p = 1; p < step; p++)
        v += held[p * n + j];
    if (row >= k) {
        if (part == 0)
            (row < k + n ? o.gram + (int64_t)(row - k) * n : o.sums)[j] = (float)v;
        return;
    }
    const int64_t at = (int64_t)row * n + j;
    const float rstd = f.rstd[row], dbeta = f.dbeta[row], scale = __fmul_rn(f.gamma[row], rstd);
    const int64_t count = run->valid * f.area;
    const float share = count > 0 ? 1 / (float)count : 0;
    const float dot =
        sum_of_block(part == 0 ? (float)(v * (double)__bfloat162float(((const T *)f.half)[at])) : 0, room);
    const float dgamma = rstd * (dot - f.mean[row] * dbeta);
    if (t == 0) {
        f.dgamma[row] = dgamma;
        if (f.dbeta_too)
            f.dbeta_too[row] = dbeta;
        o.scale[row] = scale;
        o.slope[row] = -scale * rstd * dgamma * share;
        o.mean[row] = dbeta * share;
    }
    if (part == 0) {
        f.dw[at] = (float)v;
        o.weights[at] = __float2bfloat16_rn(scale * f.w[at]);
    }
}

/* Blocks before n have a column of w' * slope * w and of what the means take off; the others, CHANNELS rows of dw. */
__global__ void __launch_bounds__(FINISH) finish(struct ls_cuda_fold f, const struct ls_cuda_run *run, outputs o)
{
    __shared__ float held[CHANNELS * FINISH];
    __shared__ float room[FINISH / 32];
    const int k = (int)f.k, n = (int)f.n, t = threadIdx.x, i = t % n, part = t / n, step = FINISH / n;
    const int64_t count = run->valid * f.area;
    const float share = count > 0 ? 1 / (float)count : 0;
    const T *w = (const T *)f.half;
    if ((int)blockIdx.x < n) {
        const int j = blockIdx.x;
        float v = 0, off = 0;
#pragma unroll 8
        for (int c = part; c < k; c += step)
            v = fmaf(o.slope[c] * __bfloat162float(w[(int64_t)c * n + j]), __bfloat162float(w[(int64_t)c * n + i]), v);
        held[t] = v;
        __syncthreads();
        if (part == 0) {
            for (int p = 1; p < step; p++)
                v += held[p * n + i];
            const T rounded = __float2bfloat16_rn(v);
            o.weights[(int64_t)(k + i) * n + j] = rounded;
            off = share * o.sums[i] * __bfloat162float(rounded);
        }
        for (int c = t; c < k; c += FINISH)
            off = fmaf(o.mean[c], __bfloat162float(o.weights[(int64_t)c * n + j]), off);
        off = sum_of_block(off, room);
        if (t == 0)
            o.shift[j] = -off;
        return;
    }
    const int first = ((int)blockIdx.x - n) * CHANNELS;
    const double of_column = (double)o.sums[i] * (double)share;
    float sum[CHANNELS] = {};
#pragma unroll 4
    for (int r = part; r < n; r += step) {
        const float centred = (float)((double)o.gram[(int64_t)r * n + i] - (double)o.sums[r] * of_column);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            sum[c] = fmaf(__bfloat162float(w[(int64_t)(first + c) * n + r]), centred, sum[c]);
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
        held[c * FINISH + t] = sum[c];
    __syncthreads();
    for (int q = t; q < CHANNELS * n; q += FINISH) {
        const int c = q / n, column = q % n, channel = first + c;
        float v = 0;
        for (int p = 0; p < step; p++)
            v += held[c * FINISH + p * n + column];
        float *const dw = f.dw + (int64_t)channel * n + column;
        *dw = fmaf(o.slope[channel], v, o.scale[channel] * (*dw - o.mean[channel] * o.sums[column]));
    }
}

outputs outputs_of(const struct ls_cuda_fold *f)
{
    const places p = places_of(f);
    float *const s = f->scratch;
    return {s + p.gram, s + p.sums, s + p.scale, s + p.slope, s + p.mean, s + p.shift, (T *)(s + p.weights)};
}

} // namespace

bool ls_cuda_fold_can(const struct ls_cuda_fold *f, const struct ls_cuda_bn *b)
{
    return b->t == LS_BF16 && (f->n == 64 || f->n == 128) && f->k % 64 == 0 && f->rows < INT32_MAX &&
           wgmma_can_fold(f, b);
}

size_t ls_cuda_fold_scratch(const struct ls_cuda_fold *f)
{
    return (size_t)places_of(f).end * sizeof(float);
}

void ls_cuda_fold(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run)
{
    const shape of = shape_of(f);
    const outputs o = outputs_of(f);
    if (f->n > 64)
        launch_gather<2, 128>(s, f, run, of);
    else
        launch_gather<5, 64>(s, f, run, of);
    collect<<<(unsigned)(f->k + f->n + 1), 256, 0, s>>>(*f, run, f->scratch + places_of(f).parts, of.down, o);
    finish<<<(unsigned)(f->n + f->k / CHANNELS), FINISH, 0, s>>>(*f, run, o);
}

void ls_cuda_fold_product(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const struct ls_cuda_bn_grad *g, void *da)
{
    const outputs o = outputs_of(f);
    wgmma_folded(s, f, b, run, o.weights, o.shift, g, da);
}
