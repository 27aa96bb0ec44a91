/* Kernels that only move values: channels of one tensor into another, maps into rows, and rows into maps. */
#include "backend/cuda/kernels/device.cuh"

using namespace ls_device;

#define THREADS 256

/* --- channels ------------------------------------------------------------------------------------------------ */

struct channels {
    int64_t from_c, from_first, to_c, to_first, channels;
    int64_t width, count; /* written per row, and in total: elements, or octets (below 2^31) */
    divider row;          /* width in octets */
};

/* All boundaries are multiples of 8 channels, except that the last octet may have fewer; zeros fill it up. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) octets_kernel(struct channels ch, const void *from, void *to)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= ch.count)
        return;
    uint32_t column = at, row = divide_rest(column, ch.row);
    int64_t real = ch.channels - (int64_t)column * 8;
    octet<T> o = zero_octet<T>();
    if (real > 0)
        o = load<T>(from, (row * ch.from_c + ch.from_first) / 8 + column);
    if (real > 0 && real < 8) {
        float v[8];
        widen<T>(o, v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = i < real ? v[i] : 0;
        o = narrow<T>(v);
    }
    store<T>(to, (row * ch.to_c + ch.to_first) / 8 + column, o);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) elements_kernel(struct channels ch, const T *from, T *to)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= ch.count)
        return;
    int64_t row = at / ch.width, column = at % ch.width;
    T v = from_float<T>(0);
    if (column < ch.channels)
        v = from[row * ch.from_c + ch.from_first + column];
    to[row * ch.to_c + ch.to_first + column] = v;
}

void ls_cuda_copy_channels(ls_cuda_stream s, enum ls_dtype t, const void *from, int64_t from_c, int64_t from_first,
                           void *to, int64_t to_c, int64_t to_first, int64_t channels, int64_t rows, bool clear)
{
    struct channels ch = {from_c, from_first, to_c, to_first, channels, 0, 0, {1, 1, 0}};
    ch.width = clear ? to_c - to_first : channels;
    ch.count = rows * ch.width;
    if (!ch.count)
        return;
    if (from_first % 8 == 0 && to_first % 8 == 0 && ch.width % 8 == 0) {
        ch.row = divider_of(ch.width / 8);
        ch.count /= 8;
        LS_CUDA_BY_TYPE(t, octets_kernel<T><<<(unsigned)ceil_div(ch.count, THREADS), THREADS, 0, s>>>(ch, from, to));
    } else {
        LS_CUDA_BY_TYPE(t, elements_kernel<T>
                        <<<(unsigned)ceil_div(ch.count, THREADS), THREADS, 0, s>>>(ch, (const T *)from, (T *)to));
    }
}

/* --- maps and rows ------------------------------------------------------------------------------------------- */

#define TILE 32
#define TILE_ROWS (THREADS / TILE)

/* A sample is a matrix of pixels by channels (c stored columns) in the map, and of channels by pixels in the row. A
 * block transposes one tile. blockIdx counts the tiles of channels (fastest), then those of pixels, then the
 * samples. */
struct turn {
    int64_t pixels, c, channels, row; /* row: stored columns */
    divider tiles_c, tiles_p;
};

struct tile {
    int64_t sample, pixel, channel; /* the first of the tile */
};

static __device__ __forceinline__ struct tile tile_of(const struct turn &m)
{
    uint32_t channel = blockIdx.x, pixel = divide_rest(channel, m.tiles_c), sample = divide_rest(pixel, m.tiles_p);
    struct tile t = {sample, (int64_t)pixel * TILE, (int64_t)channel * TILE};
    return t;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) flatten_kernel(struct turn m, const T *from, T *to)
{
    __shared__ float room[TILE][TILE + 1];
    struct tile t = tile_of(m);
    int x = (int)threadIdx.x % TILE, y0 = (int)threadIdx.x / TILE;
    int64_t channel = t.channel + x;
    for (int y = y0; y < TILE; y += TILE_ROWS)
        if (t.pixel + y < m.pixels && channel < m.channels)
            room[y][x] = to_float(from[(t.sample * m.pixels + t.pixel + y) * m.c + channel]);
    __syncthreads();
    int64_t pixel = t.pixel + x;
    for (int y = y0; y < TILE; y += TILE_ROWS)
        if (pixel < m.pixels && t.channel + y < m.channels)
            to[t.sample * m.row + (t.channel + y) * m.pixels + pixel] = from_float<T>(room[x][y]);
    int64_t end = m.channels * m.pixels + threadIdx.x; /* the row's padding */
    if (t.pixel == 0 && t.channel == 0 && end < m.row)
        to[t.sample * m.row + end] = from_float<T>(0);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) unflatten_kernel(struct turn m, const T *from, T *to)
{
    __shared__ float room[TILE][TILE + 1];
    struct tile t = tile_of(m);
    int x = (int)threadIdx.x % TILE, y0 = (int)threadIdx.x / TILE;
    int64_t pixel = t.pixel + x;
    for (int y = y0; y < TILE; y += TILE_ROWS)
        if (pixel < m.pixels && t.channel + y < m.channels)
            room[y][x] = to_float(from[t.sample * m.row + (t.channel + y) * m.pixels + pixel]);
    __syncthreads();
    int64_t channel = t.channel + x;
    for (int y = y0; y < TILE; y += TILE_ROWS)
        if (t.pixel + y < m.pixels && channel < m.c)
            to[(t.sample * m.pixels + t.pixel + y) * m.c + channel] =
                from_float<T>(channel < m.channels ? room[x][y] : 0);
}

static struct turn turn_of(const struct ls_cuda_map *x, int64_t channels, int64_t row, unsigned *grid)
{
    int64_t pixels = x->h * x->w, tiles_c = ceil_div(x->c, TILE), tiles_p = ceil_div(pixels, TILE);
    struct turn m = {pixels, x->c, channels, row, divider_of(tiles_c), divider_of(tiles_p)};
    *grid = (unsigned)(x->n * tiles_c * tiles_p);
    return m;
}

void ls_cuda_flatten(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *x, int64_t channels, const void *from,
                     void *to, int64_t to_c)
{
    unsigned grid;
    struct turn m = turn_of(x, channels, to_c, &grid);
    LS_CUDA_BY_TYPE(t, flatten_kernel<T><<<grid, THREADS, 0, s>>>(m, (const T *)from, (T *)to));
}

void ls_cuda_unflatten(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_map *x, int64_t channels,
                       const void *from, int64_t from_c, void *to)
{
    unsigned grid;
    struct turn m = turn_of(x, channels, from_c, &grid);
    LS_CUDA_BY_TYPE(t, unflatten_kernel<T><<<grid, THREADS, 0, s>>>(m, (const T *)from, (T *)to));
}
