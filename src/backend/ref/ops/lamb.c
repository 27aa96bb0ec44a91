/* The update of lamb (optim/lamb.c). */
#include "backend/ref/ref.h"

#include <math.h>

static void lamb(const struct ls_ref_call *call)
{
    const struct ls_hyper *h = &call->n->attr.hyper;
    struct ls_ref_view w = ls_ref_update_in(call, 0), grad = ls_ref_update_in(call, 1), m = ls_ref_update_in(call, 2),
                       v = ls_ref_update_in(call, 3);
    double t = (double)call->run->step + 1, mean = 1 - pow(h->beta1, t), root = sqrt(1 - pow(h->beta2, t));
    double of_w = 0, of_u = 0, ratio = 1, lr = ls_hyper_lr(h, call->run->lr);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < ls_ref_count(&w); i++) {
            double g = grad.v[i];
            if (pass == 0) {
                m.v[i] = (float)(h->beta1 * m.v[i] + (1 - h->beta1) * g);
                v.v[i] = (float)(h->beta2 * v.v[i] + (1 - h->beta2) * g * g);
            }
            double u = m.v[i] / mean / (sqrt(v.v[i]) / root + h->eps) + h->weight_decay * w.v[i];
            if (pass == 0) {
                of_w += (double)w.v[i] * w.v[i];
                of_u += u * u;
            } else {
                w.v[i] = (float)(w.v[i] - lr * ratio * u);
            }
        }
        ratio = of_w > 0 && of_u > 0 ? sqrt(of_w) / sqrt(of_u) : 1;
    }
}

const struct ls_ref_op ls_ref_ops_lamb[] = {
    {"lamb", lamb},
    {0},
};
