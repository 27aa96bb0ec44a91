/* Adds a bias to every row, and computes its gradient, the sum of all rows.
 *
 * A block handles a segment of adjacent octets and `step` rows at a time. Thread t handles octet t % segment of row
 * t / segment. A thread therefore keeps its columns, and a warp reads whole cache lines. */
#include "backend/cuda/kernels/device.cuh"

using namespace ls_device;

struct shape {
    int64_t rows;
    int octets;            /* per row */
    int segments, segment; /* segments per row, and octets per segment */
    int step;              /* rows per block at a time */
};

/* Segments of at most `widest` octets, of about equal width. */
static struct shape shape_of(int64_t rows, int64_t c, int widest, int threads)
{
    struct shape sh = {rows, (int)(c / 8), 0, 0, 0};
    sh.segments = (int)ceil_div(sh.octets, widest);
    sh.segment = (int)ceil_div(sh.octets, sh.segments);
    sh.step = threads / sh.segment;
    return sh;
}

/* --- forward ------------------------------------------------------------------------------------------------- */

#define THREADS 256
#define EACH 4 /* rows per thread */

template <typename T, bool CLIPS>
static __global__ void __launch_bounds__(THREADS)
    bias_kernel(struct shape sh, float top, const void *x, const float *bias, void *y)
{
    int at = (int)blockIdx.y * sh.segment + (int)threadIdx.x % sh.segment, lane = (int)threadIdx.x / sh.segment;
    int64_t first = (int64_t)blockIdx.x * (sh.step * EACH) + lane;
    if (lane >= sh.step || at >= sh.octets)
        return;
    octet<T> o[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t row = first + k * sh.step;
        o[k] = row < sh.rows ? load<T>(x, row * sh.octets + at) : zero_octet<T>();
    }
    float b[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (bias)
        load_floats(bias, at, b);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t row = first + k * sh.step;
        float v[8];
        widen<T>(o[k], v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = act_of<CLIPS>(v[i] + b[i], top);
        if (row < sh.rows)
            store<T>(y, row * sh.octets + at, narrow<T>(v));
    }
}

void ls_cuda_bias(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *x, const float *bias, void *y,
                  int64_t rows, int64_t c)
{
    struct shape sh = shape_of(rows, c, 32, THREADS);
    dim3 grid((unsigned)ceil_div(rows, sh.step * EACH), (unsigned)sh.segments);
    if (act == LS_ACT_NONE)
        LS_CUDA_BY_TYPE(t, bias_kernel<T, false><<<grid, THREADS, 0, s>>>(sh, 0, x, bias, y));
    else
        LS_CUDA_BY_TYPE(t, bias_kernel<T, true><<<grid, THREADS, 0, s>>>(sh, act_top(act), x, bias, y));
}

/* --- backward ------------------------------------------------------------------------------------------------ */

#define SUM_THREADS 512
#define SUM_EACH 8   /* loads in flight per thread */
#define SUM_WIDEST 8 /* octets per segment: one cache line of 16-bit values */
#define MAX_COUNTERS (LS_CUDA_BN_ZEROS / 4)

/* The rows of each segment are divided among `parts` blocks. Each block stores its sums, and the last block to
 * finish adds them up. */
static int parts_of(const struct shape *sh)
{
    int64_t wanted = ceil_div(sh->rows, sh->step * SUM_EACH), most = 2 * multiprocessors() / sh->segments;
    if (sh->segments > MAX_COUNTERS || most < 1)
        return 1;
    return (int)(wanted < most ? wanted : most);
}

/* Sums value(i, column) over i < count for each column, in a fixed order. The result is valid in threads below
 * `columns`. */
template <typename F> static __device__ __forceinline__ float sum_columns(int columns, int count, F value)
{
    __shared__ double room[SUM_THREADS];
    int groups = SUM_THREADS / columns, group = (int)threadIdx.x / columns, column = (int)threadIdx.x % columns;
    double sum = 0;
#pragma unroll 8
    for (int i = group; i < count; i += groups)
        sum += value(i, column);
    __syncthreads();
    room[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int g = 0; g < groups; g++)
        sum += room[g * columns + column];
    return (float)sum;
}

template <typename T>
static __global__ void __launch_bounds__(SUM_THREADS, 2)
    sum_rows_kernel(struct shape sh, const void *dy, float *db, unsigned *counters, float *partial)
{
    __shared__ float lanes[SUM_THREADS * 8];
    int part = (int)blockIdx.x, parts = (int)gridDim.x, columns = sh.segment * 8;
    int first = (int)blockIdx.y * sh.segment, at = first + (int)threadIdx.x % sh.segment;
    int lane = (int)threadIdx.x / sh.segment;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (lane < sh.step && at < sh.octets)
        for (int64_t row = (int64_t)part * sh.step + lane; row < sh.rows; row += (int64_t)parts * sh.step * SUM_EACH) {
            octet<T> o[SUM_EACH];
#pragma unroll
            for (int k = 0; k < SUM_EACH; k++) {
                int64_t r = row + (int64_t)k * parts * sh.step;
                o[k] = r < sh.rows ? load<T>(dy, r * sh.octets + at) : zero_octet<T>();
            }
#pragma unroll
            for (int k = 0; k < SUM_EACH; k++) {
                float v[8];
                widen<T>(o[k], v);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[i] += v[i];
            }
        }
#pragma unroll
    for (int i = 0; i < 8; i++)
        lanes[threadIdx.x * 8 + i] = sum[i];
    __syncthreads();
    float total = sum_columns(columns, sh.step, [&](int i, int column) { return lanes[i * columns + column]; });
    bool mine = (int)threadIdx.x < columns && first * 8 + (int)threadIdx.x < sh.octets * 8;
    if (parts > 1) {
        float *segment = partial + (int64_t)blockIdx.y * parts * columns;
        if ((int)threadIdx.x < columns)
            segment[part * columns + (int)threadIdx.x] = total;
        if (!last_of(counters + blockIdx.y, (unsigned)parts))
            return;
        total = sum_columns(columns, parts, [&](int i, int column) { return __ldcg(segment + i * columns + column); });
    }
    if (mine)
        db[first * 8 + (int)threadIdx.x] = total;
}

size_t ls_cuda_bias_scratch(int64_t rows, int64_t c)
{
    struct shape sh = shape_of(rows, c, SUM_WIDEST, SUM_THREADS);
    return LS_CUDA_BN_ZEROS + (size_t)sh.segments * (size_t)parts_of(&sh) * (size_t)sh.segment * 8 * sizeof(float);
}

void ls_cuda_bias_bwd(ls_cuda_stream s, enum ls_dtype t, const void *dy, float *db, int64_t rows, int64_t c,
                      float *scratch)
{
    struct shape sh = shape_of(rows, c, SUM_WIDEST, SUM_THREADS);
    dim3 grid((unsigned)parts_of(&sh), (unsigned)sh.segments);
    LS_CUDA_BY_TYPE(t, sum_rows_kernel<T>
                    <<<grid, SUM_THREADS, 0, s>>>(sh, dy, db, (unsigned *)scratch, scratch + LS_CUDA_BN_ZEROS / 4));
}

/* One block for all rows of a segment, and segments of the same width: a column's sum has the same order anywhere. */
void ls_cuda_bias_bwd_columns(ls_cuda_stream s, enum ls_dtype t, const void *dy, float *db, int64_t rows, int64_t c,
                              float *scratch)
{
    const int octets = (int)(c / 8);
    const struct shape sh = {rows, octets, (int)ceil_div(octets, SUM_WIDEST), SUM_WIDEST, SUM_THREADS / SUM_WIDEST};
    dim3 grid(1, (unsigned)sh.segments);
    LS_CUDA_BY_TYPE(t, sum_rows_kernel<T>
                    <<<grid, SUM_THREADS, 0, s>>>(sh, dy, db, (unsigned *)scratch, scratch + LS_CUDA_BN_ZEROS / 4));
}
