/* Optimizer steps on one parameter, in place. The optimizer pass appends them (src/optim). */
#include "graph/ops/op.h"

static enum ls_status update_infer(struct ls_graph *g, struct ls_node *n)
{
    const struct ls_shape param = *ls_op_shape(g, n->in[0]);
    LS_TRY(ls_op_want_shape(g, n, 1, "gradient", param));
    return ls_op_want_shape(g, n, 2, "momentum", param);
}

const struct ls_op ls_op_sgd = {.name = "sgd", .min_in = 2, .max_in = 3, .infer = update_infer};

const struct ls_op ls_op_lars = {.name = "lars", .min_in = 3, .max_in = 3, .infer = update_infer};
