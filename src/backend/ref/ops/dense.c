/* Dense layers. */
#include "backend/ref/ref.h"
#include "graph/split.h"

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

static float product(const struct ls_ref_view *dy, const struct ls_ref_view *w, int64_t n, int64_t k, int64_t first,
                     int64_t end)
{
    double sum = 0;
    for (int64_t o = first; o < end && o < dy->c; o++)
        sum += (double)dy->v[n * dy->c + o] * w->v[o * w->c + k];
    return (float)sum;
}

/* SPLIT-1 */
static void in_chunks(const struct ls_ref_view *dy, const struct ls_ref_view *w, const struct ls_split_range *r,
                      int64_t n, int64_t k, float *dx)
{
    float sums[LS_SPLIT_CHUNKS];
    int at[LS_SPLIT_CHUNKS], depth = 0;
    for (int chunk = r->first; chunk < r->end; chunk++) {
        int64_t row = (chunk - r->first) * r->chunk;
        sums[depth] = product(dy, w, n, k, row, row + r->chunk);
        for (at[depth++] = chunk; depth > 1; depth--) {
            if (!ls_split_joins(at[depth - 2], at[depth - 1], chunk + 1, r->chunks))
                break;
            sums[depth - 2] += sums[depth - 1];
        }
    }
    for (int part = 0; part < depth; part++)
        dx[(part * dy->n + n) * w->c + k] = sums[part];
}

static void dense_bwd_data(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), w = ls_ref_in(call, 1), dx = ls_ref_out(call, 0);
    struct ls_shape shape = ls_shape_make(2, w.n, w.c, 0, 0);
    struct ls_split_range range = {0};
    bool chunks = ls_split_range_of(&call->n->attr, &shape, &range);
    for (int64_t n = 0; n < dy.n; n++)
        for (int64_t k = 0; k < w.c; k++) {
            if (chunks)
                in_chunks(&dy, &w, &range, n, k, dx.v);
            else
                dx.v[n * w.c + k] = product(&dy, &w, n, k, 0, dy.c);
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
