/* Dense layers. */
#include "backend/ref/ref.h"

static void dense(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), w = ls_ref_in(call, 1), b = ls_ref_in(call, 2), y = ls_ref_out(call, 0);
    for (int64_t n = 0; n < y.n; n++)
        for (int64_t o = 0; o < y.c; o++) {
            double sum = b.v ? (double)b.v[o] : 0;
            for (int64_t k = 0; k < w.c; k++)
                sum += (double)x.v[n * w.c + k] * w.v[o * w.c + k];
            y.v[n * y.c + o] = ls_ref_act_of(call->n->attr.act, sum);
        }
}

static void dense_bwd_data(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), w = ls_ref_in(call, 1), dx = ls_ref_out(call, 0);
    for (int64_t n = 0; n < dy.n; n++)
        for (int64_t k = 0; k < w.c; k++) {
            double sum = 0;
            for (int64_t o = 0; o < dy.c; o++)
                sum += (double)dy.v[n * dy.c + o] * w.v[o * w.c + k];
            dx.v[n * w.c + k] = (float)sum;
        }
}

static void dense_bwd_weights(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), x = ls_ref_in(call, 1);
    struct ls_ref_view dw = ls_ref_out(call, 0), db = ls_ref_out(call, 1);
    for (int64_t o = 0; o < dw.n; o++)
        for (int64_t k = 0; k < dw.c; k++) {
            double sum = 0;
            for (int64_t n = 0; n < dy.n; n++)
                sum += (double)dy.v[n * dy.c + o] * x.v[n * dw.c + k];
            dw.v[o * dw.c + k] = (float)sum;
        }
    for (int64_t o = 0; db.v && o < dy.c; o++) {
        double sum = 0;
        for (int64_t n = 0; n < dy.n; n++)
            sum += (double)dy.v[n * dy.c + o];
        db.v[o] = (float)sum;
    }
}

const struct ls_ref_op ls_ref_ops_dense[] = {
    {"dense", dense},
    {"dense_bwd_data", dense_bwd_data},
    {"dense_bwd_weights", dense_bwd_weights},
    {0},
};
