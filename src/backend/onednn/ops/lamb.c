/* The update of lamb (optim/lamb.c). Compiled for any x86-64 processor, so that all give the same bits. */
#include "backend/onednn/updates.h"

#include <math.h>

enum { PARTS = 32 }; /* that sums are made of, on any number of threads */

struct lamb {
    float *w, *m, *v;
    const float *g;
    int64_t count;
    float old_m, new_m, old_v, new_v;
    float unbias_m, unbias_v, eps, decay;
};

static inline float step_of(const struct lamb *l, int64_t i)
{
    return l->m[i] * l->unbias_m / (sqrtf(l->v[i]) * l->unbias_v + l->eps) + l->decay * l->w[i];
}

/* Updates the averages of a part and adds up the squares of weights and steps. */
static void average_part(const struct lamb *l, int64_t first, int64_t end, double *of_w, double *of_u)
{
    double sum_w = 0, sum_u = 0;
#pragma omp simd reduction(+ : sum_w, sum_u)
    for (int64_t i = first; i < end; i++) {
        l->m[i] = l->old_m * l->m[i] + l->new_m * l->g[i];
        l->v[i] = l->old_v * l->v[i] + l->new_v * l->g[i] * l->g[i];
        float u = step_of(l, i);
        sum_w += (double)l->w[i] * (double)l->w[i];
        sum_u += (double)u * (double)u;
    }
    *of_w = sum_w;
    *of_u = sum_u;
}

static double ratio_of(const struct lamb *l)
{
    double part_w[PARTS], part_u[PARTS], of_w = 0, of_u = 0;
#pragma omp parallel for schedule(static) if (l->count > UPDATE_ALONE)
    for (int p = 0; p < PARTS; p++)
        average_part(l, l->count * p / PARTS, l->count * (p + 1) / PARTS, &part_w[p], &part_u[p]);
    for (int p = 0; p < PARTS; p++) {
        of_w += part_w[p];
        of_u += part_u[p];
    }
    return of_w > 0 && of_u > 0 ? sqrt(of_w) / sqrt(of_u) : 1;
}

static enum ls_status run_lamb(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_hyper *h = &p->core.g->nodes[node].attr.hyper;
    double t = (double)run->step + 1;
    struct lamb l = {.w = update_slot(p, node, 0),
                     .g = update_slot(p, node, 1),
                     .m = update_slot(p, node, 2),
                     .v = update_slot(p, node, 3),
                     .count = update_count(p, node),
                     .old_m = (float)h->beta1,
                     .new_m = (float)(1 - h->beta1),
                     .old_v = (float)h->beta2,
                     .new_v = (float)(1 - h->beta2),
                     .unbias_m = (float)(1 / (1 - pow(h->beta1, t))),
                     .unbias_v = (float)(1 / sqrt(1 - pow(h->beta2, t))),
                     .eps = (float)h->eps,
                     .decay = (float)h->weight_decay};
    const float rate = (float)(ls_hyper_lr(h, run->lr) * ratio_of(&l));
#pragma omp parallel for simd schedule(static) if (l.count > UPDATE_ALONE)
    for (int64_t i = 0; i < l.count; i++)
        l.w[i] -= rate * step_of(&l, i);
    return LS_OK;
}

const struct kernel ls_onednn_ops_lamb[] = {
    {"lamb", prepare_update, NULL, run_lamb},
    {0},
};
