/* Stochastic gradient descent with momentum, Nesterov's or the classic one, as PyTorch defines it. */
#include "graph/ops.h"
#include "optim/optim.h"

static enum ls_status emit(struct ls_graph *g, const struct ls_optim *o, int param)
{
    struct ls_attr attr = {
        .sgd_momentum = o->momentum, .weight_decay = ls_optim_decay(g, o, param), .nesterov = o->nesterov};
    int in[3] = {param, g->tensors[param].grad, LS_NONE};
    if (o->momentum != 0.0f) {
        in[2] = ls_optim_momentum(g, param);
        if (in[2] == LS_NONE)
            return LS_FAILED;
    }
    return ls_optim_node(g, &ls_op_sgd, g->tensors[param].name, &attr, in, 3);
}

const struct ls_optim_kind ls_optim_sgd = {
    .name = "sgd", .summary = "stochastic gradient descent with momentum", .emit = emit};
