/* Mixup and cutmix. */
#include "backend/core/mix.h"
#include "backend/ref/ref.h"

static void mix(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    struct ls_mix m = ls_mix_of_run(&call->n->attr.mix, call->run);
    for (int64_t n = 0; n < x.n; n++) {
        int64_t other = ls_mix_partner(n, call->run->valid);
        for (int64_t c = 0; c < x.c; c++)
            for (int64_t h = 0; h < x.h; h++)
                for (int64_t w = 0; w < x.w; w++) {
                    bool inside = h >= m.top && h < m.bottom && w >= m.left && w < m.right;
                    float own = *ls_ref_at(&x, n, c, h, w), theirs = *ls_ref_at(&x, other, c, h, w);
                    *ls_ref_at(&y, n, c, h, w) =
                        m.cuts ? (inside ? theirs : own) : m.weight * own + (1 - m.weight) * theirs;
                }
    }
}

const struct ls_ref_op ls_ref_ops_mix[] = {
    {"mix", mix},
    {0},
};
