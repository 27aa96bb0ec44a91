/* Activation functions. */
#include "backend/cuda/program.h"

static enum ls_status act_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    if (p->execs[node].early != LS_NONE) /* CONVACT-1 */
        return LS_OK;
    if (ls_act_clips(n->attr.act))
        ls_cuda_act(stream_of(p), type_of(p), n->attr.act, data_of(p, n->in[0]), data_of(p, n->out[0]),
                    stored_count(p, n->out[0]));
    else
        ls_cuda_smooth(stream_of(p), type_of(p), n->attr.act, data_of(p, n->in[0]), data_of(p, n->out[0]),
                       stored_count(p, n->out[0]), map_of(p, n->out[0]).c, channels_of(p, n->out[0]));
    return LS_OK;
}

static enum ls_status act_bwd_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    (ls_act_clips(n->attr.act) ? ls_cuda_act_bwd : ls_cuda_smooth_bwd)(
        stream_of(p), type_of(p), n->attr.act, data_of(p, n->in[0]), data_of(p, n->in[1]), data_of(p, n->out[0]),
        stored_count(p, n->out[0]));
    return LS_OK;
}

const struct kernel ls_cuda_ops_act[] = {
    {.op = "act", .prepare = place_outputs, .run = act_run},
    {.op = "act_bwd", .prepare = place_outputs, .run = act_bwd_run},
    {0},
};
