/* Layer-wise adaptive rate scaling: the rate of each weight tensor is proportional to the ratio of its norm to the norm of
 * its gradient.
 *
 *   local    = trust * |w| / (|g| + weight_decay * |w| + 1e-9), 1 where |w| or |g| is 0
 *   momentum = share * momentum + local * lr * (g + weight_decay * w)
 *   w        = w - momentum */
#include "graph/ops.h"
#include "optim/optim.h"

static enum ls_status emit(struct ls_graph *g, const struct ls_options *o, int param)
{
    static const char *const states[] = {"momentum", NULL};
    /* Biases and BN's scale and shift start at 0 or 1, so the ratio of norms means nothing for them. */
    return g->tensors[param].no_decay ? ls_optim_sgd.emit(g, o, param)
                                      : ls_optim_node(g, o, &ls_op_lars, param, states);
}

static void describe(const struct ls_options *o, char *text, size_t room)
{
    ls_optim_sgd.describe(o, text, room);
}

const struct ls_optim_kind ls_optim_lars = {
    .name = "lars", .summary = "layer-wise adaptive rates for large batches", .emit = emit, .describe = describe};
