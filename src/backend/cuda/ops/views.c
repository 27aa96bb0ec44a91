/* Views of images, and the mean of their logits. */
#include "backend/cuda/program.h"

static enum ls_status views_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct ls_cuda_map x = map_of(p, n->in[0]);
    ls_cuda_views(stream_of(p), type_of(p), &n->attr.views, &x, data_of(p, n->in[0]), data_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status views_mean_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    ls_cuda_views_mean(stream_of(p), type_of(p), &n->attr.views, stored_count(p, n->out[0]), data_of(p, n->in[0]),
                       data_of(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_views[] = {
    {.op = "views", .prepare = place_outputs, .run = views_run, .moves = true},
    {.op = "views_mean", .prepare = place_outputs, .run = views_mean_run, .moves = true},
    {0},
};
