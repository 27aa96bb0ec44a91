/* The update kernels of muon. optim/muon.c has the formula. All filters of a list go through each kernel together, up to
 * MOST of them in a launch: the momenta and squares of each block, norms, --muon-steps iterations of three products on
 * tensor cores, the step. Products are of bf16 numbers, with sums in f32 and in a fixed order.
 *
 * The matrix of a tensor is stored with its shorter side as rows. Its padding is 0 and stays 0. */
#include "backend/cuda/kernels/update.cuh"

#include <mma.h>

using namespace ls_device;
using namespace nvcuda;

#define MOST 24  /* tensors of a launch; their descriptions are arguments of the kernel */
#define TILE 64  /* rows and columns of a product that one block computes */
#define DEPTH 64 /* columns of its operands in shared memory at a time */
#define GEMM_THREADS 128
#define PITCH (DEPTH + 8) /* of a row in shared memory, so that rows begin in different banks */

typedef __nv_bfloat16 bf16;

/* One tensor. x, y: rows x columns; a, b: rows x rows. */
struct matrix {
    float2 *squares; /* of x and of the filters, for each chunk */
    float *norms;    /* [0]: 1 / |x|, [1]: what the filters are multiplied by */
    bf16 *x, *y, *a, *b;
    int update; /* its number in the list */
    int rows, columns, pitch, square_pitch;
    int turned; /* rows are the values of filters, columns the filters */
    int blocks; /* chunks of the tensor */
    int filters;
};

struct batch {
    int n;
    int first[3][MOST + 1]; /* of each tensor: its first block among the chunks, the tiles of a and those of x */
    struct matrix of[MOST];
};

enum { CHUNKS, SQUARES, WIDES };

static __device__ __forceinline__ int find(const int *first, int n)
{
    int i = 0;
    while (i + 1 < n && first[i + 1] <= (int)blockIdx.x)
        i++;
    return i;
}

/* --- momentum and norms -------------------------------------------------------------------------------------- */

/* Where element i of the tensor, counted as stored, lies in x. */
static __device__ __forceinline__ int64_t place(const struct matrix &m, int64_t i)
{
    int64_t inner = m.turned ? m.rows : m.columns, filter = i / inner, value = i % inner;
    return m.turned ? value * m.pitch + filter : filter * m.pitch + value;
}

template <typename G>
static __device__ __forceinline__ float2 advance(const struct matrix &m, const struct ls_cuda_update &u, int64_t first,
                                                 float unscale)
{
    const float share = (float)u.hyper.momentum;
    float2 sum = make_float2(0, 0);
    for (int k = 0; k < QUADS; k++) {
        int64_t at = first + k * THREADS + (int)threadIdx.x;
        float w[4], v[4], g[4];
        if (at >= u.count / 4)
            break;
        widen_quad<float>(load_quad<float>(u.param, at), w);
        widen_quad<float>(load_quad<float>(u.state[0], at), v);
        widen_quad<G>(load_quad<G>(u.grad, at), g);
        for (int i = 0; i < 4; i++) {
            float slope = g[i] * unscale;
            v[i] = share * v[i] + slope;
            float step = u.nesterov ? slope + share * v[i] : v[i];
            m.x[place(m, 4 * at + i)] = __float2bfloat16(step);
            sum.x += step * step;
            sum.y += w[i] * w[i];
        }
        store_quad(u.state[0], at, narrow_quad<float>(v));
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS)
    muon_advance(const __grid_constant__ struct batch b, const struct ls_cuda_scale *scale,
                 const struct ls_cuda_update *updates)
{
    if (scale && scale->overflow)
        return;
    int t = find(b.first[CHUNKS], b.n);
    const struct matrix &m = b.of[t];
    const struct ls_cuda_update u = updates[m.update];
    int chunk = (int)blockIdx.x - b.first[CHUNKS][t];
    int64_t first = (int64_t)chunk * (CHUNK / 4);
    float unscale = scale ? 1 / scale->scale : 1;
    float2 sum = u.grad_t == LS_F32    ? advance<float>(m, u, first, unscale)
                 : u.grad_t == LS_BF16 ? advance<bf16>(m, u, first, unscale)
                                       : advance<__half>(m, u, first, unscale);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        m.squares[chunk] = sum;
}

/* One block per tensor. */
static __global__ void __launch_bounds__(THREADS)
    muon_norms(const __grid_constant__ struct batch b, const struct ls_cuda_scale *scale)
{
    __shared__ double sums[2][THREADS];
    const struct matrix &m = b.of[blockIdx.x];
    if (scale && scale->overflow)
        return;
    double x = 0, w = 0;
    for (int i = (int)threadIdx.x; i < m.blocks; i += THREADS) {
        x += m.squares[i].x;
        w += m.squares[i].y;
    }
    sums[0][threadIdx.x] = x;
    sums[1][threadIdx.x] = w;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
            sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        m.norms[0] = (float)(1 / (sqrt(sums[0][0]) + 1e-7));
        m.norms[1] = sums[1][0] > 0 ? (float)sqrt(m.filters / sums[1][0]) : 1;
    }
}

/* --- products ------------------------------------------------------------------------------------------------ */

#define WORDS (TILE * DEPTH / 8 / GEMM_THREADS) /* of 8 numbers that a thread copies for a tile */

/* This thread's part of a tile of TILE rows and DEPTH columns; zeros beyond the matrix. Columns are multiples of 8. */
static __device__ __forceinline__ void fetch_tile(const bf16 *from, int pitch, int rows, int columns, int row,
                                                  int column, uint4 (&words)[WORDS])
{
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        int i = (int)threadIdx.x + k * GEMM_THREADS, r = i / (DEPTH / 8), c = i % (DEPTH / 8) * 8;
        bool inside = row + r < rows && column + c < columns;
        words[k] =
            inside ? __ldcg((const uint4 *)(from + (int64_t)(row + r) * pitch + column + c)) : make_uint4(0, 0, 0, 0);
    }
}

static __device__ __forceinline__ void put_tile(const uint4 (&words)[WORDS], bf16 *to)
{
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        int i = (int)threadIdx.x + k * GEMM_THREADS;
        *(uint4 *)(to + i / (DEPTH / 8) * PITCH + i % (DEPTH / 8) * 8) = words[k];
    }
}

struct operands {
    const bf16 *left, *right; /* right: its rows are the columns of the product where TURNED */
    int left_pitch, right_pitch, rows, columns, depth;
};

template <bool TURNED>
static __device__ __forceinline__ void fetch(const struct operands &o, int row, int column, int k, uint4 (&left)[WORDS],
                                             uint4 (&right)[WORDS])
{
    fetch_tile(o.left, o.left_pitch, o.rows, o.depth, row, k, left);
    if (TURNED)
        fetch_tile(o.right, o.right_pitch, o.columns, o.depth, column, k, right);
    else
        fetch_tile(o.right, o.right_pitch, o.depth, o.columns, k, column, right);
}

/* A tile of left times right, or right^T, into shared memory as f32. Four warps compute 32 x 32 each. */
template <bool TURNED>
static __device__ __forceinline__ void product(const struct operands &o, int row, int column, float *result)
{
    typedef typename std::conditional<TURNED, wmma::col_major, wmma::row_major>::type order;
    __shared__ __align__(32) bf16 left[TILE * PITCH], right[TILE * PITCH];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
    int warp = (int)threadIdx.x / 32, wr = warp / 2 * 32, wc = warp % 2 * 32;
    for (int i = 0; i < 4; i++)
        wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
    uint4 next_left[WORDS], next_right[WORDS];
    fetch<TURNED>(o, row, column, 0, next_left, next_right);
    for (int k = 0; k < o.depth; k += DEPTH) {
        put_tile(next_left, left);
        put_tile(next_right, right);
        __syncthreads();
        if (k + DEPTH < o.depth) /* on its way while this part is multiplied */
            fetch<TURNED>(o, row, column, k + DEPTH, next_left, next_right);
#pragma unroll
        for (int d = 0; d < DEPTH; d += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> a[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, order> b[2];
            for (int i = 0; i < 2; i++) {
                wmma::load_matrix_sync(a[i], left + (wr + 16 * i) * PITCH + d, PITCH);
                int at = TURNED ? (wc + 16 * i) * PITCH + d : d * PITCH + wc + 16 * i;
                wmma::load_matrix_sync(b[i], right + at, PITCH);
            }
            for (int i = 0; i < 4; i++)
                wmma::mma_sync(sum[i / 2][i % 2], a[i / 2], b[i % 2], sum[i / 2][i % 2]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        wmma::store_matrix_sync(result + (wr + i / 2 * 16) * TILE + wc + i % 2 * 16, sum[i / 2][i % 2], TILE,
                                wmma::mem_row_major);
    __syncthreads();
}

/* a = s^2 x x^T; in the first iteration s is 1 / |x|, which x is not yet multiplied by, later 1. */
static __global__ void __launch_bounds__(GEMM_THREADS)
    muon_square(const __grid_constant__ struct batch b, const struct ls_cuda_scale *scale, int first)
{
    __shared__ __align__(32) float result[TILE * TILE];
    if (scale && scale->overflow)
        return;
    int t = find(b.first[SQUARES], b.n), tile = (int)blockIdx.x - b.first[SQUARES][t];
    const struct matrix &m = b.of[t];
    int side = (m.rows + TILE - 1) / TILE, row = tile / side * TILE, column = tile % side * TILE;
    struct operands o = {m.x, m.x, m.pitch, m.pitch, m.rows, m.rows, m.columns};
    product<true>(o, row, column, result);
    float s = first ? m.norms[0] : 1;
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += GEMM_THREADS) {
        int r = row + i / TILE, c = column + i % TILE;
        if (r < m.rows && c < m.square_pitch)
            m.a[(int64_t)r * m.square_pitch + c] = __float2bfloat16(s * s * result[i]);
    }
}

/* b = -4.7750 a + 2.0315 a a; a equals its transpose. */
static __global__ void __launch_bounds__(GEMM_THREADS)
    muon_polynomial(const __grid_constant__ struct batch b, const struct ls_cuda_scale *scale)
{
    __shared__ __align__(32) float result[TILE * TILE];
    if (scale && scale->overflow)
        return;
    int t = find(b.first[SQUARES], b.n), tile = (int)blockIdx.x - b.first[SQUARES][t];
    const struct matrix &m = b.of[t];
    int side = (m.rows + TILE - 1) / TILE, row = tile / side * TILE, column = tile % side * TILE;
    struct operands o = {m.a, m.a, m.square_pitch, m.square_pitch, m.rows, m.rows, m.square_pitch};
    product<true>(o, row, column, result);
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += GEMM_THREADS) {
        int r = row + i / TILE, c = column + i % TILE;
        if (r < m.rows && c < m.square_pitch) {
            int64_t at = (int64_t)r * m.square_pitch + c;
            m.b[at] = __float2bfloat16(-4.7750f * __bfloat162float(m.a[at]) + 2.0315f * result[i]);
        }
    }
}

/* to = s (3.4445 from + b from), s as above. */
static __global__ void __launch_bounds__(GEMM_THREADS)
    muon_multiply(const __grid_constant__ struct batch b, const struct ls_cuda_scale *scale, int step)
{
    __shared__ __align__(32) float result[TILE * TILE];
    if (scale && scale->overflow)
        return;
    int t = find(b.first[WIDES], b.n), tile = (int)blockIdx.x - b.first[WIDES][t];
    const struct matrix &m = b.of[t];
    const bf16 *from = step % 2 ? m.y : m.x;
    bf16 *to = step % 2 ? m.x : m.y;
    int across = (m.columns + TILE - 1) / TILE, row = tile / across * TILE, column = tile % across * TILE;
    struct operands o = {m.b, from, m.square_pitch, m.pitch, m.rows, m.pitch, m.rows};
    product<false>(o, row, column, result);
    float s = step ? 1 : m.norms[0];
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += GEMM_THREADS) {
        int r = row + i / TILE, c = column + i % TILE;
        if (r < m.rows && c < m.columns) {
            int64_t at = (int64_t)r * m.pitch + c;
            to[at] = __float2bfloat16(s * (3.4445f * __bfloat162float(from[at]) + result[i]));
        }
    }
}

/* --- the step ------------------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS)
    muon_step(const __grid_constant__ struct batch b, const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
              const struct ls_cuda_update *updates, int steps)
{
    if (scale && scale->overflow)
        return;
    int t = find(b.first[CHUNKS], b.n);
    const struct matrix &m = b.of[t];
    const struct ls_cuda_update u = updates[m.update];
    int64_t first = (int64_t)((int)blockIdx.x - b.first[CHUNKS][t]) * (CHUNK / 4);
    const float rate = tensor_lr(u.hyper, run->lr), keep = m.norms[1];
    const bf16 *x = steps % 2 ? m.y : m.x;
    for (int k = 0; k < QUADS; k++) {
        int64_t at = first + k * THREADS + (int)threadIdx.x;
        float w[4];
        if (at >= u.count / 4)
            return;
        widen_quad<float>(load_quad<float>(u.param, at), w);
        for (int i = 0; i < 4; i++)
            w[i] = keep * w[i] - rate * __bfloat162float(x[place(m, 4 * at + i)]);
        store_quad(u.param, at, narrow_quad<float>(w));
        store_half(u, at, w);
    }
}

/* --- launching ----------------------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool is_mine(const struct ls_cuda_update *u, int rule)
{
    return u->count > 0 && u->rule == rule;
}

/* Describes a tensor, with memory from `memory` on (NULL: none), and returns the bytes that it takes. */
static size_t describe(const struct ls_cuda_update *u, int number, char *memory, struct matrix *m)
{
    int filters = (int)u->rows, values = (int)(u->count / u->rows);
    *m = matrix{};
    m->update = number;
    m->turned = filters > values;
    m->rows = m->turned ? values : filters;
    m->columns = m->turned ? filters : values;
    m->pitch = (int)round_up((size_t)m->columns, 8);
    m->square_pitch = (int)round_up((size_t)m->rows, 8);
    m->blocks = (int)chunks(u);
    m->filters = (int)u->filters;
    size_t wide = round_up((size_t)m->rows * (size_t)m->pitch * sizeof(bf16), 256);
    size_t square = round_up((size_t)m->rows * (size_t)m->square_pitch * sizeof(bf16), 256);
    size_t sums = round_up((size_t)m->blocks * sizeof(float2) + 4 * sizeof(float), 256);
    m->x = (bf16 *)(void *)memory;
    m->y = (bf16 *)(void *)(memory + wide);
    m->a = (bf16 *)(void *)(memory + 2 * wide);
    m->b = (bf16 *)(void *)(memory + 2 * wide + square);
    m->norms = (float *)(void *)(memory + 2 * wide + 2 * square);
    m->squares = (float2 *)(void *)(m->norms + 4);
    return 2 * wide + 2 * square + sums;
}

size_t ls_cuda_muon_scratch(const struct ls_cuda_update *host, int n, int rule)
{
    size_t bytes = 0;
    struct matrix m;
    for (int i = 0; i < n; i++)
        if (is_mine(host + i, rule))
            bytes += describe(host + i, i, NULL, &m);
    return bytes;
}

static void launch(ls_cuda_stream s, const struct batch &b, const struct ls_cuda_run *run,
                   const struct ls_cuda_scale *scale, const struct ls_cuda_update *updates, int steps)
{
    int chunked = b.first[CHUNKS][b.n], squares = b.first[SQUARES][b.n], wides = b.first[WIDES][b.n];
    muon_advance<<<chunked, THREADS, 0, s>>>(b, scale, updates);
    muon_norms<<<b.n, THREADS, 0, s>>>(b, scale);
    for (int i = 0; i < steps; i++) {
        struct batch now = b;
        for (int t = 0; t < b.n && i % 2; t++)
            now.of[t].x = b.of[t].y;
        muon_square<<<squares, GEMM_THREADS, 0, s>>>(now, scale, i == 0);
        muon_polynomial<<<squares, GEMM_THREADS, 0, s>>>(b, scale);
        muon_multiply<<<wides, GEMM_THREADS, 0, s>>>(b, scale, i);
    }
    muon_step<<<chunked, THREADS, 0, s>>>(b, run, scale, updates, steps);
}

void ls_cuda_muon(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                  const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, int rule,
                  float *scratch)
{
    char *memory = (char *)(void *)scratch;
    int steps = 0;
    for (int i = 0; i < n;) {
        struct batch b = {};
        for (; i < n && b.n < MOST; i++) {
            if (!is_mine(host + i, rule))
                continue;
            struct matrix *m = &b.of[b.n];
            memory += describe(host + i, i, memory, m);
            int side = (m->rows + TILE - 1) / TILE, across = (m->columns + TILE - 1) / TILE;
            b.first[CHUNKS][b.n + 1] = b.first[CHUNKS][b.n] + m->blocks;
            b.first[SQUARES][b.n + 1] = b.first[SQUARES][b.n] + side * side;
            b.first[WIDES][b.n + 1] = b.first[WIDES][b.n] + side * across;
            steps = (int)host[i].hyper.muon_steps;
            b.n++;
        }
        if (b.n > 0)
            launch(s, b, run, scale, updates, steps);
    }
}
