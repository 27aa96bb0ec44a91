#include "backend/cuda/ops/conv_act.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

int conv_act_prepare(struct ls_program *p, int node, const struct linear *l)
{
    const struct ls_graph *g = p->core.g;
    int result = g->nodes[node].out[0];
    if (!linear_is_product(l) || l->conv.act != LS_ACT_NONE || result == g->logits || ls_graph_readers(g, result) != 1)
        return LS_NONE;
    for (int i = node + 1; i < g->n_nodes; i++) {
        const struct ls_node *n = &g->nodes[i];
        if (strcmp(n->op->name, "act") != 0 || n->in[0] != result)
            continue;
        if (!ls_cuda_narrow_can(&l->conv, n->attr.act))
            return LS_NONE;
        p->execs[i].early = node;
        p->core.places[result].unmade = true;
        snprintf(p->execs[node].note, sizeof p->execs[node].note, "own narrow product, with %s",
                 ls_act_name(n->attr.act));
        snprintf(p->execs[i].note, sizeof p->execs[i].note, "done already");
        return i;
    }
    return LS_NONE;
}

void conv_act_run(const struct ls_program *p, int node, const struct linear *l, int act, const void *weights)
{
    const struct ls_node *n = &p->core.g->nodes[node], *after = &p->core.g->nodes[act];
    ls_cuda_narrow(stream_of(p), &l->conv, after->attr.act, data_of(p, n->in[0]), weights, floats(p, n->in[2]),
                   data_of(p, after->out[0]));
}
