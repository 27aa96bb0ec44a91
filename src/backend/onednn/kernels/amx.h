/* What the convolutions of amx_*.c have in common: tiles, and maps cut into planes.
 *
 * AMX multiplies tiles of up to 16 rows of 64 bytes: C[16][16] += A[16][K] * B[K][16], C in f32, A and B in bf16. B has
 * two rows of K side by side: [K / 2][16][2]. Each thread has eight tile registers and configures their sizes itself.
 *
 * A convolution becomes such products by a flat index. A plane is a copy of every stride-th row and column of a map, with
 * zeros around it, so that a tap of the kernel is a shift by a fixed number of pixels. Results are computed for
 * consecutive flat pixels of the plane's pitch; those that fall into the margin are dropped. */
#ifndef LS_KERNELS_AMX_H
#define LS_KERNELS_AMX_H

#include "backend/onednn/kernels/conv_bias.h"
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

INLINE int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
INLINE int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
INLINE int64_t up_to(int64_t x, int64_t multiple)
{
    return (x + multiple - 1) / multiple * multiple;
}

#if LS_KERNEL_BF16 && defined(__AVX512BF16__)
#define LS_AMX 1

#define AMX __attribute__((target("amx-tile,amx-bf16")))

enum {
    PIXEL = B * sizeof(E), /* bytes of a block's channels at one pixel */
    ROWS = 16,             /* of a tile */
    K = 32,                /* numbers of a tile's row, where it is whole */
    L2_BYTES = 768 * 1024  /* what one thread works on at a time */
};

/* Sizes of the tile registers, as LDTILECFG reads them. */
struct tiles {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Functions of their own, because clang does not give a parallel region the instructions of the function around it. */
AMX static inline void tiles_open(const struct tiles *t)
{
    _tile_loadconfig(t);
}
AMX static inline void tiles_close(void)
{
    _tile_release();
}

/* Sizes for products of whole tiles. */
static const struct tiles ls_amx_whole = {.palette = 1,
                                          .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                          .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS}};

/* Four sums, of two tiles of A by two of B: tiles 0 to 3 are A0 B0, A0 B1, A1 B0, A1 B1. */
AMX static inline void sums_clear(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}
AMX static inline void sums_load(float *const c[4])
{
    _tile_loadd(0, c[0], 64);
    _tile_loadd(1, c[1], 64);
    _tile_loadd(2, c[2], 64);
    _tile_loadd(3, c[3], 64);
}
AMX static inline void sums_store(float *const c[4])
{
    _tile_stored(0, c[0], 64);
    _tile_stored(1, c[1], 64);
    _tile_stored(2, c[2], 64);
    _tile_stored(3, c[3], 64);
}
/* The rows of A are a_row bytes apart, those of B follow each other. */
AMX static inline void sums_add(const void *a0, const void *a1, int64_t a_row, const void *b0, const void *b1)
{
    _tile_loadd(4, a0, a_row);
    _tile_loadd(6, b0, 64);
    _tile_loadd(7, b1, 64);
    _tile_loadd(5, a1, a_row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* The part of a map that a pass reads: planes of `rows` x `pitch` pixels. Plane (py, px) has the pixels
 * (y0 + py + i * step, x0 + px + j * step) of the map at (i, j). */
struct planes {
    int64_t step, y0, x0, rows, pitch;
};

/* Copies rows [row, row + rows) of plane (py, px) of one block of a map. The pixels of the copy are `apart` elements apart: B,
 * or more with other blocks between them. map NULL: zeros. */
INLINE void copy_plane(const struct planes *p, int64_t py, int64_t px, int64_t row, int64_t rows, const E *map,
                       int64_t h, int64_t w, int64_t apart, E *to)
{
    int64_t x0 = p->x0 + px, first = x0 < 0 ? (-x0 + p->step - 1) / p->step : 0;
    int64_t last = x0 < w ? (w - 1 - x0) / p->step + 1 : 0; /* columns [first, last) are inside of the map */
    first = min_of(first, p->pitch);
    last = max_of(first, min_of(last, p->pitch));
    for (int64_t i = 0; i < rows; i++, to += p->pitch * apart) {
        int64_t y = p->y0 + py + (row + i) * p->step;
        bool inside = map && y >= 0 && y < h;
        const E *from = inside ? map + (y * w + x0) * B : NULL;
        int64_t begin = inside ? first : p->pitch, end = inside ? last : p->pitch;
        for (int64_t j = 0; j < begin; j++)
            memset(to + j * apart, 0, PIXEL);
        if (inside && p->step == 1 && apart == B)
            memcpy(to + begin * B, from + begin * B, (size_t)(end - begin) * PIXEL);
        else
            for (int64_t j = begin; j < end; j++)
                memcpy(to + j * apart, from + j * p->step * B, PIXEL);
        for (int64_t j = end; j < p->pitch; j++)
            memset(to + j * apart, 0, PIXEL);
    }
}

/* [B in][B out] of f32 as a tile: pairs of the summed channels side by side. */
INLINE void pack_forward(const float *from, E *to)
{
    static const uint16_t both[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    for (int r = 0; r < B / 2; r++) {
        __m512i rows =
            (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + (2 * r + 1) * B), _mm512_loadu_ps(from + 2 * r * B));
        _mm512_storeu_si512(to + r * 2 * B, _mm512_permutexvar_epi16(_mm512_loadu_si512(both), rows));
    }
}
INLINE void pack_gradient(const float *from, E *to)
{
    uint32_t pairs[B][B / 2], row[B]; /* pairs of results of each input */
    for (int i = 0; i < B; i++) {
        __m256bh h = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + i * B));
        memcpy(pairs[i], &h, sizeof h);
    }
    for (int r = 0; r < B / 2; r++) {
        for (int i = 0; i < B; i++)
            row[i] = pairs[i][r];
        memcpy(to + r * 2 * B, row, sizeof row);
    }
}
/* The weights of a tap between two blocks: half of the rows of a tile. */
INLINE void pack_tap(bool forward, const float *from, E *to)
{
    if (forward)
        pack_forward(from, to);
    else
        pack_gradient(from, to);
}

/* 16 rows of 16 channels, as 16 channels of 16 values in a tile: the pixels, or samples, that a product sums over. */
INLINE void transpose(const E *from, E *to)
{
    __m256i a[16], b[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm256_loadu_si256((const __m256i *)(const void *)(from + i * B));
    for (int i = 0; i < 16; i += 2) { /* pairs of pixels side by side, for channels 0-3, 8-11 and 4-7, 12-15 */
        b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            a[i + 2 * h] = _mm256_unpacklo_epi32(b[i + h], b[i + 2 + h]);
            a[i + 2 * h + 1] = _mm256_unpackhi_epi32(b[i + h], b[i + 2 + h]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int h = 0; h < 4; h++) {
            b[i + 2 * h] = _mm256_unpacklo_epi64(a[i + h], a[i + 4 + h]);
            b[i + 2 * h + 1] = _mm256_unpackhi_epi64(a[i + h], a[i + 4 + h]);
        }
    for (int h = 0; h < 8; h++) {
        _mm256_storeu_si256((__m256i *)(void *)(to + h * K), _mm256_permute2x128_si256(b[h], b[8 + h], 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(to + (8 + h) * K), _mm256_permute2x128_si256(b[h], b[8 + h], 0x31));
    }
}

/* Rows of gradients, two side by side. */
INLINE void pair_up(const E *from, int64_t pixels, E *to)
{
    static const uint16_t both[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i order = _mm512_loadu_si512(both);
    for (int64_t i = 0; i < pixels * B; i += 2 * B)
        _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(order, _mm512_loadu_si512(from + i)));
}

size_t LS_KERNEL_NAME(amx_data_scratch)(const struct ls_conv *w);
void LS_KERNEL_NAME(amx_data)(const struct ls_conv *w);
size_t LS_KERNEL_NAME(amx_weights_scratch)(const struct ls_conv *w);
void LS_KERNEL_NAME(amx_weights)(const struct ls_conv *w);
/* Small maps of many samples (amx_samples.c). */
bool LS_KERNEL_NAME(amx_samples_fits)(const struct ls_conv *w);
size_t LS_KERNEL_NAME(amx_samples_scratch)(const struct ls_conv *w);
void LS_KERNEL_NAME(amx_samples_data)(const struct ls_conv *w);
void LS_KERNEL_NAME(amx_samples_weights)(const struct ls_conv *w);

#endif
#endif
