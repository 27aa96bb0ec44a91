/* Tiles of a matrix product, for product.cu. Slices of x pass through shared memory, and the tensor cores multiply
 * them by w, which is in shared memory as a whole. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_PRODUCT_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_PRODUCT_CUH

#include "backend/cuda/kernels/device.cuh"

namespace ls_product
{

using namespace ls_device;

constexpr int THREADS = 128, HIGH = 64, DEEP = 64;
constexpr int UNIT = 16, SLICE_UNITS = DEEP / 8; /* bytes; an octet of 16-bit values */

/* --- instructions ---------------------------------------------------------------------------------------------- */

/* Copies 16 bytes into shared memory asynchronously; writes zeros if not `there`. */
__device__ __forceinline__ void copy_unit(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? UNIT : 0)
                 : "memory");
}

__device__ __forceinline__ void end_slice(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most LEFT slices are in flight. */
template <int LEFT> __device__ __forceinline__ void wait_slices(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Loads four 8x8 matrices of 16-bit values. Each lane passes the address of one row. */
template <bool TURNED> __device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t at)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(at)
                     : "memory");
}

/* c (16 x 8) += a (16 x 16) * b (16 x 8) */
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Returns n, but hides the value from the compiler. The compiler then recomputes what depends on it instead of
 * keeping it in registers, which the sums need. */
__device__ __forceinline__ int anew(int n)
{
    asm volatile("" : "+r"(n));
    return n;
}

/* --- tiles ----------------------------------------------------------------------------------------------------- */

/* The offset of a unit in rows of `units` units, a multiple of 8. The units of one column in eight consecutive rows
 * are in different banks. */
__device__ __forceinline__ uint32_t place_of(int row, int unit, int units)
{
    return (uint32_t)(row * units + (unit ^ (row & 7))) * UNIT;
}

struct matrices {
    const char *x, *w;
    int rows, k, n;
};

template <int WIDE> struct sizes {
    static constexpr int OCTETS = WIDE / 8, WARPS_ACROSS = WIDE / 32, WARPS_HIGH = THREADS / 32 / WARPS_ACROSS,
                         WARP_ROWS = HIGH / WARPS_HIGH;
    static constexpr int SLICE = HIGH * DEEP * 2, TILE = HIGH * WIDE * 2;
    static constexpr int RING = WIDE > 64 ? 2 : 4; /* slices: as many as fit without losing a block */
};

/* Starts the copy of a slice of x: rows from `first` on, columns from `deep` on. */
__device__ __forceinline__ void fetch_slice(const matrices &m, uint32_t to, int t, int first, int deep)
{
    const int row = t / SLICE_UNITS, unit = t % SLICE_UNITS, column = deep + unit * 8;
    constexpr int step = THREADS / SLICE_UNITS; /* a multiple of 8 rows: the position in a row stays */
    const char *from = m.x + ((int64_t)(first + row) * m.k + column) * 2;
    const int64_t further = (int64_t)step * m.k * 2;
    to += place_of(row, unit, SLICE_UNITS);
#pragma unroll
    for (int u = 0; u < HIGH / step; u++, from += further) {
        const bool there = first + row + u * step < m.rows && column < m.k;
        copy_unit(to + u * step * DEEP * 2, there ? from : m.x, there);
    }
}

/* Copies the block's columns of w, padded with zeros to a multiple of DEEP. */
template <int WIDE, bool TURNED>
__device__ __forceinline__ void fetch_weights(const matrices &m, uint32_t to, int t, int depth)
{
    const int across = blockIdx.x * WIDE, units = TURNED ? WIDE / 8 : depth / 8;
    for (int q = t; q < WIDE * depth / 8; q += THREADS) {
        const int row = q / units, unit = q % units;
        const int column = across + (TURNED ? unit * 8 : row), deep = TURNED ? row : unit * 8;
        const bool there = column < m.n && deep < m.k;
        const int64_t at = TURNED ? (int64_t)deep * m.n + column : (int64_t)column * m.k + deep;
        copy_unit(to + place_of(row, unit, units), there ? m.w + at * 2 : m.w, there);
    }
}

/* Adds the products of one slice for the warp's rows `high` and columns `across`, with the rows of w from `deep` on. */
template <typename T, int WIDE, bool TURNED, int ROWS>
__device__ __forceinline__ void add_products(float (&sum)[ROWS][4][4], uint32_t slice, uint32_t w, int depth, int deep,
                                             int lane, int high, int across)
{
#pragma unroll
    for (int part = 0; part < DEEP / 16; part++) {
        uint32_t a[ROWS][4], b[2][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            load_matrices<false>(a[i],
                                 slice + place_of(high + i * 16 + (lane & 15), part * 2 + (lane >> 4), SLICE_UNITS));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int low = lane & 7, second = lane >> 3 & 1, third = lane >> 4;
            if (TURNED)
                load_matrices<true>(
                    b[j], w + place_of(deep + part * 16 + second * 8 + low, across / 8 + j * 2 + third, WIDE / 8));
            else
                load_matrices<false>(
                    b[j], w + place_of(across + j * 16 + third * 8 + low, deep / 8 + part * 2 + second, depth / 8));
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                multiply<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

/* Rounds the warp's part of the tile and stores it: four 8x8 matrices at a time. In each, a lane has two adjacent
 * values of a row. */
template <typename T, int WIDE, int ROWS>
__device__ __forceinline__ void lay_out(const float (&sum)[ROWS][4][4], uint32_t tile, int lane, int high, int across)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const uint32_t m[4] = {
                narrow_pair<T>(sum[i][j][0], sum[i][j][1]), narrow_pair<T>(sum[i][j][2], sum[i][j][3]),
                narrow_pair<T>(sum[i][j + 1][0], sum[i][j + 1][1]), narrow_pair<T>(sum[i][j + 1][2], sum[i][j + 1][3])};
            const int row = high + i * 16, unit = across / 8 + j;
#if __CUDA_ARCH__ >= 900
            const uint32_t at = tile + place_of(row + (lane & 15), unit + (lane >> 4), WIDE / 8); /* address of a row */
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(m[0]),
                         "r"(m[1]), "r"(m[2]), "r"(m[3])
                         : "memory");
#else
#pragma unroll
            for (int q = 0; q < 4; q++)
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(
                                 tile + place_of(row + q % 2 * 8 + lane / 4, unit + q / 2, WIDE / 8) + lane % 4 * 4),
                             "r"(m[q])
                             : "memory");
#endif
        }
}

} // namespace ls_product

#endif
