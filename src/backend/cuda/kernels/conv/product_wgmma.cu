/* The products of product.cu for Hopper, for more channels and at the speed of its tensor cores.
 *
 * A block computes WIDE columns and keeps their weights in shared memory. Its warpgroups work on tiles of 64 rows, each on
 * its own, so that one multiplies while another processes its finished tile. A warpgroup has a ring of boxes, 64 columns of
 * x each; one of its threads has the copy engine refill a box as soon as it has been multiplied, continuously across tiles.
 * The sums stay in registers to the end, as in product.cu.
 *
 * FOLDED is the product of fold.cu: x is two maps side by side, of which the first has `split` slices, and each sum begins
 * with the shift of its column. */
#include "backend/cuda/kernels/conv/product_wgmma.cuh"
#include "backend/cuda/kernels/conv/wgmma.cuh"

using namespace ls_wgmma;
using namespace ls_product;

namespace
{

constexpr int SLICE = HIGH * BOX_ROW, MOST_RING = 8;

struct task {
    int rows, n, slices, ring;
    int64_t area;
    const struct ls_cuda_run *run;
    float *scratch;
    int split; /* FOLDED */
    const float *shift;
};

struct maps {
    CUtensorMap x, more, w; /* more: FOLDED */
};

template <typename T, int WIDE, bool TURNED, int GROUPS, bool FOLDED, typename E>
__global__ void __launch_bounds__(GROUPS *GROUP, 1) product(const __grid_constant__ maps map, task m, E end)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char room[];
    __shared__ typename E::affines params;
    __shared__ uint64_t barriers[1 + GROUPS * MOST_RING];
    __shared__ float2 shift[FOLDED ? WIDE / 2 : 1];
    constexpr int OCTETS = WIDE / 8, TY = GROUP / OCTETS, BOXES = WIDE / 64;
    const int x = threadIdx.x, t = threadIdx.y * OCTETS + x, group = t / GROUP;
    const int octets = m.n / 8, octet = blockIdx.x * OCTETS + x, valid = (int)(m.run->valid * m.area);
    const bool leads = t % GROUP == 0;

    const uint32_t start = (uint32_t)__cvta_generic_to_shared(room), w = (start + 1023) & ~1023u;
    const uint32_t rings = w + (uint32_t)m.slices * WIDE * BOX_ROW, ring = rings + group * m.ring * SLICE;
    const uint32_t tile = rings + GROUPS * m.ring * SLICE + group * HIGH * WIDE * 2;
    const uint32_t w_there = (uint32_t)__cvta_generic_to_shared(barriers), there = w_there + 8 + group * MOST_RING * 8;
    if (t == 0) {
        for (int i = 0; i < 1 + GROUPS * MOST_RING; i++)
            barrier_init(w_there + i * 8);
        barriers_ready();
    }
    if (threadIdx.y == 0 && octet < octets)
        end.begin(params, x, octet);
    if (FOLDED && t < WIDE / 2)
        shift[t] = ((const float2 *)m.shift)[blockIdx.x * (WIDE / 2) + t];
    __syncthreads();

    /* Tiles go from the last to the first. The leading thread fetches; `left` slices remain, and the next one starts at
     * row `next`. */
    const int tiles = (m.rows + HIGH - 1) / HIGH, workers = (int)gridDim.y * GROUPS;
    const int worker = (int)blockIdx.y * GROUPS + group, back = workers * HIGH;
    const int mine = worker < tiles ? (tiles - 1 - worker) / workers + 1 : 0;
    int first = (tiles - 1 - worker) * HIGH, next = first, deep = 0, left = mine * m.slices;
    auto fetch_next = [&](int at) {
        if (!leads || left == 0)
            return;
        barrier_expect(there + at * 8, SLICE);
        if (FOLDED && deep >= m.split)
            copy_box(ring + at * SLICE, map.more, (deep - m.split) * BOX_COLUMNS, next, there + at * 8);
        else
            copy_box(ring + at * SLICE, map.x, deep * BOX_COLUMNS, next, there + at * 8);
        left--;
        if (++deep == m.slices) {
            deep = 0;
            next -= back;
        }
    };
    if (t == 0) {
        barrier_expect(w_there, m.slices * WIDE * BOX_ROW);
        for (int s = 0; s < m.slices; s++)
            for (int b = 0; b < (TURNED ? BOXES : 1); b++)
                copy_box(w + s * WIDE * BOX_ROW + b * 64 * BOX_ROW, map.w,
                         TURNED ? blockIdx.x * WIDE + b * 64 : s * BOX_COLUMNS,
                         TURNED ? s * BOX_COLUMNS : blockIdx.x * WIDE, w_there);
    }
    for (int s = 0; s < m.ring; s++)
        fetch_next(s);
    barrier_wait(w_there, 0);

    float sums[2][8] = {};
    int at = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int done = 0; done < mine; done++, first -= back) {
        float sum[WIDE / 2];
        int before = 0;
        rows_read<E> rows; /* the epilogue's first: they arrive while the tile is multiplied */
        if (octet < octets)
            read_rows<TY>(end, {first, valid, m.rows, octet, octets}, (int)threadIdx.y % TY, rows);
        if (FOLDED)
#pragma unroll
            for (int j = 0; j < WIDE / 8; j++) {
                const float2 v = shift[j * 4 + t % 4];
                sum[j * 4] = sum[j * 4 + 2] = v.x;
                sum[j * 4 + 1] = sum[j * 4 + 3] = v.y;
            }
#pragma unroll 1
        for (int s = 0; s < m.slices; s++) {
            barrier_wait(there + at * 8, parity);
            products_begin();
#pragma unroll
            for (int part = 0; part < BOX_COLUMNS / 16; part++)
                multiply<T, WIDE, TURNED>(
                    sum, matrix_at(ring + at * SLICE + part * 32, 16),
                    matrix_at(w + s * WIDE * BOX_ROW + part * (TURNED ? 16 * BOX_ROW : 32), TURNED ? 64 * BOX_ROW : 16),
                    FOLDED || s + part > 0);
            products_commit();
            if (s > 0) {
                products_wait<1>();
                group_sync(group);
                fetch_next(before);
            }
            before = at;
            if (++at == m.ring) {
                at = 0;
                parity ^= 1;
            }
        }
        products_wait<0>();
        group_sync(group); /* also: no thread reads the previous tile any more */
        fetch_next(before);
        lay_out_rows<T, WIDE>(sum, tile, t / 32 % 4, t % 32);
        group_sync(group);
        if (octet < octets)
            end_tile<T, WIDE, TY, true>(end, room + (tile - start), {first, valid, m.rows, octet, octets}, x,
                                        (int)threadIdx.y % TY, params, rows, sums[0], sums[1]);
    }
    __syncthreads();
    sum_rows(sums[0], sums[1], octets, m.scratch, (float *)(room + (w - start)), [&](int channel, double a, double b) {
        end.finish(channel, octets * 8, a, b, valid, m.run->stat_weight);
    });
#endif
}

/* --- launching --------------------------------------------------------------------------------------------------- */

constexpr int64_t MOST_ROOM = 225 * 1024; /* shared memory of a block, without what the kernel declares */

/* The number of slices that fit into each ring, up to MOST_RING. */
int ring_of(int64_t k, int wide, int groups)
{
    const int64_t slices = ceil_div(k, BOX_COLUMNS), w = slices * wide * BOX_ROW,
                  tiles = (int64_t)groups * HIGH * wide * 2;
    const int64_t ring = (MOST_ROOM - 1024 - w - tiles) / (groups * SLICE);
    return (int)(ring < MOST_RING ? ring : MOST_RING);
}

int wide_of(int64_t n)
{
    return n > 64 ? 128 : 64;
}

/* Three warpgroups, or two where three would have too short rings. */
int groups_of(const struct ls_cuda_product *p)
{
    return p->n <= 64 || ring_of(p->k, 128, 3) >= 3 ? 3 : 2;
}

/* Blocks that divide the rows. */
int64_t down_of(const struct ls_cuda_product *p, int wide, int groups)
{
    const int64_t most = multiprocessors() / ceil_div(p->n, wide), tiles = ceil_div(p->rows, HIGH * groups);
    return tiles < most ? tiles : most < 1 ? 1 : most;
}

/* The maps of a product whose x is one map, or with `more`, two. */
struct factors {
    const void *x, *more, *w;
    const float *shift;
    int64_t k; /* of the first map */
};

template <typename T, int WIDE, bool TURNED, int GROUPS, bool FOLDED, typename E>
void launch(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
            const struct ls_cuda_run *run, const factors &f, const E &end)
{
    auto kernel = product<T, WIDE, TURNED, GROUPS, FOLDED, E>;
    const int ring = ring_of(p->k, WIDE, GROUPS), slices = (int)ceil_div(p->k, BOX_COLUMNS);
    const task m = {(int)p->rows,    (int)p->n, slices,     ring,
                    b->x.h * b->x.w, run,       b->scratch, (int)ceil_div(f.k, BOX_COLUMNS),
                    f.shift};
    maps map;
    if (!box_map(&map.x, b->t, f.x, p->rows, f.k, HIGH) ||
        (FOLDED && !box_map(&map.more, b->t, f.more, p->rows, p->k - f.k, HIGH)) ||
        !box_map(&map.w, b->t, f.w, TURNED ? p->k : p->n, TURNED ? p->n : p->k, TURNED ? BOX_COLUMNS : WIDE))
        return;
    size_t room = 1024 + (size_t)slices * WIDE * BOX_ROW + GROUPS * ((size_t)ring * SLICE + HIGH * WIDE * 2);
    const size_t sums = 1024 + GROUPS * GROUP * SUMS_ROOM;
    room = room > sums ? room : sums;
    want_shared(kernel, room);
    const dim3 block(WIDE / 8, GROUPS * GROUP / (WIDE / 8));
    const dim3 grid((unsigned)ceil_div(p->n, WIDE), (unsigned)down_of(p, WIDE, GROUPS));
    kernel<<<grid, block, room, s>>>(map, m, end);
}

template <typename T, bool TURNED, typename E>
void choose(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
            const struct ls_cuda_run *run, const void *x, const void *w, const E &end)
{
    const factors f = {x, NULL, w, NULL, p->k};
    if (p->n <= 64)
        launch<T, 64, TURNED, 3, false, E>(s, p, b, run, f, end);
    else if (groups_of(p) == 3)
        launch<T, 128, TURNED, 3, false, E>(s, p, b, run, f, end);
    else
        launch<T, 128, TURNED, 2, false, E>(s, p, b, run, f, end);
}

/* Folded products have columns of 64, whose weights fit. What several blocks read of the maps, they read at about the same
 * time, the others from L2. */
template <typename T, typename E>
void choose_folded(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                   const struct ls_cuda_run *run, const factors &f, const E &end)
{
    if (ring_of(p->k, 64, 3) >= 3)
        launch<T, 64, true, 3, true, E>(s, p, b, run, f, end);
    else
        launch<T, 64, true, 2, true, E>(s, p, b, run, f, end);
}

using encode = CUresult(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                        const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function that describes matrices; NULL: it has none. */
encode *encoder(void)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
    cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    return e == cudaSuccess && result == cudaDriverEntryPointSuccess ? (encode *)found : NULL;
}

} // namespace

static bool describe_boxes(CUtensorMap *map, enum ls_dtype t, const void *from, cuuint32_t dims, const cuuint64_t *size,
                           const cuuint32_t *box)
{
    encode *const describe = encoder();
    const cuuint32_t step[5] = {1, 1, 1, 1, 1};
    cuuint64_t stride[4] = {size[0] * 2};
    for (cuuint32_t i = 1; i + 1 < dims; i++)
        stride[i] = stride[i - 1] * size[i];
    return describe &&
           describe(map, t == LS_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, dims,
                    (void *)from, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool ls_wgmma::box_map(CUtensorMap *map, enum ls_dtype t, const void *matrix, int64_t rows, int64_t columns,
                       int box_rows)
{
    const cuuint64_t size[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint32_t box[2] = {BOX_COLUMNS, (cuuint32_t)box_rows};
    return describe_boxes(map, t, matrix, 2, size, box);
}

bool ls_wgmma::box_map(CUtensorMap *map, enum ls_dtype t, const void *matrices, int64_t n, int64_t rows,
                       int64_t columns, int box_rows)
{
    const cuuint64_t size[3] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)n};
    const cuuint32_t box[3] = {BOX_COLUMNS, (cuuint32_t)box_rows, 1};
    return describe_boxes(map, t, matrices, 3, size, box);
}

bool ls_wgmma::pixels_map(CUtensorMap *map, enum ls_dtype t, const void *x, int64_t n, int64_t height, int64_t width,
                          int64_t channels, int high, int wide)
{
    const cuuint64_t size[4] = {(cuuint64_t)channels, (cuuint64_t)width, (cuuint64_t)height, (cuuint64_t)n};
    const cuuint32_t box[4] = {BOX_COLUMNS, (cuuint32_t)wide, (cuuint32_t)high, 1};
    return describe_boxes(map, t, x, 4, size, box);
}

bool ls_wgmma::pieces_map(CUtensorMap *map, enum ls_dtype t, const void *x, int64_t n, int64_t height, int64_t width,
                          int64_t channels, int piece, int high, int wide)
{
    const cuuint64_t size[5] = {(cuuint64_t)channels, (cuuint64_t)piece, (cuuint64_t)(width / piece),
                                (cuuint64_t)height, (cuuint64_t)n};
    const cuuint32_t box[5] = {BOX_COLUMNS, (cuuint32_t)wide, 1, (cuuint32_t)high, 1};
    return describe_boxes(map, t, x, 5, size, box);
}

bool ls_wgmma::has_wgmma(void)
{
    return runs_hopper() && encoder();
}

bool ls_product::wgmma_can(const struct ls_cuda_product *p, const struct ls_cuda_bn *b, bool residual)
{
    return has_wgmma() && b->t != LS_F32 && p->rows < INT32_MAX && !small_enough(b, residual) &&
           ring_of(p->k, wide_of(p->n), groups_of(p)) >= 3;
}

void ls_product::wgmma_stats(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                             const struct ls_cuda_run *run, const void *x, const void *w, void *y, float *mean,
                             float *rstd, float *stat)
{
    LS_CUDA_BY_HALF(b->t, const statistics<T, false> end = {y, b->eps, mean, rstd, stat};
                    (p->turned ? choose<T, true, statistics<T, false>>
                               : choose<T, false, statistics<T, false>>)(s, p, b, run, x, w, end));
}

void ls_product::wgmma_sums(ls_cuda_stream s, const struct ls_cuda_product *p, const struct ls_cuda_bn *b,
                            const struct ls_cuda_run *run, const void *x, const void *w,
                            const struct ls_cuda_bn_grad *g)
{
    for (int groups = groups_of(p); groups > 1 && !g->x && p->n > 64; groups--) /* two have room for longer rings */
        if (wgmma_dz(s, p, b, run, x, w, g, groups, down_of(p, 128, groups)))
            return;
    if (!g->x) {
        const auto call = [&](const auto &end) { choose<__nv_bfloat16, true>(s, p, b, run, x, w, end); };
        if (g->dy2 && g->sparse > 1)
            call(gradient_sum<__nv_bfloat16, EXTRA_SPARSE>{*g, picks_of(b->x, g->sparse)});
        else if (g->dy2)
            call(gradient_sum<__nv_bfloat16, EXTRA_DENSE>{*g, {}});
        else
            call(gradient_sum<__nv_bfloat16, EXTRA_NONE>{*g, {}});
        return;
    }
    LS_CUDA_BY_HALF(b->t, with_sums<T>(b, g, [&](const auto &end) { choose<T, true>(s, p, b, run, x, w, end); }));
}

bool ls_product::wgmma_can_fold(const struct ls_cuda_fold *f, const struct ls_cuda_bn *b)
{
    return has_wgmma() && !small_enough(b, true) && ring_of(f->k + f->n, 64, 2) >= 3;
}

void ls_product::wgmma_folded(ls_cuda_stream s, const struct ls_cuda_fold *f, const struct ls_cuda_bn *b,
                              const struct ls_cuda_run *run, const void *weights, const float *shift,
                              const struct ls_cuda_bn_grad *g, void *da)
{
    using T = __nv_bfloat16;
    const struct ls_cuda_product p = {f->rows, f->k + f->n, f->n, true, LS_CUDA_PRODUCT_WGMMA};
    const factors of = {f->dz, f->a, weights, shift, f->k};
    if (!g)
        choose_folded<T>(s, &p, b, run, of, plain<T>{da});
    else if (b->act == LS_ACT_NONE)
        choose_folded<T>(s, &p, b, run, of, gradient_sums<T, MASK_NONE, EXTRA_NONE>{*g, 0, {}});
    else
        choose_folded<T>(s, &p, b, run, of, gradient_sums<T, MASK_X, EXTRA_NONE>{*g, act_top(b->act), {}});
}
