/* The average of a value over steps (graph/ops/ema.c). */
#include "backend/onednn/updates.h"

static enum ls_status run_ema(struct ls_program *p, int node, const struct ls_run *run)
{
    const double share = p->core.g->nodes[node].attr.hyper.ema;
    const float old = (float)share, fresh = (float)(1 - share), *restrict value = update_slot(p, node, 0);
    float *restrict average = update_slot(p, node, 2);
    int64_t count = update_count(p, node);
    (void)run;
#pragma omp parallel for simd schedule(static) if (count > UPDATE_ALONE)
    for (int64_t i = 0; i < count; i++)
        average[i] = old * average[i] + fresh * value[i];
    return LS_OK;
}

/* The gradient is the one whose completion it waits for, and is not read. */
static enum ls_status prepare_ema(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    return place_as(p, n->in[2], &p->layouts[n->in[0]].md); /* DNN-2 */
}

const struct kernel ls_onednn_ops_ema[] = {
    {"ema", prepare_ema, NULL, run_ema},
    {0},
};
