/* Batch normalisation with the operations after it (residual, activation, max pooling), in two passes over memory
 * instead of the five to eight passes of separate layers. A channel block goes through both passes before the next
 * one starts, so that the second pass finds the block in cache. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/smooth.h"
#include "backend/onednn/kernels/table.h"
#include "backend/onednn/kernels/unpool.h"

#include <omp.h>

enum { PARTS = LS_BN_PARTS };

INLINE int64_t part_begin(int64_t n, int part)
{
    return n * part / PARTS;
}

/* Sums of 2 quantities over the rows of one sample's plane. Each has two accumulators, which hides the latency of
 * the additions. */
struct sums {
    vf a0, a1, b0, b1;
};
INLINE void sums_into(double *partial, const struct sums *s)
{
    vd a = __builtin_convertvector(s->a0 + s->a1, vd), b = __builtin_convertvector(s->b0 + s->b1, vd);
    vd *p = (vd *)partial;
    p[0] += a;
    p[1] += b;
}
INLINE double *partial_of(double *partial, int64_t block, int part)
{
    return partial + (block * PARTS + part) * 2 * 16;
}
INLINE void partial_clear(double *p)
{
    memset(p, 0, 2 * B * sizeof(double));
}
INLINE void partial_total(const double *partial, int64_t block, double *a, double *b)
{
    for (int l = 0; l < B; l++)
        a[l] = b[l] = 0;
    for (int part = 0; part < PARTS; part++) {
        const double *p = partial + (block * PARTS + part) * 2 * 16;
        for (int l = 0; l < B; l++) {
            a[l] += p[l];
            b[l] += p[B + l];
        }
    }
}

/* Runs first(block, part) for all parts, then last(block), then second(block, part) for all parts. With enough
 * blocks for all threads, one thread does all the work of a block. Otherwise all threads work together on each
 * block. */
#define TWO_PASSES(blocks, first, last, second)                                                               \
    _Pragma("omp parallel")                                                                                   \
    {                                                                                                         \
        int64_t threads_ = omp_get_num_threads();                                                             \
        if ((blocks) % threads_ == 0 || (blocks) >= 4 * threads_) {                                           \
            _Pragma("omp for schedule(static) nowait") for (int64_t b_ = 0; b_ < (blocks); b_++)              \
            {                                                                                                 \
                for (int p_ = 0; p_ < PARTS; p_++)                                                            \
                    first(b_, p_);                                                                            \
                last(b_);                                                                                     \
                for (int p_ = 0; p_ < PARTS; p_++)                                                            \
                    second(b_, p_);                                                                           \
            }                                                                                                 \
        } else {                                                                                              \
            for (int64_t b_ = 0; b_ < (blocks); b_++) {                                                       \
                _Pragma("omp for schedule(static)") for (int p_ = 0; p_ < PARTS; p_++) first(b_, p_);         \
                _Pragma("omp single") last(b_);                                                               \
                _Pragma("omp for schedule(static) nowait") for (int p_ = 0; p_ < PARTS; p_++) second(b_, p_); \
            }                                                                                                 \
        }                                                                                                     \
    }

/* --- forward --------------------------------------------------------------------------------------------------- */

static void forward_sums(const struct ls_bn *a, int64_t block, int part)
{
    int64_t area = a->map.h * a->map.w;
    const E *x = a->x;
    vf pivot = load(x + block * area * B); /* keeps the sums small when the mean is far from 0 */
    double *partial = partial_of(a->partial, block, part);
    partial_clear(partial);
    int64_t end = part_begin(a->map.valid, part + 1);
    for (int64_t n = part_begin(a->map.valid, part); n < end; n++) {
        const E *p = x + (n * a->map.blocks + block) * area * B;
        struct sums s = {0};
        int64_t i = 0;
        for (; i + 1 < area; i += 2) {
            vf u = load(p + i * B) - pivot, v = load(p + (i + 1) * B) - pivot;
            s.a0 += u;
            s.a1 += v;
            s.b0 += u * u;
            s.b1 += v * v;
        }
        if (i < area) {
            vf u = load(p + i * B) - pivot;
            s.a0 += u;
            s.b0 += u * u;
        }
        sums_into(partial, &s);
    }
}

static void forward_statistics(const struct ls_bn *a, int64_t block)
{
    double sum[B], square[B], count = (double)(a->map.valid * a->map.h * a->map.w);
    partial_total(a->partial, block, sum, square);
    const E *pivot = (const E *)a->x + block * a->map.h * a->map.w * B;
    for (int l = 0; l < B; l++) {
        int64_t c = block * B + l;
        double shift = sum[l] / count, var = square[l] / count - shift * shift;
        double mean = shift + (double)get(pivot + l);
        var = var > 0 ? var : 0;
        a->mean[c] = (float)mean;
        a->rstd[c] = (float)(1.0 / sqrt(var + (double)a->eps));
        if (a->stat && c < a->channels) {
            a->stat[c] = a->stat_weight * (float)mean;
            a->stat[a->channels + c] = a->stat_weight * (float)(var * (count > 1 ? count / (count - 1) : 1.0));
        }
    }
}

/* The activation of z, and the gradient dy passed back through it. */
INLINE vf act_of(enum ls_act act, vf z)
{
    return ls_act_clips(act) ? activate(act, z) : smooth_of(act, z);
}
INLINE vf act_back(enum ls_act act, vf z, vf dy)
{
    return ls_act_clips(act) ? pass_back(act, z, dy) : dy * smooth_slope(act, z);
}

/* Calls body(ACT) with the activation as a constant: those that do not clip, then FOR_EACH_ACT. */
#define FOR_EVERY_ACT(act, body)        \
    if ((act) == LS_ACT_SILU)           \
        body(LS_ACT_SILU);              \
    else if ((act) == LS_ACT_HARDSWISH) \
        body(LS_ACT_HARDSWISH);         \
    else if ((act) == LS_ACT_GELU)      \
        body(LS_ACT_GELU);              \
    else                                \
        FOR_EACH_ACT(act, body)

struct affine {
    vf scale, shift;
};
INLINE struct affine affine_of(const float *gamma, const float *beta, const float *mean, const float *rstd, int64_t c)
{
    vf scale = vloadf(gamma + c) * vloadf(rstd + c);
    return (struct affine){scale, vloadf(beta + c) - vloadf(mean + c) * scale};
}

INLINE void apply_plane(enum ls_act act, bool residual, int64_t area, struct affine f, const E *x, const E *r, E *y)
{
    for (int64_t i = 0; i < area; i++) {
        vf z = load(x + i * B) * f.scale + f.shift;
        if (residual)
            z += load(r + i * B);
        store(y + i * B, act_of(act, z));
    }
}

INLINE void apply_pooled(enum ls_act act, const struct ls_map *m, struct affine f, const E *x, E *y, uint8_t *index)
{
    for (int64_t oy = 0; oy < m->y->out; oy++)
        for (int64_t ox = 0; ox < m->x->out; ox++) {
            vf best = vset(-INFINITY);
            vi at = {0};
            for (int32_t iy = m->y->from[oy]; iy < m->y->to[oy]; iy++)
                for (int32_t ix = m->x->from[ox]; ix < m->x->to[ox]; ix++) {
                    vf z = load(x + (iy * m->w + ix) * B) * f.scale + f.shift;
                    vtake_larger(&best, &at, z, (int)((iy - m->y->origin[oy]) * m->x->kernel + ix - m->x->origin[ox]));
                }
            int64_t o = (oy * m->x->out + ox) * B;
            store(y + o, activate(act, best));
            if (index)
                vstore_index(index + o, at);
        }
}

static void apply_sample(const struct ls_bn *a, int64_t n, int64_t block, struct affine f)
{
    const struct ls_map *m = &a->map;
    int64_t area = m->h * m->w, plane = n * m->blocks + block;
    const E *x = (const E *)a->x + plane * area * B;
    if (m->y) {
        int64_t out = m->y->out * m->x->out;
        E *y = (E *)a->y + plane * out * B;
        uint8_t *index = a->index ? a->index + plane * out * B : NULL;
#define POOLED(act) apply_pooled(act, m, f, x, y, index)
        FOR_EACH_ACT(a->act, POOLED)
        return;
    }
    E *y = (E *)a->y + plane * area * B;
    const E *r = a->residual ? (const E *)a->residual + plane * area * B : NULL;
#define WITH_RESIDUAL(act) apply_plane(act, true, area, f, x, r, y)
#define WITHOUT_RESIDUAL(act) apply_plane(act, false, area, f, x, NULL, y)
    if (r) {
        FOR_EACH_ACT(a->act, WITH_RESIDUAL)
    } else {
        FOR_EVERY_ACT(a->act, WITHOUT_RESIDUAL)
    }
}

static void forward_apply(const struct ls_bn *a, int64_t block, int part)
{
    struct affine f = affine_of(a->gamma, a->beta, a->mean, a->rstd, block * B);
    int64_t end = part_begin(a->map.n, part + 1);
    for (int64_t n = part_begin(a->map.n, part); n < end; n++)
        apply_sample(a, n, block, f);
}

static void bn_train(const struct ls_bn *a)
{
#define FIRST(b, p) forward_sums(a, b, p)
#define LAST(b) forward_statistics(a, b)
#define SECOND(b, p) forward_apply(a, b, p)
    TWO_PASSES(a->map.blocks, FIRST, LAST, SECOND)
#undef FIRST
#undef LAST
#undef SECOND
}

/* Inference: mean and rstd hold the running mean and the running variance. */
static void bn_infer(const struct ls_bn *a)
{
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < a->map.n; n++)
        for (int64_t block = 0; block < a->map.blocks; block++) {
            float rstd[B];
            for (int l = 0; l < B; l++)
                rstd[l] = 1.0f / sqrtf(a->rstd[block * B + l] + a->eps);
            vf scale = vloadf(a->gamma + block * B) * vloadf(rstd);
            struct affine f = {scale, vloadf(a->beta + block * B) - vloadf(a->mean + block * B) * scale};
            apply_sample(a, n, block, f);
        }
}

/* --- backward -------------------------------------------------------------------------------------------------- */

/* The inputs from which both passes compute the gradient of the normalised value. */
struct source {
    const E *dy, *dy2, *x, *y;
    const uint8_t *index;
};
INLINE struct source source_of(const struct ls_bn_bwd *a, int64_t plane, int64_t area)
{
    int64_t out = a->map.y ? a->map.y->out * a->map.x->out : area;
    return (struct source){
        .dy = (const E *)a->dy + plane * out * B,
        .dy2 = a->dy2 ? (const E *)a->dy2 + plane * out * B : NULL,
        .x = (const E *)a->x + plane * area * B,
        .y = a->y ? (const E *)a->y + plane * area * B : NULL,
        .index = a->index ? a->index + plane * out * B : NULL,
    };
}

enum form { PLAIN, TWO, MASKED_BY_Y, TWO_MASKED_BY_Y };

INLINE vf gradient(enum ls_act act, enum form form, const struct source *s, struct affine f, int64_t i, vf x)
{
    vf dz = load(s->dy + i * B);
    if (form == TWO || form == TWO_MASKED_BY_Y)
        dz += load(s->dy2 + i * B);
    vf test = form >= MASKED_BY_Y ? load(s->y + i * B) : x * f.scale + f.shift;
    return act_back(act, test, dz);
}

/* Adds one pixel to the sums of dz and of dz * (x - mean). */
INLINE void pixel_sums(enum ls_act act, enum form form, const struct source *s, struct affine f, vf mean, int64_t i,
                       E *dres, vf *sum, vf *product)
{
    vf x = load(s->x + i * B), dz = gradient(act, form, s, f, i, x);
    if (dres)
        store(dres + i * B, dz);
    *sum += dz;
    *product += dz * (x - mean);
}

INLINE void plane_sums(enum ls_act act, enum form form, const struct source *s, struct affine f, vf mean, int64_t area,
                       E *dres, struct sums *t)
{
    int64_t i = 0;
    for (; i + 1 < area; i += 2) {
        pixel_sums(act, form, s, f, mean, i, dres, &t->a0, &t->b0);
        pixel_sums(act, form, s, f, mean, i + 1, dres, &t->a1, &t->b1);
    }
    if (i < area)
        pixel_sums(act, form, s, f, mean, i, dres, &t->a0, &t->b0);
}

INLINE void pooled_sums(enum ls_act act, const struct ls_map *m, const struct source *s, struct affine f, vf mean,
                        struct sums *t)
{
    vf back[STRETCH];
    struct pooled p = {s->dy, s->dy2, NULL, s->index};
    for (int64_t iy = 0; iy < m->h; iy++)
        for (int64_t x0 = 0; x0 < m->w; x0 += STRETCH) {
            int64_t x1 = x0 + STRETCH < m->w ? x0 + STRETCH : m->w;
            unpool(LS_ACT_NONE, m, &p, iy, x0, x1, back);
            for (int64_t ix = x0; ix < x1; ix++) {
                vf x = load(s->x + (iy * m->w + ix) * B);
                vf dz = pass_back(act, x * f.scale + f.shift, back[ix - x0]);
                t->a0 += dz;
                t->b0 += dz * (x - mean);
            }
        }
}

/* dx = scale * (dz - sum(dz)/M - (x-mean) * rstd^2 * sum(dz*(x-mean))/M), as a linear function of dz, x and 1. */
struct slope {
    vf dz, x, one;
};

INLINE void plane_dx(enum ls_act act, enum form form, const struct source *s, struct affine f, struct slope k,
                     int64_t area, const E *dres, E *dx)
{
    for (int64_t i = 0; i < area; i++) {
        vf x = load(s->x + i * B);
        vf dz = dres ? load(dres + i * B) : gradient(act, form, s, f, i, x);
        store(dx + i * B, dz * k.dz + (x * k.x + k.one));
    }
}

INLINE void pooled_dx(enum ls_act act, const struct ls_map *m, const struct source *s, struct affine f, struct slope k,
                      E *dx)
{
    vf back[STRETCH];
    struct pooled p = {s->dy, s->dy2, NULL, s->index};
    for (int64_t iy = 0; iy < m->h; iy++)
        for (int64_t x0 = 0; x0 < m->w; x0 += STRETCH) {
            int64_t x1 = x0 + STRETCH < m->w ? x0 + STRETCH : m->w;
            unpool(LS_ACT_NONE, m, &p, iy, x0, x1, back);
            for (int64_t ix = x0; ix < x1; ix++) {
                int64_t i = (iy * m->w + ix) * B;
                vf x = load(s->x + i);
                vf dz = pass_back(act, x * f.scale + f.shift, back[ix - x0]);
                store(dx + i, dz * k.dz + (x * k.x + k.one));
            }
        }
}

static enum form form_of(const struct ls_bn_bwd *a)
{
    return (a->dy2 ? TWO : PLAIN) + (a->y ? MASKED_BY_Y : PLAIN);
}

/* Calls body(act, form) with both arguments as constants. Activations that do not clip come without a y. */
#define FOR_EACH_FORM(a, act, body) \
    switch (form_of(a)) {           \
    case PLAIN:                     \
        body(act, PLAIN);           \
        break;                      \
    case TWO:                       \
        body(act, TWO);             \
        break;                      \
    case MASKED_BY_Y:               \
        body(act, MASKED_BY_Y);     \
        break;                      \
    default:                        \
        body(act, TWO_MASKED_BY_Y); \
    }
#define FOR_PLAIN_FORMS(a, act, body) \
    if (form_of(a) == PLAIN)          \
        body(act, PLAIN);             \
    else                              \
        body(act, TWO);               \
    break
#define FOR_EVERY_FORM(a, body)                     \
    switch ((a)->act) {                             \
    case LS_ACT_SILU:                               \
        FOR_PLAIN_FORMS(a, LS_ACT_SILU, body);      \
    case LS_ACT_HARDSWISH:                          \
        FOR_PLAIN_FORMS(a, LS_ACT_HARDSWISH, body); \
    case LS_ACT_GELU:                               \
        FOR_PLAIN_FORMS(a, LS_ACT_GELU, body);      \
    case LS_ACT_RELU:                               \
        FOR_EACH_FORM(a, LS_ACT_RELU, body) break;  \
    case LS_ACT_RELU6:                              \
        FOR_EACH_FORM(a, LS_ACT_RELU6, body) break; \
    default:                                        \
        FOR_EACH_FORM(a, LS_ACT_NONE, body)         \
    }

/* Where the first pass leaves the gradient of the normalised value for the second: where a residual needs it, and in place of dx
 * where an exponential would be computed again. NULL: nowhere. */
static E *kept_gradient(const struct ls_bn_bwd *a, int64_t plane, int64_t area)
{
    bool costly = (a->act == LS_ACT_SILU || a->act == LS_ACT_GELU) && !a->map.y;
    E *kept = a->dresidual ? a->dresidual : costly ? a->dx : NULL;
    return kept ? kept + plane * area * B : NULL;
}

static void backward_sums(const struct ls_bn_bwd *a, int64_t block, int part)
{
    int64_t area = a->map.h * a->map.w;
    struct affine f = affine_of(a->gamma, a->beta, a->mean, a->rstd, block * B);
    vf mean = vloadf(a->mean + block * B);
    double *partial = partial_of(a->partial, block, part);
    partial_clear(partial);
    int64_t end = part_begin(a->map.valid, part + 1);
    for (int64_t n = part_begin(a->map.valid, part); n < end; n++) {
        int64_t plane = n * a->map.blocks + block;
        struct source s = source_of(a, plane, area);
        E *dres = kept_gradient(a, plane, area);
        struct sums t = {0};
        if (a->map.y) {
#define POOLED_SUMS(act) pooled_sums(act, &a->map, &s, f, mean, &t)
            FOR_EACH_ACT(a->act, POOLED_SUMS)
        } else {
#define PLANE_SUMS(act, form) plane_sums(act, form, &s, f, mean, area, dres, &t)
            FOR_EVERY_FORM(a, PLANE_SUMS)
        }
        sums_into(partial, &t);
    }
}

/* dgamma and dbeta of a block. The sums stay in part 0 of the scratch for the second pass. */
static void backward_totals(const struct ls_bn_bwd *a, int64_t block)
{
    double sum[B], product[B];
    partial_total(a->partial, block, sum, product);
    double *kept = partial_of(a->partial, block, 0);
    for (int l = 0; l < B; l++) {
        int64_t c = block * B + l;
        kept[l] = sum[l];
        kept[B + l] = product[l];
        a->dbeta[c] = (float)sum[l];
        a->dgamma[c] = (float)(product[l] * (double)a->rstd[c]);
    }
}

static struct slope slope_of(const struct ls_bn_bwd *a, int64_t block)
{
    const double *kept = a->partial + block * PARTS * 2 * 16;
    double count = (double)(a->map.valid * a->map.h * a->map.w);
    float dz[B], x[B], one[B];
    for (int l = 0; l < B; l++) {
        int64_t c = block * B + l;
        double rstd = (double)a->rstd[c], scale = (double)a->gamma[c] * rstd;
        double along = rstd * rstd * kept[B + l] / count;
        dz[l] = (float)scale;
        x[l] = (float)(-scale * along);
        one[l] = (float)(scale * ((double)a->mean[c] * along - kept[l] / count));
    }
    return (struct slope){vloadf(dz), vloadf(x), vloadf(one)};
}

static void backward_dx(const struct ls_bn_bwd *a, int64_t block, int part)
{
    int64_t area = a->map.h * a->map.w, end = part_begin(a->map.n, part + 1);
    struct affine f = affine_of(a->gamma, a->beta, a->mean, a->rstd, block * B);
    struct slope k = slope_of(a, block);
    for (int64_t n = part_begin(a->map.n, part); n < end; n++) {
        int64_t plane = n * a->map.blocks + block;
        struct source s = source_of(a, plane, area);
        E *dx = (E *)a->dx + plane * area * B;
        E *dres = kept_gradient(a, plane, area);
        if (n >= a->map.valid) { /* LOOP-2 */
            memset(dx, 0, (size_t)(area * B) * sizeof(E));
            if (dres)
                memset(dres, 0, (size_t)(area * B) * sizeof(E));
        } else if (a->map.y) {
#define POOLED_DX(act) pooled_dx(act, &a->map, &s, f, k, dx)
            FOR_EACH_ACT(a->act, POOLED_DX)
        } else if (dres) {
            plane_dx(LS_ACT_NONE, PLAIN, &s, f, k, area, dres, dx);
        } else {
#define PLANE_DX(act, form) plane_dx(act, form, &s, f, k, area, NULL, dx)
            FOR_EVERY_FORM(a, PLANE_DX)
        }
    }
}

static void bn_bwd(const struct ls_bn_bwd *a)
{
#define FIRST(b, p) backward_sums(a, b, p)
#define LAST(b) backward_totals(a, b)
#define SECOND(b, p) backward_dx(a, b, p)
    TWO_PASSES(a->map.blocks, FIRST, LAST, SECOND)
}

void LS_KERNEL_NAME(fill_bn)(struct ls_kernels *k)
{
    k->bn_train = bn_train;
    k->bn_infer = bn_infer;
    k->bn_bwd = bn_bwd;
}
