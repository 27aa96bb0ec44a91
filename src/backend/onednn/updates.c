/* The updates of sgd and lars. */
#include "backend/core/clip.h"
#include "backend/onednn/updates.h"

#include <math.h>

enum ls_status prepare_update(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    for (int i = 0; i < LS_MAX_STATES; i++)
        if (n->in[2 + i] != LS_NONE)
            LS_TRY(place_as(p, n->in[2 + i], &p->layouts[n->in[0]].md)); /* DNN-2 */
    return LS_OK;
}

static enum ls_status run_sgd(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_attr *a = &p->core.g->nodes[node].attr;
    struct ls_sgd sgd = {.w = update_slot(p, node, 0),
                         .g = update_slot(p, node, 1),
                         .m = update_slot(p, node, 2),
                         .count = update_count(p, node),
                         .lr = ls_hyper_lr(&a->hyper, run->lr),
                         .momentum = (float)a->hyper.momentum,
                         .decay = (float)a->hyper.weight_decay,
                         .nesterov = a->nesterov};
    p->k.sgd(&sgd);
    return LS_OK;
}

/* m = momentum*m + local*lr*(g + decay*w), w -= m. The momentum holds the learning rate, unlike that of sgd. */
static enum ls_status run_lars(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_hyper *hyper = &p->core.g->nodes[node].attr.hyper;
    float *w = update_slot(p, node, 0), *g = update_slot(p, node, 1), *m = update_slot(p, node, 2);
    float momentum = (float)hyper->momentum, decay = (float)hyper->weight_decay, trust = (float)hyper->trust;
    int64_t count = update_count(p, node);
    double of_w = sqrt(p->k.norm2(w, count)), of_g = sqrt(p->k.norm2(g, count));
    double local = of_w > 0 && of_g > 0 ? (double)trust * of_w / (of_g + (double)decay * of_w + 1e-9) : 1.0;
    float rate = (float)local * ls_hyper_lr(hyper, run->lr);
#pragma omp parallel for schedule(static) if (count > UPDATE_ALONE)
    for (int64_t i = 0; i < count; i++) {
        m[i] = momentum * m[i] + rate * (g[i] + decay * w[i]);
        w[i] -= m[i];
    }
    return LS_OK;
}

/* Of one chunk of rows of a layer, or of its bias. Chunks begin at a multiple of 16 rows. */
static double chunk_squares(const struct ls_program *p, const struct ls_dense *d, bool bias, const float *grad,
                            int64_t first, int64_t rows)
{
    if (bias)
        return p->k.norm2(grad + first, rows);
    return d->block > 0 ? p->k.norm2_rows(grad, d->inputs, d->block, first, rows)
                        : p->k.norm2(grad + first * d->inputs, rows * d->inputs);
}

/* Padding is zero and adds nothing. */
int gradient_squares(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS])
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_split_range r;
    if (ls_clip_limit(n) <= 0)
        return 0;
    const float *grad = whole_slot(p, node, 1);
    int layer = ls_split_layer_of(p->core.g, n->in[0], &r);
    if (layer == LS_NONE || !own_dense_fits(p, &p->core.g->nodes[layer])) {
        sums[0] = p->k.norm2(grad, whole_count(p, node));
        return 1;
    }
    const struct ls_dense *d = &p->execs[layer].dense;
    bool bias = p->core.g->nodes[layer].in[2] == n->in[0];
    for (int c = 0; c < r.end - r.first; c++) {
        int64_t first = c * r.chunk, left = d->rows - first;
        sums[c] = chunk_squares(p, d, bias, grad, first, left < r.chunk ? left : r.chunk);
    }
    return r.end - r.first;
}

void clip_gradients(struct ls_program *p, const struct ls_run *run)
{
    const struct ls_graph *g = p->core.g;
    float factor = ls_clip_factor(p, g, p->clip_node, run, gradient_squares);
    for (int n = p->clip_node; n < g->n_nodes && factor < 1; n++) {
        float *grad = whole_slot(p, n, 1);
        int64_t count = ls_clip_limit(&g->nodes[n]) > 0 ? whole_count(p, n) : 0;
#pragma omp parallel for simd schedule(static) if (count > UPDATE_ALONE)
        for (int64_t i = 0; i < count; i++)
            grad[i] *= factor;
    }
}

const struct kernel ls_onednn_ops_updates[] = {
    {"sgd", prepare_update, NULL, run_sgd},
    {"lars", prepare_update, NULL, run_lars},
    {0},
};
