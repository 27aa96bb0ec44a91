/* Views of images, and the mean of their logits. */
#include "backend/cuda/kernels/device.cuh"
#include "base/crop.h"

using namespace ls_device;

#define THREADS 256

/* One octet of one view each thread. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    views_kernel(struct ls_views v, struct ls_cuda_map map, int64_t octets, const void *x, void *y)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= octets * ls_views_count(&v))
        return;
    int view = (int)(at / octets);
    int64_t rest = at % octets, columns = map.c / 8, octet_column = rest % columns;
    int32_t height = (int32_t)map.h, width = (int32_t)map.w;
    int32_t w = (int32_t)(rest / columns % map.w), h = (int32_t)(rest / columns / map.w % map.h);
    int64_t n = rest / columns / map.w / map.h;
    int32_t move = ls_views_offset(&v, view);
    int32_t row = ls_reflect(move + h, height);
    int32_t column = ls_reflect(move + (v.mirror && view % 2 ? width - 1 - w : w), width);
    store<T>(y, at, load<T>(x, ((n * map.h + row) * map.w + column) * columns + octet_column));
}

void ls_cuda_views(ls_cuda_stream s, enum ls_dtype t, const struct ls_views *v, const struct ls_cuda_map *map,
                   const void *x, void *y)
{
    int64_t octets = map->n * map->h * map->w * map->c / 8, all = octets * ls_views_count(v);
    if (all)
        LS_CUDA_BY_TYPE(t,
                        views_kernel<T><<<(unsigned)ceil_div(all, THREADS), THREADS, 0, s>>>(*v, *map, octets, x, y));
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) mean_kernel(struct ls_views v, int64_t octets, const void *x, void *y)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= octets)
        return;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, one[8];
    for (int view = 0; view < ls_views_count(&v); view++) {
        widen<T>(load<T>(x, view * octets + at), one);
        for (int i = 0; i < 8; i++)
            sum[i] += ls_views_weight(&v, view) * one[i];
    }
    store<T>(y, at, narrow<T>(sum));
}

void ls_cuda_views_mean(ls_cuda_stream s, enum ls_dtype t, const struct ls_views *v, int64_t count, const void *x,
                        void *y)
{
    int64_t octets = count / 8;
    if (octets)
        LS_CUDA_BY_TYPE(t, mean_kernel<T><<<(unsigned)ceil_div(octets, THREADS), THREADS, 0, s>>>(*v, octets, x, y));
}
