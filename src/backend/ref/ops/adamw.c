/* The update of adamw (optim/adamw.c). */
#include "backend/ref/ref.h"

#include <math.h>

static void adamw(const struct ls_ref_call *call)
{
    const struct ls_hyper *h = &call->n->attr.hyper;
    struct ls_ref_view w = ls_ref_update_in(call, 0), grad = ls_ref_update_in(call, 1), m = ls_ref_update_in(call, 2),
                       v = ls_ref_update_in(call, 3);
    double t = (double)call->run->step + 1, lr = ls_hyper_lr(h, call->run->lr);
    double rate = lr / (1 - pow(h->beta1, t)), root = sqrt(1 - pow(h->beta2, t));
    for (int64_t i = 0; i < ls_ref_count(&w); i++) {
        double g = grad.v[i];
        double mean = h->beta1 * m.v[i] + (1 - h->beta1) * g, square = h->beta2 * v.v[i] + (1 - h->beta2) * g * g;
        m.v[i] = (float)mean;
        v.v[i] = (float)square;
        w.v[i] = (float)(w.v[i] * (1 - lr * h->weight_decay) - rate * mean / (sqrt(square) / root + h->eps));
    }
}

const struct ls_ref_op ls_ref_ops_adamw[] = {
    {"adamw", adamw},
    {0},
};
