/* A 1x1 convolution and the batch normalisation behind it, of whose statistics and gradients most follow from the input of the
 * convolution alone: x = a * w' is linear. With G = a' * a (n x n) and s, the sums of a, forward, before there is an x:
 *
 *   mean of x     = w * mean of a
 *   variance of x = row by row, w * (G / rows - mean of a * its transpose) * w'
 *
 * so the product can normalise x where it stands in shared memory, and x is never stored. Backward, with P = dz' * a (k x n),
 * scale = gamma * rstd and slope = -scale * rstd * dgamma / rows:
 *
 *   dgamma = rstd * (row by row, the sum of w * P, minus mean * dbeta)
 *   dw     = scale * (P - dbeta * mean of a) + slope * w * (G - s * mean of a)
 *   da     = dx * w = (dz - mean of dz) * (scale * w) + (a - mean of a) * (w' * slope * w)
 *
 * The last one is a product of the maps dz and a, side by side, with k + n rows of weights, which product_wgmma.cu computes:
 * the normalisation is folded into the weights. So neither x is read nor dx written, each four times as large as a in a ResNet.
 *
 *   gather           P, or G and s, of some of the rows for each block, by tensor cores that read both operands from boxes
 *   collect_gram     adds what the blocks gathered of G and s
 *   collect          the same of P; dgamma; scale * w
 *   finish           dw; w' * slope * w; and what the means take off da
 *   statistics_of    mean and variance of x
 *
 * The means of da are those of the rounded weights, so that the sum over the rows of each of its columns is 0 but for its own
 * rounding. All sums have a fixed order. */
#include "backend/cuda/kernels/conv/product_wgmma.cuh"
#include "backend/cuda/kernels/conv/wgmma.cuh"

using namespace ls_wgmma;
using namespace ls_product;

namespace
{

using T = __nv_bfloat16; /* scale * w may be too large for f16, and w' * slope * w too small */

constexpr int SLICE = HIGH * BOX_ROW, GROUPS = 2, GATHER = GROUPS * GROUP, MOST_RING = 12;
constexpr int BLOCKS = 4;                 /* of 64 rows of P or G, for a block of threads */
constexpr int FINISH = 512, CHANNELS = 8; /* threads of a block of finish; channels of dw for each */

int wide_of(int64_t n)
{
    return n > 64 ? 128 : 64;
}

/* Blocks that gather k rows: over P or G, and over the rows of the maps. */
struct spread {
    int64_t across, down;
};

spread spread_of(const struct ls_cuda_fold *f, int64_t k)
{
    spread s = {ceil_div(k, 64 * BLOCKS) * (f->n / wide_of(f->n)), 0};
    const int64_t most = multiprocessors() / s.across, tiles = ceil_div(f->rows, HIGH);
    s.down = tiles < most ? tiles : most < 1 ? 1 : most;
    return s;
}

/* What a fold leaves in its scratch, in floats. */
struct places {
    int64_t parts, scale, slope, mean, shift, weights, end;
};

places places_of(const struct ls_cuda_fold *f)
{
    const int64_t k = f->k, n = f->n, of_p = spread_of(f, k).down * k * n, of_g = spread_of(f, n).down * (n + 1) * n;
    places p = {};
    p.scale = of_p > of_g ? of_p : of_g;
    p.slope = p.scale + k;
    p.mean = p.slope + k;
    p.shift = p.mean + k;
    p.weights = p.shift + n;
    p.end = p.weights + (k + n) * n / 2;
    return p;
}

/* --- gather ---------------------------------------------------------------------------------------------------- */

struct task {
    int rows, k, n, ring,
        stage; /* stage: bytes of a slot of the ring: boxes of a, and behind them those of the first map */
    bool own;  /* G: the first map is a, too */
    int64_t area;
    const struct ls_cuda_run *run;
    float *parts;
};

/* Rows from `live` on become 0. */
template <int BOXES> __device__ __forceinline__ void clear_rows(char *boxes, int t, int live)
{
    for (int q = t; q < BOXES * HIGH * 8; q += GATHER)
        if (q / 8 % HIGH >= live)
            ((uint4 *)boxes)[q] = make_uint4(0, 0, 0, 0);
}

/* Adds the thread's rows of a's boxes. */
template <int BOXES> __device__ __forceinline__ void add_boxes(const char *boxes, int t, float (&sum)[BOXES][8])
{
#pragma unroll
    for (int b = 0; b < BOXES; b++)
#pragma unroll
        for (int u = 0; u < HIGH * 8 / GATHER; u++) {
            octet<T> o;
            float v[8];
            o.word[0] = *(const uint4 *)(boxes + b * SLICE + unit_at(t / 8 + u * GATHER / 8, t % 8, 8));
            widen<T>(o, v);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[b][i] += v[i];
        }
}

/* The warpgroups share the boxes and divide the rows of P, EACH blocks of 64 for each. */
template <int WIDE, int EACH>
__global__ void __launch_bounds__(GATHER, 1)
    gather(const __grid_constant__ CUtensorMap first_map, const __grid_constant__ CUtensorMap a_map, task m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ uint64_t barriers[MOST_RING];
    constexpr int BOXES = WIDE / 64, HELD = WIDE / 2;
    const int t = threadIdx.x, group = t / GROUP, valid = (int)(m.run->valid * m.area);
    const int columns = m.n / WIDE, column = blockIdx.x % columns, before = blockIdx.x / columns * BLOCKS;
    const int blocks = min(BLOCKS, m.k / 64 - before);
    const bool sums = m.own && before == 0;
    /* Is block b of the first map among the columns of a that are fetched? */
    auto is_column = [&](int b) { return m.own && (before + b) / BOXES == column; };
    int boxes = BOXES;
    for (int b = 0; b < blocks; b++)
        boxes += !is_column(b);

    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), ring = (start + 1023) & ~1023u;
    const uint32_t there = (uint32_t)__cvta_generic_to_shared(barriers);
    if (t == 0) {
        for (int i = 0; i < MOST_RING; i++)
            barrier_init(there + i * 8);
        barriers_ready();
    }
    __syncthreads();

    const int tiles = (m.rows + HIGH - 1) / HIGH, workers = (int)gridDim.y;
    const int mine = (int)blockIdx.y < tiles ? (tiles - 1 - (int)blockIdx.y) / workers + 1 : 0;
    int next = blockIdx.y * HIGH, left = mine;
    auto fetch_next = [&](int at) {
        if (t != 0 || left == 0)
            return;
        const uint32_t stage = ring + at * m.stage, barrier = there + at * 8;
        barrier_expect(barrier, boxes * SLICE);
        for (int b = 0; b < BOXES; b++)
            copy_box(stage + b * SLICE, a_map, (column * BOXES + b) * BOX_COLUMNS, next, barrier);
        for (int b = 0; b < blocks; b++)
            if (!is_column(b))
                copy_box(stage + (BOXES + b) * SLICE, first_map, (before + b) * BOX_COLUMNS, next, barrier);
        left--;
        next += workers * HIGH;
    };
    for (int s = 0; s < m.ring; s++)
        fetch_next(s);

    float product[EACH][HELD], sum[BOXES][8] = {};
#pragma unroll
    for (int i = 0; i < EACH * HELD; i++)
        product[i / HELD][i % HELD] = 0;
    int at = 0, first = blockIdx.y * HIGH;
    uint32_t parity = 0;
#pragma unroll 1
    for (int done = 0; done < mine; done++, first += workers * HIGH) {
        const uint32_t a = ring + at * m.stage;
        char *const of_a = room + (a - start);
        barrier_wait(there + at * 8, parity);
        if (first + HIGH > valid) {
            clear_rows<BOXES>(of_a, t, valid - first);
            written();
            __syncthreads();
        }
        products_begin();
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int b = group * EACH + e;
            const bool column_of_a = b >= blocks || is_column(b); /* also where there is no such block */
            const uint32_t from = a + (column_of_a ? (before + b) % BOXES : BOXES + b) * SLICE;
#pragma unroll
            for (int part = 0; part < HIGH / 16; part++)
                multiply<T, WIDE, true, true>(product[e], matrix_at(from + part * 16 * BOX_ROW, SLICE),
                                              matrix_at(a + part * 16 * BOX_ROW, SLICE), 1);
        }
        products_commit();
        if (sums)
            add_boxes<BOXES>(of_a, t, sum);
        products_wait<0>();
        __syncthreads();
        fetch_next(at);
        if (++at == m.ring) {
            at = 0;
            parity ^= 1;
        }
    }

    float *const to = m.parts + (int64_t)blockIdx.y * (m.k + m.own) * m.n + column * WIDE;
    const int row = t / 32 % 4 * 16 + t % 32 / 4;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (group * EACH + e < blocks)
#pragma unroll
            for (int i = 0; i < HELD; i += 2) {
                const int at_row = (before + group * EACH + e) * 64 + row + i / 2 % 2 * 8;
                *(float2 *)(to + (int64_t)at_row * m.n + i / 4 * 8 + t % 4 * 2) =
                    make_float2(product[e][i], product[e][i + 1]);
            }
    if (!sums)
        return;
    float *const held = (float *)(room + (ring - start));
#pragma unroll
    for (int i = 0; i < BOXES * 8; i++)
        held[t / 8 * WIDE + i / 8 * 64 + t % 8 * 8 + i % 8] = sum[i / 8][i % 8];
    __syncthreads();
    if (t < WIDE) {
        float all = 0;
        for (int r = 0; r < GATHER / 8; r++)
            all += held[r * WIDE + t];
        to[(int64_t)m.k * m.n + t] = all;
    }
#endif
}

/* `k` columns of `from`, by those of a. */
template <int WIDE>
void launch_gather(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run, const void *from,
                   int64_t k)
{
    constexpr int ROOM = 216 * 1024, BOXES = WIDE / 64;
    const bool own = from == f->a, columns = own && k == WIDE; /* columns: nothing of the first map is fetched */
    const int stage = (columns ? BOXES : BLOCKS + BOXES) * SLICE, ring = ROOM / stage;
    const spread of = spread_of(f, k);
    const task m = {(int)f->rows, (int)k,  (int)f->n, ring < MOST_RING ? ring : MOST_RING, stage,
                    own,          f->area, run,       f->scratch + places_of(f).parts};
    CUtensorMap first_map, a_map;
    static_assert(ROOM / ((BLOCKS + BOXES) * SLICE) >= 3 && MOST_RING * BOXES * SLICE >= GATHER / 8 * WIDE * 4,
                  "boxes");
    if (!box_map(&first_map, LS_BF16, from, f->rows, k, HIGH) || !box_map(&a_map, LS_BF16, f->a, f->rows, f->n, HIGH))
        return;
    const size_t room = 1024 + (size_t)m.ring * (size_t)stage;
    const auto kernel = k <= GROUPS * 64 ? gather<WIDE, 1> : gather<WIDE, BLOCKS / GROUPS>;
    want_shared(kernel, room);
    kernel<<<dim3((unsigned)of.across, (unsigned)of.down), GATHER, room, s>>>(first_map, a_map, m);
}

void gather_columns(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run, const void *from,
                    int64_t k)
{
    (f->n > 64 ? launch_gather<128> : launch_gather<64>)(s, f, run, from, k);
}

/* --- collect, finish ------------------------------------------------------------------------------------------- */

struct outputs {
    const float *gram, *sums;
    float *scale, *slope, *mean, *shift; /* mean: of dz */
    T *weights;
};

/* Element j of row `row` of what the blocks gathered, in the threads whose index modulo n is j. All threads of the block call
 * it; each adds every step-th part. `held`: a value for each thread. */
__device__ __forceinline__ double collected(const float *parts, int row, int down, int64_t further, int n, double *held)
{
    const int t = threadIdx.x, j = t % n, step = (int)blockDim.x / n;
    const float *from = parts + (int64_t)row * n + j;
    double v = 0;
    for (int y = t / n; y < down; y += 8 * step) {
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
    return v;
}

/* A block for each row of G, and one for s, which lies behind it. */
__global__ void __launch_bounds__(256) collect_gram(const float *parts, int down, int n, float *gram)
{
    __shared__ double held[256];
    const double v = collected(parts, blockIdx.x, down, (int64_t)(n + 1) * n, n, held);
    if ((int)threadIdx.x < n)
        gram[(int64_t)blockIdx.x * n + threadIdx.x] = (float)v;
}

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

/* A block for each row of P. */
__global__ void __launch_bounds__(256)
    collect(struct ls_cuda_fold f, const struct ls_cuda_run *run, const float *parts, int down, outputs o)
{
    __shared__ double held[256];
    __shared__ float room[8];
    const int n = (int)f.n, row = blockIdx.x, t = threadIdx.x, j = t % n, part = t / n;
    const double v = collected(parts, row, down, f.k * n, n, held);
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

/* The centred G, divided by the number of rows. */
__device__ __forceinline__ float covariance(const float *gram, const float *sums, int n, int row, int column,
                                            float share)
{
    return (
        float)(((double)gram[(int64_t)row * n + column] - (double)sums[row] * (double)sums[column] * (double)share) *
               (double)share);
}

/* Mean and variance of CHANNELS channels of x. */
__global__ void __launch_bounds__(FINISH) statistics_of(struct ls_cuda_fold f, const struct ls_cuda_run *run, float eps,
                                                        float *mean, float *rstd, float *stat)
{
    __shared__ float held[CHANNELS * FINISH];
    __shared__ float room[FINISH / 32];
    const int n = (int)f.n, t = threadIdx.x, i = t % n, step = FINISH / n, first = blockIdx.x * CHANNELS;
    const int64_t count = run->valid * f.area;
    const float share = count > 0 ? 1 / (float)count : 0;
    const float *const sums = f.gram + (int64_t)n * n;
    const T *w = (const T *)f.half;
    float sum[CHANNELS] = {};
#pragma unroll 4
    for (int r = t / n; r < n; r += step) {
        const float v = covariance(f.gram, sums, n, r, i, share);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            sum[c] = fmaf(__bfloat162float(w[(int64_t)(first + c) * n + r]), v, sum[c]);
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
        held[c * FINISH + t] = sum[c];
    __syncthreads();
    for (int c = 0; c < CHANNELS; c++) {
        float v = 0, centre = 0;
        if (t < n) {
            const float of_w = __bfloat162float(w[(int64_t)(first + c) * n + i]);
            for (int p = 0; p < step; p++)
                v += held[c * FINISH + p * n + i];
            v *= of_w;
            centre = of_w * sums[i] * share;
        }
        v = sum_of_block(v, room);
        centre = sum_of_block(centre, room);
        if (t == 0) {
            const double variance = v > 0 || v != v ? v : 0, rows = (double)count;
            mean[first + c] = centre;
            rstd[first + c] = (float)(1 / sqrt(variance + (double)eps));
            stat[first + c] = run->stat_weight * centre;
            stat[f.k + first + c] = (float)((double)run->stat_weight * variance * (count > 1 ? rows / (rows - 1) : 1));
        }
    }
}

outputs outputs_of(const struct ls_cuda_fold *f)
{
    const places p = places_of(f);
    float *const s = f->scratch;
    return {f->gram, f->gram + f->n * f->n, s + p.scale, s + p.slope, s + p.mean, s + p.shift, (T *)(s + p.weights)};
}

} // namespace

bool ls_cuda_fold_can(const struct ls_cuda_fold *f, const struct ls_cuda_bn *b)
{
    return b->t == LS_BF16 && (f->n == 64 || f->n % 128 == 0) && f->n <= 256 && f->k % 64 == 0 && f->rows < INT32_MAX &&
           wgmma_can_fold(f, b);
}

size_t ls_cuda_fold_scratch(const struct ls_cuda_fold *f)
{
    return (size_t)places_of(f).end * sizeof(float);
}

size_t ls_cuda_fold_gram(const struct ls_cuda_fold *f)
{
    return (size_t)((f->n + 1) * f->n) * sizeof(float);
}

void ls_cuda_fold_sums(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run)
{
    gather_columns(s, f, run, f->a, f->n);
    collect_gram<<<dim3((unsigned)f->n + 1), dim3(256), 0, s>>>(f->scratch + places_of(f).parts,
                                                                spread_of(f, f->n).down, f->n, f->gram);
}

void ls_cuda_fold_stats(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run, float eps,
                        float *mean, float *rstd, float *stat)
{
    statistics_of<<<dim3((unsigned)(f->k / CHANNELS)), dim3(FINISH), 0, s>>>(*f, run, eps, mean, rstd, stat);
}

void ls_cuda_fold_apply(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                        const struct ls_cuda_run *run, const struct ls_cuda_mapped *m)
{
    wgmma_apply(s, f, b, run, m);
}

void ls_cuda_fold(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_run *run)
{
    const outputs o = outputs_of(f);
    gather_columns(s, f, run, f->dz, f->k);
    collect<<<dim3((unsigned)f->k), dim3(256), 0, s>>>(*f, run, f->scratch + places_of(f).parts,
                                                       spread_of(f, f->k).down, o);
    finish<<<dim3((unsigned)(f->n + f->k / CHANNELS)), dim3(FINISH), 0, s>>>(*f, run, o);
}

void ls_cuda_fold_product(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                          const struct ls_cuda_run *run, const struct ls_cuda_bn_grad *g, void *da)
{
    const outputs o = outputs_of(f);
    wgmma_folded(s, f, b, run, o.weights, o.shift, g, da);
}
