/* Local response normalisation. */
#include "backend/ref/ref.h"

#include <math.h>

/* k + alpha/size * the sum of squares over the window around channel c. */
static double scale_at(const struct ls_attr *a, const struct ls_ref_view *x, int64_t n, int64_t c, int64_t i)
{
    double squares = 0;
    for (int64_t j = c - a->size / 2; j <= c + (a->size - 1) / 2; j++)
        if (j >= 0 && j < x->c) {
            double v = *ls_ref_at(x, n, j, 0, i);
            squares += v * v;
        }
    return (double)a->k + (double)a->alpha / (double)a->size * squares;
}

static void lrn(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    for (int64_t n = 0; n < x.n; n++)
        for (int64_t c = 0; c < x.c; c++)
            for (int64_t i = 0; i < x.h * x.w; i++)
                *ls_ref_at(&y, n, c, 0, i) =
                    (float)(*ls_ref_at(&x, n, c, 0, i) * pow(scale_at(a, &x, n, c, i), -(double)a->beta));
}

static void lrn_bwd(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    double beta = a->beta;
    struct ls_ref_view dy = ls_ref_in(call, 0), x = ls_ref_in(call, 1), dx = ls_ref_out(call, 0);
    for (int64_t n = 0; n < x.n; n++)
        for (int64_t c = 0; c < x.c; c++)
            for (int64_t i = 0; i < x.h * x.w; i++) {
                double others = 0; /* through the scales of the channels whose window holds c */
                for (int64_t j = c - (a->size - 1) / 2; j <= c + a->size / 2; j++)
                    if (j >= 0 && j < x.c)
                        others += (double)*ls_ref_at(&dy, n, j, 0, i) * *ls_ref_at(&x, n, j, 0, i) *
                                  pow(scale_at(a, &x, n, j, i), -beta - 1);
                double own = *ls_ref_at(&dy, n, c, 0, i) * pow(scale_at(a, &x, n, c, i), -beta);
                double factor = 2 * (double)a->alpha * beta / (double)a->size * *ls_ref_at(&x, n, c, 0, i);
                *ls_ref_at(&dx, n, c, 0, i) = (float)(own - factor * others);
            }
}

const struct ls_ref_op ls_ref_ops_lrn[] = {
    {"lrn", lrn},
    {"lrn_bwd", lrn_bwd},
    {0},
};
