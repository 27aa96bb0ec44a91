/* Local response normalisation. */
#include "backend/cuda/program.h"

static enum ls_status lrn_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_attr *a = &n->attr;
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_lrn(stream_of(p), type_of(p), x.n * x.h * x.w, x.c, channels_of(p, n->in[0]), a->size, a->alpha, a->beta,
                a->k, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status lrn_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_attr *a = &n->attr;
    struct ls_cuda_map x = map_of(p, n->in[1]);
    ls_cuda_lrn_bwd(stream_of(p), type_of(p), x.n * x.h * x.w, x.c, channels_of(p, n->in[1]), a->size, a->alpha,
                    a->beta, a->k, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_lrn[] = {
    {.op = "lrn", .prepare = place_outputs, .run = lrn_run},
    {.op = "lrn_bwd", .prepare = place_outputs, .run = lrn_bwd_run},
    {0},
};
