/* Winograd's F(2x2, 3x3) in bf16: 16 products where a direct 3x3 convolution has 36, by the instruction that adds the
 * products of two pairs of bf16 numbers to each of 16 sums in f32. The transforms add and subtract, and halve weights, so
 * that rounding transformed values to bf16 costs about as much as rounding the results does: an error of 0.3 % of the
 * results' size, where F(4x4, 3x3) would have 1 %.
 *
 * A map is divided into tiles of 2x2 results, each computed from 4x4 inputs. After the transform, the 16 places of all
 * tiles are 16 independent matrix products.
 *
 *   V[place][block][tile][B]               transformed inputs
 *   U[group][place][block][B / 2][2B][2]   transformed weights of a group of two blocks of results; pairs of inputs
 *   M[place][tile][2B]                     products, f32
 *
 * In the gradient of the weights, inputs V and gradients Z have pairs of tiles side by side: [place][tile / 2][B][2].
 * The tiles are cut into parts by the shape alone, and the sums of the parts are added in their order. Each other result
 * is computed by one thread in a fixed order (LOOP-1). */
#include "backend/onednn/kernels/conv_bias.h"
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

#include <omp.h>

#if LS_KERNEL_BF16 && defined(__AVX512BF16__)

enum {
    PLACES = 16,
    GROUP = 2,            /* blocks of results at a time */
    ROWS = 12,            /* tiles in registers at a time */
    V_BYTES = 400 * 1024, /* transformed inputs of a thread, about */
    GAP = 32,             /* elements behind each place, so that places do not share sets of the cache */
    PAIR = 2 * B,         /* elements of a vector of pairs */
    U_BLOCK = GROUP * B * B,
    CHUNK = 128,           /* tiles between two visits to the sums of a gradient */
    PART = 512,            /* tiles of a part, at least: sums of many parts take long to add */
    CHANNELS = 8,          /* inputs in registers at a time, in the gradient */
    WIDE = 4,              /* groups of a unit of the gradient's work */
    UNITS = 16,            /* of it, about */
    SUMS_BYTES = 32 << 20, /* of the sums of all its parts, at most */
    SUMS = PLACES * B * GROUP * B
};

static int64_t at_most(int64_t x, int64_t high)
{
    return x > high ? high : x;
}
static int64_t at_least(int64_t x, int64_t low)
{
    return x < low ? low : x;
}
/* Zeros before the first input that a result reads. */
static int64_t lead(const struct ls_conv *w, int64_t pad)
{
    return w->pass == LS_CONV_DATA ? 2 - pad : pad;
}
static int64_t groups_of(const struct ls_conv *w)
{
    return (w->out_blocks + GROUP - 1) / GROUP;
}

/* --- tiles ------------------------------------------------------------------------------------------------------- */

struct tile {
    int64_t n, y, x; /* position of the tile's first result */
};
static int64_t tiles_of(const struct ls_conv *w)
{
    return w->n * ((w->out_h + 1) / 2) * ((w->out_w + 1) / 2);
}
static struct tile tile_at(const struct ls_conv *w, int64_t t)
{
    int64_t across = (w->out_w + 1) / 2, down = (w->out_h + 1) / 2;
    return (struct tile){t / (across * down), t / across % down * 2, t % across * 2};
}
INLINE void tile_next(const struct ls_conv *w, struct tile *t)
{
    t->x += 2;
    if (t->x < w->out_w)
        return;
    t->x = 0;
    t->y += 2;
    if (t->y < w->out_h)
        return;
    t->y = 0;
    t->n++;
}

/* Reads size x size pixels of a block, starting at (y, x). Pixels outside the map are zero. */
INLINE void read_tile(const E *map, int64_t h, int64_t w, int64_t y, int64_t x, int size, vf *d)
{
    if (y >= 0 && x >= 0 && y + size <= h && x + size <= w) {
        for (int i = 0; i < size; i++)
            for (int j = 0; j < size; j++)
                d[i * size + j] = load(map + ((y + i) * w + x + j) * B);
        return;
    }
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            bool inside = y + i >= 0 && y + i < h && x + j >= 0 && x + j < w;
            d[i * size + j] = inside ? load(map + ((y + i) * w + x + j) * B) : vset(0.0f);
        }
}

/* The 16 values of a tile of block k of the inputs. */
INLINE void input_values(const struct ls_conv *w, struct tile at, int64_t k, vf v[PLACES])
{
    vf d[16], e[16];
    read_tile((const E *)w->in + (at.n * w->in_blocks + k) * w->in_h * w->in_w * B, w->in_h, w->in_w,
              at.y - lead(w, w->pad_t), at.x - lead(w, w->pad_l), 4, d);
    for (int j = 0; j < 4; j++) {
        e[j] = d[j] - d[8 + j];
        e[4 + j] = d[4 + j] + d[8 + j];
        e[8 + j] = d[8 + j] - d[4 + j];
        e[12 + j] = d[4 + j] - d[12 + j];
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = e[i] - e[i + 2];
        v[i + 1] = e[i + 1] + e[i + 2];
        v[i + 2] = e[i + 2] - e[i + 1];
        v[i + 3] = e[i + 1] - e[i + 3];
    }
}
/* The same of block m of the gradients of the results. */
INLINE void gradient_values(const struct ls_conv *w, struct tile at, int64_t m, vf z[PLACES])
{
    vf d[4], e[8];
    read_tile((const E *)w->out + (at.n * w->out_blocks + m) * w->out_h * w->out_w * B, w->out_h, w->out_w, at.y, at.x,
              2, d);
    for (int j = 0; j < 2; j++) {
        e[j] = d[j];
        e[2 + j] = d[j] + d[2 + j];
        e[4 + j] = d[j] - d[2 + j];
        e[6 + j] = -d[2 + j];
    }
    for (int i = 0; i < 4; i++) {
        z[4 * i] = e[2 * i];
        z[4 * i + 1] = e[2 * i] + e[2 * i + 1];
        z[4 * i + 2] = e[2 * i] - e[2 * i + 1];
        z[4 * i + 3] = -e[2 * i + 1];
    }
}

/* Two vectors as one of pairs. */
INLINE void store_pairs(E *to, vf first, vf second)
{
    static const uint16_t both[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_loadu_si512(both), halves));
}

/* acc += the pair at v times each pair of u. */
INLINE vf dot(vf acc, const E *v, __m512i u)
{
    int32_t pair;
    memcpy(&pair, v, sizeof pair);
    return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)u);
}

/* --- forward, and back to the inputs ----------------------------------------------------------------------------- */

/* Division of the work. Tiles are divided into chunks. With fewer chunks than threads, groups are divided into parts as
 * well, whose threads transform the same inputs. */
struct cut {
    int64_t chunks, chunk, parts;
    size_t v_place, m_place, u_group; /* elements of V and U, floats of M */
    size_t own, weights;              /* bytes of a thread; of U */
};
static struct cut cut_data(const struct ls_conv *w)
{
    int64_t tiles = tiles_of(w), threads = w->threads, fit = V_BYTES / (PLACES * w->in_blocks * B * (int64_t)sizeof(E));
    fit = at_least(at_most(fit, 96) / ROWS * ROWS, 2 * ROWS);
    int64_t chunks = (tiles + fit - 1) / fit;
    if (chunks > threads / 2)
        chunks = (chunks + threads - 1) / threads * threads;
    int64_t chunk = ((tiles + chunks - 1) / chunks + ROWS - 1) / ROWS * ROWS;
    chunks = (tiles + chunk - 1) / chunk;
    struct cut c = {.chunks = chunks,
                    .chunk = chunk,
                    .parts = at_most((threads + chunks - 1) / chunks, groups_of(w)),
                    .v_place = (size_t)(chunk * w->in_blocks * B + GAP),
                    .m_place = (size_t)(chunk * GROUP * B + GAP),
                    .u_group = (size_t)PLACES * (size_t)(w->in_blocks * U_BLOCK + GAP)};
    c.own = PLACES * (c.v_place * sizeof(E) + c.m_place * sizeof(float));
    c.weights = (size_t)groups_of(w) * c.u_group * sizeof(E);
    return c;
}

static void transform_inputs(const struct ls_conv *w, const struct cut *c, int64_t first, int64_t count, E *v)
{
    for (int64_t k = 0; k < w->in_blocks; k++) {
        struct tile at = tile_at(w, first);
        for (int64_t t = 0; t < count; t++, tile_next(w, &at)) {
            vf r[PLACES];
            input_values(w, at, k, r);
            for (int p = 0; p < PLACES; p++)
                store(v + (size_t)p * c->v_place + (k * c->chunk + t) * B, r[p]);
        }
    }
}

/* Transforms the weights between block k of what is read and block m of what is written; m may be beyond the last. The
 * gradient uses rotated weights: results and inputs are exchanged, and the order of the taps is reversed. */
static void transform_weights(const struct ls_conv *w, int64_t m, int64_t k, E *u)
{
    size_t place = (size_t)(w->in_blocks * U_BLOCK + GAP);
    float taps[9][B][B];
    for (int tap = 0; tap < 9; tap++) {
        if (m >= w->out_blocks) {
            memset(taps[tap], 0, sizeof taps[tap]);
        } else if (w->pass == LS_CONV_FORWARD) {
            memcpy(taps[tap], w->weights + ((m * w->in_blocks + k) * 9 + tap) * B * B, sizeof taps[tap]);
        } else {
            const float *from = w->weights + ((k * w->out_blocks + m) * 9 + 8 - tap) * B * B;
            for (int i = 0; i < B; i++)
                for (int j = 0; j < B; j++)
                    taps[tap][j][i] = from[i * B + j];
        }
    }
    for (int i = 0; i < B; i += 2) {
        vf r[2][PLACES];
        for (int half = 0; half < 2; half++) {
            vf e[12];
            for (int j = 0; j < 3; j++) {
                vf g0 = vloadf(taps[j][i + half]), g1 = vloadf(taps[3 + j][i + half]),
                   g2 = vloadf(taps[6 + j][i + half]);
                vf even = 0.5f * (g0 + g2), odd = 0.5f * g1;
                e[j] = g0;
                e[3 + j] = even + odd;
                e[6 + j] = even - odd;
                e[9 + j] = g2;
            }
            for (int j = 0; j < 4; j++) {
                vf even = 0.5f * (e[3 * j] + e[3 * j + 2]), odd = 0.5f * e[3 * j + 1];
                r[half][4 * j] = e[3 * j];
                r[half][4 * j + 1] = even + odd;
                r[half][4 * j + 2] = even - odd;
                r[half][4 * j + 3] = e[3 * j + 2];
            }
        }
        for (int p = 0; p < PLACES; p++)
            store_pairs(u + (size_t)p * place + (k * B / 2 + i / 2) * GROUP * PAIR + m % GROUP * PAIR, r[0][p],
                        r[1][p]);
    }
}

/* M of `rows` tiles = V U over all blocks; v_block is the distance of blocks. */
INLINE void multiply_rows(int rows, const E *v, int64_t v_block, const E *u, int64_t blocks, float *m)
{
    vf acc[ROWS][GROUP];
    for (int r = 0; r < rows; r++)
        acc[r][0] = acc[r][1] = vset(0.0f);
    for (int64_t k = 0; k < blocks; k++, v += v_block)
        for (int i = 0; i < B; i += 2, u += GROUP * PAIR) {
            __m512i left = _mm512_loadu_si512(u), right = _mm512_loadu_si512(u + PAIR);
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                acc[r][0] = dot(acc[r][0], v + r * B + i, left);
                acc[r][1] = dot(acc[r][1], v + r * B + i, right);
            }
        }
    for (int r = 0; r < rows; r++) {
        vstoref(m + r * GROUP * B, acc[r][0]);
        vstoref(m + r * GROUP * B + B, acc[r][1]);
    }
}
static void multiply(const struct cut *c, const E *v, int64_t tiles, const E *u, int64_t blocks, float *m)
{
    int64_t t = 0;
    for (; t + ROWS <= tiles; t += ROWS)
        multiply_rows(ROWS, v + t * B, c->chunk * B, u, blocks, m + t * GROUP * B);
    for (; t + 4 <= tiles; t += 4)
        multiply_rows(4, v + t * B, c->chunk * B, u, blocks, m + t * GROUP * B);
    for (; t < tiles; t++)
        multiply_rows(1, v + t * B, c->chunk * B, u, blocks, m + t * GROUP * B);
}

INLINE void output_tile(const struct ls_conv *w, enum ls_act act, struct tile at, int64_t k, vf bias, const float *m,
                        size_t place)
{
    vf e[8], y[4];
    for (int j = 0; j < 4; j++) {
        vf r0 = vloadf(m + (size_t)j * place), r1 = vloadf(m + (size_t)(4 + j) * place);
        vf r2 = vloadf(m + (size_t)(8 + j) * place), r3 = vloadf(m + (size_t)(12 + j) * place);
        e[j] = r0 + r1 + r2;
        e[4 + j] = r1 - r2 - r3;
    }
    for (int i = 0; i < 2; i++) {
        y[2 * i] = e[4 * i] + e[4 * i + 1] + e[4 * i + 2];
        y[2 * i + 1] = e[4 * i + 1] - e[4 * i + 2] - e[4 * i + 3];
    }
    E *map = (E *)w->out + ((at.n * w->out_blocks + k) * w->out_h * w->out_w + at.y * w->out_w + at.x) * B;
    for (int64_t i = 0; i < at_most(w->out_h - at.y, 2); i++)
        for (int64_t j = 0; j < at_most(w->out_w - at.x, 2); j++)
            store(map + (i * w->out_w + j) * B, activate(act, y[2 * i + j] + bias));
}

static void transform_outputs(const struct ls_conv *w, const struct cut *c, int64_t first, int64_t count, int64_t group,
                              const float *m)
{
    for (int64_t k = group * GROUP; k < at_most((group + 1) * GROUP, w->out_blocks); k++) {
        vf bias = w->bias ? vloadf(w->bias + k * B) : vset(0.0f);
        struct tile at = tile_at(w, first);
        for (int64_t t = 0; t < count; t++, tile_next(w, &at)) {
            const float *from = m + (t * GROUP + k % GROUP) * B;
#define OUTPUT(act) output_tile(w, act, at, k, bias, from, c->m_place)
            FOR_EACH_ACT(w->act, OUTPUT)
        }
    }
}

static void data_pass(const struct ls_conv *w)
{
    struct cut c = cut_data(w);
    int64_t tiles = tiles_of(w), groups = groups_of(w);
    E *all_u = w->scratch;
#pragma omp parallel num_threads(w->threads)
    {
        E *v = (E *)(void *)((char *)w->scratch + c.weights + (size_t)omp_get_thread_num() * c.own);
        float *m = (float *)(void *)(v + PLACES * c.v_place);
#pragma omp for collapse(2) schedule(static)
        for (int64_t k = 0; k < groups * GROUP; k++)
            for (int64_t i = 0; i < w->in_blocks; i++)
                transform_weights(w, k, i, all_u + (size_t)(k / GROUP) * c.u_group);
#pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < c.chunks; i++)
            for (int64_t part = 0; part < c.parts; part++) {
                int64_t first = i * c.chunk, count = at_most(tiles - first, c.chunk);
                transform_inputs(w, &c, first, count, v);
                for (int64_t g = part * groups / c.parts; g < (part + 1) * groups / c.parts; g++) {
                    for (int p = 0; p < PLACES; p++)
                        multiply(&c, v + (size_t)p * c.v_place, count,
                                 all_u + (size_t)g * c.u_group + (size_t)p * (c.u_group / PLACES), w->in_blocks,
                                 m + (size_t)p * c.m_place);
                    transform_outputs(w, &c, first, count, g, m);
                }
            }
    }
}

/* --- the gradient of the weights --------------------------------------------------------------------------------- */

/* A unit of work is a part of the tiles and at most WIDE groups of results. */
struct grid {
    int64_t parts, group_parts;
    size_t place, own; /* elements of a place of a block; bytes of a thread */
};
static struct grid cut_gradient(const struct ls_conv *w)
{
    int64_t groups = groups_of(w), group_parts = (groups + WIDE - 1) / WIDE;
    int64_t few = at_least(SUMS_BYTES / (groups * w->in_blocks * SUMS * (int64_t)sizeof(float)), 1);
    int64_t parts = at_most(at_most((UNITS + group_parts - 1) / group_parts, few), tiles_of(w) / PART);
    size_t place = CHUNK * B + GAP;
    return (struct grid){.parts = at_least(parts, 1),
                         .group_parts = group_parts,
                         .place = place,
                         .own = PLACES * place * (1 + WIDE * GROUP) * sizeof(E)};
}

INLINE void transform_tile(const struct ls_conv *w, bool gradients, struct tile at, int64_t block, vf v[PLACES])
{
    if (gradients)
        gradient_values(w, at, block, v);
    else
        input_values(w, at, block, v);
}
/* Tiles [first, first + count) of a block, by pairs; what is missing of the last pair is zero. */
INLINE void transform_pairs(const struct ls_conv *w, bool gradients, int64_t block, int64_t first, int64_t count,
                            size_t place, E *to)
{
    struct tile at = tile_at(w, first);
    for (int64_t t = 0; t < count; t += 2, to += PAIR) {
        vf first_values[PLACES], values[PLACES];
        transform_tile(w, gradients, at, block, first_values);
        tile_next(w, &at);
        if (t + 1 < count)
            transform_tile(w, gradients, at, block, values);
        else
            for (int p = 0; p < PLACES; p++)
                values[p] = vset(0.0f);
        tile_next(w, &at);
        for (int p = 0; p < PLACES; p++)
            store_pairs(to + (size_t)p * place, first_values[p], values[p]);
    }
}

/* Sums of CHANNELS inputs by two blocks of results += V Z over pairs of tiles. */
INLINE void gradient_rows(const E *v, const E *z0, const E *z1, int64_t pairs, float *sums, bool fresh)
{
    vf acc[CHANNELS][GROUP];
    for (int r = 0; r < CHANNELS; r++)
        for (int c = 0; c < GROUP; c++)
            acc[r][c] = fresh ? vset(0.0f) : vloadf(sums + (r * GROUP + c) * B);
    for (int64_t t = 0; t < pairs * PAIR; t += PAIR) {
        __m512i left = _mm512_loadu_si512(z0 + t), right = _mm512_loadu_si512(z1 + t);
#pragma GCC unroll 8
        for (int r = 0; r < CHANNELS; r++) {
            acc[r][0] = dot(acc[r][0], v + t + 2 * r, left);
            acc[r][1] = dot(acc[r][1], v + t + 2 * r, right);
        }
    }
    for (int r = 0; r < CHANNELS; r++)
        for (int c = 0; c < GROUP; c++)
            vstoref(sums + (r * GROUP + c) * B, acc[r][c]);
}

/* The sums of a pair (group, block of inputs) of a part. With an odd number of blocks, the last one takes both places of
 * its group; the second is not used. */
static void one_unit(const struct ls_conv *w, const struct grid *c, int64_t part, int64_t group_part, float *sums, E *v)
{
    int64_t tiles = tiles_of(w), end = tiles * (part + 1) / c->parts, groups = groups_of(w);
    int64_t g0 = groups * group_part / c->group_parts, g1 = groups * (group_part + 1) / c->group_parts;
    int64_t blocks = at_most(g1 * GROUP, w->out_blocks) - g0 * GROUP, start = tiles * part / c->parts;
    size_t z_block = PLACES * c->place;
    E *z = v + z_block;
    for (int64_t first = start; first < end; first += CHUNK) {
        int64_t count = at_most(end - first, CHUNK), pairs = (count + 1) / 2;
        for (int64_t m = 0; m < blocks; m++)
            transform_pairs(w, true, g0 * GROUP + m, first, count, c->place, z + (size_t)m * z_block);
        for (int64_t k = 0; k < w->in_blocks; k++) {
            transform_pairs(w, false, k, first, count, c->place, v);
            for (int p = 0; p < PLACES; p++)
                for (int64_t g = g0; g < g1; g++) {
                    float *to = sums + (g * w->in_blocks + k) * SUMS + p * B * GROUP * B;
                    int64_t at = (g - g0) * GROUP;
                    const E *z0 = z + (size_t)at * z_block + (size_t)p * c->place;
                    const E *z1 = at + 1 < blocks ? z0 + z_block : z0;
                    for (int r = 0; r < B; r += CHANNELS)
                        gradient_rows(v + (size_t)p * c->place + 2 * r, z0, z1, pairs, to + r * GROUP * B,
                                      first == start);
                }
        }
    }
}

/* Adds the parts, and computes the gradient of one pair of blocks from that of its transform. */
static void finish(const struct ls_conv *w, const struct grid *c, int64_t m, int64_t k, const float *sums)
{
    int64_t part = groups_of(w) * w->in_blocks * SUMS;
    sums += (m / GROUP * w->in_blocks + k) * SUMS + m % GROUP * B;
    for (int i = 0; i < B; i++) {
        vf r[PLACES], e[12], g[9];
        for (int p = 0; p < PLACES; p++) {
            r[p] = vloadf(sums + (p * B + i) * GROUP * B);
            for (int64_t q = 1; q < c->parts; q++)
                r[p] += vloadf(sums + q * part + (p * B + i) * GROUP * B);
        }
        for (int j = 0; j < 4; j++) {
            vf sum = 0.5f * (r[4 + j] + r[8 + j]);
            e[j] = r[j] + sum;
            e[4 + j] = 0.5f * (r[4 + j] - r[8 + j]);
            e[8 + j] = sum + r[12 + j];
        }
        for (int j = 0; j < 3; j++) {
            vf sum = 0.5f * (e[4 * j + 1] + e[4 * j + 2]);
            g[3 * j] = e[4 * j] + sum;
            g[3 * j + 1] = 0.5f * (e[4 * j + 1] - e[4 * j + 2]);
            g[3 * j + 2] = sum + e[4 * j + 3];
        }
        float *to = w->weights + ((m * w->in_blocks + k) * 9 * B + i) * B;
        for (int tap = 0; tap < 9; tap++)
            vstoref(to + tap * B * B, g[tap]);
    }
}

static size_t sums_floats(const struct ls_conv *w)
{
    return (size_t)(groups_of(w) * w->in_blocks * SUMS);
}

static void gradient_pass(const struct ls_conv *w)
{
    struct grid c = cut_gradient(w);
    float *sums = w->scratch;
    char *rooms = (char *)(sums + (size_t)c.parts * sums_floats(w));
#pragma omp parallel num_threads(w->threads)
    {
        E *room = (E *)(void *)(rooms + (size_t)omp_get_thread_num() * c.own);
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t part = 0; part < c.parts; part++)
            for (int64_t group_part = 0; group_part < c.group_parts; group_part++)
                one_unit(w, &c, part, group_part, sums + (size_t)part * sums_floats(w), room);
#pragma omp for collapse(2) schedule(static)
        for (int64_t m = 0; m < w->out_blocks; m++)
            for (int64_t k = 0; k < w->in_blocks; k++)
                finish(w, &c, m, k, sums);
        if (w->bias)
            bias_gradient(w);
    }
}

static size_t scratch(const struct ls_conv *w)
{
    if (w->pass == LS_CONV_WEIGHTS) {
        struct grid c = cut_gradient(w);
        return (size_t)c.parts * sums_floats(w) * sizeof(float) + (size_t)w->threads * c.own;
    }
    struct cut c = cut_data(w);
    return c.weights + (size_t)w->threads * c.own;
}

static void run(const struct ls_conv *w)
{
    if (w->pass == LS_CONV_WEIGHTS)
        gradient_pass(w);
    else
        data_pass(w);
}

void LS_KERNEL_NAME(fill_winograd_bf16)(struct ls_kernels *k)
{
    k->conv[LS_CONV_WINOGRAD] = (struct ls_conv_kernel){scratch, run};
}

#else
void LS_KERNEL_NAME(fill_winograd_bf16)(struct ls_kernels *k)
{
    (void)k;
}
#endif
