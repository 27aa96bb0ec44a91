/* Parameter updates of the optimizers. */
#include "backend/onednn/ops/op.h"

#include <math.h>

static enum ls_status prepare_update(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    return n->in[2] == LS_NONE ? LS_OK : place_as(p, n->in[2], &p->layouts[n->in[0]].md); /* DNN-2 */
}

static struct ls_sgd sgd_of(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    return (struct ls_sgd){.w = (float *)IN(0),
                           .g = (float *)IN(1),
                           .m = (float *)IN(2),
                           .count = (int64_t)(dnn_md_bytes(&p->layouts[n->in[0]].md) / sizeof(float)),
                           .lr = run->lr,
                           .momentum = n->attr.sgd_momentum,
                           .decay = n->attr.weight_decay,
                           .nesterov = n->attr.nesterov};
}

static enum ls_status run_sgd(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_sgd a = sgd_of(p, node, run);
    p->k.sgd(&a);
    return LS_OK;
}

/* m = momentum*m + local*lr*(g + decay*w), w -= m: SGD with lr 1 after scaling, written out here because the
 * velocity holds the learning rate. */
static enum ls_status run_lars(struct ls_program *p, int node, const struct ls_run *run)
{
    struct ls_sgd a = sgd_of(p, node, run);
    double w = sqrt(p->k.norm2(a.w, a.count)), g = sqrt(p->k.norm2(a.g, a.count));
    double local =
        w > 0 && g > 0 ? (double)p->core.g->nodes[node].attr.trust * w / (g + (double)a.decay * w + 1e-9) : 1.0;
    float rate = (float)local * a.lr;
#pragma omp parallel for schedule(static) if (a.count > 16384)
    for (int64_t i = 0; i < a.count; i++) {
        a.m[i] = a.momentum * a.m[i] + rate * (a.g[i] + a.decay * a.w[i]);
        a.w[i] -= a.m[i];
    }
    return LS_OK;
}

const struct kernel ls_onednn_ops_updates[] = {
    {"sgd", prepare_update, NULL, run_sgd},
    {"lars", prepare_update, NULL, run_lars},
    {0},
};
