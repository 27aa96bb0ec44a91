/* Batch normalisation of two maps, a and b, followed by the activation of their sum:
 *
 *   forward   y = act(bn a + bn b), after the statistics of both
 *   sums      dz = (dy + dy2) where the activation passed; dbeta of both = sum of dz, dgamma = sum of dz * xhat of each
 *   gradient  dx of each = gamma * rstd * (dz - (dbeta + xhat * dgamma) / count)
 *
 * The expressions are those of bn.cu and bn_bwd.cu. The only difference is that forward adds b without rounding it
 * first. */
#include "backend/cuda/kernels/bn/bn.cuh"

using namespace ls_bn;

namespace
{

constexpr int BWD_THREADS = 384, BWD_BLOCKS = 2; /* of the summing kernel: threads, and blocks per multiprocessor */

/* Rows in flight per thread: up to 8 words of 16 bytes. */
template <typename T, int STREAMS> constexpr int rows_in_flight()
{
    int rows = 8 / (STREAMS * octet<T>::words);
    return rows > 1 ? rows : 1;
}

/* --- forward --------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void put_affine(parameters<P_FIRST> &params, int x, int octet,
                                           const struct ls_cuda_bn_twin &of)
{
    affine a;
    load_affine(a, octet, of.gamma, of.beta, of.mean, of.rstd, false, 0);
    params.put(P_MEAN, x, a.mean);
    params.put(P_SCALE, x, a.scale);
    params.put(P_BETA, x, a.beta);
}

/* With CLIPS, the kernel also stores which channels pass the activation. */
template <typename T, bool CLIPS>
__global__ void __launch_bounds__(MAP_THREADS, 3)
    twin_apply(struct ls_cuda_bn_twin a, struct ls_cuda_bn_twin b, float top, int64_t rows, int octets, int repeat,
               void *y, uint8_t *kept)
{
    __shared__ parameters<P_FIRST> of_a, of_b;
    constexpr int batch = rows_in_flight<T, 2>();
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x, ty = blockDim.y;
    if (threadIdx.y == 0 && octet < octets) {
        put_affine(of_a, x, octet, a);
        put_affine(of_b, x, octet, b);
    }
    __syncthreads();
    if (octet >= octets)
        return;
    const int64_t row = (int64_t)blockIdx.y * repeat * ty, start = row * octets + octet;
    const int count = (int)min((int64_t)repeat * ty, rows - row);
    a.x = move<T>(a.x, start);
    b.x = move<T>(b.x, start);
    y = move<T>(y, start);
    kept = CLIPS ? kept + start : NULL;
    for (int r = threadIdx.y; r < count; r += batch * ty) {
        ls_device::octet<T> in[batch], more[batch];
        uint32_t bits[batch];
#pragma unroll
        for (int u = 0; u < batch; u++) {
            bits[u] = 0;
            if (r + u * ty >= count)
                continue;
            in[u] = load_once<T>(a.x, (r + u * ty) * octets);
            more[u] = load_once<T>(b.x, (r + u * ty) * octets);
        }
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float2 mean = of_a.get(P_MEAN, x, p), scale = of_a.get(P_SCALE, x, p), beta = of_a.get(P_BETA, x, p);
            const float2 mean_b = of_b.get(P_MEAN, x, p), scale_b = of_b.get(P_SCALE, x, p),
                         beta_b = of_b.get(P_BETA, x, p);
#pragma unroll
            for (int u = 0; u < batch; u++) {
                float2 v = pair_of<T>(in[u], p);
                const float2 w = pair_of<T>(more[u], p);
                v.x = normalised(v.x, mean.x, scale.x, beta.x) + normalised(w.x, mean_b.x, scale_b.x, beta_b.x);
                v.y = normalised(v.y, mean.y, scale.y, beta.y) + normalised(w.y, mean_b.y, scale_b.y, beta_b.y);
                v.x = act_of<CLIPS>(v.x, top);
                v.y = act_of<CLIPS>(v.y, top);
                if (CLIPS) {
                    bits[u] |= act_passes(v.x, top) ? 1u << 2 * p : 0;
                    bits[u] |= act_passes(v.y, top) ? 2u << 2 * p : 0;
                }
                set_pair<T>(in[u], p, v);
            }
        }
#pragma unroll
        for (int u = 0; u < batch; u++) {
            if (r + u * ty >= count)
                continue;
            store<T>(y, (r + u * ty) * octets, in[u]);
            if (CLIPS)
                __stcs(kept + (r + u * ty) * octets, (uint8_t)bits[u]);
        }
    }
}

template <typename T, bool CLIPS>
void launch_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_bn_twin twin[2], void *y,
                  void *kept)
{
    const int64_t rows = b->x.n * b->x.h * b->x.w;
    layout l = lay_mapping(b->x.c, rows, MAP_THREADS, rows_in_flight<T, 2>());
    twin_apply<T, CLIPS>
        <<<l.grid, l.block, 0, s>>>(twin[0], twin[1], act_top(b->act), rows, l.octets, l.repeat, y, (uint8_t *)kept);
}

/* --- backward -------------------------------------------------------------------------------------------------- */

/* BITS: a.kept holds the activation's mask. */
template <typename T, bool BITS, bool DY2>
__global__ void __launch_bounds__(BWD_THREADS, BWD_BLOCKS)
    twin_sums(struct ls_cuda_bn_grad a, struct ls_cuda_bn_grad b, const struct ls_cuda_run *run, int64_t n,
              int64_t area, int octets, float *scratch)
{
    extern __shared__ double room[];
    __shared__ parameters<P_FIRST> of_a, of_b;
    constexpr int batch = rows_in_flight<T, 3 + DY2>();
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x;
    if (threadIdx.y == 0 && octet < octets) {
        put_backward<false>(of_a, x, octet, a, 0);
        put_backward<false>(of_b, x, octet, b, 0);
    }
    __syncthreads();

    const int valid = (int)(run->valid * area), rows = (int)(n * area), step = (int)(gridDim.y * blockDim.y);
    float sum[3][8] = {}; /* of dz, dz * (x - mean) of a, and dz * (x - mean) of b */
    if (octet < octets) {
        int row = rows - 1 - (int)(blockIdx.y * blockDim.y + threadIdx.y);
        int64_t at = (int64_t)row * octets + octet;
        const int64_t back = (int64_t)step * octets;
        for (; row >= 0; row -= batch * step, at -= batch * back) {
            ls_device::octet<T> dz[batch], dy2[batch], in[batch], more[batch];
            uint32_t bits[batch];
#pragma unroll
            for (int u = 0; u < batch; u++) {
                dz[u] = dy2[u] = in[u] = more[u] = zero_octet<T>();
                bits[u] = 0;
                if (row - u * step < 0 || row - u * step >= valid)
                    continue;
                dz[u] = load_once<T>(a.dy, at - u * back);
                in[u] = load<T>(a.x, at - u * back);
                more[u] = load<T>(b.x, at - u * back);
                if (DY2)
                    dy2[u] = load_once<T>(a.dy2, at - u * back);
                if (BITS)
                    bits[u] = __ldcs((const uint8_t *)a.kept + (at - u * back));
            }
#pragma unroll
            for (int p = 0; p < 4; p++) {
                const float2 mean = of_a.get(P_MEAN, x, p), mean_b = of_b.get(P_MEAN, x, p);
#pragma unroll
                for (int u = 0; u < batch; u++) {
                    const float2 v = pair_of<T>(in[u], p), w = pair_of<T>(more[u], p);
                    float2 d = pair_of<T>(dz[u], p);
                    if (DY2) {
                        const float2 also = pair_of<T>(dy2[u], p);
                        d.x += also.x;
                        d.y += also.y;
                    }
                    if (BITS) {
                        d.x = bits[u] & 1u << 2 * p ? d.x : 0;
                        d.y = bits[u] & 2u << 2 * p ? d.y : 0;
                    }
                    set_pair<T>(dz[u], p, d); /* sums use the rounded dz, which the second pass reads */
                    d = pair_of<T>(dz[u], p);
                    sum[0][2 * p] += d.x;
                    sum[0][2 * p + 1] += d.y;
                    sum[1][2 * p] = fmaf(d.x, v.x - mean.x, sum[1][2 * p]);
                    sum[1][2 * p + 1] = fmaf(d.y, v.y - mean.y, sum[1][2 * p + 1]);
                    sum[2][2 * p] = fmaf(d.x, w.x - mean_b.x, sum[2][2 * p]);
                    sum[2][2 * p + 1] = fmaf(d.y, w.y - mean_b.y, sum[2][2 * p + 1]);
                }
            }
#pragma unroll
            for (int u = 0; u < batch; u++)
                if (row - u * step >= 0)
                    store<T>(a.dresidual, at - u * back, dz[u]);
        }
    }
    sum_all<3>(sum, octets, scratch, (float *)room, [&](int channel, const double(&of)[3]) {
        a.dbeta[channel] = b.dbeta[channel] = (float)of[0];
        a.dgamma[channel] = (float)(of[1] * (double)a.rstd[channel]);
        b.dgamma[channel] = (float)(of[2] * (double)b.rstd[channel]);
    });
}

/* b.dx may be the same memory as a.dresidual: a thread reads an element before it writes it, and no other thread
 * reads that element. */
template <typename T>
__global__ void __launch_bounds__(MAP_THREADS, 3)
    twin_gradient(struct ls_cuda_bn_grad a, struct ls_cuda_bn_grad b, const struct ls_cuda_run *run, int64_t n,
                  int64_t area, int octets, int repeat)
{
    __shared__ parameters<P_ALL> of_a, of_b;
    constexpr int batch = rows_in_flight<T, 3>();
    const int x = threadIdx.x, octet = blockIdx.x * blockDim.x + x, ty = blockDim.y;
    const int64_t valid = run->valid * area;
    if (threadIdx.y == 0 && octet < octets) {
        put_backward<true>(of_a, x, octet, a, valid);
        put_backward<true>(of_b, x, octet, b, valid);
    }
    __syncthreads();
    if (octet >= octets)
        return;

    const int64_t row = (int64_t)blockIdx.y * repeat * ty, start = row * octets + octet;
    const int count = (int)min((int64_t)repeat * ty, n * area - row),
              live = (int)max(min((int64_t)count, valid - row), (int64_t)0);
    const void *from = move<T>((const void *)a.dresidual, start);
    a.x = move<T>(a.x, start);
    b.x = move<T>(b.x, start);
    a.dx = move<T>(a.dx, start);
    b.dx = move<T>(b.dx, start);
    for (int r = threadIdx.y; r < count; r += batch * ty) {
        ls_device::octet<T> dz[batch], in[batch], more[batch];
#pragma unroll
        for (int u = 0; u < batch; u++) {
            dz[u] = in[u] = more[u] = zero_octet<T>();
            if (r + u * ty >= live)
                continue;
            dz[u] = load_once<T>(from, (r + u * ty) * octets);
            in[u] = load_once<T>(a.x, (r + u * ty) * octets);
            more[u] = load_once<T>(b.x, (r + u * ty) * octets);
        }
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float2 scale = of_a.get(P_SCALE, x, p), slope = of_a.get(P_SLOPE, x, p),
                         offset = of_a.get(P_OFFSET, x, p);
            const float2 scale_b = of_b.get(P_SCALE, x, p), slope_b = of_b.get(P_SLOPE, x, p),
                         offset_b = of_b.get(P_OFFSET, x, p);
#pragma unroll
            for (int u = 0; u < batch; u++) {
                const float2 d = pair_of<T>(dz[u], p);
                float2 v = pair_of<T>(in[u], p), w = pair_of<T>(more[u], p);
                v.x = fmaf(scale.x, d.x, fmaf(slope.x, v.x, offset.x));
                v.y = fmaf(scale.y, d.y, fmaf(slope.y, v.y, offset.y));
                w.x = fmaf(scale_b.x, d.x, fmaf(slope_b.x, w.x, offset_b.x));
                w.y = fmaf(scale_b.y, d.y, fmaf(slope_b.y, w.y, offset_b.y));
                set_pair<T>(in[u], p, v);
                set_pair<T>(more[u], p, w);
            }
        }
#pragma unroll
        for (int u = 0; u < batch; u++) {
            if (r + u * ty >= count)
                continue;
            const bool counts = r + u * ty < live;
            store<T>(a.dx, (r + u * ty) * octets, counts ? in[u] : zero_octet<T>());
            store<T>(b.dx, (r + u * ty) * octets, counts ? more[u] : zero_octet<T>());
        }
    }
}

template <typename T, bool BITS, bool DY2>
void launch_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                const struct ls_cuda_bn_grad &first, const struct ls_cuda_bn_grad &second)
{
    const int64_t area = b->x.h * b->x.w, rows = b->x.n * area;
    layout l = lay_summing(b->x.c, rows, BWD_THREADS, BWD_BLOCKS);
    const size_t room = (size_t)l.block.x * l.block.y * sums_room<3>;
    twin_sums<T, BITS, DY2><<<l.grid, l.block, room, s>>>(first, second, run, b->x.n, area, l.octets, b->scratch);
    l = lay_mapping(b->x.c, rows, MAP_THREADS, rows_in_flight<T, 3>());
    twin_gradient<T><<<l.grid, l.block, 0, s>>>(first, second, run, b->x.n, area, l.octets, l.repeat);
}

} // namespace

bool ls_cuda_bn_twins(const struct ls_cuda_bn *b)
{
    /* With more segments than multiprocessors, three sums would need more scratch than two sums get. */
    static_assert(3 * BWD_BLOCKS <= 2 * BLOCKS_PER_SM, "three sums fit the scratch");
    layout l = {};
    lay_segments(&l, b->x.c);
    return !b->pool && !small_enough(b, true) && l.grid.x <= (unsigned)multiprocessors();
}

void ls_cuda_bn_twin_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_bn_twin twin[2], void *y,
                           void *kept)
{
    LS_CUDA_BY_TYPE(b->t, auto launch = b->act != LS_ACT_NONE ? launch_apply<T, true> : launch_apply<T, false>;
                    launch(s, b, twin, y, kept));
}

void ls_cuda_bn_twin_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                         const struct ls_cuda_bn_grad *first, const struct ls_cuda_bn_grad *second)
{
    const bool bits = b->act != LS_ACT_NONE;
    LS_CUDA_BY_TYPE(b->t, auto launch = bits && first->dy2 ? launch_bwd<T, true, true>
                                        : bits             ? launch_bwd<T, true, false>
                                        : first->dy2       ? launch_bwd<T, false, true>
                                                           : launch_bwd<T, false, false>;
                    launch(s, b, run, *first, *second));
}
