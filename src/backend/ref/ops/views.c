/* Views of images, and the mean of their logits. */
#include "backend/ref/ref.h"
#include "base/crop.h"

static void views(const struct ls_ref_call *call)
{
    const struct ls_views *v = &call->n->attr.views;
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    for (int64_t n = 0; n < y.n; n++) {
        int view = (int)(n / x.n);
        int32_t move = ls_views_offset(v, view), height = (int32_t)x.h, width = (int32_t)x.w;
        bool mirrored = v->mirror && view % 2 == 1;
        for (int64_t c = 0; c < x.c; c++)
            for (int32_t h = 0; h < height; h++)
                for (int32_t w = 0; w < width; w++) {
                    int32_t row = ls_reflect(move + h, height);
                    int32_t column = ls_reflect(move + (mirrored ? width - 1 - w : w), width);
                    *ls_ref_at(&y, n, c, h, w) = *ls_ref_at(&x, n % x.n, c, row, column);
                }
    }
}

static void views_mean(const struct ls_ref_call *call)
{
    const struct ls_views *v = &call->n->attr.views;
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    int64_t count = ls_ref_count(&y);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int view = 0; view < ls_views_count(v); view++)
            sum += (double)ls_views_weight(v, view) * x.v[view * count + i];
        y.v[i] = (float)sum;
    }
}

const struct ls_ref_op ls_ref_ops_views[] = {
    {"views", views},
    {"views_mean", views_mean},
    {0},
};
