/* Instructions of Hopper for product_wgmma.cu: barriers in shared memory that count bytes, copies of boxes of a matrix by
 * the copy engine (TMA), and products by a warpgroup, four warps that multiply matrices straight from shared memory.
 *
 * All boxes have rows of 128 bytes, 64 values. The copy engine swaps the 16-byte units of row r by XOR with r % 8, which
 * the multiplication expects as "128-byte swizzle". Boxes begin at multiples of 1024 bytes. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_WGMMA_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_WGMMA_CUH

#include "backend/cuda/kernels/device.cuh"

#include <cuda.h>

namespace ls_wgmma
{

using namespace ls_device;

constexpr int GROUP = 128;      /* threads of a warpgroup */
constexpr int BOX_COLUMNS = 64; /* values in a row of a box */
constexpr int BOX_ROW = 128;    /* bytes */

/* --- barriers -------------------------------------------------------------------------------------------------- */

/* A phase of the barrier ends with that many arrivals, and the bytes that they expect. */
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals = 1)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the copy engine. */
__device__ __forceinline__ void barriers_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* An arrival that expects `bytes` bytes. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* An arrival without bytes. */
__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Waits for the end of a phase; `parity`: whether its number is odd. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred there;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n\t"
                 "@there bra done;\n\t"
                 "bra again;\n\t"
                 "done:\n\t"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* A barrier of the threads of one warpgroup. */
__device__ __forceinline__ void group_sync(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP) : "memory");
}

/* --- registers ------------------------------------------------------------------------------------------------- */

/* From now on, each thread of this warpgroup has COUNT registers, more or fewer than before. */
template <int COUNT> __device__ __forceinline__ void grow(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void shrink(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* --- copies ---------------------------------------------------------------------------------------------------- */

/* Starts the copy of a box, whose first value is at (row, column). What lies outside of the matrix becomes 0. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap &from, int column, int row, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            to),
        "l"(&from), "r"(column), "r"(row), "r"(barrier)
        : "memory");
}

/* The same for what is the first to be evicted from L2. */
__device__ __forceinline__ void copy_box_once(uint32_t to, const CUtensorMap &from, int column, int row,
                                              uint32_t barrier)
{
    asm volatile("{\n\t"
                 ".reg .b64 once;\n\t"
                 "createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n\t"
                 "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3}], [%4], once;\n\t"
                 "}" ::"r"(to),
                 "l"(&from), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

/* The same of a box of a list of matrices. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap &from, int column, int row, int matrix,
                                         uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(to),
        "l"(&from), "r"(column), "r"(row), "r"(matrix), "r"(barrier)
        : "memory");
}

/* Starts the copy of adjacent bytes, a multiple of 16 from a multiple of 16 on. */
__device__ __forceinline__ void copy_bytes(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Starts the copy of a box from shared memory. What lies outside of the matrix is not written. The threads that wrote the
 * box have called written() before a barrier. */
__device__ __forceinline__ void store_box(const CUtensorMap &to, int column, int row, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n\t"
                 "cp.async.bulk.commit_group;" ::"l"(&to),
                 "r"(column), "r"(row), "r"(from)
                 : "memory");
}

/* In place of the copy of a box that lies outside of the matrix. */
__device__ __forceinline__ void end_stores(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ void store_box(const CUtensorMap &to, int column, int row, int matrix, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];\n\t"
                 "cp.async.bulk.commit_group;" ::"l"(&to),
                 "r"(column), "r"(row), "r"(matrix), "r"(from)
                 : "memory");
}

/* Waits until at most LEFT boxes that this thread stores still have to be read from shared memory. */
template <int LEFT> __device__ __forceinline__ void wait_stores(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/* What this thread wrote to shared memory is for the copy engine or the tensor cores. */
__device__ __forceinline__ void written(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* --- products -------------------------------------------------------------------------------------------------- */

/* Describes a matrix in shared memory. Its 8-row groups lie 1024 bytes apart. `next`: the distance, in bytes, of the boxes
 * of a matrix that is wider than one, where rows run along the sum. */
__device__ __forceinline__ uint64_t matrix_at(uint32_t at, uint32_t next)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Describes a matrix in shared memory that lies in planes: 16-byte units of adjacent rows are adjacent. `deep`: the distance,
 * in bytes, of units that follow each other along the sum; `across`: of those that do not. One of them is the distance of
 * planes, the other that of eight rows. Any unit may be the first. */
__device__ __forceinline__ uint64_t planes_at(uint32_t at, uint32_t deep, uint32_t across)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(deep >> 4) << 16 | (uint64_t)(across >> 4) << 32;
}

__device__ __forceinline__ void products_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most LEFT committed groups of products are running. */
template <int LEFT> __device__ __forceinline__ void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Nothing is computed from the sums before this. */
template <int COUNT> __device__ __forceinline__ void products_done(float (&sum)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(sum[i])::"memory");
}

/* clang-format off */
#define LS_R8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define LS_R32(c, i) LS_R8(c, i), LS_R8(c, i + 8), LS_R8(c, i + 16), LS_R8(c, i + 24)
#define LS_WGMMA_64(TYPE)                                                                                             \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " "                                      \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                            \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                  \
                 "%32, %33, p, 1, 1, %36, %35;\n\t}"                                                                  \
                 : LS_R32(c, 0) : "l"(a), "l"(b), "r"(add), "n"(TURNED ? 1 : 0), "n"(A_TURNED ? 1 : 0))
#define LS_WGMMA_128(TYPE)                                                                                            \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " "                                     \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                            \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                   \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                   \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                  \
                 "%64, %65, p, 1, 1, %68, %67;\n\t}"                                                                  \
                 : LS_R32(c, 0), LS_R32(c, 32) : "l"(a), "l"(b), "r"(add), "n"(TURNED ? 1 : 0),                        \
                   "n"(A_TURNED ? 1 : 0))
/* clang-format on */

/* c (64 x WIDE) = a (64 x 16) * b (16 x WIDE), plus c if `add`. A lane has two rows of its warp's 16, lane / 4 and that
 * plus 8, and in each the columns 2 * (lane % 4) and the next of every eight: c[column / 8 * 4 + row / 8 * 2 + ...].
 * TURNED: the rows of b's box run across the sum; A_TURNED: those of a's. */
template <typename T, int WIDE, bool TURNED, bool A_TURNED = false>
__device__ __forceinline__ void multiply(float (&c)[WIDE / 2], uint64_t a, uint64_t b, int add)
{
    if constexpr (sizeof(T) == 2 && WIDE == 64) {
        if constexpr (std::is_same<T, __half>::value)
            LS_WGMMA_64("f16");
        else
            LS_WGMMA_64("bf16");
    } else {
        if constexpr (std::is_same<T, __half>::value)
            LS_WGMMA_128("f16");
        else
            LS_WGMMA_128("bf16");
    }
}

/* clang-format off */
#define LS_P16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
    "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h ", %" #i ", %" #j ", %" #k ", %" #l ", %" #m ", %" #n ", %" #o ", %" #p
#define LS_FIRST_16 LS_P16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define LS_NEXT_8 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LS_FIRST_32 LS_FIRST_16 LS_NEXT_8 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LS_NEXT_16 LS_P16(32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47)
#define LS_THIRD_8 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define LS_HELD(WIDE, TYPE, SUMS, A0, A1, A2, A3, B, ADD, TURN, ...)                                                  \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #ADD ", 0;\n\t"                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #WIDE "k16.f32." TYPE "." TYPE " {" SUMS "}, "                   \
                 "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #TURN ";\n\t}"                       \
                 : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURNED ? 1 : 0))
#define LS_HELD_BY(TYPE)                                                                                              \
    do {                                                                                                              \
        if constexpr (WIDE == 32)                                                                                     \
            LS_HELD(32, TYPE, LS_FIRST_16, 16, 17, 18, 19, 20, 21, 22, LS_R8(c, 0), LS_R8(c, 8));                     \
        else if constexpr (WIDE == 48)                                                                                \
            LS_HELD(48, TYPE, LS_FIRST_16 LS_NEXT_8, 24, 25, 26, 27, 28, 29, 30, LS_R8(c, 0), LS_R8(c, 8),            \
                    LS_R8(c, 16));                                                                                    \
        else if constexpr (WIDE == 64)                                                                                \
            LS_HELD(64, TYPE, LS_FIRST_32, 32, 33, 34, 35, 36, 37, 38, LS_R32(c, 0));                                 \
        else if constexpr (WIDE == 112)                                                                               \
            LS_HELD(112, TYPE, LS_FIRST_32 ", " LS_NEXT_16 LS_THIRD_8, 56, 57, 58, 59, 60, 61, 62, LS_R32(c, 0),      \
                    LS_R8(c, 32), LS_R8(c, 40), LS_R8(c, 48));                                                        \
        else                                                                                                          \
            LS_HELD(128, TYPE, LS_FIRST_32 ", " LS_NEXT_16 LS_THIRD_8 ", %56, %57, %58, %59, %60, %61, %62, %63",     \
                    64, 65, 66, 67, 68, 69, 70, LS_R32(c, 0), LS_R32(c, 32));                                         \
    } while (0)
/* clang-format on */

/* The same with a in registers, as mma.m16n8k16 takes it; WIDE is 32, 48, 64, 112 or 128. The registers of a stay as they are
 * until the product is through. */
template <typename T, int WIDE, bool TURNED>
__device__ __forceinline__ void multiply_held(float (&c)[WIDE / 2], const uint32_t (&a)[4], uint64_t b, int add)
{
    static_assert(WIDE == 32 || WIDE == 48 || WIDE == 64 || WIDE == 112 || WIDE == 128, "columns");
    if constexpr (std::is_same<T, __half>::value)
        LS_HELD_BY("f16");
    else
        LS_HELD_BY("bf16");
}

#undef LS_P16
#undef LS_FIRST_16
#undef LS_NEXT_8
#undef LS_FIRST_32
#undef LS_NEXT_16
#undef LS_THIRD_8
#undef LS_HELD
#undef LS_HELD_BY
#undef LS_R8
#undef LS_R32
#undef LS_WGMMA_64
#undef LS_WGMMA_128

/* --- tiles ----------------------------------------------------------------------------------------------------- */

/* The offset of a 16-byte unit in rows of `units` units, a multiple of 8, with the swizzle of boxes. */
__device__ __forceinline__ uint32_t unit_at(int row, int unit, int units)
{
    return (uint32_t)(row * units + (unit ^ (row & 7))) * 16;
}

/* Stores four 8x8 matrices of 16-bit values, as load_matrices (product.cuh) loads them. */
__device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t (&m)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(m[0]), "r"(m[1]),
                 "r"(m[2]), "r"(m[3])
                 : "memory");
}

/* Rounds the 64 rows of a warpgroup and stores them in shared memory. */
template <typename T, int WIDE>
__device__ __forceinline__ void lay_out_rows(const float (&sum)[WIDE / 2], uint32_t tile, int warp, int lane)
{
    const int row = warp * 16 + (lane & 15), unit = lane >> 4;
#pragma unroll
    for (int j = 0; j < WIDE / 8; j += 2)
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(tile +
                                                                                     unit_at(row, j + unit, WIDE / 8)),
            "r"(narrow_pair<T>(sum[j * 4], sum[j * 4 + 1])), "r"(narrow_pair<T>(sum[j * 4 + 2], sum[j * 4 + 3])),
            "r"(narrow_pair<T>(sum[j * 4 + 4], sum[j * 4 + 5])), "r"(narrow_pair<T>(sum[j * 4 + 6], sum[j * 4 + 7]))
            : "memory");
}

/* Stores four 8x8 matrices of 16-bit values, turned: a lane has two adjacent values of row lane / 4 of each, and passes the
 * address of a column. */
__device__ __forceinline__ void store_turned(uint32_t at, const uint32_t (&m)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(m[0]),
                 "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

/* --- host ------------------------------------------------------------------------------------------------------ */

/* Whether this GPU, with this build and driver, has the instructions. */
bool has_wgmma(void);

/* Describes a matrix of 16-bit values to the copy engine, in boxes of `box_rows` rows. */
bool box_map(CUtensorMap *map, enum ls_dtype t, const void *matrix, int64_t rows, int64_t columns, int box_rows);
/* The same of a list of `n` matrices, one after the other, for copies that name the matrix. A box does not reach into the next
 * matrix: what lies beyond the last row is outside. */
bool box_map(CUtensorMap *map, enum ls_dtype t, const void *matrices, int64_t n, int64_t rows, int64_t columns,
             int box_rows);
/* The same of a map of n samples of height x width pixels, in boxes of high x wide pixels, for copy_pixels. */
bool pixels_map(CUtensorMap *map, enum ls_dtype t, const void *x, int64_t n, int64_t height, int64_t width,
                int64_t channels, int high, int wide);
/* The same of maps whose rows are cut into pieces of `piece` pixels, a divisor of the width. What lies beyond a piece is outside. */
bool pieces_map(CUtensorMap *map, enum ls_dtype t, const void *x, int64_t n, int64_t height, int64_t width,
                int64_t channels, int piece, int high, int wide);

} // namespace ls_wgmma

#endif
