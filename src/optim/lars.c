/* Layer-wise adaptive rate scaling: each weight tensor's rate follows the ratio of its norm to its
 * gradient's. */
#include "graph/ops.h"
#include "optim/optim.h"

static enum ls_status emit(struct ls_graph *g, const struct ls_optim *o, int param)
{
    /* Biases and BN's scale and shift start at 0 or 1: a ratio of norms says nothing about them. */
    if (g->tensors[param].no_decay)
        return ls_optim_sgd.emit(g, o, param);
    struct ls_attr attr = {.sgd_momentum = o->momentum, .weight_decay = ls_optim_decay(g, o, param), .trust = o->trust};
    int in[3] = {param, g->tensors[param].grad, ls_optim_momentum(g, param)};
    if (in[2] == LS_NONE)
        return LS_FAILED;
    return ls_optim_node(g, &ls_op_lars, g->tensors[param].name, &attr, in, 3);
}

const struct ls_optim_kind ls_optim_lars = {
    .name = "lars", .summary = "layer-wise adaptive rates for large batches", .emit = emit};
