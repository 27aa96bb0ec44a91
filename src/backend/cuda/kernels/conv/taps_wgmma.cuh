/* Products of taps_wgmma.cu, 64 outputs x TILE pixels, and of taps_weights.cu, 64 outputs x three taps of 64 channels, by a
 * warpgroup, both matrices in shared memory. */
#ifndef LS_BACKEND_CUDA_KERNELS_CONV_TAPS_WGMMA_CUH
#define LS_BACKEND_CUDA_KERNELS_CONV_TAPS_WGMMA_CUH

#include "backend/cuda/kernels/conv/wgmma.cuh"

namespace ls_taps
{

using namespace ls_wgmma;

/* clang-format off */
#define LS_R4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define LS_R8(c, i) LS_R4(c, i), LS_R4(c, i + 4)
#define LS_R32(c, i) LS_R8(c, i), LS_R8(c, i + 8), LS_R8(c, i + 16), LS_R8(c, i + 24)
#define LS_P4(a, b, c, d) "%" #a ", %" #b ", %" #c ", %" #d
#define LS_P0 LS_P4(0, 1, 2, 3) ", " LS_P4(4, 5, 6, 7) ", " LS_P4(8, 9, 10, 11) ", " LS_P4(12, 13, 14, 15)
#define LS_P16 LS_P4(16, 17, 18, 19) ", " LS_P4(20, 21, 22, 23) ", " LS_P4(24, 25, 26, 27) ", " LS_P4(28, 29, 30, 31)
#define LS_P32 LS_P4(32, 33, 34, 35) ", " LS_P4(36, 37, 38, 39) ", " LS_P4(40, 41, 42, 43) ", " LS_P4(44, 45, 46, 47)
#define LS_P48 LS_P4(48, 49, 50, 51) ", " LS_P4(52, 53, 54, 55) ", " LS_P4(56, 57, 58, 59)
#define LS_P60 LS_P4(60, 61, 62, 63)
#define LS_P64 LS_P4(64, 65, 66, 67) ", " LS_P4(68, 69, 70, 71) ", " LS_P4(72, 73, 74, 75) ", " LS_P4(76, 77, 78, 79)
#define LS_P80 LS_P4(80, 81, 82, 83) ", " LS_P4(84, 85, 86, 87) ", " LS_P4(88, 89, 90, 91) ", " LS_P4(92, 93, 94, 95)
#define LS_P96 LS_P4(96, 97, 98, 99) ", " LS_P4(100, 101, 102, 103)
#define LS_P104 LS_P4(104, 105, 106, 107) ", " LS_P4(108, 109, 110, 111)
#define LS_P_60 LS_P0 ", " LS_P16 ", " LS_P32 ", " LS_P48
#define LS_P_96 LS_P_60 ", " LS_P60 ", " LS_P64 ", " LS_P80
#define LS_P_104 LS_P_96 ", " LS_P96
#define LS_TAPS(TILE, TYPE, SUMS, A, B, ADD, TURN, TURN_B, ...)                                                       \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #ADD ", 0;\n\t"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #TILE "k16.f32." TYPE "." TYPE " {" SUMS "}, "                   \
                 "%" #A ", %" #B ", p, 1, 1, %" #TURN ", %" #TURN_B ";\n\t}"                                          \
                 : __VA_ARGS__ : "l"(a), "l"(b), "r"(add), "n"(TURNED ? 1 : 0), "n"(B_TURNED ? 1 : 0))
#define LS_TAPS_BY(TYPE)                                                                                              \
    do {                                                                                                              \
        if constexpr (TILE == 120)                                                                                    \
            LS_TAPS(120, TYPE, LS_P_60, 60, 61, 62, 63, 64, LS_R32(c, 0), LS_R8(c, 32), LS_R8(c, 40), LS_R8(c, 48),   \
                    LS_R4(c, 56));                                                                                    \
        else if constexpr (TILE == 192)                                                                               \
            LS_TAPS(192, TYPE, LS_P_96, 96, 97, 98, 99, 100, LS_R32(c, 0), LS_R32(c, 32), LS_R32(c, 64));             \
        else if constexpr (TILE == 208)                                                                               \
            LS_TAPS(208, TYPE, LS_P_104, 104, 105, 106, 107, 108, LS_R32(c, 0), LS_R32(c, 32), LS_R32(c, 64),         \
                    LS_R8(c, 96));                                                                                    \
        else                                                                                                          \
            LS_TAPS(224, TYPE, LS_P_104 ", " LS_P104, 112, 113, 114, 115, 116, LS_R32(c, 0), LS_R32(c, 32),           \
                    LS_R32(c, 64), LS_R8(c, 96), LS_R8(c, 104));                                                      \
    } while (0)
/* clang-format on */

/* c (64 x TILE) = a (64 x 16) * b (16 x TILE), plus c if `add`; TILE is 120, 192, 208 or 224. The rows of b's box are pixels.
 * TURNED, B_TURNED: the rows of a's box, or of b's, run across the sum. */
template <typename T, int TILE, bool TURNED, bool B_TURNED = false>
__device__ __forceinline__ void multiply(float (&c)[TILE / 2], uint64_t a, uint64_t b, int add)
{
    static_assert(TILE == 120 || TILE == 192 || TILE == 208 || TILE == 224, "pixels");
    if constexpr (std::is_same<T, __half>::value)
        LS_TAPS_BY("f16");
    else
        LS_TAPS_BY("bf16");
}

#undef LS_R4
#undef LS_R8
#undef LS_R32
#undef LS_P4
#undef LS_P0
#undef LS_P16
#undef LS_P32
#undef LS_P48
#undef LS_P60
#undef LS_P64
#undef LS_P80
#undef LS_P96
#undef LS_P104
#undef LS_P_60
#undef LS_P_96
#undef LS_P_104
#undef LS_TAPS
#undef LS_TAPS_BY

/* Stores two 8x8 matrices of 16-bit values, turned, as store_turned of wgmma.cuh stores four. */
__device__ __forceinline__ void store_two_turned(uint32_t at, uint32_t first, uint32_t second)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(first), "r"(second)
                 : "memory");
}

/* --- rings --------------------------------------------------------------------------------------------------------- */

/* Where a ring stands. */
struct turn {
    int at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance(int length)
    {
        if (++at == length) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* --- boxes of pixels --------------------------------------------------------------------------------------------- */

/* Starts the copy of a box of pixels of one sample; what lies beyond the map becomes 0. */
__device__ __forceinline__ void copy_pixels(uint32_t to, const CUtensorMap &from, int channel, int x, int y, int n,
                                            uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
        "[%6];" ::"r"(to),
        "l"(&from), "r"(channel), "r"(x), "r"(y), "r"(n), "r"(barrier)
        : "memory");
}

/* Starts the copy of a box from shared memory, as store_box of wgmma.cuh does. */
__device__ __forceinline__ void store_pixels(const CUtensorMap &to, int channel, int x, int y, int n, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n\t"
                 "cp.async.bulk.commit_group;" ::"l"(&to),
                 "r"(channel), "r"(x), "r"(y), "r"(n), "r"(from)
                 : "memory");
}

/* The same of a box that begins with the first pixel of a piece (pieces_map). */
__device__ __forceinline__ void copy_piece(uint32_t to, const CUtensorMap &from, int channel, int piece, int y, int n,
                                           uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], "
        "[%7];" ::"r"(to),
        "l"(&from), "r"(channel), "r"(0), "r"(piece), "r"(y), "r"(n), "r"(barrier)
        : "memory");
}

/* --- host ---------------------------------------------------------------------------------------------------------- */

constexpr int64_t MOST_ROOM = 226 * 1024; /* shared memory of a block, without what the kernel declares */

/* Boxes begin at multiples of 1024 bytes. */
inline int64_t rounded_up(int64_t bytes)
{
    return ceil_div(bytes, 1024) * 1024;
}

} // namespace ls_taps

#endif
