/* Batch normalisation, backward through a max pooling. Neither the gradient of the large map nor its mask is stored:
 * both passes gather it from the pooled map.
 *
 * Only the maximum of each window has a gradient. Where forward stored the x of the maxima, the first pass runs over
 * the pooled map alone (bn_bwd.cu) and stores dz there, and the second pass distributes it. Otherwise both passes
 * gather pixel by pixel. */
#include "backend/cuda/kernels/bn/bn.cuh"
#include "backend/cuda/kernels/pool/pool.cuh"

using namespace ls_bn;
using namespace ls_pool;

namespace
{

struct backward {
    struct ls_cuda_bn_grad g;
    const struct ls_cuda_run *run;
    source from;
    float low, top; /* z passes between these when the mask comes from x; otherwise they are infinite */
    float *scratch;
};

__device__ __forceinline__ bool passes(float z, const backward &b)
{
    return z > b.low && z < b.top;
}

/* dx = scale * dz + slope * x + offset, where b.from.dy is dz of the pooled map. */
template <typename T, int K>
__global__ void __launch_bounds__(POOL_THREADS, K == 3 ? 3 : 4) through_quads(backward b, windows win)
{
    __shared__ parameters<P_ALL> params;
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x;
    const int64_t valid = b.run->valid;
    if (threadIdx.y == 0 && octet < win.octets)
        put_backward<true>(params, x, octet, b.g, valid * win.h * win.w);
    __syncthreads();
    if (octet >= win.octets)
        return;
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < win.items; item += gridDim.y * blockDim.y) {
        const place at = place_of(win, item);
        const bool counts = at.n < valid;
        const int x0 = quad_column<K>(win, at.column);
        quad<T, K, false> around;
        if (counts)
            around.begin(win, b.from, at.n, at.from, at.column, octet);
        for (int q = at.from; q < at.to; q++) {
            const int y0 = quad_row<K>(win, q);
            const int64_t corner = (((int64_t)at.n * win.h + y0) * win.w + x0) * win.octets + octet;
            ls_device::octet<T> in[4];
            bool inside[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int iy = y0 + i / 2, ix = x0 + i % 2;
                inside[i] = iy >= 0 && iy < win.h && ix >= 0 && ix < win.w;
                in[i] = zero_octet<T>();
                if (inside[i] && counts)
                    in[i] = load_once<T>(b.g.x, corner + (i / 2 * win.w + i % 2) * win.octets);
            }
            if (counts) {
                around.fetch(win, b.from, at.n, q, at.column, octet);
#pragma unroll
                for (int p = 0; p < 4; p++) {
                    const float2 scale = params.get(P_SCALE, x, p), slope = params.get(P_SLOPE, x, p);
                    const float2 offset = params.get(P_OFFSET, x, p);
                    float2 d[4];
                    around.pairs(p, d);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float2 v = pair_of<T>(in[i], p);
                        d[i].x = fmaf(scale.x, d[i].x, fmaf(slope.x, v.x, offset.x));
                        d[i].y = fmaf(scale.y, d[i].y, fmaf(slope.y, v.y, offset.y));
                        set_pair<T>(in[i], p, d[i]);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (inside[i])
                    store<T>(b.g.dx, corner + (i / 2 * win.w + i % 2) * win.octets, in[i]);
        }
    }
}

/* Either pass for any pooling, also with a residual. The first pass runs from the last pixel to the first. */
template <typename T, bool SECOND>
__global__ void __launch_bounds__(POOL_THREADS, 3) through_pixels(backward b, windows win)
{
    extern __shared__ double room[];
    __shared__ parameters<P_ALL> params;
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x;
    const int64_t valid = b.run->valid;
    if (threadIdx.y == 0 && octet < win.octets)
        put_backward<SECOND>(params, x, octet, b.g, valid * win.h * win.w);
    __syncthreads();

    float first[8] = {}, second[8] = {};
    const uint32_t items = octet < win.octets ? win.items : 0;
    for (uint32_t item = blockIdx.y * blockDim.y + threadIdx.y; item < items; item += gridDim.y * blockDim.y) {
        const place at = place_of(win, SECOND ? item : items - 1 - item);
        const int64_t where = (int64_t)pixel_row(win, at.n, at.from, at.column) * win.octets + octet;
        if (at.n >= valid) {
            if (SECOND)
                store<T>(b.g.dx, where, zero_octet<T>());
            if (SECOND && b.g.dresidual)
                store<T>(b.g.dresidual, where, zero_octet<T>());
            continue;
        }
        ls_device::octet<T> in = SECOND ? load_once<T>(b.g.x, where) : load<T>(b.g.x, where), dz;
        float all[8];
        gather_pixel<T>(win, b.from, at.n, at.from, at.column, octet, all);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float2 mean = params.get(P_MEAN, x, p), scale = params.get(P_SCALE, x, p);
            const float2 beta = params.get(P_BETA, x, p), v = pair_of<T>(in, p);
            float2 d;
            d.x = passes(normalised(v.x, mean.x, scale.x, beta.x), b) ? all[2 * p] : 0;
            d.y = passes(normalised(v.y, mean.y, scale.y, beta.y), b) ? all[2 * p + 1] : 0;
            if (SECOND) {
                const float2 slope = params.get(P_SLOPE, x, p), offset = params.get(P_OFFSET, x, p);
                set_pair<T>(dz, p, d);
                d.x = fmaf(scale.x, d.x, fmaf(slope.x, v.x, offset.x));
                d.y = fmaf(scale.y, d.y, fmaf(slope.y, v.y, offset.y));
                set_pair<T>(in, p, d);
            } else {
                first[2 * p] += d.x;
                first[2 * p + 1] += d.y;
                second[2 * p] = fmaf(d.x, v.x - mean.x, second[2 * p]);
                second[2 * p + 1] = fmaf(d.y, v.y - mean.y, second[2 * p + 1]);
            }
        }
        if (SECOND)
            store<T>(b.g.dx, where, in);
        if (SECOND && b.g.dresidual)
            store<T>(b.g.dresidual, where, dz);
    }
    if (!SECOND)
        sum_rows(first, second, win.octets, b.scratch, (float *)room, [&](int channel, double sum, double products) {
            b.g.dbeta[channel] = (float)sum;
            b.g.dgamma[channel] = (float)(products * (double)b.g.rstd[channel]);
        });
}

template <typename T> void launch_pixels(ls_cuda_stream s, int64_t n, int64_t c, const backward &b, windows win)
{
    layout l = {};
    lay_segments(&l, c);
    l.block.y = POOL_THREADS / l.block.x;
    number_pixels(&win, n);
    const dim3 few = grid_for(l.grid.x, win.items, l.block.y, 3);
    const dim3 many = grid_for(l.grid.x, win.items, l.block.y, 64);
    const size_t room = (size_t)l.block.x * l.block.y * SUMS_ROOM;
    through_pixels<T, false><<<few, l.block, room, s>>>(b, win);
    through_pixels<T, true><<<many, l.block, 0, s>>>(b, win);
}

template <typename T, int K> void launch_quads(ls_cuda_stream s, int64_t n, int64_t c, const backward &b, windows win)
{
    layout l = {};
    lay_segments(&l, c);
    l.block.y = POOL_THREADS / l.block.x;
    number_quads(&win, K, n, K == 3 ? 8 : 2);
    const dim3 grid = grid_for(l.grid.x, win.items, l.block.y, 64);
    through_quads<T, K><<<grid, l.block, 0, s>>>(b, win);
}

} // namespace

void ls_bn::pool_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                     const struct ls_cuda_bn_grad *g)
{
    const windows win = windows_of(b);
    const int K = g->kept ? fast_pool(b, g->dresidual != NULL) : 0;
    if (K) {
        pooled_sums(s, b, run, g);
        const source from = {g->kept, NULL, NULL, g->index, INFINITY};
        const backward back = {*g, run, from, -INFINITY, INFINITY, b->scratch};
        LS_CUDA_BY_TYPE(b->t, auto go = K == 3 ? launch_quads<T, 3> : launch_quads<T, 2>;
                        go(s, b->x.n, b->x.c, back, win));
        return;
    }
    const bool from_x = b->act != LS_ACT_NONE && !g->y;
    const float top = act_top(b->act);
    const source from = {g->dy, g->dy2, b->act == LS_ACT_NONE ? NULL : g->y, g->index, top};
    const backward back = {*g, run, from, from_x ? 0 : -INFINITY, from_x ? top : INFINITY, b->scratch};
    LS_CUDA_BY_TYPE(b->t, launch_pixels<T>(s, b->x.n, b->x.c, back, win));
}
