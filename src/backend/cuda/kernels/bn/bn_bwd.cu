/* Batch normalisation, backward, without a pooling:
 *
 *   sums      dz = (dy + dy2) where the activation passed, or times its slope; dresidual = dz;
 *             dbeta = sum of dz, dgamma = sum of dz * xhat
 *   gradient  dx = gamma * rstd * (dz - (dbeta + xhat * dgamma) / count)
 *
 * Where there is a dresidual, the second pass reads it instead of the inputs of dz. The first pass then keeps only
 * dresidual and x in the caches. */
#include "backend/cuda/kernels/bn/bn.cuh"

using namespace ls_bn;

namespace
{

constexpr int BWD_THREADS = 384;

/* Rows in flight per thread: up to 8 words of 16 bytes. */
template <typename T, mask MASK, extra DY2> constexpr int bwd_batch()
{
    int streams = 2 + (MASK == MASK_Y) + (DY2 != EXTRA_NONE), words = 8 / (streams * octet<T>::words);
    return words > 1 ? words : 1;
}

template <typename T, mask MASK, extra DY2, bool WRITES>
__global__ void __launch_bounds__(BWD_THREADS, 2)
    sums(struct ls_cuda_bn_grad g, picks sparse, const struct ls_cuda_run *run, int64_t n, int64_t area, int octets,
         float top, float *scratch)
{
    extern __shared__ double room[];
    __shared__ parameters<P_FIRST> params;
    constexpr int batch = bwd_batch<T, MASK, DY2>();
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x;
    if (threadIdx.y == 0 && octet < octets)
        put_backward<false>(params, x, octet, g, 0);
    __syncthreads();

    /* `valid` rows enter the sums. With WRITES the kernel visits all rows, because dresidual is 0 for rows without a
     * sample. */
    const int valid = (int)(run->valid * area), rows = WRITES ? (int)(n * area) : valid;
    const int step = (int)(gridDim.y * blockDim.y);
    float first[8] = {}, second[8] = {};
    if (octet < octets) {
        int row = rows - 1 - (int)(blockIdx.y * blockDim.y + threadIdx.y);
        int64_t at = (int64_t)row * octets + octet;
        const int64_t back = (int64_t)step * octets;
        for (; row >= 0; row -= batch * step, at -= batch * back) {
            terms<T, MASK, DY2> in[batch];
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (row - u * step >= 0 && row - u * step < valid) {
                    in[u].template read<WRITES, false>(g, at - u * back);
                    if (DY2 == EXTRA_SPARSE)
                        in[u].read_sparse(g, sparse, row - u * step, at - u * back, octets);
                } else {
                    in[u].clear();
                }
            add_rows<T, MASK, DY2, WRITES>(in, params, x, top, first, second);
            if (WRITES)
#pragma unroll
                for (int u = 0; u < batch; u++)
                    if (row - u * step >= 0)
                        store<T>(g.dresidual, at - u * back, in[u].dy);
        }
    }
    sum_rows(first, second, octets, scratch, (float *)room, [&](int channel, double sum, double products) {
        g.dbeta[channel] = (float)sum;
        g.dgamma[channel] = (float)(products * (double)g.rstd[channel]);
    });
}

/* The same where x is not read: dz and dbeta, with the mask kept. */
template <typename T, extra DY2>
__global__ void __launch_bounds__(BWD_THREADS, 2)
    sums_without_x(struct ls_cuda_bn_grad g, picks sparse, const struct ls_cuda_run *run, int64_t n, int64_t area,
                   int octets, float *scratch)
{
    extern __shared__ double room[];
    constexpr int batch = bwd_batch<T, MASK_BITS, DY2>();
    const int octet = blockIdx.x * blockDim.x + threadIdx.x, valid = (int)(run->valid * area), rows = (int)(n * area);
    const int step = (int)(gridDim.y * blockDim.y);
    float first[8] = {}, second[8] = {};
    if (octet < octets) {
        int row = rows - 1 - (int)(blockIdx.y * blockDim.y + threadIdx.y);
        int64_t at = (int64_t)row * octets + octet;
        const int64_t back = (int64_t)step * octets;
        for (; row >= 0; row -= batch * step, at -= batch * back) {
            terms<T, MASK_BITS, DY2> in[batch];
#pragma unroll
            for (int u = 0; u < batch; u++) {
                in[u].clear();
                if (row - u * step < 0 || row - u * step >= valid)
                    continue;
                in[u].dy = load_once<T>(g.dy, at - u * back);
                in[u].bits = __ldcs((const uint8_t *)g.kept + at - u * back);
                if (DY2 == EXTRA_DENSE)
                    in[u].dy2 = load_once<T>(g.dy2, at - u * back);
                if (DY2 == EXTRA_SPARSE)
                    in[u].read_sparse(g, sparse, row - u * step, at - u * back, octets);
            }
#pragma unroll
            for (int u = 0; u < batch; u++)
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    set_pair<T>(in[u].dy, p, in[u].dz(p, make_float2(0, 0), 0));
                    const float2 d = pair_of<T>(in[u].dy, p);
                    first[2 * p] += d.x;
                    first[2 * p + 1] += d.y;
                }
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (row - u * step >= 0)
                    store<T>(g.dresidual, at - u * back, in[u].dy);
        }
    }
    sum_rows(first, second, octets, scratch, (float *)room,
             [&](int channel, double sum, double) { g.dbeta[channel] = (float)sum; });
}

template <typename T, mask MASK, extra DY2>
__global__ void __launch_bounds__(MAP_THREADS, 3) gradient(struct ls_cuda_bn_grad g, const struct ls_cuda_run *run,
                                                           int64_t n, int64_t area, int octets, float top, int repeat)
{
    __shared__ parameters<P_ALL> params;
    constexpr int batch = bwd_batch<T, MASK, DY2>();
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x, ty = blockDim.y;
    const int64_t valid = run->valid * area;
    if (threadIdx.y == 0 && octet < octets)
        put_backward<true>(params, x, octet, g, valid);
    __syncthreads();
    if (octet >= octets)
        return;

    const int64_t row = (int64_t)blockIdx.y * repeat * ty, start = row * octets + octet;
    const int count = (int)min((int64_t)repeat * ty, n * area - row),
              live = (int)max(min((int64_t)count, valid - row), (int64_t)0);
    g.dy = move<T>(g.dy, start);
    g.dy2 = DY2 ? move<T>(g.dy2, start) : NULL;
    g.x = move<T>(g.x, start);
    g.y = MASK == MASK_Y ? move<T>(g.y, start) : NULL;
    g.kept = MASK == MASK_BITS ? (uint8_t *)g.kept + start : NULL;
    g.dx = move<T>(g.dx, start);
    for (int r = threadIdx.y; r < count; r += batch * ty) {
        terms<T, MASK, DY2> in[batch];
#pragma unroll
        for (int u = 0; u < batch; u++)
            if (r + u * ty < live)
                in[u].template read<true, true>(g, (r + u * ty) * octets);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float2 scale = params.get(P_SCALE, x, p), slope = params.get(P_SLOPE, x, p),
                         offset = params.get(P_OFFSET, x, p);
            float2 mean, beta;
            if (reads_z(MASK)) {
                mean = params.get(P_MEAN, x, p);
                beta = params.get(P_BETA, x, p);
            }
#pragma unroll
            for (int u = 0; u < batch; u++) {
                const float2 v = pair_of<T>(in[u].x, p);
                float2 z;
                if (reads_z(MASK))
                    z = make_float2(normalised(v.x, mean.x, scale.x, beta.x), normalised(v.y, mean.y, scale.y, beta.y));
                float2 d = in[u].dz(p, z, top);
                d.x = fmaf(scale.x, d.x, fmaf(slope.x, v.x, offset.x));
                d.y = fmaf(scale.y, d.y, fmaf(slope.y, v.y, offset.y));
                set_pair<T>(in[u].dy, p, d);
            }
        }
#pragma unroll
        for (int u = 0; u < batch; u++)
            if (r + u * ty < count)
                store<T>(g.dx, (r + u * ty) * octets, r + u * ty < live ? in[u].dy : zero_octet<T>());
    }
}

struct call {
    ls_cuda_stream s;
    const struct ls_cuda_bn *b;
    const struct ls_cuda_run *run;
    int64_t area, rows;
    float top;
};

template <typename T, mask MASK, extra DY2, bool WRITES> void launch_sums(const call &c, const ls_cuda_bn_grad &g)
{
    layout l = lay_summing(c.b->x.c, c.rows, BWD_THREADS, 2);
    size_t room = (size_t)l.block.x * l.block.y * SUMS_ROOM;
    const picks sparse = DY2 == EXTRA_SPARSE ? picks_of(c.b->x, g.sparse) : picks{};
    sums<T, MASK, DY2, WRITES>
        <<<l.grid, l.block, room, c.s>>>(g, sparse, c.run, c.b->x.n, c.area, l.octets, c.top, c.b->scratch);
}

/* In bf16: fold.cu alone does without x. */
template <extra DY2> void launch_without_x(const call &c, const ls_cuda_bn_grad &g)
{
    using T = __nv_bfloat16;
    layout l = lay_summing(c.b->x.c, c.rows, BWD_THREADS, 2);
    size_t room = (size_t)l.block.x * l.block.y * SUMS_ROOM;
    const picks sparse = DY2 == EXTRA_SPARSE ? picks_of(c.b->x, g.sparse) : picks{};
    sums_without_x<T, DY2><<<l.grid, l.block, room, c.s>>>(g, sparse, c.run, c.b->x.n, c.area, l.octets, c.b->scratch);
}

template <typename T, mask MASK, extra DY2> void launch_gradient(const call &c, const ls_cuda_bn_grad &g)
{
    layout l = lay_mapping(c.b->x.c, c.rows, MAP_THREADS, bwd_batch<T, MASK, DY2>());
    gradient<T, MASK, DY2><<<l.grid, l.block, 0, c.s>>>(g, c.run, c.b->x.n, c.area, l.octets, c.top, l.repeat);
}

template <typename T, mask MASK, extra DY2> void launch_first(const call &c, const ls_cuda_bn_grad &g)
{
    if (g.dresidual)
        launch_sums<T, MASK, DY2, true>(c, g);
    else
        launch_sums<T, MASK, DY2, false>(c, g);
}

template <typename T> void launch_rest(const call &c, const ls_cuda_bn_grad &g)
{
    ls_cuda_bn_grad rest = g;
    rest.dy = g.dresidual;
    launch_gradient<T, MASK_NONE, EXTRA_NONE>(c, rest);
}

template <typename T, mask MASK, extra DY2> void launch_both(const call &c, const ls_cuda_bn_grad &g)
{
    launch_first<T, MASK, DY2>(c, g);
    if (!g.dresidual) {
        launch_gradient<T, MASK, DY2>(c, g);
        return;
    }
    launch_rest<T>(c, g);
}

template <typename T, mask MASK> void launch_pooled(const call &c, const ls_cuda_bn_grad &g)
{
    if (g.dy2)
        launch_sums<T, MASK, EXTRA_DENSE, true>(c, g);
    else
        launch_sums<T, MASK, EXTRA_NONE, true>(c, g);
}

template <typename T, mask MASK> void launch_masked(const call &c, const ls_cuda_bn_grad &g, bool both)
{
    if (g.dy2)
        (both ? launch_both<T, MASK, EXTRA_DENSE> : launch_first<T, MASK, EXTRA_DENSE>)(c, g);
    else
        (both ? launch_both<T, MASK, EXTRA_NONE> : launch_first<T, MASK, EXTRA_NONE>)(c, g);
}

template <typename T> void launch_sparse(const call &c, const ls_cuda_bn_grad &g, bool both)
{
    if (c.b->act == LS_ACT_NONE)
        launch_sums<T, MASK_NONE, EXTRA_SPARSE, true>(c, g);
    else
        launch_sums<T, MASK_BITS, EXTRA_SPARSE, true>(c, g);
    if (both)
        launch_rest<T>(c, g);
}

call call_of(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run)
{
    const int64_t area = b->x.h * b->x.w;
    return {s, b, run, area, b->x.n * area, act_top(b->act)};
}

/* Activations that do not clip come without a residual. */
template <typename T, mask SLOPE> void launch_smooth(const call &c, const ls_cuda_bn_grad &g)
{
    if (g.dy2) {
        launch_sums<T, SLOPE, EXTRA_DENSE, false>(c, g);
        launch_gradient<T, SLOPE, EXTRA_DENSE>(c, g);
    } else {
        launch_sums<T, SLOPE, EXTRA_NONE, false>(c, g);
        launch_gradient<T, SLOPE, EXTRA_NONE>(c, g);
    }
}

void choose(const call &c, const struct ls_cuda_bn_grad *g, bool both)
{
    LS_CUDA_BY_TYPE(c.b->t, if (g->dy2 && g->sparse > 1) launch_sparse<T>(c, *g, both);
                    else if (c.b->act == LS_ACT_SILU) launch_smooth<T, SLOPE_SILU>(c, *g);
                    else if (c.b->act == LS_ACT_HARDSWISH) launch_smooth<T, SLOPE_HARDSWISH>(c, *g);
                    else if (c.b->act == LS_ACT_GELU) launch_smooth<T, SLOPE_GELU>(c, *g);
                    else if (c.b->act == LS_ACT_NONE) launch_masked<T, MASK_NONE>(c, *g, both);
                    else if (g->kept) launch_masked<T, MASK_BITS>(c, *g, both);
                    else if (g->y) launch_masked<T, MASK_Y>(c, *g, both); else launch_masked<T, MASK_X>(c, *g, both));
}

} // namespace

bool ls_cuda_bn_takes_sparse(const struct ls_cuda_bn *b)
{
    return !b->pool && !small_enough(b, true);
}

void ls_cuda_bn_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                    const struct ls_cuda_bn_grad *g)
{
    if (small_enough(b, g->dresidual != NULL)) {
        small_bwd(s, b, run, g);
        return;
    }
    if (b->pool) {
        pool_bwd(s, b, run, g);
        return;
    }
    choose(call_of(s, b, run), g, true);
}

void ls_cuda_bn_bwd_sums(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                         const struct ls_cuda_bn_grad *g)
{
    if (b->pool) {
        pooled_sums(s, b, run, g);
        return;
    }
    if (!g->x) {
        const call c = call_of(s, b, run);
        (g->dy2 && g->sparse > 1 ? launch_without_x<EXTRA_SPARSE>
         : g->dy2                ? launch_without_x<EXTRA_DENSE>
                                 : launch_without_x<EXTRA_NONE>)(c, *g);
        return;
    }
    choose(call_of(s, b, run), g, false);
}

void ls_cuda_bn_bwd_rest(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                         const struct ls_cuda_bn_grad *g)
{
    LS_CUDA_BY_TYPE(b->t, launch_gradient<T, MASK_NONE, EXTRA_NONE>(call_of(s, b, run), *g));
}

void ls_bn::pooled_sums(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                        const struct ls_cuda_bn_grad *g)
{
    const int64_t area = b->y.h * b->y.w;
    call c = {s, b, run, area, b->y.n * area, act_top(b->act)};
    ls_cuda_bn_grad pooled = *g;
    pooled.x = pooled.dresidual = g->kept;
    LS_CUDA_BY_TYPE(b->t, if (b->act == LS_ACT_NONE) launch_pooled<T, MASK_NONE>(c, pooled);
                    else if (g->y) launch_pooled<T, MASK_Y>(c, pooled); else launch_pooled<T, MASK_X>(c, pooled));
}
