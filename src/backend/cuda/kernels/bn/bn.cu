/* Batch normalisation, forward: the statistics and the normalisation. */
#include "backend/cuda/kernels/bn/bn.cuh"

using namespace ls_bn;

namespace
{

/* --- statistics ------------------------------------------------------------------------------------------------ */

/* Loads in flight per thread, in octets. */
template <typename T> constexpr int stats_batch = sizeof(T) == 4 ? 3 : 6;

/* Sums x - k and its square, where k is the first value of the channel. This avoids cancellation when the mean is
 * far from 0. A thread beyond the last row reads the first row instead, which adds 0. */
template <typename T>
__global__ void __launch_bounds__(SUM_THREADS, 2)
    stats(const void *x, const struct ls_cuda_run *run, int64_t area, int octets, float eps, float *scratch,
          float *mean, float *rstd, float *stat)
{
    extern __shared__ double room[];
    constexpr int batch = stats_batch<T>;
    const int octet = blockIdx.x * blockDim.x + threadIdx.x;
    const int rows = (int)(run->valid * area), step = (int)(gridDim.y * blockDim.y);
    float k[8], first[8] = {}, second[8] = {};
    if (octet < octets && rows > 0) {
        widen<T>(load<T>(x, octet), k);
        int row = rows - 1 - (int)(blockIdx.y * blockDim.y + threadIdx.y);
        int64_t at = (int64_t)row * octets + octet;
        const int64_t back = (int64_t)step * octets;
        for (; row >= 0; row -= batch * step, at -= batch * back) {
            ls_device::octet<T> in[batch];
#pragma unroll
            for (int u = 0; u < batch; u++)
                in[u] = load<T>(x, row - u * step < 0 ? octet : at - u * back);
#pragma unroll
            for (int u = 0; u < batch; u++) {
                float v[8];
                widen<T>(in[u], v);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float d = v[i] - k[i];
                    first[i] += d;
                    second[i] = fmaf(d, d, second[i]);
                }
            }
        }
    }
    const double count = (double)rows;
    sum_rows(first, second, octets, scratch, (float *)room, [&](int channel, double sum, double squares) {
        double centre = 0, variance = 0;
        if (rows > 0) {
            double shift = sum / count;
            variance = squares / count - shift * shift;
            variance = variance > 0 || variance != variance ? variance : 0;
            centre = (double)to_float(((const T *)x)[channel]) + shift;
        }
        const double weight = run->stat_weight;
        mean[channel] = (float)centre;
        rstd[channel] = (float)(1 / sqrt(variance + (double)eps));
        stat[channel] = (float)(weight * centre);
        stat[octets * 8 + channel] = (float)(weight * variance * (rows > 1 ? count / (count - 1) : 1));
    });
}

} // namespace

size_t ls_cuda_bn_scratch(const struct ls_cuda_bn *b)
{
    return sums_bytes(b->x.c);
}

size_t ls_cuda_bn_kept(const struct ls_cuda_bn *b, bool residual)
{
    const size_t count = (size_t)(b->y.n * b->y.h * b->y.w * b->y.c);
    if (b->pool)
        return fast_pool(b, residual) && !small_enough(b, residual) ? count * (b->t == LS_F32 ? 4 : 2) : 0;
    return residual && b->act != LS_ACT_NONE ? count / LS_CUDA_LANE : 0;
}

void ls_cuda_bn_stats(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *x,
                      float *mean, float *rstd, float *stat)
{
    const int64_t area = b->x.h * b->x.w;
    layout l = lay_summing(b->x.c, b->x.n * area, SUM_THREADS, 2);
    size_t room = (size_t)l.block.x * l.block.y * SUMS_ROOM;
    LS_CUDA_BY_TYPE(b->t, stats<T>
                    <<<l.grid, l.block, room, s>>>(x, run, area, l.octets, b->eps, b->scratch, mean, rstd, stat));
}

/* --- normalisation --------------------------------------------------------------------------------------------- */

namespace
{

template <typename T, bool RESIDUAL> constexpr int apply_batch = (sizeof(T) == 4 ? 2 : 4) * (RESIDUAL ? 1 : 2);

/* Bit i is set where the gradient of channel i passes the activation. */
__device__ __forceinline__ uint32_t passing(const float (&v)[8], float top)
{
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        bits |= act_passes(v[i], top) ? 1u << i : 0;
    return bits;
}

/* The activation: one that clips, one of those that do not, or none. */
template <enum ls_act ACT> __device__ __forceinline__ float activated(float z, float top)
{
    if constexpr (ACT <= LS_ACT_RELU6) /* ls_act_clips */
        return act_of<ACT != LS_ACT_NONE>(z, top);
    else
        return smooth_of<ACT>(z);
}

/* ACT is LS_ACT_RELU for both activations that clip. */
template <typename T, enum ls_act ACT, bool RESIDUAL, bool KEEPS>
__global__ void __launch_bounds__(MAP_THREADS, 3)
    apply(const void *x, const void *residual, const float *__restrict__ gamma, const float *__restrict__ beta,
          const float *__restrict__ mean, const float *__restrict__ spread, bool inference, float eps, float top,
          int64_t rows, int octets, int repeat, void *y, uint8_t *kept)
{
    constexpr int batch = apply_batch<T, RESIDUAL>;
    const int octet = blockIdx.x * blockDim.x + threadIdx.x, ty = blockDim.y;
    if (octet >= octets)
        return;
    affine a;
    load_affine(a, octet, gamma, beta, mean, spread, inference, eps);
    const int64_t row = (int64_t)blockIdx.y * repeat * ty;
    const int count = (int)min((int64_t)repeat * ty, rows - row);
    x = move<T>(x, row * octets + octet);
    residual = RESIDUAL ? move<T>(residual, row * octets + octet) : NULL;
    y = move<T>(y, row * octets + octet);
    kept = KEEPS ? kept + row * octets + octet : NULL;
    for (int r = threadIdx.y; r < count; r += batch * ty) {
        ls_device::octet<T> in[batch], more[batch];
#pragma unroll
        for (int u = 0; u < batch; u++) {
            if (r + u * ty >= count)
                continue;
            in[u] = load_once<T>(x, (r + u * ty) * octets);
            if (RESIDUAL)
                more[u] = load_once<T>(residual, (r + u * ty) * octets);
        }
#pragma unroll
        for (int u = 0; u < batch; u++) {
            if (r + u * ty >= count)
                continue;
            float v[8], w[8];
            widen<T>(in[u], v);
            if (RESIDUAL)
                widen<T>(more[u], w);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float z = normalised(v[i], a.mean[i], a.scale[i], a.beta[i]);
                v[i] = activated<ACT>(RESIDUAL ? z + w[i] : z, top);
            }
            store<T>(y, (r + u * ty) * octets, narrow<T>(v));
            if (KEEPS)
                __stcs(kept + (r + u * ty) * octets, (uint8_t)passing(v, top));
        }
    }
}

template <typename T, enum ls_act ACT, bool RESIDUAL, bool KEEPS>
void launch_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual, const float *gamma,
                  const float *beta, const float *mean, const float *spread, bool inference, void *y, void *kept)
{
    const int64_t rows = b->x.n * b->x.h * b->x.w;
    layout l = lay_mapping(b->x.c, rows, MAP_THREADS, apply_batch<T, RESIDUAL>);
    apply<T, ACT, RESIDUAL, KEEPS><<<l.grid, l.block, 0, s>>>(x, residual, gamma, beta, mean, spread, inference, b->eps,
                                                              act_top(b->act), rows, l.octets, l.repeat, y,
                                                              (uint8_t *)kept);
}

void choose_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual, const float *gamma,
                  const float *beta, const float *mean, const float *spread, bool inference, void *y, void *kept)
{
    const bool acts = b->act != LS_ACT_NONE;
    LS_CUDA_BY_TYPE(b->t, auto launch = residual && acts && kept     ? launch_apply<T, LS_ACT_RELU, true, true>
                                        : residual && acts           ? launch_apply<T, LS_ACT_RELU, true, false>
                                        : residual                   ? launch_apply<T, LS_ACT_NONE, true, false>
                                        : b->act == LS_ACT_SILU      ? launch_apply<T, LS_ACT_SILU, false, false>
                                        : b->act == LS_ACT_HARDSWISH ? launch_apply<T, LS_ACT_HARDSWISH, false, false>
                                        : b->act == LS_ACT_GELU      ? launch_apply<T, LS_ACT_GELU, false, false>
                                        : acts                       ? launch_apply<T, LS_ACT_RELU, false, false>
                                                                     : launch_apply<T, LS_ACT_NONE, false, false>;
                    launch(s, b, x, residual, gamma, beta, mean, spread, inference, y, kept));
}

} // namespace

void ls_cuda_bn_apply(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual,
                      const float *gamma, const float *beta, const float *mean, const float *rstd, void *y,
                      uint8_t *index, void *kept)
{
    if (b->pool)
        pool_apply(s, b, x, residual, gamma, beta, mean, rstd, false, y, index, kept);
    else
        choose_apply(s, b, x, residual, gamma, beta, mean, rstd, false, y, kept);
}

void ls_cuda_bn_forward(ls_cuda_stream s, const struct ls_cuda_bn *b, const struct ls_cuda_run *run, const void *x,
                        const void *residual, const float *gamma, const float *beta, float *mean, float *rstd,
                        float *stat, void *y, uint8_t *index, void *kept)
{
    if (small_enough(b, residual != NULL)) {
        small_apply(s, b, run, x, residual, gamma, beta, mean, rstd, stat, y, index, kept);
        return;
    }
    ls_cuda_bn_stats(s, b, run, x, mean, rstd, stat);
    ls_cuda_bn_apply(s, b, x, residual, gamma, beta, mean, rstd, y, index, kept);
}

void ls_cuda_bn_inference(ls_cuda_stream s, const struct ls_cuda_bn *b, const void *x, const void *residual,
                          const float *gamma, const float *beta, const float *running_mean, const float *running_var,
                          void *y)
{
    if (b->pool)
        pool_apply(s, b, x, residual, gamma, beta, running_mean, running_var, true, y, NULL, NULL);
    else
        choose_apply(s, b, x, residual, gamma, beta, running_mean, running_var, true, y, NULL);
}
