/* The same values in another layout or type. */
#include "backend/onednn/program.h"

#include <stdio.h>

static enum ls_status prepare_reorder(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct node_exec *exec = &p->execs[node];
    struct dnn_pd pd;
    struct dnn_md scratch;
    static const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO, DNNL_ARG_SCRATCHPAD};
    LS_TRY(place_default(p, n->out[0]));
    LS_TRY(dnn_reorder_pd(&p->dnn, &p->layouts[n->in[0]].md, &p->layouts[n->out[0]].md, &pd));
    enum ls_status st = dnn_prim_init(&p->dnn, &pd, args, 3, &exec->prim);
    if (st == LS_OK)
        st = dnn_pd_md(&pd, DNNL_ARG_SCRATCHPAD, &scratch);
    if (st == LS_OK) {
        p->core.nodes[node].scratch_bytes = dnn_md_bytes(&scratch);
        dnn_md_release(&scratch);
    }
    snprintf(exec->note, sizeof exec->note, "reorder");
    dnn_pd_release(&pd);
    return st;
}

static void bind_reorder(struct ls_program *p, int node)
{
    struct node_exec *s = &p->execs[node];
    dnn_prim_point(&s->prim, DNNL_ARG_FROM, tensor_data(p, p->core.g->nodes[node].in[0]));
    dnn_prim_point(&s->prim, DNNL_ARG_TO, tensor_data(p, p->core.g->nodes[node].out[0]));
    dnn_prim_point(&s->prim, DNNL_ARG_SCRATCHPAD, p->core.nodes[node].scratch);
}

static enum ls_status run_reorder(struct ls_program *p, int node, const struct ls_run *run)
{
    (void)run;
    return dnn_prim_run(&p->dnn, &p->execs[node].prim);
}

const struct kernel ls_onednn_ops_reorder[] = {
    {"reorder", prepare_reorder, bind_reorder, run_reorder},
    {0},
};
