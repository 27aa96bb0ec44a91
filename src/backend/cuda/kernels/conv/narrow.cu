/* Products of few channels by few, y = act(x w + bias), as a first convolution of small images is after unfolding, with an
 * activation that does not clip. Such a product is bound by memory: it is computed from registers, and its result before the
 * activation is not stored. A warp takes tiles of 16 rows. The order of depth and columns is free: a thread reads four adjacent
 * values of a row, and ends with adjacent channels. */
#include "backend/cuda/kernels/conv/product.cuh"
#include "backend/cuda/kernels/smooth.cuh"

using namespace ls_product;

namespace
{

constexpr int NARROW_THREADS = 256, TILES = 4; /* tiles in flight per warp */

/* x has 16 * SLICES channels, y has 8 * OCTETS. */
template <typename T, int SLICES, int OCTETS, enum ls_act ACT>
__global__ void __launch_bounds__(NARROW_THREADS)
    narrow_product(int64_t rows, const uint2 *__restrict__ x, const uint2 *__restrict__ w, const float *bias,
                   uint32_t *__restrict__ y)
{
    const int lane = threadIdx.x % 32, quarter = lane % 4;
    uint2 weights[SLICES][OCTETS];
    float2 shift[OCTETS];
#pragma unroll
    for (int j = 0; j < OCTETS; j++) {
        const int channel = lane / 8 * 2 * OCTETS + 2 * j + lane / 4 % 2;
#pragma unroll
        for (int k = 0; k < SLICES; k++)
            weights[k][j] = w[channel * 4 * SLICES + 4 * k + quarter];
        shift[j] = make_float2(0, 0);
        if (bias)
            shift[j] = make_float2(bias[quarter * 2 * OCTETS + 2 * j], bias[quarter * 2 * OCTETS + 2 * j + 1]);
    }
    const int64_t warp = ((int64_t)blockIdx.x * NARROW_THREADS + threadIdx.x) / 32,
                  warps = (int64_t)gridDim.x * NARROW_THREADS / 32;
    for (int64_t first = warp * TILES * 16; first < rows; first += warps * TILES * 16) {
        uint2 in[TILES][2][SLICES];
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int64_t row = first + t * 16 + half * 8 + lane / 4;
#pragma unroll
                for (int k = 0; k < SLICES; k++)
                    in[t][half][k] = row < rows ? __ldcs(x + row * 4 * SLICES + 4 * k + quarter) : make_uint2(0, 0);
            }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            float sums[OCTETS][4] = {};
#pragma unroll
            for (int k = 0; k < SLICES; k++) {
                const uint32_t a[4] = {in[t][0][k].x, in[t][1][k].x, in[t][0][k].y, in[t][1][k].y};
#pragma unroll
                for (int j = 0; j < OCTETS; j++)
                    multiply<T>(sums[j], a, weights[k][j].x, weights[k][j].y);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int64_t row = first + t * 16 + half * 8 + lane / 4;
                if (row >= rows)
                    continue;
#pragma unroll
                for (int j = 0; j < OCTETS; j++)
                    y[(row * 4 + quarter) * OCTETS + j] =
                        narrow_pair<T>(smooth_of<ACT>(sums[j][half * 2] + shift[j].x),
                                       smooth_of<ACT>(sums[j][half * 2 + 1] + shift[j].y));
            }
        }
    }
}

template <typename T, int SLICES, int OCTETS>
void launch(ls_cuda_stream s, const struct ls_cuda_conv *c, enum ls_act act, const void *x, const void *w,
            const float *bias, void *y)
{
    const int64_t rows = c->x.n * c->x.h * c->x.w, blocks = ceil_div(rows, NARROW_THREADS / 32 * TILES * 16),
                  most = (int64_t)multiprocessors() * 8;
    LS_CUDA_BY_SMOOTH(act, narrow_product<T, SLICES, OCTETS, ACT>
                      <<<(unsigned)(blocks < most ? blocks : most), NARROW_THREADS, 0, s>>>(
                          rows, (const uint2 *)x, (const uint2 *)w, bias, (uint32_t *)y));
}

template <typename T>
void choose(ls_cuda_stream s, const struct ls_cuda_conv *c, enum ls_act act, const void *x, const void *w,
            const float *bias, void *y)
{
    const int octets = (int)(c->y.c / 8);
    auto go = c->x.c == 16 ? (octets == 2   ? launch<T, 1, 2>
                              : octets == 3 ? launch<T, 1, 3>
                                            : launch<T, 1, 4>)
                           : (octets == 2   ? launch<T, 2, 2>
                              : octets == 3 ? launch<T, 2, 3>
                                            : launch<T, 2, 4>);
    go(s, c, act, x, w, bias, y);
}

} // namespace

bool ls_cuda_narrow_can(const struct ls_cuda_conv *c, enum ls_act act)
{
    return c->t != LS_F32 && (c->x.c == 16 || c->x.c == 32) && c->y.c >= 16 && c->y.c <= 32 && !ls_act_clips(act) &&
           ls_act_keeps_zero(act) && c->x.n > 0;
}

void ls_cuda_narrow(ls_cuda_stream s, const struct ls_cuda_conv *c, enum ls_act act, const void *x, const void *w,
                    const float *bias, void *y)
{
    (c->t == LS_BF16 ? choose<__nv_bfloat16> : choose<__half>)(s, c, act, x, w, bias, y);
}
