/* Each channel of a sample times a factor. */
#include "backend/ref/ref.h"

static void mul(const struct ls_ref_call *call)
{
    struct ls_ref_view a = ls_ref_in(call, 0), s = ls_ref_in(call, 1), y = ls_ref_out(call, 0);
    int64_t area = a.h * a.w;
    for (int64_t i = 0; i < ls_ref_count(&y); i++)
        y.v[i] = a.v[i] * s.v[i / area];
}

/* da may be the same memory as dy. */
static void mul_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), a = ls_ref_in(call, 1), s = ls_ref_in(call, 2);
    struct ls_ref_view da = ls_ref_out(call, 0), ds = ls_ref_out(call, 1);
    int64_t area = a.h * a.w;
    for (int64_t plane = 0; plane < a.n * a.c; plane++) {
        double sum = 0;
        for (int64_t i = plane * area; i < (plane + 1) * area; i++) {
            sum += (double)dy.v[i] * (double)a.v[i];
            da.v[i] = dy.v[i] * s.v[plane];
        }
        ds.v[plane] = (float)sum;
    }
}

const struct ls_ref_op ls_ref_ops_mul[] = {
    {"mul", mul},
    {"mul_bwd", mul_bwd},
    {0},
};
