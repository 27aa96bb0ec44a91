/* What the passes of amx_data.c and amx_weights.c have in common: tiles, and maps cut into planes.
 *
 * AMX multiplies tiles of up to 16 rows of 64 bytes: C[16][16] += A[16][K] * B[K][16], C in f32, A and B in bf16. B has
 * two rows of K side by side: [K / 2][16][2]. Each thread has eight tile registers and configures their sizes itself.
 *
 * A convolution becomes such products by a flat index. A plane is a copy of every stride-th row and column of a map, with
 * zeros around it, so that a tap of the kernel is a shift by a fixed number of pixels. Results are computed for
 * consecutive flat pixels of the plane's pitch; those that fall into the margin are dropped. */
#ifndef LS_KERNELS_AMX_H
#define LS_KERNELS_AMX_H

#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

#if LS_KERNEL_BF16 && defined(__AVX512BF16__)
#define LS_AMX 1

#define AMX __attribute__((target("amx-tile,amx-bf16")))

enum {
    PIXEL = B * sizeof(E), /* bytes of a block's channels at one pixel */
    ROWS = 16,             /* of a tile */
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

/* The part of a map that a pass reads: planes of `rows` x `pitch` pixels. Plane (py, px) has the pixels
 * (y0 + py + i * step, x0 + px + j * step) of the map at (i, j). */
struct planes {
    int64_t step, y0, x0, rows, pitch;
};

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

/* Copies rows [row, row + rows) of plane (py, px) of one block of a map. */
INLINE void copy_plane(const struct planes *p, int64_t py, int64_t px, int64_t row, int64_t rows, const E *map,
                       int64_t h, int64_t w, E *to)
{
    int64_t x0 = p->x0 + px, first = x0 < 0 ? (-x0 + p->step - 1) / p->step : 0;
    int64_t last = x0 < w ? (w - 1 - x0) / p->step + 1 : 0; /* columns [first, last) are inside of the map */
    first = min_of(first, p->pitch);
    last = max_of(first, min_of(last, p->pitch));
    for (int64_t i = 0; i < rows; i++, to += p->pitch * B) {
        int64_t y = p->y0 + py + (row + i) * p->step;
        if (y < 0 || y >= h) {
            memset(to, 0, (size_t)p->pitch * PIXEL);
            continue;
        }
        const E *from = map + (y * w + x0) * B;
        memset(to, 0, (size_t)first * PIXEL);
        if (p->step == 1)
            memcpy(to + first * B, from + first * B, (size_t)(last - first) * PIXEL);
        else
            for (int64_t j = first; j < last; j++)
                memcpy(to + j * B, from + j * p->step * B, PIXEL);
        memset(to + last * B, 0, (size_t)(p->pitch - last) * PIXEL);
    }
}

size_t LS_KERNEL_NAME(amx_data_scratch)(const struct ls_conv *w);
void LS_KERNEL_NAME(amx_data)(const struct ls_conv *w);
size_t LS_KERNEL_NAME(amx_weights_scratch)(const struct ls_conv *w);
void LS_KERNEL_NAME(amx_weights)(const struct ls_conv *w);

#endif
#endif
