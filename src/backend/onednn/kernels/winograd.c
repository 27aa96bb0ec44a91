/* Winograd's F(4x4, 3x3) for small maps: 36 products where a direct 3x3 convolution has 144. oneDNN's implementation
 * is made for large maps. On the last stages of a ResNet it spends as much time on the transforms as on the
 * products. Where there are fewer tiles than channels, it also writes the transformed weights to memory, which are
 * four times as large as the weights.
 *
 * A map is divided into tiles of 4x4 results, each computed from 6x6 inputs. After the transform, the 36 places of
 * all tiles are 36 independent matrix products, (tiles x channels) by (channels x channels). The interpolation
 * points are 0, +-3/4, +-3/2 and infinity. They are exact in binary and lose fewer bits than the textbook's 0, +-1,
 * +-2.
 *
 *   V[place][block][tile][B]    transformed inputs
 *   U[place][channel][2B]       transformed weights of a group of two blocks of results
 *   M[place][tile][2B]          products
 *
 * A cache line of padding follows the matrix of each place, so that the 36 matrices do not map to the same cache
 * set.
 *
 * Threads share little except inputs and results. When two threads need the same transform, both compute it, unless
 * it is needed often. This costs a few percent and saves the traffic between their caches. One thread computes each
 * result in a fixed order, so results do not depend on the number of threads (LOOP-1). */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

#include <omp.h>

#if LS_KERNEL_BF16
void LS_KERNEL_NAME(fill_winograd)(struct ls_kernels *k)
{
    (void)k;
}
#else

enum {
    PLACES = 36,
    GROUP = 2,              /* blocks of results at a time */
    ROWS = B == 16 ? 8 : 4, /* tiles, or channels, in registers at a time */
    SLICE = 128 / B,        /* input blocks per update of M: a slice of U stays in the L1 cache */
    FLOATS = 300 * 1024,    /* size of V, about the size of an L2 cache */
    TILES = 256             /* tiles per update of the sums of a gradient */
};
static const float a = 0.75f, b = 1.5f;
#define A2 (a * a)
#define B2 (b * b)
#define NA (2 * A2 * (A2 - B2))
#define NB (2 * B2 * (B2 - A2))

static int64_t at_most(int64_t x, int64_t high)
{
    return x > high ? high : x;
}
/* Zeros before the first input that a result reads. */
static int64_t lead(const struct ls_conv *w, int64_t pad)
{
    return w->pass == LS_CONV_DATA ? 2 - pad : pad;
}
static int64_t tiles_of(const struct ls_conv *w)
{
    return w->n * ((w->out_h + 3) / 4) * ((w->out_w + 3) / 4);
}

/* --- one-dimensional transforms; `s` is the distance between elements of a row or column ------------------------- */

INLINE void forward_in(const vf *d, int s, vf *v, int to)
{
    vf even_a = d[4 * s] - B2 * d[2 * s], odd_a = a * (d[3 * s] - B2 * d[s]);
    vf even_b = d[4 * s] - A2 * d[2 * s], odd_b = b * (d[3 * s] - A2 * d[s]);
    v[0] = (A2 * B2) * d[0] - (A2 + B2) * d[2 * s] + d[4 * s];
    v[1 * to] = even_a + odd_a;
    v[2 * to] = even_a - odd_a;
    v[3 * to] = even_b + odd_b;
    v[4 * to] = even_b - odd_b;
    v[5 * to] = (A2 * B2) * d[s] - (A2 + B2) * d[3 * s] + d[5 * s];
}
INLINE void forward_weights(const vf *g, int s, vf *u, int to)
{
    vf even_a = (1 / NA) * g[0] + (A2 / NA) * g[2 * s], odd_a = (a / NA) * g[s];
    vf even_b = (1 / NB) * g[0] + (B2 / NB) * g[2 * s], odd_b = (b / NB) * g[s];
    u[0] = (1 / (A2 * B2)) * g[0];
    u[1 * to] = even_a + odd_a;
    u[2 * to] = even_a - odd_a;
    u[3 * to] = even_b + odd_b;
    u[4 * to] = even_b - odd_b;
    u[5 * to] = g[2 * s];
}
INLINE void forward_out(const vf *m, int s, vf *y, int to)
{
    vf sum_a = m[s] + m[2 * s], dif_a = m[s] - m[2 * s];
    vf sum_b = m[3 * s] + m[4 * s], dif_b = m[3 * s] - m[4 * s];
    y[0] = m[0] + sum_a + sum_b;
    y[1 * to] = a * dif_a + b * dif_b;
    y[2 * to] = A2 * sum_a + B2 * sum_b;
    y[3 * to] = (A2 * a) * dif_a + (B2 * b) * dif_b + m[5 * s];
}
/* The transposes of forward_out and forward_weights, for the gradients. */
INLINE void backward_out(const vf *y, int s, vf *z, int to)
{
    vf even_a = y[0] + A2 * y[2 * s], odd_a = a * y[s] + (A2 * a) * y[3 * s];
    vf even_b = y[0] + B2 * y[2 * s], odd_b = b * y[s] + (B2 * b) * y[3 * s];
    z[0] = y[0];
    z[1 * to] = even_a + odd_a;
    z[2 * to] = even_a - odd_a;
    z[3 * to] = even_b + odd_b;
    z[4 * to] = even_b - odd_b;
    z[5 * to] = y[3 * s];
}
INLINE void backward_weights(const vf *u, int s, vf *g, int to)
{
    vf sum_a = (1 / NA) * (u[s] + u[2 * s]), dif_a = (a / NA) * (u[s] - u[2 * s]);
    vf sum_b = (1 / NB) * (u[3 * s] + u[4 * s]), dif_b = (b / NB) * (u[3 * s] - u[4 * s]);
    g[0] = (1 / (A2 * B2)) * u[0] + sum_a + sum_b;
    g[1 * to] = dif_a + dif_b;
    g[2 * to] = A2 * sum_a + B2 * sum_b + u[5 * s];
}

/* --- tiles ------------------------------------------------------------------------------------------------------- */

struct tile {
    int64_t n, y, x; /* position of the tile's first result */
};
INLINE struct tile tile_at(const struct ls_conv *w, int64_t t)
{
    int64_t across = (w->out_w + 3) / 4, down = (w->out_h + 3) / 4;
    return (struct tile){t / (across * down), t / across % down * 4, t % across * 4};
}

/* Reads size x size pixels of a block, starting at (y, x). Pixels outside the map are zero. */
INLINE void read_tile(const float *map, int64_t h, int64_t w, int64_t y, int64_t x, int size, vf *d)
{
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            bool inside = y + i >= 0 && y + i < h && x + j >= 0 && x + j < w;
            d[i * size + j] = inside ? vloadf(map + ((y + i) * w + x + j) * B) : vset(0.0f);
        }
}

static size_t v_place(int64_t tiles, int64_t blocks)
{
    return (size_t)(tiles * blocks * B + 16);
}

/* Transforms tiles [first, first + count) of input block k into block `at_block` of V, which has `blocks` blocks. */
static void transform_input(const struct ls_conv *w, int64_t first, int64_t count, int64_t blocks, int64_t k,
                            int64_t at_block, float *v)
{
    size_t place = v_place(count, blocks);
    for (int64_t t = 0; t < count; t++) {
        struct tile at = tile_at(w, first + t);
        vf d[36], e[36], r[36];
        read_tile((const float *)w->in + (at.n * w->in_blocks + k) * w->in_h * w->in_w * B, w->in_h, w->in_w,
                  at.y - lead(w, w->pad_t), at.x - lead(w, w->pad_l), 6, d);
        for (int j = 0; j < 6; j++)
            forward_in(d + j, 6, e + j, 6);
        for (int i = 0; i < 6; i++)
            forward_in(e + 6 * i, 1, r + 6 * i, 1);
        float *to = v + (at_block * count + t) * B;
        for (int p = 0; p < PLACES; p++)
            vstoref(to + (size_t)p * place, r[p]);
    }
}

/* The same for gradients of results: 4x4 pixels become 6x6. */
static void transform_gradient(const struct ls_conv *w, int64_t first, int64_t count, int64_t blocks, int64_t k,
                               int64_t at_block, float *z)
{
    size_t place = v_place(count, blocks);
    for (int64_t t = 0; t < count; t++) {
        struct tile at = tile_at(w, first + t);
        vf d[16], e[24], r[36];
        read_tile((const float *)w->out + (at.n * w->out_blocks + k) * w->out_h * w->out_w * B, w->out_h, w->out_w,
                  at.y, at.x, 4, d);
        for (int j = 0; j < 4; j++)
            backward_out(d + j, 4, e + j, 4);
        for (int i = 0; i < 6; i++)
            backward_out(e + 4 * i, 1, r + 6 * i, 1);
        float *to = z + (at_block * count + t) * B;
        for (int p = 0; p < PLACES; p++)
            vstoref(to + (size_t)p * place, r[p]);
    }
}

static size_t m_place(int64_t tiles)
{
    return (size_t)(tiles * GROUP * B + 16);
}

/* Transforms the products of one group of result blocks and writes them to the map. */
static void transform_output(const struct ls_conv *w, int64_t first, int64_t count, int64_t group, const float *m)
{
    size_t place = m_place(count);
    for (int64_t k = group * GROUP; k < at_most((group + 1) * GROUP, w->out_blocks); k++) {
        vf bias = w->bias ? vloadf(w->bias + k * B) : vset(0.0f);
        for (int64_t t = 0; t < count; t++) {
            struct tile at = tile_at(w, first + t);
            vf r[36], e[24], y[16];
            for (int p = 0; p < PLACES; p++)
                r[p] = vloadf(m + (size_t)p * place + (t * GROUP + k % GROUP) * B);
            for (int j = 0; j < 6; j++)
                forward_out(r + j, 6, e + j, 6);
            for (int i = 0; i < 4; i++)
                forward_out(e + 6 * i, 1, y + 4 * i, 1);
            float *map = (float *)w->out + (at.n * w->out_blocks + k) * w->out_h * w->out_w * B;
            for (int64_t i = 0; i < at_most(w->out_h - at.y, 4); i++)
                for (int64_t j = 0; j < at_most(w->out_w - at.x, 4); j++)
                    vstoref(map + ((at.y + i) * w->out_w + at.x + j) * B, activate(w->act, y[4 * i + j] + bias));
        }
    }
}

/* --- weights: [result block][input block][tap][B inputs][B results] ---------------------------------------------- */

/* Transposes one tap of a block. */
INLINE void transpose(const float *from, vf *to)
{
#if B == 16 && defined(__AVX512F__)
    vf t[16];
    for (int i = 0; i < 16; i++)
        to[i] = vloadf(from + i * 16);
    for (int width = 8; width >= 1; width /= 2) {
        vi low, high;
        for (int l = 0; l < 16; l++) {
            low[l] = l & width ? 16 + (l ^ width) : l;
            high[l] = l & width ? 16 + l : (l ^ width);
        }
        for (int i = 0; i < 16; i++)
            if (!(i & width)) {
                t[i] = (vf)_mm512_permutex2var_ps((__m512)to[i], (__m512i)low, (__m512)to[i | width]);
                t[i | width] = (vf)_mm512_permutex2var_ps((__m512)to[i], (__m512i)high, (__m512)to[i | width]);
            }
        memcpy(to, t, sizeof t);
    }
#else
    for (int i = 0; i < B; i++)
        for (int j = 0; j < B; j++)
            to[j][i] = from[i * B + j];
#endif
}

static size_t u_place(int64_t blocks)
{
    return (size_t)(blocks * B * GROUP * B + 16);
}

/* Transforms input blocks [from, from + count) of a group into U. The data pass uses rotated weights: results and
 * inputs are exchanged, and the order of the taps is reversed. */
static void transform_weights(const struct ls_conv *w, int64_t group, int64_t from, int64_t count, float *u)
{
    enum { BLOCK = 9 * B * B };
    size_t place = u_place(count);
    for (int64_t half = 0; half < GROUP; half++)
        for (int64_t k = 0; k < count; k++) {
            int64_t m = group * GROUP + half;
            float *to = u + (k * B * GROUP + half) * B;
            if (m >= w->out_blocks) {
                for (int p = 0; p < PLACES; p++)
                    for (int i = 0; i < B; i++)
                        vstoref(to + (size_t)p * place + i * GROUP * B, vset(0.0f));
                continue;
            }
            vf taps[9][B];
            for (int tap = 0; tap < 9; tap++)
                if (w->pass == LS_CONV_DATA)
                    transpose(w->weights + ((from + k) * w->out_blocks + m) * BLOCK + (8 - tap) * B * B, taps[tap]);
                else
                    for (int i = 0; i < B; i++)
                        taps[tap][i] = vloadf(w->weights + (m * w->in_blocks + from + k) * BLOCK + (tap * B + i) * B);
            for (int i = 0; i < B; i++) {
                vf g[9], e[18], r[36];
                for (int tap = 0; tap < 9; tap++)
                    g[tap] = taps[tap][i];
                for (int j = 0; j < 3; j++)
                    forward_weights(g + j, 3, e + j, 3);
                for (int j = 0; j < 6; j++)
                    forward_weights(e + 3 * j, 1, r + 6 * j, 1);
                for (int p = 0; p < PLACES; p++)
                    vstoref(to + (size_t)p * place + i * GROUP * B, r[p]);
            }
        }
}

/* Computes the gradient of one pair of blocks from the gradient of its transform:
 * [place][B inputs][GROUP * B results]. */
static void finish_gradient(const struct ls_conv *w, int64_t k, int64_t group, const float *du)
{
    for (int64_t m = group * GROUP; m < at_most((group + 1) * GROUP, w->out_blocks); m++)
        for (int i = 0; i < B; i++) {
            vf r[36], e[18], g[9];
            for (int p = 0; p < PLACES; p++)
                r[p] = vloadf(du + ((p * B + i) * GROUP + m % GROUP) * B);
            for (int j = 0; j < 6; j++)
                backward_weights(r + j, 6, e + j, 6);
            for (int j = 0; j < 3; j++)
                backward_weights(e + 6 * j, 1, g + 3 * j, 1);
            float *to = w->weights + ((m * w->in_blocks + k) * 9 * B + i) * B;
            for (int tap = 0; tap < 9; tap++)
                vstoref(to + tap * B * B, g[tap]);
        }
}

/* --- products ---------------------------------------------------------------------------------------------------- */

/* M of `rows` tiles += V U over `blocks` input blocks. */
INLINE void multiply_rows(int rows, const float *v, int64_t tiles, const float *u, int64_t blocks, float *m, bool fresh)
{
    vf acc[ROWS][GROUP];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < GROUP; c++)
            acc[r][c] = fresh ? vset(0.0f) : vloadf(m + (r * GROUP + c) * B);
    for (int64_t k = 0; k < blocks; k++, v += tiles * B)
        for (int i = 0; i < B; i++, u += GROUP * B) {
            vf left = vloadf(u), right = vloadf(u + B);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vf s = vset(v[r * B + i]);
                acc[r][0] += s * left;
                acc[r][1] += s * right;
            }
        }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < GROUP; c++)
            vstoref(m + (r * GROUP + c) * B, acc[r][c]);
}

static void multiply(const float *v, int64_t tiles, const float *u, int64_t blocks, float *m, bool fresh)
{
    int64_t t = 0;
    for (; t + ROWS <= tiles; t += ROWS)
        multiply_rows(ROWS, v + t * B, tiles, u, blocks, m + t * GROUP * B, fresh);
    for (; t < tiles; t++)
        multiply_rows(1, v + t * B, tiles, u, blocks, m + t * GROUP * B, fresh);
}

static int64_t groups_of(const struct ls_conv *w)
{
    return (w->out_blocks + GROUP - 1) / GROUP;
}

/* Computes tiles [first, first + count) of one group of result blocks. `stored` is U of the group over all input
 * blocks, or NULL: U is then computed here. */
static void one_group(const struct ls_conv *w, int64_t first, int64_t count, const float *v, int64_t group,
                      const float *stored, float *u, float *m)
{
    for (int64_t from = 0; from < w->in_blocks; from += SLICE) {
        int64_t blocks = at_most(w->in_blocks - from, SLICE);
        const float *slice = stored ? stored + from * B * GROUP * B : u;
        size_t place = u_place(stored ? w->in_blocks : blocks);
        if (!stored)
            transform_weights(w, group, from, blocks, u);
        for (int p = 0; p < PLACES; p++)
            multiply(v + (size_t)p * v_place(count, w->in_blocks) + from * count * B, count, slice + (size_t)p * place,
                     blocks, m + (size_t)p * m_place(count), from == 0);
    }
    transform_output(w, first, count, group, m);
}

/* Division of the work of a data pass. Tiles are divided into chunks. With fewer chunks than threads, groups are
 * also divided into parts. With several chunks per thread, the weights are transformed once for all threads. */
struct cut {
    int64_t chunks, chunk, parts;
    bool stored;
    size_t v, u, m; /* floats per thread */
};
static struct cut cut_data(const struct ls_conv *w)
{
    int64_t tiles = tiles_of(w), fit = FLOATS / (PLACES * w->in_blocks * B), threads = w->threads;
    fit = fit > 64 ? 64 : fit < 16 ? 16 : fit / ROWS * ROWS;
    int64_t chunks = (tiles + fit - 1) / fit;
    if (chunks > threads / 2)
        chunks = (chunks + threads - 1) / threads * threads;
    int64_t chunk = (tiles + chunks - 1) / chunks;
    chunks = (tiles + chunk - 1) / chunk;
    bool stored = chunks >= 4 * threads;
    return (struct cut){.chunks = chunks,
                        .chunk = chunk,
                        .parts = at_most((threads + chunks - 1) / chunks, groups_of(w)),
                        .stored = stored,
                        .v = PLACES * v_place(chunk, w->in_blocks),
                        .u = stored ? 0 : PLACES * u_place(SLICE),
                        .m = PLACES * m_place(chunk)};
}

static void data_pass(const struct ls_conv *w)
{
    struct cut c = cut_data(w);
    int64_t tiles = tiles_of(w), groups = groups_of(w);
    size_t own = c.v + c.u + c.m, group_u = PLACES * u_place(w->in_blocks);
    float *all_u = (float *)w->scratch + (size_t)w->threads * own;
#pragma omp parallel num_threads(w->threads)
    {
        float *v = (float *)w->scratch + (size_t)omp_get_thread_num() * own, *u = v + c.v, *m = u + c.u;
        if (c.stored) {
#pragma omp for schedule(static)
            for (int64_t g = 0; g < groups; g++)
                transform_weights(w, g, 0, w->in_blocks, all_u + (size_t)g * group_u);
        }
#pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < c.chunks; i++)
            for (int64_t part = 0; part < c.parts; part++) {
                int64_t first = i * c.chunk, count = at_most(tiles - first, c.chunk);
                for (int64_t k = 0; k < w->in_blocks; k++)
                    transform_input(w, first, count, w->in_blocks, k, k, v);
                for (int64_t g = part * groups / c.parts; g < (part + 1) * groups / c.parts; g++)
                    one_group(w, first, count, v, g, c.stored ? all_u + (size_t)g * group_u : NULL, u, m);
            }
    }
}

/* --- the gradient of the weights --------------------------------------------------------------------------------- */

/* du of ROWS input channels += V Z over the tiles. */
INLINE void gradient_rows(const float *v, const float *z, size_t z_block, int64_t tiles, float *du, bool fresh)
{
    vf acc[ROWS][GROUP];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < GROUP; c++)
            acc[r][c] = fresh ? vset(0.0f) : vloadf(du + (r * GROUP + c) * B);
    for (int64_t t = 0; t < tiles; t++) {
        vf left = vloadf(z + t * B), right = vloadf(z + z_block + t * B);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            vf s = vset(v[t * B + r]);
            acc[r][0] += s * left;
            acc[r][1] += s * right;
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < GROUP; c++)
            vstoref(du + (r * GROUP + c) * B, acc[r][c]);
}

static void bias_gradient(const struct ls_conv *w)
{
    int64_t area = w->out_h * w->out_w;
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (int64_t m = 0; m < w->out_blocks; m++) {
        vf sum = vset(0.0f);
        for (int64_t n = 0; n < w->n; n++) {
            const float *dy = (const float *)w->out + (n * w->out_blocks + m) * area * B;
            vf part = vset(0.0f);
            for (int64_t i = 0; i < area; i++)
                part += vloadf(dy + i * B);
            sum += part;
        }
        vstoref(w->bias + m * B, sum);
    }
}

/* Division of the work of the gradient. Result groups and input blocks are divided into parts, and each thread
 * handles one pair of parts. */
struct grid {
    int64_t group_parts, block_parts, tiles;
    bool once; /* all tiles in one call: the sums need not be kept */
    size_t v, z;
};
static struct grid cut_gradient(const struct ls_conv *w)
{
    int64_t groups = groups_of(w), group_parts = at_most(w->threads, groups);
    int64_t block_parts = at_most(w->threads / group_parts, w->in_blocks), tiles = at_most(tiles_of(w), TILES);
    int64_t most = (groups + group_parts - 1) / group_parts;
    return (struct grid){.group_parts = group_parts,
                         .block_parts = block_parts,
                         .tiles = tiles,
                         .once = tiles == tiles_of(w),
                         .v = PLACES * v_place(tiles, 1),
                         .z = PLACES * v_place(tiles, most * GROUP)};
}

/* Adds tiles [first, first + count) to one pair of parts. du keeps the sums of each (group, block) between calls. */
static void gradient_part(const struct ls_conv *w, const struct grid *c, int64_t gp, int64_t bp, int64_t first,
                          float *v, float *z, float *du)
{
    const size_t pair = PLACES * B * GROUP * B;
    int64_t groups = groups_of(w), tiles = tiles_of(w), count = at_most(tiles - first, c->tiles);
    int64_t g0 = gp * groups / c->group_parts, g1 = (gp + 1) * groups / c->group_parts;
    int64_t blocks = at_most(g1 * GROUP, w->out_blocks) - g0 * GROUP;
    size_t v_at = v_place(count, 1), z_at = v_place(count, blocks);
    for (int64_t m = 0; m < blocks; m++)
        transform_gradient(w, first, count, blocks, g0 * GROUP + m, m, z);
    for (int64_t k = bp * w->in_blocks / c->block_parts; k < (bp + 1) * w->in_blocks / c->block_parts; k++) {
        transform_input(w, first, count, 1, k, 0, v);
        for (int64_t g = g0; g < g1; g++) {
            float *sums = du + (c->once ? 0 : pair * (size_t)(g * w->in_blocks + k));
            int64_t at = (g - g0) * GROUP;
            /* With an odd number of blocks, the last one takes both places of the group. finish_gradient ignores the
             * second result. */
            size_t z_block = at + 1 < blocks ? (size_t)(count * B) : 0;
            for (int p = 0; p < PLACES; p++)
                for (int r = 0; r < B; r += ROWS)
                    gradient_rows(v + (size_t)p * v_at + r, z + (size_t)p * z_at + at * count * B, z_block, count,
                                  sums + (p * B + r) * GROUP * B, first == 0);
            if (first + count == tiles)
                finish_gradient(w, k, g, sums);
        }
    }
}

static void gradient_pass(const struct ls_conv *w)
{
    const size_t pair = PLACES * B * GROUP * B;
    struct grid c = cut_gradient(w);
    size_t own = c.v + c.z + (c.once ? pair : 0);
#pragma omp parallel for collapse(2) schedule(static, 1) num_threads(w->threads)
    for (int64_t gp = 0; gp < c.group_parts; gp++)
        for (int64_t bp = 0; bp < c.block_parts; bp++) {
            float *v = (float *)w->scratch + (size_t)omp_get_thread_num() * own, *z = v + c.v;
            float *du = c.once ? z + c.z : (float *)w->scratch + (size_t)w->threads * own;
            for (int64_t first = 0; first < tiles_of(w); first += c.tiles)
                gradient_part(w, &c, gp, bp, first, v, z, du);
        }
    if (w->bias)
        bias_gradient(w);
}

static size_t winograd_scratch(const struct ls_conv *w)
{
    size_t threads = (size_t)w->threads, floats;
    if (w->pass == LS_CONV_WEIGHTS) {
        struct grid c = cut_gradient(w);
        size_t pairs = c.once ? threads : (size_t)(groups_of(w) * w->in_blocks);
        floats = threads * (c.v + c.z) + pairs * PLACES * B * GROUP * B;
    } else {
        struct cut c = cut_data(w);
        floats = threads * (c.v + c.u + c.m) + (c.stored ? (size_t)groups_of(w) * PLACES * u_place(w->in_blocks) : 0);
    }
    return floats * sizeof(float);
}

static void winograd(const struct ls_conv *w)
{
    if (w->pass == LS_CONV_WEIGHTS)
        gradient_pass(w);
    else
        data_pass(w);
}

void LS_KERNEL_NAME(fill_winograd)(struct ls_kernels *k)
{
    k->conv[LS_CONV_WINOGRAD] = (struct ls_conv_kernel){winograd_scratch, winograd};
}
#endif
