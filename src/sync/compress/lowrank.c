/* M is large and is read from memory once per pass. P and Q stay in the cache. In row-major M a strip is LANES
 * values of one row (fewer at its end). In blocked M it is eight values of one column. */
#include "sync/compress/lowrank.h"

#include "sync/compress/lanes.h"

enum { GROUP = 4, TILE = 16 };

/* --- row-major ------------------------------------------------------------------------------------------- */

INLINE vf fetch(const float *p, size_t width)
{
    return width == LANES ? load(p) : load_some(p, width);
}
INLINE void put(float *p, vf v, size_t width)
{
    if (width == LANES)
        store(p, v);
    else
        store_some(p, v, width);
}

INLINE void left_strip(const struct ls_lowrank_shape *s, float *m, const float *feedback, const float *q, int n,
                       vf sum[GROUP], size_t width)
{
    vf x = fetch(m, width);
    if (feedback) {
        x += fetch(feedback, width);
        put(m, x, width);
    }
    for (int k = 0; k < n; k++)
        sum[k] += x * fetch(q + k * s->cols, width);
}

INLINE void left_rows(const struct ls_lowrank_shape *s, float *m, const float *feedback, const float *q, float *p,
                      int n)
{
    size_t cols = s->cols;
    for (size_t i = 0; i < s->rows; i++) {
        float *row = m + i * cols;
        const float *kept = feedback ? feedback + i * cols : NULL;
        vf sum[GROUP] = {{0}};
        size_t j = 0;
        for (; j + LANES <= cols; j += LANES)
            left_strip(s, row + j, kept ? kept + j : NULL, q + j, n, sum, LANES);
        if (j < cols)
            left_strip(s, row + j, kept ? kept + j : NULL, q + j, n, sum, cols - j);
        for (int k = 0; k < n; k++)
            p[k * s->rows + i] = fold(sum[k]);
    }
}

/* Adds n rows of m to q. The additions happen in the order of rows for every n. */
INLINE void right_strip(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q, int n, size_t width)
{
    vf x[GROUP];
    for (int r = 0; r < n; r++)
        x[r] = fetch(m + r * s->cols, width);
    for (int k = 0; k < s->rank; k++) {
        vf sum = fetch(q + k * s->cols, width);
        for (int r = 0; r < n; r++)
            sum += x[r] * vset(p[k * s->rows + r]);
        put(q + k * s->cols, sum, width);
    }
}

INLINE void right_some(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q, int n)
{
    size_t j = 0;
    for (; j + LANES <= s->cols; j += LANES)
        right_strip(s, m + j, p, q + j, n, LANES);
    if (j < s->cols)
        right_strip(s, m + j, p, q + j, n, s->cols - j);
}

static void right_rows(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q)
{
    size_t i = 0;
    for (; i + GROUP <= s->rows; i += GROUP)
        right_some(s, m + i * s->cols, p + i, q, GROUP);
    for (; i < s->rows; i++)
        right_some(s, m + i * s->cols, p + i, q, 1);
}

INLINE void rebuild_strip(const struct ls_lowrank_shape *s, float *m, float *feedback, const float *p, const float *own,
                          const float *q, size_t width)
{
    vf x = fetch(m, width), sum = {0};
    for (int k = 0; k < s->rank; k++) {
        vf scale = vset(p[k * s->rows]);
        x -= scale * fetch(own + k * s->cols, width);
        sum += scale * fetch(q + k * s->cols, width);
    }
    put(feedback, x, width);
    put(m, sum, width);
}

static void rebuild_rows(const struct ls_lowrank_shape *s, float *m, float *feedback, const float *p, const float *own,
                         const float *q)
{
    size_t cols = s->cols;
    for (size_t i = 0; i < s->rows; i++, m += cols, feedback += cols) {
        size_t j = 0;
        for (; j + LANES <= cols; j += LANES)
            rebuild_strip(s, m + j, feedback + j, p + i, own + j, q + j, LANES);
        if (j < cols)
            rebuild_strip(s, m + j, feedback + j, p + i, own + j, q + j, cols - j);
    }
}

/* --- in blocks of rows ----------------------------------------------------------------------------------- */

/* The position of column 0 of the eight rows that begin at `row`. Column j is j * block further. */
INLINE size_t place(const struct ls_lowrank_shape *s, size_t row)
{
    return row / s->block * s->block * s->cols + row % s->block;
}

INLINE void left_blocks(const struct ls_lowrank_shape *s, float *m, const float *feedback, const float *q, float *p,
                        int n)
{
    for (size_t row = 0; row < s->rows; row += LANES) {
        size_t at = place(s, row);
        vf sum[GROUP] = {{0}};
        for (size_t j = 0; j < s->cols; j++, at += s->block) {
            vf x = load(m + at);
            if (feedback) {
                x += load(feedback + at);
                store(m + at, x);
            }
            for (int k = 0; k < n; k++)
                sum[k] += x * vset(q[k * s->cols + j]);
        }
        for (int k = 0; k < n; k++)
            store(p + k * s->rows + row, sum[k]);
    }
}

/* Computes TILE columns at a time, so that memory is read in long runs. The eight lanes are folded once per column. */
INLINE void right_tile(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q, int n, size_t width)
{
    vf sum[GROUP][TILE] = {{{0}}};
    for (size_t row = 0; row < s->rows; row += LANES) {
        const float *at = m + place(s, row);
        for (size_t j = 0; j < width; j++) {
            vf x = load(at + j * s->block);
            for (int k = 0; k < n; k++)
                sum[k][j] += x * load(p + k * s->rows + row);
        }
    }
    for (int k = 0; k < n; k++)
        for (size_t j = 0; j < width; j++)
            q[k * s->cols + j] = fold(sum[k][j]);
}

INLINE void right_blocks(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q, int n)
{
    size_t j = 0;
    for (; j + TILE <= s->cols; j += TILE)
        right_tile(s, m + j * s->block, p, q + j, n, TILE);
    if (j < s->cols)
        right_tile(s, m + j * s->block, p, q + j, n, s->cols - j);
}

static void rebuild_blocks(const struct ls_lowrank_shape *s, float *m, float *feedback, const float *p,
                           const float *own, const float *q)
{
    for (size_t row = 0; row < s->rows; row += LANES) {
        size_t at = place(s, row);
        for (size_t j = 0; j < s->cols; j++, at += s->block) {
            vf x = load(m + at), sum = {0};
            for (int k = 0; k < s->rank; k++) {
                vf scale = load(p + k * s->rows + row);
                x -= scale * vset(own[k * s->cols + j]);
                sum += scale * vset(q[k * s->cols + j]);
            }
            store(feedback + at, x);
            store(m + at, sum);
        }
    }
}

/* --- the table -------------------------------------------------------------------------------------------- */

/* Calls body(k, n) for columns k .. k + n - 1. n is a constant, so that the sums stay in registers. */
#define FOR_EACH_GROUP(rank, body)          \
    for (int k = 0; k < (rank); k += GROUP) \
        switch ((rank)-k) {                 \
        case 1:                             \
            body(k, 1);                     \
            break;                          \
        case 2:                             \
            body(k, 2);                     \
            break;                          \
        case 3:                             \
            body(k, 3);                     \
            break;                          \
        default:                            \
            body(k, GROUP);                 \
        }

static void left(const struct ls_lowrank_shape *s, float *m, const float *feedback, const float *q, float *p)
{
    /* Only the first group adds the feedback. */
#define LEFT_ROWS(k, n) left_rows(s, m, k == 0 ? feedback : NULL, q + k * s->cols, p + k * s->rows, n)
#define LEFT_BLOCKS(k, n) left_blocks(s, m, k == 0 ? feedback : NULL, q + k * s->cols, p + k * s->rows, n)
    if (s->block == 1)
        FOR_EACH_GROUP(s->rank, LEFT_ROWS)
    else
        FOR_EACH_GROUP(s->rank, LEFT_BLOCKS)
}

static void right(const struct ls_lowrank_shape *s, const float *m, const float *p, float *q)
{
#define RIGHT_BLOCKS(k, n) right_blocks(s, m, p + k * s->rows, q + k * s->cols, n)
    memset(q, 0, (size_t)s->rank * s->cols * sizeof *q);
    if (s->block == 1)
        right_rows(s, m, p, q);
    else
        FOR_EACH_GROUP(s->rank, RIGHT_BLOCKS)
}

static void rebuild(const struct ls_lowrank_shape *s, float *m, float *feedback, const float *p, const float *own,
                    const float *q)
{
    if (s->block == 1)
        rebuild_rows(s, m, feedback, p, own, q);
    else
        rebuild_blocks(s, m, feedback, p, own, q);
}

extern const struct ls_lowrank LS_HERE(ls_lowrank);
const struct ls_lowrank LS_HERE(ls_lowrank) = {.left = left, .right = right, .rebuild = rebuild};
