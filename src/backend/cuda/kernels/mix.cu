/* Mixup and cutmix: each image with the one before it. */
#include "backend/cuda/kernels/mix.cuh"

using namespace ls_device;

#define THREADS 256

struct job {
    uint32_t octets;
    divider columns; /* octets of a pixel */
    divider width;   /* pixels of a row */
    divider height;
    struct ls_mix_rule rule;
};

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    mix_kernel(struct job j, const struct ls_cuda_run *run, const void *x, void *y)
{
    struct ls_mix mix = block_mix(j.rule, run);
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    uint32_t rest = at, pixel = divide_rest(rest, j.columns), row = divide_rest(pixel, j.width);
    uint32_t sample = divide_rest(row, j.height);
    int64_t size = (int64_t)j.columns.by * j.width.by * j.height.by;
    int64_t other = at + (ls_mix_partner(sample, run->valid) - (int64_t)sample) * size;
    octet<T> own = load<T>(x, at), theirs = load<T>(x, other);
    if (mix.cuts) {
        bool inside = (int32_t)row >= mix.top && (int32_t)row < mix.bottom && (int32_t)pixel >= mix.left &&
                      (int32_t)pixel < mix.right;
        store<T>(y, at, inside ? theirs : own);
        return;
    }
    float a[8], b[8];
    widen<T>(own, a);
    widen<T>(theirs, b);
#pragma unroll
    for (int i = 0; i < 8; i++)
        a[i] = mix.weight * a[i] + (1 - mix.weight) * b[i];
    store<T>(y, at, narrow<T>(a));
}

void ls_cuda_mix(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, const struct ls_mix_rule *rule,
                 const struct ls_cuda_map *map, const void *x, void *y)
{
    struct job j = {(uint32_t)(map->n * map->h * map->w * map->c / 8), divider_of(map->c / 8), divider_of(map->w),
                    divider_of(map->h), *rule};
    if (j.octets)
        LS_CUDA_BY_TYPE(t, mix_kernel<T><<<(unsigned)ceil_div(j.octets, THREADS), THREADS, 0, s>>>(j, run, x, y));
}
