#include "backend/core/clip.h"
#include "graph/ops.h"

#include <math.h>

double ls_clip_limit(const struct ls_node *n)
{
    return n->op->update ? n->attr.hyper.clip_norm : 0;
}

int ls_clip_node(const struct ls_graph *g)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (ls_clip_limit(&g->nodes[n]) > 0)
            return n;
    return LS_NONE;
}

bool ls_clip_now(const struct ls_node *n)
{
    return !n->window.on || ls_window_is_empty(&n->window);
}

/* A norm that is NaN changes nothing: the gradients have it already. */
float ls_clip_factor(const struct ls_program *p, const struct ls_graph *g, int node, const struct ls_run *run,
                     int (*of)(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS]))
{
    double squares = run->squares ? *run->squares : 0, sums[LS_SPLIT_CHUNKS];
    for (int n = node; !run->squares && n < g->n_nodes; n++)
        for (int i = 0, sums_of_n = of(p, n, sums); i < sums_of_n; i++)
            squares += sums[i];
    double factor = ls_clip_limit(&g->nodes[node]) / (sqrt(squares) + 1e-6);
    return factor < 1 ? (float)factor : 1;
}
