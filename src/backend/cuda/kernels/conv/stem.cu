/* Unfolds images for a first convolution. A block computes some rows of a few columns of an unfolded map. It first
 * converts the pixels it needs to values in shared memory, each pixel once. The values of a window's row are
 * adjacent there, so an octet is one run of eight values, or two shorter runs. */
#include "backend/cuda/kernels/device.cuh"

#include <type_traits>

using namespace ls_device;

#define THREADS 256
#define COLUMNS 64       /* maximum columns of the unfolded map per block */
#define ROOM (32 * 1024) /* approximate bytes of values; determines the rows per block */
#define FLIGHT 4         /* loads in flight per thread */

/* Words of struct ls_pixels before the table. */
#define HEAD ((int)(offsetof(struct ls_pixels, table) / sizeof(uint32_t)))

/* How the map is divided into blocks. A line is the values of one row of pixels. */
struct cut {
    int rows, columns;             /* of the unfolded map, per block */
    int row_groups, column_groups; /* per sample */
    int lines, line;               /* lines per block, and values per line */
    divider by_groups, by_column_groups, by_channels, by_octets, by_columns, by_row;
};

/* Formats of the images: planes, bytes with the same channels, or bytes from which other channels are computed. */
enum form { PLANES, BYTES, OTHERS };

/* One warp computes a line of values: row y of the cropped and mirrored image, from pixel `left` on. Values outside
 * the image are 0. */
template <typename T, form FORM>
static __device__ __forceinline__ void make_line(const struct ls_pixels &p, const struct ls_cuda_unfold &u,
                                                 const struct ls_crop &crop, const void *images, int y, int left,
                                                 const struct cut &cut, T *line)
{
    constexpr bool CROPS = FORM != PLANES;
    const bool reflect = CROPS && p.reflect;
    const int lane = threadIdx.x % 32;
    const int top = reflect ? ls_reflect(crop.top + y, p.from_height) : CROPS ? crop.top + y : y;
    const bool there = (unsigned)y < (unsigned)u.height && (!CROPS || crop.image >= 0);
    const bool black = CROPS && (unsigned)top >= (unsigned)p.from_height;
    const uint8_t *bytes = (const uint8_t *)images + (CROPS && !black ? top * p.from_width * p.from_channels : 0);
    const float *plane = (const float *)images + (there ? y * u.width : 0);
    for (int start = lane; start < cut.line; start += FLIGHT * 32) {
        int channel[FLIGHT]; /* < 0: outside */
        uint32_t byte[FLIGHT];
        float v[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            uint32_t c = (uint32_t)(start + k * 32);
            const int x = left + (int)divide_rest(c, cut.by_channels);
            channel[k] = there && (unsigned)x < (unsigned)u.width && start + k * 32 < cut.line ? (int)c : -1;
            if (!CROPS) {
                v[k] = channel[k] < 0 ? 0 : __ldg(plane + (int)c * u.height * u.width + x);
                continue;
            }
            int column = crop.left + (crop.flip ? u.width - 1 - x : x);
            column = reflect ? ls_reflect(column, p.from_width) : column;
            byte[k] = 0;
            if (channel[k] >= 0 && !black && (unsigned)column < (unsigned)p.from_width) {
                const uint8_t *at = bytes + column * p.from_channels + (FORM == BYTES ? (int)c : 0);
                byte[k] = FORM == OTHERS && p.from_channels == 3 ? ls_luma(at) : __ldg(at);
            }
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (CROPS)
                v[k] = channel[k] < 0 ? 0 : p.table[channel[k]][byte[k]];
            if (start + k * 32 < cut.line)
                line[start + k * 32] = from_float<T>(v[k]);
        }
    }
}

/* How many rows of a window an octet covers: one, two, or any number. */
enum rows { WITHIN, TWO, MANY };

template <typename T, form FORM, rows ROWS>
static __global__ void __launch_bounds__(THREADS)
    unfold_kernel(const struct ls_cuda_run *run, const struct ls_pixels *pixels, struct ls_cuda_unfold u,
                  struct cut cut, struct ls_cuda_map to_map, void *to)
{
    extern __shared__ uint4 room[];
    __shared__ struct ls_pixels p;
    using bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
    T *const values = (T *)room;
    uint32_t group = blockIdx.x, sample = divide_rest(group, cut.by_groups);
    const int first_row = (int)divide_rest(group, cut.by_column_groups) * cut.rows,
              first_column = (int)group * cut.columns;
    struct ls_crop crop = {};
    const void *images = (const float *)run->images + (int64_t)sample * u.channels * u.height * u.width;
    if (FORM != PLANES) {
        for (int i = threadIdx.x; i < HEAD + u.channels * 256; i += THREADS)
            ((uint32_t *)&p)[i] = __ldg((const uint32_t *)pixels + i);
        crop = run->crops[sample];
        __syncthreads();
        images = (const uint8_t *)run->images + (crop.image < 0 ? 0 : crop.image * ls_pixels_bytes(&p));
    }
    for (int i = threadIdx.x / 32; i < cut.lines; i += THREADS / 32)
        make_line<T, FORM>(p, u, crop, images, first_row * u.stride_h - u.border + i, first_column * u.stride_w - u.pad,
                           cut, values + i * cut.line);
    __syncthreads();

    /* One octet per iteration. `until` values remain in its first row of the window, and `some` values remain in all
     * rows. */
    const int octets = (int)(to_map.c / 8), row_values = u.columns * u.channels, gap = cut.line - row_values;
    const bool even = sizeof(T) == 2 && u.stride_w * u.channels % 2 == 0; /* octets begin at whole words */
    const int rows = min(cut.rows, (int)to_map.h - first_row), columns = min(cut.columns, (int)to_map.w - first_column);
    const int64_t corner = ((int64_t)sample * to_map.h + first_row) * to_map.w + first_column;
    for (int i = threadIdx.x; i < rows * cut.columns * octets; i += THREADS) {
        uint32_t octet = (uint32_t)i, column = divide_rest(octet, cut.by_octets),
                 row = divide_rest(column, cut.by_columns);
        if ((int)column >= columns)
            continue;
        uint32_t along = octet * 8, r = divide_rest(along, cut.by_row);
        const int until = row_values - (int)along;
        const int some = (int)r >= u.block ? 0 : ROWS == WITHIN ? until : until + (u.block - 1 - (int)r) * row_values;
        const bits *from = (const bits *)values;
        if (some > 0)
            from += ((int)row * u.stride_h + (int)r) * cut.line + (int)column * u.stride_w * u.channels + (int)along;
        union {
            ls_device::octet<T> all;
            bits each[8];
            uint32_t pairs[4];
        } out;
        if (ROWS == WITHIN && even) {
#pragma unroll
            for (int k = 0; k < 8; k += 2) {
                const uint32_t v = ((const uint32_t *)from)[k / 2];
                out.pairs[k / 2] = k + 1 < some ? v : k < some ? v & 0xffff : 0;
            }
        } else {
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const int wraps = ROWS == WITHIN || k < until ? 0 : ROWS == TWO ? 1 : (k - until) / row_values + 1;
                const bits v = from[k < some ? k + wraps * gap : 0];
                out.each[k] = k < some ? v : 0;
            }
        }
        store<T>(to, (corner + (int64_t)row * to_map.w + (int)column) * octets + (int)octet, out.all);
    }
}

/* A row of channels is either as long as a window's row, or a multiple of 8 and so made of whole octets. */
static rows rows_of(const struct ls_cuda_unfold *u)
{
    return u->row % 8 == 0 ? WITHIN : u->row >= 8 ? TWO : MANY;
}

static struct cut cut_of(const struct ls_cuda_unfold *u, const struct ls_cuda_map *y, size_t value_bytes)
{
    struct cut c;
    c.columns = (int)ceil_div(y->w, ceil_div(y->w, COLUMNS));
    for (;; c.columns = (c.columns + 1) / 2) {
        c.line = (((c.columns - 1) * u->stride_w + u->columns) * u->channels + 1) / 2 * 2;
        if (c.columns == 1 || (size_t)u->block * (size_t)c.line * value_bytes <= ROOM)
            break;
    }
    c.column_groups = (int)ceil_div(y->w, c.columns);
    const int fit = (int)(ROOM / (value_bytes * (size_t)c.line));
    c.rows = fit > u->block ? (fit - u->block) / u->stride_h + 1 : 1;
    c.row_groups = (int)ceil_div(y->h, c.rows < 8 ? c.rows : 8);
    c.rows = (int)ceil_div(y->h, c.row_groups);
    c.lines = (c.rows - 1) * u->stride_h + u->block;
    c.by_groups = divider_of((int64_t)c.row_groups * c.column_groups);
    c.by_column_groups = divider_of(c.column_groups);
    c.by_channels = divider_of(u->channels);
    c.by_octets = divider_of(y->c / 8);
    c.by_columns = divider_of(c.columns);
    c.by_row = divider_of(u->row);
    return c;
}

template <typename T, form FORM, rows ROWS>
static void launch_unfold(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_pixels *pixels,
                          const struct ls_cuda_unfold *u, const struct ls_cuda_map *y, void *to)
{
    const struct cut cut = cut_of(u, y, sizeof(T));
    const size_t beyond = 16; /* the last octet may extend beyond the last line */
    const size_t room = (size_t)cut.lines * (size_t)cut.line * sizeof(T) + beyond;
    const unsigned grid = (unsigned)(y->n * cut.row_groups * cut.column_groups);
    want_shared(unfold_kernel<T, FORM, ROWS>, room);
    unfold_kernel<T, FORM, ROWS><<<grid, THREADS, room, s>>>(run, pixels, *u, cut, *y, to);
}

template <typename T, form FORM>
static void choose_unfold(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_pixels *pixels,
                          const struct ls_cuda_unfold *u, const struct ls_cuda_map *y, void *to)
{
    auto launch = rows_of(u) == WITHIN ? launch_unfold<T, FORM, WITHIN>
                  : rows_of(u) == TWO  ? launch_unfold<T, FORM, TWO>
                                       : launch_unfold<T, FORM, MANY>;
    launch(s, run, pixels, u, y, to);
}

void ls_cuda_unfold(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, const struct ls_pixels *pixels,
                    const struct ls_cuda_unfold *u, const struct ls_cuda_map *y, void *to)
{
    const bool same = u->from_channels == u->channels;
    LS_CUDA_BY_TYPE(t, auto choose = !pixels ? choose_unfold<T, PLANES>
                                     : same  ? choose_unfold<T, BYTES>
                                             : choose_unfold<T, OTHERS>;
                    choose(s, run, pixels, u, y, to));
}

static __global__ void __launch_bounds__(THREADS)
    cut_kernel(float *weights, int64_t count, int kernel, int c, int values, int row, int block, int shift, int rows)
{
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= count)
        return;
    int in_block = (int)(i % c) / row, y = (int)(i / c % kernel) * block + in_block - shift;
    if (in_block >= block || (int)(i % c) % row >= values || y < 0 || y >= rows)
        weights[i] = 0;
}

void ls_cuda_cut_window(ls_cuda_stream s, float *w, int64_t out, int kernel, int64_t c, int values, int row, int block,
                        int shift, int rows)
{
    int64_t count = out * kernel * c;
    cut_kernel<<<(unsigned)ceil_div(count, THREADS), THREADS, 0, s>>>(w, count, kernel, (int)c, values, row, block,
                                                                      shift, rows);
}

/* --- layouts of weights -------------------------------------------------------------------------------------- */

/* As place_in of layout.c. */
static __device__ __forceinline__ int64_t place_in(const struct ls_cuda_weights &l, int o, int i, int y, int x)
{
    int64_t place = o * l.stride[0] + i * l.stride[1];
    if (!l.block)
        return place + y * l.stride[2] + x * l.stride[3];
    y += l.shift;
    return place + y / l.block * l.stride[2] + (int64_t)(y % l.block) * l.row + (int64_t)x * l.dim[1];
}

/* A kernel: memsets of scratch memory are taken out of captured graphs (CUDA-6). */
static __global__ void __launch_bounds__(THREADS) clear_kernel(uint4 *to, int64_t words)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at < words)
        to[at] = make_uint4(0, 0, 0, 0);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    move_weights_kernel(struct ls_cuda_weights a, const T *from, struct ls_cuda_weights b, T *to, int count)
{
    int at = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (at >= count)
        return;
    int x = at % a.dim[3], y = at / a.dim[3] % a.dim[2], i = at / a.dim[3] / a.dim[2] % a.dim[1];
    int o = at / a.dim[3] / a.dim[2] / a.dim[1];
    to[place_in(b, o, i, y, x)] = from[place_in(a, o, i, y, x)];
}

void ls_cuda_move_weights(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_weights *from_layout,
                          const void *from, const struct ls_cuda_weights *to_layout, void *to)
{
    const int *d = from_layout->dim;
    int count = d[0] * d[1] * d[2] * d[3];
    int64_t words = to_layout->count / (t == LS_F32 ? 4 : 8);
    clear_kernel<<<(unsigned)ceil_div(words, THREADS), THREADS, 0, s>>>((uint4 *)to, words);
    LS_CUDA_BY_TYPE(t, move_weights_kernel<T><<<(unsigned)ceil_div(count, THREADS), THREADS, 0, s>>>(
                           *from_layout, (const T *)from, *to_layout, (T *)to, count));
}
