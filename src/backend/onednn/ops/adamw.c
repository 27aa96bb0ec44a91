/* The update of adamw (optim/adamw.c). Compiled for any x86-64 processor, so that all give the same bits; memory is what
 * bounds it. */
#include "backend/onednn/updates.h"

#include <math.h>

static enum ls_status run_adamw(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_hyper *h = &p->core.g->nodes[node].attr.hyper;
    float *restrict w = update_slot(p, node, 0), *restrict m = update_slot(p, node, 2),
                    *restrict v = update_slot(p, node, 3);
    const float *restrict g = update_slot(p, node, 1);
    const float lr = ls_hyper_lr(h, run->lr);
    double t = (double)run->step + 1;
    const float keep = (float)(1 - lr * h->weight_decay), rate = (float)(lr / (1 - pow(h->beta1, t)));
    const float unbias = (float)(1 / sqrt(1 - pow(h->beta2, t))), eps = (float)h->eps;
    const float old_m = (float)h->beta1, new_m = (float)(1 - h->beta1);
    const float old_v = (float)h->beta2, new_v = (float)(1 - h->beta2);
    int64_t count = update_count(p, node);
#pragma omp parallel for simd schedule(static) if (count > UPDATE_ALONE)
    for (int64_t i = 0; i < count; i++) {
        m[i] = old_m * m[i] + new_m * g[i];
        v[i] = old_v * v[i] + new_v * g[i] * g[i];
        w[i] = keep * w[i] - rate * m[i] / (sqrtf(v[i]) * unbias + eps);
    }
    return LS_OK;
}

const struct kernel ls_onednn_ops_adamw[] = {
    {"adamw", prepare_update, NULL, run_adamw},
    {0},
};
