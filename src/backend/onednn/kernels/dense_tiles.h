/* Products of matrices in bf16, (row, depth) by (depth, column), in tiles as AMX has them:
 *   left    [16 rows][32 of the depth]
 *   right   [16 pairs of the depth][16 columns][2]
 *   sums    [16 rows][16 columns], f32
 * Processors without AMX multiply the same tiles with vectors. Weights of dense layers are packed into tiles on the right. */
#ifndef LS_KERNELS_DENSE_TILES_H
#define LS_KERNELS_DENSE_TILES_H

#include "backend/onednn/kernels/amx.h"
#include "backend/onednn/kernels/transpose.h"

#if LS_KERNEL_BF16 && defined(__AVX512F__)
#define LS_DENSE_TILES 1

enum {
    SIDE = 16,          /* rows or columns of a tile */
    DEEP = 32,          /* the depth of a tile */
    TILE = SIDE * DEEP, /* values of a tile, left or right */
    SUMS = SIDE * SIDE  /* values of a tile of sums */
};

INLINE int64_t tiles_of(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

/* The first n of up to 32 values. */
INLINE uint32_t mask_of(int64_t n)
{
    return n <= 0 ? 0 : n >= 32 ? UINT32_MAX : (1u << n) - 1;
}

/* --- bf16 --------------------------------------------------------------------------------------------------------- */

INLINE __m256i bf16_of(vf x)
{
#if defined(__AVX512BF16__)
    return (__m256i)_mm512_cvtneps_pbh((__m512)x);
#else
    E values[B];
    store(values, x);
    return _mm256_loadu_si256((const __m256i *)(const void *)values);
#endif
}

/* Lane i: value i of both, side by side. */
INLINE vf pair(__m256i even, __m256i odd)
{
    return (vf)_mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}
/* Lane i: value i of both, rounded. */
INLINE vf side_by_side(vf even, vf odd)
{
#if defined(__AVX512BF16__)
    static const uint16_t both[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return (vf)_mm512_permutexvar_epi16(_mm512_loadu_si512(both),
                                        (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
#else
    return pair(bf16_of(even), bf16_of(odd));
#endif
}
/* Lane i: values 2 i and 2 i + 1 of the 32, rounded. */
INLINE vf neighbours(vf low, vf high)
{
#if defined(__AVX512BF16__)
    return (vf)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    return (vf)_mm512_inserti64x4(_mm512_castsi256_si512(bf16_of(low)), bf16_of(high), 1);
#endif
}

/* Tiles are read in pieces that the processor does not expect: what the next tile needs is requested while this one is packed. An
 * address beyond the weights does no harm. */
INLINE void expect(const float *later)
{
    _mm_prefetch((const char *)(uintptr_t)later, _MM_HINT_T0);
}

/* --- weights, on the right ---------------------------------------------------------------------------------------- */

INLINE bool forward_pass(const struct ls_dense *d)
{
    return d->pass == LS_CONV_FORWARD;
}

/* The weight of a column and a depth. */
INLINE const float *weight_at(const struct ls_dense *d, int64_t depth, int64_t column)
{
    int64_t row = forward_pass(d) ? column : depth, input = forward_pass(d) ? depth : column;
    return d->w +
           (d->block == 0 ? row * d->inputs + input : (row / d->block * d->inputs + input) * d->block + row % d->block);
}
INLINE vf weights(uint32_t here, const float *from)
{
    return (vf)_mm512_maskz_loadu_ps((__mmask16)here, from);
}

/* A tile of weights whose neighbours in memory are neighbours in a column's depth. A block has a multiple of 16 of them. */
INLINE void pack_by_columns(const struct ls_dense *d, int64_t depth, int64_t end, int64_t column, int64_t columns,
                            E *to)
{
    int64_t step = forward_pass(d) ? d->inputs : d->block;
    uint32_t low = mask_of(end - depth) & 0xffff, high = mask_of(end - depth - SIDE);
    const float *from = weight_at(d, depth, column), *second = high ? weight_at(d, depth + SIDE, column) : from;
    vf lanes[SIDE];
    for (int64_t c = 0; c < SIDE; c++) {
        expect(from + (SIDE + c) * step);
        expect(second + (SIDE + c) * step);
        lanes[c] =
            c < columns ? neighbours(weights(low, from + c * step), weights(high, second + c * step)) : vset(0.0f);
    }
    transpose_lanes(lanes);
    for (int i = 0; i < SIDE; i++)
        _mm512_storeu_si512(to + i * DEEP, (__m512i)lanes[i]);
}

/* A tile whose neighbours in memory are neighbouring columns. */
INLINE void pack_by_rows(const struct ls_dense *d, int64_t depth, int64_t end, int64_t column, int64_t columns, E *to)
{
    int64_t step = forward_pass(d) ? d->block : d->inputs;
    uint32_t here = mask_of(columns) & 0xffff;
    const float *from = here ? weight_at(d, depth, column) : d->w;
    for (int64_t i = 0; i < DEEP; i += 2) {
        expect(from + (DEEP + i) * step);
        expect(from + (DEEP + i + 1) * step);
        vf even = weights(depth + i < end ? here : 0, from + i * step);
        vf odd = weights(depth + i + 1 < end ? here : 0, from + (i + 1) * step);
        _mm512_storeu_si512(to + i * SIDE, (__m512i)side_by_side(even, odd));
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* Tiles of `deep` tiles of depth: one or two on the left, whose tiles of depth follow each other, by two on the right. to: 2 tiles of
 * sums for each on the left. first: the sums are those of the product alone; otherwise it is added to them. Vectors leave out
 * rows beyond `rows` and pairs of the depth beyond `pairs`, which are zeros; AMX takes as long with them. */
struct product {
    int64_t deep, rows, pairs;
    const E *left, *right;
    int64_t left_step, right_step, to_step; /* to the second tile on the left, on the right; to its sums */
    float *to;
    bool two, first;
};

/* sums += the products of pairs */
INLINE vf add_pairs(vf sums, vf x, vf w)
{
#if defined(__AVX512BF16__)
    return (vf)_mm512_dpbf16_ps((__m512)sums, (__m512bh)x, (__m512bh)w);
#else
    sums += (vf)((vu)x << 16) * (vf)((vu)w << 16);
    return sums + (vf)((vu)x & 0xffff0000) * (vf)((vu)w & 0xffff0000);
#endif
}

/* N rows, at most eight, by two tiles of columns. */
INLINE void multiply_rows(const struct product *p, const int N, const E *left, float *to)
{
    vf sums[8][2];
    for (int i = 0; i < N; i++)
        for (int c = 0; c < 2; c++)
            sums[i][c] = p->first ? vset(0.0f) : vloadf(to + c * SUMS + i * SIDE);
    for (int64_t k = 0; k < p->pairs; k++) {
        const E *right = p->right + k * 2 * SIDE, *x = left + k / (DEEP / 2) * TILE + k % (DEEP / 2) * 2;
        vf w[2] = {(vf)_mm512_loadu_si512(right), (vf)_mm512_loadu_si512(right + p->right_step)};
        for (int i = 0; i < N; i++) {
            int32_t both;
            memcpy(&both, x + i * DEEP, sizeof both);
            for (int c = 0; c < 2; c++)
                sums[i][c] = add_pairs(sums[i][c], (vf)_mm512_set1_epi32(both), w[c]);
        }
    }
    for (int i = 0; i < N; i++)
        for (int c = 0; c < 2; c++)
            vstoref(to + c * SUMS + i * SIDE, sums[i][c]);
}

static void multiply_vectors(const struct product *p)
{
    for (int64_t row = 0; row < p->rows; row += 8) {
        const E *left = p->left + row / SIDE * p->left_step + row % SIDE * DEEP;
        float *to = p->to + row / SIDE * p->to_step + row % SIDE * SIDE;
        if (p->rows - row == 1)
            multiply_rows(p, 1, left, to);
        else if (p->rows - row == 2)
            multiply_rows(p, 2, left, to);
        else if (p->rows - row <= 4)
            multiply_rows(p, 4, left, to);
        else
            multiply_rows(p, 8, left, to);
    }
}

#ifdef LS_AMX
/* Registers 0 to 3: sums; 4 and 5: left; 6 and 7: right. */
AMX static void multiply_amx(const struct product *p)
{
    float *to = p->to, *second = to + p->to_step;
    if (p->first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, to, 64);
        _tile_loadd(1, to + SUMS, 64);
        if (p->two) {
            _tile_loadd(2, second, 64);
            _tile_loadd(3, second + SUMS, 64);
        }
    }
    for (int64_t k = 0; k < p->deep; k++) {
        _tile_loadd(6, p->right + k * TILE, 64);
        _tile_loadd(4, p->left + k * TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, p->right + p->right_step + k * TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (!p->two)
            continue;
        _tile_loadd(5, p->left + p->left_step + k * TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, 64);
    _tile_stored(1, to + SUMS, 64);
    if (p->two) {
        _tile_stored(2, second, 64);
        _tile_stored(3, second + SUMS, 64);
    }
}
#endif

/* How tiles are multiplied. Each thread opens a method before its first product, and closes it. */
struct method {
    void (*multiply)(const struct product *);
    void (*open)(void);
    void (*close)(void);
};

static void nothing(void)
{
}
static const struct method by_vectors = {multiply_vectors, nothing, nothing};

#ifdef LS_AMX
static void open_whole(void)
{
    tiles_open(&ls_amx_whole);
}
static void close_whole(void)
{
    tiles_close();
}
static const struct method by_amx = {multiply_amx, open_whole, close_whole};
#endif

#endif
#endif
