/* Residual blocks that begin as the identity. */
#include "graph/ops.h"

/* Nodes between a tensor and the last one before it that several nodes read: the length of its branch. */
static int branch_length(const struct ls_graph *g, int tensor)
{
    int length = 0;
    for (int node = ls_graph_producer(g, tensor); node != LS_NONE; node = ls_graph_producer(g, g->nodes[node].in[0])) {
        length++;
        if (g->nodes[node].in[0] == LS_NONE || ls_graph_readers(g, g->nodes[node].in[0]) > 1)
            break;
    }
    return length;
}

static int bn_behind(const struct ls_graph *g, int tensor)
{
    int node = ls_graph_producer(g, tensor);
    return node != LS_NONE && g->nodes[node].op == &ls_op_bn ? node : LS_NONE;
}

/* The BN that ends the block. Where both branches end with one, the shorter is the projection of the shortcut. */
static int last_bn(const struct ls_graph *g, const struct ls_node *add)
{
    int a = bn_behind(g, add->in[0]), b = bn_behind(g, add->in[1]);
    if (a == LS_NONE || b == LS_NONE)
        return a == LS_NONE ? b : a;
    return branch_length(g, add->in[0]) > branch_length(g, add->in[1]) ? a : b;
}

int ls_graph_zero_residuals(struct ls_graph *g)
{
    int found = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        int bn = g->nodes[n].op == &ls_op_add ? last_bn(g, &g->nodes[n]) : LS_NONE;
        if (bn == LS_NONE)
            continue;
        g->tensors[g->nodes[bn].in[1]].init = (struct ls_init){LS_INIT_CONST, 0.0f};
        found++;
    }
    return found;
}
