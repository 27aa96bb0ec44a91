/* Stochastic gradient descent with momentum, Nesterov's or the classic one, as PyTorch defines it.
 *
 *   g        = g + weight_decay * w
 *   momentum = share * momentum + g            (zero at first, so that the first step is the gradient)
 *   w        = w - lr * momentum               (Nesterov: lr * (g + share * momentum); without momentum: lr * g) */
#include "graph/ops.h"
#include "optim/optim.h"

static enum ls_status emit(struct ls_graph *g, const struct ls_options *o, int param)
{
    const struct ls_tensor *t = &g->tensors[param];
    double share = t->has_momentum ? t->momentum : o->momentum;
    const char *const states[] = {share != 0.0 ? "momentum" : NULL, NULL};
    return ls_optim_node(g, o, &ls_op_sgd, param, states);
}

static void describe(const struct ls_options *o, char *text, size_t room)
{
    snprintf(text, room, ", momentum %g%s", o->momentum, o->nesterov ? " (Nesterov)" : "");
}

const struct ls_optim_kind ls_optim_sgd = {
    .name = "sgd", .summary = "stochastic gradient descent with momentum", .emit = emit, .describe = describe};
