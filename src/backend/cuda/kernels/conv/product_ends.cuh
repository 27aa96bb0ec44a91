/* What products do with a finished tile: the epilogues of product.cu and product_wgmma.cu. The tile lies in shared memory,
 * rounded, in rows of WIDE / 8 units (place_of). A thread processes the same octet of every ty-th row. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_PRODUCT_ENDS_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_PRODUCT_ENDS_CUH

#include "backend/cuda/kernels/bn/bn.cuh"
#include "backend/cuda/kernels/conv/product.cuh"

namespace ls_product
{

using namespace ls_bn;

constexpr int BATCH = 4; /* rows per thread with reads in flight */

/* Forward: stores the tile unchanged, with the sums of its values and of their squares.
 *   BY_COLUMN   of the unrounded values, from the registers of a warp; a lane has 8 of the warp's 32 columns. The stored
 *               values have 16 bits, so where the mean is far from 0, their rounding costs more accuracy than these
 *               sums do.
 *   otherwise   of the rounded values, on their way to memory */
template <typename T, bool COLUMNS> struct statistics {
    static constexpr bool BY_COLUMN = COLUMNS;
    using affines = parameters<P_FIRST>;
    static constexpr int WIDEST = 128;
    void *y;
    float eps;
    float *mean, *rstd, *stat;

    struct row {
    };
    __device__ __forceinline__ void begin(affines &, int, int) const
    {
    }
    /* `left`: the number of valid rows, counted from the lane's first row. */
    template <int ROWS>
    __device__ __forceinline__ void add_columns(const float (&sum)[ROWS][4][4], int left, float (&first)[8],
                                                float (&second)[8]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS * 2; i++)
            if (i * 8 < left)
#pragma unroll
                for (int c = 0; c < 8; c++) {
                    const float v = sum[i / 2][c / 2][i % 2 * 2 + c % 2];
                    first[c] += v;
                    second[c] = fmaf(v, v, second[c]);
                }
    }
    __device__ __forceinline__ void read(row &, int64_t, int, int) const
    {
    }
    __device__ __forceinline__ void add(row (&)[BATCH], octet<T> (&value)[BATCH], const bool (&counts)[BATCH],
                                        const affines &, int, float (&first)[8], float (&second)[8]) const
    {
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (!BY_COLUMN && counts[u]) {
                float v[8];
                widen<T>(value[u], v);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    first[i] += v[i];
                    second[i] = fmaf(v[i], v[i], second[i]);
                }
            }
    }
    __device__ __forceinline__ void *result(void) const
    {
        return y;
    }
    __device__ __forceinline__ void finish(int channel, int channels, double sum, double squares, int rows,
                                           float weight) const
    {
        const double count = rows > 0 ? (double)rows : 1, centre = sum / count;
        double variance = squares / count - centre * centre;
        variance = variance > 0 || variance != variance ? variance : 0;
        mean[channel] = (float)centre;
        rstd[channel] = (float)(1 / sqrt(variance + (double)eps));
        stat[channel] = (float)((double)weight * centre);
        stat[channels + channel] = (float)((double)weight * variance * (rows > 1 ? count / (count - 1) : 1));
    }
};

/* Backward: the tile is dy. Stores dz and sums it as bn_bwd.cu does. */
template <typename T, mask MASK, extra DY2> struct gradient_sums {
    static constexpr bool BY_COLUMN = false;
    using affines = parameters<P_FIRST>;
    static constexpr int WIDEST = 64; /* of product.cu: wider tiles leave too few registers for the loads */
    struct ls_cuda_bn_grad g;
    float top;
    picks sparse;

    using row = terms<T, MASK, DY2>;
    template <int ROWS>
    __device__ __forceinline__ void add_columns(const float (&)[ROWS][4][4], int, float (&)[8], float (&)[8]) const
    {
    }
    __device__ __forceinline__ void begin(affines &params, int x, int octet) const
    {
        put_backward<false>(params, x, octet, g, 0);
    }
    /* Reads row `number` of the map, whose octet has index `at`. */
    __device__ __forceinline__ void read(row &r, int64_t at, int number, int octets) const
    {
        r.template read_rest<true, false>(g, at);
        if (DY2 == EXTRA_SPARSE)
            r.read_sparse(g, sparse, number, at, octets);
    }
    __device__ __forceinline__ void add(row (&in)[BATCH], octet<T> (&value)[BATCH], const bool (&counts)[BATCH],
                                        const affines &params, int x, float (&first)[8], float (&second)[8]) const
    {
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (counts[u])
                in[u].dy = value[u];
            else
                in[u].clear();
        add_rows<T, MASK, DY2, true>(in, params, x, top, first, second);
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            value[u] = in[u].dy;
    }
    __device__ __forceinline__ void *result(void) const
    {
        return g.dresidual;
    }
    __device__ __forceinline__ void finish(int channel, int, double sum, double products, int, float) const
    {
        g.dbeta[channel] = (float)sum;
        g.dgamma[channel] = (float)(products * (double)g.rstd[channel]);
    }
};

/* Backward, where the mask is kept and x is not read: the tile is dy. Stores dz and sums it. */
template <typename T, extra DY2> struct gradient_sum {
    static constexpr bool BY_COLUMN = false;
    using affines = parameters<P_FIRST>;
    static constexpr int WIDEST = 128;
    struct ls_cuda_bn_grad g;
    picks sparse;

    struct row {
        octet<T> dy2;
        uint32_t bits;
    };
    __device__ __forceinline__ void begin(affines &, int, int) const
    {
    }
    __device__ __forceinline__ void read(row &r, int64_t at, int number, int octets) const
    {
        terms<T, MASK_BITS, DY2> of;
        if (DY2 == EXTRA_DENSE)
            r.dy2 = load_once<T>(g.dy2, at);
        if (DY2 == EXTRA_SPARSE) {
            of.read_sparse(g, sparse, number, at, octets);
            r.dy2 = of.dy2;
        }
        r.bits = __ldcs((const uint8_t *)g.kept + at);
    }
    __device__ __forceinline__ void add(row (&in)[BATCH], octet<T> (&value)[BATCH], const bool (&counts)[BATCH],
                                        const affines &, int, float (&first)[8], float (&)[8]) const
    {
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            terms<T, MASK_BITS, DY2> of;
            of.dy = counts[u] ? value[u] : zero_octet<T>();
            of.dy2 = counts[u] && DY2 != EXTRA_NONE ? in[u].dy2 : zero_octet<T>();
            of.bits = counts[u] ? in[u].bits : 0;
#pragma unroll
            for (int p = 0; p < 4; p++) {
                set_pair<T>(value[u], p, of.dz(p, make_float2(0, 0), 0));
                const float2 d = pair_of<T>(value[u], p); /* as the product behind it reads it */
                first[2 * p] += d.x;
                first[2 * p + 1] += d.y;
            }
        }
    }
    __device__ __forceinline__ void *result(void) const
    {
        return g.dresidual;
    }
    __device__ __forceinline__ void finish(int channel, int, double sum, double, int, float) const
    {
        g.dbeta[channel] = (float)sum;
    }
};

/* Stores the tile; rows without a sample become 0. */
template <typename T> struct plain {
    static constexpr bool BY_COLUMN = false;
    using affines = parameters<P_FIRST>;
    static constexpr int WIDEST = 128;
    void *y;

    struct row {
    };
    __device__ __forceinline__ void begin(affines &, int, int) const
    {
    }
    __device__ __forceinline__ void read(row &, int64_t, int, int) const
    {
    }
    __device__ __forceinline__ void add(row (&)[BATCH], octet<T> (&value)[BATCH], const bool (&counts)[BATCH],
                                        const affines &, int, float (&)[8], float (&)[8]) const
    {
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            value[u] = counts[u] ? value[u] : zero_octet<T>();
    }
    __device__ __forceinline__ void *result(void) const
    {
        return y;
    }
    __device__ __forceinline__ void finish(int, int, double, double, int, float) const
    {
    }
};

/* Where a tile stands in the map. */
struct place {
    int first, valid, rows; /* its first row; rows that count; rows of the map */
    int octet, octets;
};

/* Rows that an epilogue has read. */
template <typename E> struct rows_read {
    typename E::row in[BATCH];
    bool counts[BATCH];
};

/* Reads the thread's rows y, y + TY, ... of a tile, as many as are in flight at once. */
template <int TY, typename E>
__device__ __forceinline__ void read_rows(const E &end, const place &p, int y, rows_read<E> &rows)
{
    const int64_t at = (int64_t)(p.first + y) * p.octets + p.octet;
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        rows.counts[u] = p.first + y + u * TY < p.valid;
        if (rows.counts[u])
            end.read(rows.in[u], at + (int64_t)(u * TY) * p.octets, p.first + y + u * TY, p.octets);
    }
}

/* Processes the thread's rows of a tile of 64 rows: y, y + TY, ... AHEAD: `rows` has the first of them already. */
template <typename T, int WIDE, int TY, bool AHEAD, typename E>
__device__ __forceinline__ void end_tile(const E &end, const char *tile, const place &p, int x, int y,
                                         const typename E::affines &params, rows_read<E> &rows, float (&first)[8],
                                         float (&second)[8])
{
#pragma unroll 1
    for (int r = 0; r < HIGH / TY; r += BATCH) {
        octet<T> value[BATCH];
        const int row = anew(y) + r * TY;
        const int64_t at = (int64_t)(p.first + row) * p.octets + p.octet;
        if (!AHEAD || r > 0)
            read_rows<TY>(end, p, row, rows);
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            value[u].word[0] = *(const uint4 *)(tile + place_of(row + u * TY, x, WIDE / 8));
        end.add(rows.in, value, rows.counts, params, x, first, second);
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (p.first + row + u * TY < p.rows)
                store<T>(end.result(), at + (int64_t)(u * TY) * p.octets, value[u]);
    }
}

/* Calls the function, a template over the epilogue, with the epilogue that a gradient needs. */
template <typename T, mask MASK, typename F>
void with_sums_masked(const struct ls_cuda_bn *b, const struct ls_cuda_bn_grad *g, F call)
{
    const float top = act_top(b->act);
    if constexpr (MASK != MASK_X)
        if (g->dy2 && g->sparse > 1) {
            call(gradient_sums<T, MASK, EXTRA_SPARSE>{*g, top, picks_of(b->x, g->sparse)});
            return;
        }
    if (g->dy2)
        call(gradient_sums<T, MASK, EXTRA_DENSE>{*g, top, {}});
    else
        call(gradient_sums<T, MASK, EXTRA_NONE>{*g, top, {}});
}

template <typename T, typename F> void with_sums(const struct ls_cuda_bn *b, const struct ls_cuda_bn_grad *g, F call)
{
    if (b->act == LS_ACT_NONE)
        with_sums_masked<T, MASK_NONE>(b, g, call);
    else if (g->kept)
        with_sums_masked<T, MASK_BITS>(b, g, call);
    else
        with_sums_masked<T, MASK_X>(b, g, call);
}

} // namespace ls_product

#endif
