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
float ls_clip_factor(double squares, double limit)
{
    double factor = limit / (sqrt(squares) + 1e-6);
    return factor < 1 ? (float)factor : 1;
}
