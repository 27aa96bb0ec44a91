/* The way of gradients back through a max pooling. */
#ifndef LS_KERNELS_UNPOOL_H
#define LS_KERNELS_UNPOOL_H

#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"

/* What a max pooling left: the gradients of its results, the positions of the maxima, and, if an activation follows, the
 * results. */
struct pooled {
    const E *dy, *dy2, *y; /* dy2: NULL, or added to dy; y: NULL without an activation */
    const uint8_t *index;
};

enum { STRETCH = 64 }; /* columns of a row at a time */

/* The gradients that max pooling returns to columns [x0, x1) of row iy: for each pixel the sum over the windows in which it
 * was the maximum. A window is read once for its columns of the row. */
INLINE void unpool(enum ls_act act, const struct ls_map *m, const struct pooled *p, int64_t iy, int64_t x0, int64_t x1,
                   vf dz[STRETCH])
{
    for (int64_t i = 0; i < x1 - x0; i++)
        dz[i] = vset(0.0f);
    int64_t first = x0, last = x1 - 1; /* of the columns that belong to a window */
    while (first < last && m->x->last[first] < 0)
        first++;
    while (first < last && m->x->last[last] < 0)
        last--;
    for (int32_t oy = m->y->first[iy]; oy <= m->y->last[iy]; oy++)
        for (int32_t ox = m->x->first[first]; ox <= m->x->last[last]; ox++) {
            int64_t o = (oy * m->x->out + ox) * B, left = m->x->origin[ox];
            int64_t from = left > x0 ? left : x0, to = left + m->x->kernel < x1 ? left + m->x->kernel : x1;
            vf back = load(p->dy + o);
            if (p->dy2)
                back += load(p->dy2 + o);
            if (act != LS_ACT_NONE)
                back = pass_back(act, load(p->y + o), back);
            vi at = vload_index(p->index + o);
            int row = (int)((iy - m->y->origin[oy]) * m->x->kernel - left);
            for (int64_t ix = from; ix < to; ix++)
                dz[ix - x0] += vkeep_index(at, row + (int)ix, back);
        }
}

#endif
