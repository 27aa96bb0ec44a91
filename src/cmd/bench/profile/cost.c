#include "cmd/bench/profile/cost.h"
#include "graph/ops.h"

#include <string.h>

static bool is_product(const struct ls_node *n)
{
    return strncmp(n->op->name, "conv", 4) == 0 || strncmp(n->op->name, "dense", 5) == 0;
}

static int tensor_at(const struct ls_node *n, int i)
{
    return i < LS_MAX_IN ? n->in[i] : n->out[i - LS_MAX_IN];
}

/* A tensor that is several inputs counts once, and so does an output that lies on an input only by name. */
static bool counted_before(const struct ls_node *n, int i)
{
    int from = i < LS_MAX_IN ? 0 : LS_MAX_IN;
    for (int k = from; k < i; k++)
        if (tensor_at(n, k) == tensor_at(n, i))
            return true;
    return false;
}

double ls_bench_node_bytes(const struct ls_graph *g, const struct ls_node *n)
{
    double bytes = 0;
    for (int i = 0; i < LS_MAX_IN + LS_MAX_OUT; i++) {
        int t = tensor_at(n, i);
        if (t == LS_NONE || counted_before(n, i))
            continue;
        const struct ls_tensor *tensor = &g->tensors[t];
        bool weights = tensor->role == LS_ROLE_PARAM && is_product(n) && n->phase != LS_UPDATE;
        double size =
            (double)ls_shape_count(&tensor->shape) * (double)ls_dtype_size(weights ? g->act_dtype : tensor->dtype);
        bool written = n->phase == LS_UPDATE && i < LS_MAX_IN && tensor->role != LS_ROLE_GRAD;
        bytes += written ? 2 * size : size;
    }
    return bytes;
}

double ls_bench_node_operations(const struct ls_graph *g, const struct ls_node *n)
{
    if (!is_product(n))
        return 0;
    bool forward = n->phase == LS_FORWARD, data = strstr(n->op->name, "_bwd_data") != NULL;
    int y = forward ? n->out[0] : n->in[0], w = forward || data ? n->in[1] : n->out[0];
    const struct ls_shape *out = &g->tensors[y].shape;
    double positions = (double)ls_shape_count(out) / (double)out->dim[1];
    return 2 * positions * (double)ls_shape_count(&g->tensors[w].shape);
}
