/* Dropout. Forward and backward both draw the mask from the logical numbers of the elements. One call of Philox
 * serves four elements. */
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/random.cuh"

using namespace ls_device;

#define THREADS 256

struct job {
    uint32_t octets; /* stored octets in total */
    divider columns; /* octets per row */
    divider pixels;  /* per sample */
    int64_t channels;
    uint32_t layer;
    float p;
};

static __device__ __forceinline__ uint64_t stream_of(const struct ls_cuda_run *run, const struct job &j)
{
    return random_stream(LS_RANDOM_DROPOUT, run->step, run->replica, j.layer);
}

/* Whether the element is kept. */
static __device__ __forceinline__ bool keeps(const struct job &j, uint32_t word)
{
    return random_uniform(word) >= j.p;
}

/* Rows of a matrix: the numbers of an octet are consecutive, and belong to two or three calls of Philox. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    matrix_kernel(struct job j, const struct ls_cuda_run *run, const void *from, void *to)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    octet<T> o = load<T>(from, at);
    uint32_t column = at, row = divide_rest(column, j.columns);
    uint64_t number = (uint64_t)row * (uint64_t)j.channels + column * 8, seed = run->seed, stream = stream_of(run, j);
    uint32_t skip = (uint32_t)number % 4;
    bool kept[12];
#pragma unroll
    for (int block = 0; block < 3; block++) {
        uint32_t words[4] = {0, 0, 0, 0};
        if (block < 2 || skip)
            philox(seed, stream, number / 4 + block, words);
#pragma unroll
        for (int i = 0; i < 4; i++)
            kept[block * 4 + i] = keeps(j, words[i]);
    }
    float v[8], factor = 1 / (1 - j.p);
    widen<T>(o, v);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        bool keep = skip == 0 ? kept[i] : skip == 1 ? kept[i + 1] : skip == 2 ? kept[i + 2] : kept[i + 3];
        v[i] = keep && column * 8 + i < j.channels ? v[i] * factor : 0;
    }
    store<T>(to, at, narrow<T>(v));
}

/* Maps: the numbers of an octet are one plane apart. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    map_kernel(struct job j, const struct ls_cuda_run *run, const void *from, void *to)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= j.octets)
        return;
    octet<T> o = load<T>(from, at);
    uint32_t column = at, pixel = divide_rest(column, j.columns), sample = divide_rest(pixel, j.pixels);
    uint64_t seed = run->seed, stream = stream_of(run, j);
    float v[8], factor = 1 / (1 - j.p);
    widen<T>(o, v);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint64_t channel = column * 8 + i;
        uint64_t number = ((uint64_t)sample * (uint64_t)j.channels + channel) * j.pixels.by + pixel;
        uint32_t words[4], rest = (uint32_t)number % 4;
        philox(seed, stream, number / 4, words);
        uint32_t word = rest == 0 ? words[0] : rest == 1 ? words[1] : rest == 2 ? words[2] : words[3];
        v[i] = keeps(j, word) && channel < (uint64_t)j.channels ? v[i] * factor : 0;
    }
    store<T>(to, at, narrow<T>(v));
}

void ls_cuda_dropout(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, uint32_t layer, float p,
                     const struct ls_cuda_map *x, int64_t channels, const void *from, void *to)
{
    int64_t octets = x->n * x->h * x->w * x->c / 8;
    struct job j = {(uint32_t)octets, divider_of(x->c / 8), divider_of(x->h * x->w), channels, layer, p};
    unsigned grid = (unsigned)ceil_div(octets, THREADS);
    if (!octets)
        return;
    if (x->h * x->w == 1)
        LS_CUDA_BY_TYPE(t, matrix_kernel<T><<<grid, THREADS, 0, s>>>(j, run, from, to));
    else
        LS_CUDA_BY_TYPE(t, map_kernel<T><<<grid, THREADS, 0, s>>>(j, run, from, to));
}
