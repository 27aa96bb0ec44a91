/* Factors of whole channels (squeeze-and-excitation) and of whole samples (stochastic depth). */
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/random.cuh"

using namespace ls_device;

#define THREADS 256
#define TILE 8                         /* columns of a block of mul_bwd, in octets */
#define TILE_ROWS (2 * THREADS / TILE) /* pixels that it handles at a time */

struct job {
    uint32_t octets;
    divider columns; /* octets of a pixel */
    divider pixels;  /* of a sample */
};

static struct job job_of(const struct ls_cuda_map *m)
{
    struct job j = {(uint32_t)(m->n * m->h * m->w * m->c / 8), divider_of(m->c / 8), divider_of(m->h * m->w)};
    return j;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) mul_kernel(struct job j, const void *a, const void *factors, void *y)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    uint32_t column = at, pixel = divide_rest(column, j.columns), sample = divide_rest(pixel, j.pixels);
    octet<T> oa = load<T>(a, at), of = load<T>(factors, (int64_t)sample * j.columns.by + column);
    float v[8], f[8];
    widen<T>(oa, v);
    widen<T>(of, f);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] *= f[i];
    store<T>(y, at, narrow<T>(v));
}

/* A block handles TILE columns of a sample. Each thread adds its pixels in order, and the threads of a column add up
 * along a tree, so the order of the sum is fixed. */
template <typename T>
static __global__ void __launch_bounds__(TILE *TILE_ROWS)
    mul_bwd_kernel(struct job j, const void *dy, const void *a, const void *factors, void *da, void *ds)
{
    __shared__ float part[TILE_ROWS][TILE][8];
    uint32_t column = blockIdx.x * TILE + threadIdx.x, columns = j.columns.by;
    bool inside = column < columns;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, f[8];
    int64_t first = (int64_t)blockIdx.y * j.pixels.by * columns + column, own = (int64_t)blockIdx.y * columns + column;
    if (inside) {
        widen<T>(load<T>(factors, own), f);
        for (uint32_t pixel = threadIdx.y; pixel < j.pixels.by; pixel += TILE_ROWS) {
            int64_t at = first + (int64_t)pixel * columns;
            octet<T> od = load<T>(dy, at), oa = load<T>(a, at);
            float d[8], v[8];
            widen<T>(od, d);
            widen<T>(oa, v);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum[i] += d[i] * v[i];
                d[i] *= f[i];
            }
            store<T>(da, at, narrow<T>(d));
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        part[threadIdx.y][threadIdx.x][i] = sum[i];
    for (unsigned half = TILE_ROWS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
#pragma unroll
            for (int i = 0; i < 8; i++)
                part[threadIdx.y][threadIdx.x][i] += part[threadIdx.y + half][threadIdx.x][i];
    }
    if (inside && threadIdx.y == 0) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] = part[0][threadIdx.x][i];
        store<T>(ds, own, narrow<T>(sum));
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    drop_path_kernel(struct job j, const struct ls_cuda_run *run, uint32_t layer, float p, const void *from, void *to)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    octet<T> o = load<T>(from, at);
    uint32_t column = at, pixel = divide_rest(column, j.columns), sample = divide_rest(pixel, j.pixels);
    uint32_t words[4], rest = sample % 4;
    philox(run->seed, random_stream(LS_RANDOM_DROPOUT, run->step, run->replica, layer), sample / 4, words);
    uint32_t word = rest == 0 ? words[0] : rest == 1 ? words[1] : rest == 2 ? words[2] : words[3];
    float v[8], factor = random_uniform(word) >= p ? 1 / (1 - p) : 0;
    widen<T>(o, v);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] *= factor;
    store<T>(to, at, narrow<T>(v));
}

void ls_cuda_mul(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *map, const void *a, const void *factors,
                 void *y)
{
    struct job j = job_of(map);
    if (j.octets)
        LS_CUDA_BY_TYPE(t, mul_kernel<T><<<(unsigned)ceil_div(j.octets, THREADS), THREADS, 0, s>>>(j, a, factors, y));
}

void ls_cuda_mul_bwd(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *map, const void *dy, const void *a,
                     const void *factors, void *da, void *ds)
{
    struct job j = job_of(map);
    dim3 grid((unsigned)ceil_div(j.columns.by, TILE), (unsigned)map->n), block(TILE, TILE_ROWS);
    if (j.octets)
        LS_CUDA_BY_TYPE(t, mul_bwd_kernel<T><<<grid, block, 0, s>>>(j, dy, a, factors, da, ds));
}

void ls_cuda_drop_path(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, uint32_t layer, float p,
                       const struct ls_cuda_map *x, const void *from, void *to)
{
    struct job j = job_of(x);
    if (j.octets)
        LS_CUDA_BY_TYPE(t, drop_path_kernel<T>
                        <<<(unsigned)ceil_div(j.octets, THREADS), THREADS, 0, s>>>(j, run, layer, p, from, to));
}
