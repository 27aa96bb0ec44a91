/* The same values in another layout or type. */
#include "backend/onednn/program.h"

#include <stdio.h>
#include <string.h>

/* The reorders that our own kernel does. Where blocks keep their order, it does not matter how many there are of each kind. */
static bool own_pairs(const struct ls_program *p, const struct ls_node *n, struct ls_pairs *pairs)
{
    static const struct {
        const char *from, *to;
        bool of_results, ins_first;
    } layouts[] = {
        {"ABcd16b16a", "ABcd8b16a2b", false, false},  {"ABcd16b16a", "ABcd8a16b2a", true, false},
        {"ABcd16b16a", "BAcd8a16b2a", true, true},    {"aBCde16c16b", "aBCde8c16b2c", false, false},
        {"aBCde16c16b", "aBCde8b16c2b", true, false}, {"AB16b16a", "AB8b16a2b", false, false},
    };
    const struct dnn_md *md = &p->layouts[n->in[0]].md;
    const struct ls_shape *s = tensor_shape(p, n->in[0]);
    char from[48], to[48];
    dnn_md_text(md, from, sizeof from);
    dnn_md_text(&p->layouts[n->out[0]].md, to, sizeof to);
    for (size_t i = 0; p->k.pairs && i < sizeof layouts / sizeof *layouts; i++)
        if (strcmp(from, layouts[i].from) == 0 && strcmp(to, layouts[i].to) == 0) {
            int64_t blocks = (int64_t)(dnn_md_bytes(md) / sizeof(float)) / (p->k.block * p->k.block);
            *pairs = (struct ls_pairs){.outs = blocks,
                                       .ins = 1,
                                       .taps = 1,
                                       .of_results = layouts[i].of_results,
                                       .ins_first = layouts[i].ins_first};
            if (pairs->ins_first) {
                pairs->outs = (s->dim[0] + p->k.block - 1) / p->k.block;
                pairs->ins = (s->dim[1] + p->k.block - 1) / p->k.block;
                pairs->taps = blocks / pairs->outs / pairs->ins;
            }
            return true;
        }
    return false;
}

static enum ls_status prepare_reorder(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct node_exec *exec = &p->execs[node];
    struct dnn_pd pd;
    struct dnn_md scratch;
    static const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO, DNNL_ARG_SCRATCHPAD};
    LS_TRY(place_default(p, n->out[0]));
    if (own_pairs(p, n, &exec->pairs)) {
        snprintf(exec->note, sizeof exec->note, "pairs:%s", p->k.isa);
        return LS_OK;
    }
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
    s->pairs.from = (const float *)(void *)tensor_data(p, p->core.g->nodes[node].in[0]);
    s->pairs.to = tensor_data(p, p->core.g->nodes[node].out[0]);
    dnn_prim_point(&s->prim, DNNL_ARG_FROM, tensor_data(p, p->core.g->nodes[node].in[0]));
    dnn_prim_point(&s->prim, DNNL_ARG_TO, tensor_data(p, p->core.g->nodes[node].out[0]));
    dnn_prim_point(&s->prim, DNNL_ARG_SCRATCHPAD, p->core.nodes[node].scratch);
}

static enum ls_status run_reorder(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct node_exec *s = &p->execs[node];
    (void)run;
    if (s->pairs.taps == 0)
        return dnn_prim_run(&p->dnn, &s->prim);
    p->k.pairs(&s->pairs);
    return LS_OK;
}

const struct kernel ls_onednn_ops_reorder[] = {
    {"reorder", prepare_reorder, bind_reorder, run_reorder},
    {0},
};
