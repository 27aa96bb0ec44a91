/* Max and mean pooling over blocked maps. Backward passes sum for each input pixel the gradients of the windows
 * that contain it. No two threads write the same element, and the order of additions is fixed. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"
#include "backend/onednn/kernels/unpool.h"

INLINE void maxpool_plane(enum ls_act act, const struct ls_map *m, const E *x, E *y, uint8_t *index)
{
    for (int64_t oy = 0; oy < m->y->out; oy++)
        for (int64_t ox = 0; ox < m->x->out; ox++) {
            vf best = vset(-INFINITY);
            vi at = {0};
            for (int32_t iy = m->y->from[oy]; iy < m->y->to[oy]; iy++)
                for (int32_t ix = m->x->from[ox]; ix < m->x->to[ox]; ix++)
                    vtake_larger(&best, &at, load(x + (iy * m->w + ix) * B),
                                 (int)((iy - m->y->origin[oy]) * m->x->kernel + ix - m->x->origin[ox]));
            int64_t o = (oy * m->x->out + ox) * B;
            store(y + o, activate(act, best));
            if (index)
                vstore_index(index + o, at);
        }
}

static void maxpool(const struct ls_map *m, enum ls_act act, const void *x, void *y, uint8_t *index)
{
    int64_t area = m->h * m->w * B, out = m->y->out * m->x->out * B;
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < m->n * m->blocks; plane++) {
        const E *px = (const E *)x + plane * area;
        E *py = (E *)y + plane * out;
        uint8_t *pi = index ? index + plane * out : NULL;
#define PLANE(a) maxpool_plane(a, m, px, py, pi)
        FOR_EACH_ACT(act, PLANE)
#undef PLANE
    }
}

INLINE void maxpool_bwd_plane(enum ls_act act, const struct ls_map *m, const struct pooled *p, E *dx)
{
    vf back[STRETCH];
    for (int64_t iy = 0; iy < m->h; iy++)
        for (int64_t x0 = 0; x0 < m->w; x0 += STRETCH) {
            int64_t x1 = x0 + STRETCH < m->w ? x0 + STRETCH : m->w;
            unpool(act, m, p, iy, x0, x1, back);
            for (int64_t ix = x0; ix < x1; ix++)
                store(dx + (iy * m->w + ix) * B, back[ix - x0]);
        }
}

static void maxpool_bwd(const struct ls_map *m, enum ls_act act, const void *dy, const uint8_t *index, const void *y,
                        void *dx)
{
    int64_t area = m->h * m->w * B, out = m->y->out * m->x->out * B;
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < m->n * m->blocks; plane++) {
        struct pooled p = {(const E *)dy + plane * out, NULL, y ? (const E *)y + plane * out : NULL,
                           index + plane * out};
#define PLANE(a) maxpool_bwd_plane(a, m, &p, (E *)dx + plane * area)
        FOR_EACH_ACT(act, PLANE)
#undef PLANE
    }
}

static void avgpool(const struct ls_map *m, const void *x, void *y)
{
    int64_t area = m->h * m->w * B, out = m->y->out * m->x->out * B;
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < m->n * m->blocks; plane++) {
        const E *px = (const E *)x + plane * area;
        E *py = (E *)y + plane * out;
        for (int64_t oy = 0; oy < m->y->out; oy++)
            for (int64_t ox = 0; ox < m->x->out; ox++) {
                vf sum = {0};
                for (int32_t iy = m->y->from[oy]; iy < m->y->to[oy]; iy++)
                    for (int32_t ix = m->x->from[ox]; ix < m->x->to[ox]; ix++)
                        sum += load(px + (iy * m->w + ix) * B);
                store(py + (oy * m->x->out + ox) * B, sum * (m->y->share[oy] * m->x->share[ox]));
            }
    }
}

/* A single window over the whole map. */
static bool whole_map(const struct ls_axis *a)
{
    return a->out == 1 && a->from[0] == 0 && a->to[0] == a->in;
}

static void avgpool_bwd(const struct ls_map *m, const void *dy, void *dx)
{
    int64_t area = m->h * m->w * B, out = m->y->out * m->x->out * B;
    bool mean = whole_map(m->y) && whole_map(m->x);
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < m->n * m->blocks; plane++) {
        const E *pd = (const E *)dy + plane * out;
        E *px = (E *)dx + plane * area;
        if (mean) {
            vf share = vset(0.0f) + load(pd) * (m->y->share[0] * m->x->share[0]);
            for (int64_t i = 0; i < area; i += B)
                store(px + i, share);
            continue;
        }
        for (int64_t iy = 0; iy < m->h; iy++)
            for (int64_t ix = 0; ix < m->w; ix++) {
                vf sum = {0};
                for (int32_t oy = m->y->first[iy]; oy <= m->y->last[iy]; oy++)
                    for (int32_t ox = m->x->first[ix]; ox <= m->x->last[ix]; ox++)
                        sum += load(pd + (oy * m->x->out + ox) * B) * (m->y->share[oy] * m->x->share[ox]);
                store(px + (iy * m->w + ix) * B, sum);
            }
    }
}

void LS_KERNEL_NAME(fill_pool)(struct ls_kernels *k)
{
    k->maxpool = maxpool;
    k->maxpool_bwd = maxpool_bwd;
    k->avgpool = avgpool;
    k->avgpool_bwd = avgpool_bwd;
}
