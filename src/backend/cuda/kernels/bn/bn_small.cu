/* Batch normalisation of maps with few rows, where launches and grid-wide sums would take longer than the memory
 * traffic. One block per octet holds all rows of the octet in registers. One launch then computes the statistics and
 * the normalisation, or both backward passes. With a 2x2 pooling, whose windows must tile the map exactly, a thread
 * holds the pixels of its windows.
 *
 * Backward rounds dz to the type of the map before the sums, as bn_bwd.cu does where it stores dz. */
#include "backend/cuda/kernels/bn/bn.cuh"
#include "backend/cuda/kernels/pool/pool.cuh"

using namespace ls_bn;
using namespace ls_pool;

namespace
{

constexpr int SMALL_THREADS = 512; /* one warp for each of the 16 sums */

/* Beyond FEW_ROWS rows, a map with fewer channels has so few blocks that one launch takes longer than two launches
 * with many blocks. */
constexpr int FEW_ROWS = 1024, MANY_CHANNELS = 512;

/* Octets per thread. */
template <typename T> constexpr int HELD = sizeof(T) == 4 ? 4 : 8;

/* A unit is a row, or a window with POOL. */
struct small_map {
    int octets, units, area; /* area: units per sample */
    int w;                   /* windows per row of windows */
    divider by_w;
    int pixels; /* per sample */
};

/* The unit in slot j of a thread, and the index of its octet in x. */
template <bool POOL> __device__ __forceinline__ int unit_of(int j)
{
    return (int)threadIdx.x + SMALL_THREADS * (POOL ? j / 4 : j);
}
template <bool POOL> __device__ __forceinline__ int64_t place_of_slot(const small_map &m, int j)
{
    int row = unit_of<POOL>(j);
    if (POOL) /* a pair of rows has 4 * w pixels; unit / w is the pair */
        row = 2 * (row + (int)divide((uint32_t)row, m.by_w) * m.w) + j % 4 / 2 * 2 * m.w + j % 2;
    return (int64_t)row * m.octets + blockIdx.x;
}

/* total[i] and total[8 + i] become the sums of first[i] and second[i] over the block, added in a fixed order. */
__device__ __forceinline__ void block_sums(const float (&first)[8], const float (&second)[8], double (&total)[16])
{
    __shared__ float room[16 * SMALL_THREADS];
    const int t = threadIdx.x, sum_of = t / 32;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        room[i * SMALL_THREADS + t] = first[i];
        room[(8 + i) * SMALL_THREADS + t] = second[i];
    }
    __syncthreads();
    double sum = 0;
#pragma unroll
    for (int r = 0; r < SMALL_THREADS; r += 32)
        sum += room[sum_of * SMALL_THREADS + r + t % 32];
    sum = warp_sum(sum);
    if (t % 32 == 0)
        total[sum_of] = sum;
    __syncthreads();
}

/* --- forward --------------------------------------------------------------------------------------------------- */

struct forward {
    const void *x, *residual;
    const float *gamma, *beta;
    float *mean, *rstd, *stat;
    void *y, *kept;
    uint8_t *index;
    float eps, top;
};

/* Does the work of pool_strip with K = 2 on four pixels in registers. */
template <typename T, bool CLIPS>
__device__ __forceinline__ void pool_held(const ls_device::octet<T> *in, const forward &f, int64_t to,
                                          const float2 *mean, const float2 *scale, const float2 *beta)
{
    ls_device::octet<T> out;
    uint32_t where[4];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const uint32_t flip = (scale[p].x < 0 ? 0x8000u : 0) | (scale[p].y < 0 ? 0x80000000u : 0);
        duo<T> v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = duo_of<T>(in[i], p, flip);
        const duo<T> best = larger<T>(larger<T>(v[0], v[1]), larger<T>(v[2], v[3]));
        where[p] = both(3);
#pragma unroll
        for (int i = 2; i >= 0; i--)
            where[p] = where_equal<T>(v[i], best, both(i), where[p]);
        set_duo<T>(out, p, best, flip);
        float2 z = pair_of<T>(out, p);
        z.x = act_of<CLIPS>(normalised(z.x, mean[p].x, scale[p].x, beta[p].x), f.top);
        z.y = act_of<CLIPS>(normalised(z.y, mean[p].y, scale[p].y, beta[p].y), f.top);
        set_pair<T>(out, p, z);
        if (CLIPS) /* the activation maps all of these to 0, so they are equal */
            where[p] &= (z.x > 0 ? 0xffffu : 0) | (z.y > 0 ? 0xffff0000u : 0);
    }
    store<T>(f.y, to, out);
    __stcs((uint2 *)f.index + to, pack_positions(where));
}

template <typename T, bool POOL, bool CLIPS>
__global__ void __launch_bounds__(SMALL_THREADS, 1) small_forward(forward f, const struct ls_cuda_run *run, small_map m)
{
    __shared__ double total[16];
    __shared__ float2 mean[4], scale[4], beta[4];
    constexpr int held = HELD<T>;
    const int octet = blockIdx.x, t = threadIdx.x;
    const int live = (int)(run->valid * m.area);
    ls_device::octet<T> in[held];
#pragma unroll
    for (int j = 0; j < held; j++) {
        in[j] = zero_octet<T>();
        if (unit_of<POOL>(j) < m.units)
            in[j] = load_shared<T>(f.x, place_of_slot<POOL>(m, j));
    }
    /* Sums of x - k and its square, where k is the first value of the channel. */
    const ls_device::octet<T> one = load_shared<T>(f.x, octet);
    float first[8] = {}, second[8] = {};
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const float2 k = pair_of<T>(one, p);
#pragma unroll
        for (int j = 0; j < held; j++) {
            const float2 v = pair_of<T>(in[j], p);
            const bool counts = unit_of<POOL>(j) < live;
            const float a = counts ? v.x - k.x : 0, b = counts ? v.y - k.y : 0;
            first[2 * p] += a;
            first[2 * p + 1] += b;
            second[2 * p] = fmaf(a, a, second[2 * p]);
            second[2 * p + 1] = fmaf(b, b, second[2 * p + 1]);
        }
    }
    block_sums(first, second, total);
    if (t < 8) {
        const int channel = octet * 8 + t;
        const double count = (double)run->valid * m.pixels, weight = run->stat_weight;
        double centre = 0, variance = 0;
        if (count > 0) {
            const double shift = total[t] / count;
            variance = total[8 + t] / count - shift * shift;
            variance = variance > 0 || variance != variance ? variance : 0;
            centre = (double)to_float(((const T *)f.x)[channel]) + shift;
        }
        const float rstd = (float)(1 / sqrt(variance + (double)f.eps));
        f.mean[channel] = ((float *)mean)[t] = (float)centre;
        f.rstd[channel] = rstd;
        f.stat[channel] = (float)(weight * centre);
        f.stat[m.octets * 8 + channel] = (float)(weight * variance * (count > 1 ? count / (count - 1) : 1));
        ((float *)scale)[t] = __fmul_rn(f.gamma[channel], rstd);
        ((float *)beta)[t] = f.beta[channel];
    }
    __syncthreads();
    if constexpr (POOL) {
#pragma unroll
        for (int j = 0; j < held; j += 4)
            if (unit_of<POOL>(j) < m.units)
                pool_held<T, CLIPS>(in + j, f, (int64_t)unit_of<POOL>(j) * m.octets + octet, mean, scale, beta);
    } else {
        ls_device::octet<T> more[held];
#pragma unroll
        for (int j = 0; j < held; j++) {
            more[j] = zero_octet<T>();
            if (f.residual && unit_of<POOL>(j) < m.units)
                more[j] = load_once<T>(f.residual, place_of_slot<POOL>(m, j));
        }
#pragma unroll
        for (int j = 0; j < held; j++) {
            uint32_t bits = 0;
#pragma unroll
            for (int p = 0; p < 4; p++) {
                const float2 w = pair_of<T>(more[j], p);
                float2 v = pair_of<T>(in[j], p);
                v.x = act_of<CLIPS>(normalised(v.x, mean[p].x, scale[p].x, beta[p].x) + w.x, f.top);
                v.y = act_of<CLIPS>(normalised(v.y, mean[p].y, scale[p].y, beta[p].y) + w.y, f.top);
                bits |= act_passes(v.x, f.top) ? 1u << 2 * p : 0;
                bits |= act_passes(v.y, f.top) ? 2u << 2 * p : 0;
                set_pair<T>(in[j], p, v);
            }
            if (unit_of<POOL>(j) >= m.units)
                continue;
            const int64_t at = place_of_slot<POOL>(m, j);
            store<T>(f.y, at, in[j]);
            if (f.kept)
                __stcs((uint8_t *)f.kept + at, (uint8_t)bits);
        }
    }
}

/* --- backward -------------------------------------------------------------------------------------------------- */

template <typename T, bool POOL>
__global__ void __launch_bounds__(SMALL_THREADS, 1)
    small_backward(struct ls_cuda_bn_grad g, const struct ls_cuda_run *run, small_map m, mask from, float top)
{
    __shared__ double total[16];
    __shared__ float2 mean[4], scale[4], beta[4], slope[4], offset[4];
    constexpr int held = HELD<T>, step = POOL ? 4 : 1;
    const int octet = blockIdx.x, t = threadIdx.x;
    const int live = (int)(run->valid * m.area);
    ls_device::octet<T> in[held], dz[held]; /* with POOL, at first one dz per window */
#pragma unroll
    for (int j = 0; j < held; j++) {
        in[j] = zero_octet<T>();
        if (unit_of<POOL>(j) < live)
            in[j] = load_once<T>(g.x, place_of_slot<POOL>(m, j));
    }
#pragma unroll
    for (int j = 0; j < held; j += step) {
        dz[j] = zero_octet<T>();
        if (unit_of<POOL>(j) < live)
            dz[j] = load_once<T>(g.dy, (int64_t)unit_of<POOL>(j) * m.octets + octet);
    }
    if (t < 8) {
        const int channel = octet * 8 + t;
        ((float *)mean)[t] = g.mean[channel];
        ((float *)scale)[t] = __fmul_rn(g.gamma[channel], g.rstd[channel]);
        ((float *)beta)[t] = g.beta[channel];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < held; j += step) {
        const int64_t at = (int64_t)unit_of<POOL>(j) * m.octets + octet;
        const bool counts = unit_of<POOL>(j) < live;
        ls_device::octet<T> dy2 = zero_octet<T>(), y = zero_octet<T>();
        uint32_t bits = 0xff;
        uint2 to = make_uint2(0, 0);
        if (counts && g.dy2)
            dy2 = load_once<T>(g.dy2, at);
        if (counts && from == MASK_Y)
            y = load_once<T>(g.y, at);
        if (counts && from == MASK_BITS)
            bits = __ldcs((const uint8_t *)g.kept + at);
        if (counts && POOL)
            to = __ldg((const uint2 *)g.index + at);
        const ls_device::octet<T> dy = dz[j];
#pragma unroll
        for (int p = 0; p < 4; p++) {
            float2 d = pair_of<T>(dy, p);
            const float2 more = pair_of<T>(dy2, p), after = pair_of<T>(y, p);
            d.x += more.x;
            d.y += more.y;
            if (from == MASK_Y) {
                d.x = act_passes(after.x, top) ? d.x : 0;
                d.y = act_passes(after.y, top) ? d.y : 0;
            }
            d.x = bits & 1u << 2 * p ? d.x : 0;
            d.y = bits & 2u << 2 * p ? d.y : 0;
#pragma unroll
            for (int i = 0; i < step; i++) {
                float2 e = d;
                if (POOL) {
                    e.x = goes_to(to, 2 * p, i) ? e.x : 0;
                    e.y = goes_to(to, 2 * p + 1, i) ? e.y : 0;
                }
                if (from == MASK_X) {
                    const float2 v = pair_of<T>(in[j + i], p);
                    e.x = act_passes(normalised(v.x, mean[p].x, scale[p].x, beta[p].x), top) ? e.x : 0;
                    e.y = act_passes(normalised(v.y, mean[p].y, scale[p].y, beta[p].y), top) ? e.y : 0;
                }
                set_pair<T>(dz[j + i], p, e);
            }
        }
    }
    float first[8] = {}, second[8] = {};
#pragma unroll
    for (int p = 0; p < 4; p++) {
#pragma unroll
        for (int j = 0; j < held; j++) {
            const float2 d = pair_of<T>(dz[j], p), v = pair_of<T>(in[j], p);
            first[2 * p] += d.x;
            first[2 * p + 1] += d.y;
            second[2 * p] = fmaf(d.x, v.x - mean[p].x, second[2 * p]);
            second[2 * p + 1] = fmaf(d.y, v.y - mean[p].y, second[2 * p + 1]);
        }
    }
    block_sums(first, second, total);
    if (t < 8) {
        const int channel = octet * 8 + t;
        const float rstd = g.rstd[channel], dbeta = (float)total[t], dgamma = (float)(total[8 + t] * (double)rstd);
        const float count = (float)(run->valid * m.pixels), share = count > 0 ? 1 / count : 0;
        const float by = ((float *)scale)[t], fall = -by * rstd * dgamma * share;
        g.dbeta[channel] = dbeta;
        g.dgamma[channel] = dgamma;
        ((float *)slope)[t] = fall;
        ((float *)offset)[t] = -by * dbeta * share - fall * ((float *)mean)[t];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < held; j++) {
        if (unit_of<POOL>(j) >= m.units)
            continue;
        const int64_t at = place_of_slot<POOL>(m, j);
        if (!POOL && g.dresidual)
            store<T>(g.dresidual, at, dz[j]);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            const float2 v = pair_of<T>(in[j], p);
            float2 d = pair_of<T>(dz[j], p);
            d.x = fmaf(scale[p].x, d.x, fmaf(slope[p].x, v.x, offset[p].x));
            d.y = fmaf(scale[p].y, d.y, fmaf(slope[p].y, v.y, offset[p].y));
            set_pair<T>(dz[j], p, d);
        }
        store<T>(g.dx, at, unit_of<POOL>(j) < live ? dz[j] : zero_octet<T>());
    }
}

small_map map_of(const struct ls_cuda_bn *b)
{
    small_map m = {};
    m.octets = (int)(b->x.c / LS_CUDA_LANE);
    m.area = (int)(b->y.h * b->y.w);
    m.units = (int)(b->y.n * m.area);
    m.w = (int)b->y.w;
    m.by_w = divider_of(m.w);
    m.pixels = (int)(b->x.h * b->x.w);
    return m;
}

} // namespace

bool ls_bn::small_enough(const struct ls_cuda_bn *b, bool residual)
{
    const int64_t rows = b->x.n * b->x.h * b->x.w;
    if (!ls_act_clips(b->act))
        return false;
    if (rows > SMALL_THREADS * (b->t == LS_F32 ? HELD<float> : HELD<__half>))
        return false;
    if (rows > FEW_ROWS && b->x.c < MANY_CHANNELS)
        return false;
    return !b->pool || (fast_pool(b, residual) == 2 && b->x.h == 2 * b->y.h && b->x.w == 2 * b->y.w && b->pad_t == 0 &&
                        b->pad_l == 0);
}

void ls_bn::small_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *x,
                        const void *residual, const float *gamma, const float *beta, float *mean, float *rstd,
                        float *stat, void *y, uint8_t *index, void *kept)
{
    const small_map m = map_of(b);
    const forward f = {x, residual, gamma, beta, mean, rstd, stat, y, kept, index, b->eps, act_top(b->act)};
    const bool clips = b->act != LS_ACT_NONE;
    LS_CUDA_BY_TYPE(b->t, auto kernel = b->pool ? clips ? small_forward<T, true, true> : small_forward<T, true, false>
                                        : clips ? small_forward<T, false, true>
                                                : small_forward<T, false, false>;
                    kernel<<<m.octets, SMALL_THREADS, 0, s>>>(f, run, m));
}

void ls_bn::small_bwd(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run,
                      const struct ls_cuda_bn_grad *g)
{
    const small_map m = map_of(b);
    const mask from = b->act == LS_ACT_NONE ? MASK_NONE : g->kept && !b->pool ? MASK_BITS : g->y ? MASK_Y : MASK_X;
    LS_CUDA_BY_TYPE(b->t, auto kernel = b->pool ? small_backward<T, true> : small_backward<T, false>;
                    kernel<<<m.octets, SMALL_THREADS, 0, s>>>(*g, run, m, from, act_top(b->act)));
}
