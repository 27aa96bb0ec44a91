/* The update ops of all optimizers: one step on one parameter, in place. The optimizer pass appends them
 * (src/optim). */
#include "graph/ops/op.h"

static enum ls_status infer(struct ls_graph *g, struct ls_node *n)
{
    const struct ls_shape param = *ls_op_shape(g, n->in[0]);
    LS_TRY(ls_op_want_shape(g, n, 1, "gradient", param));
    for (int i = 0; i < LS_MAX_STATES; i++)
        LS_TRY(ls_op_want_shape(g, n, 2 + i, "optimizer state", param));
    return LS_OK;
}

#define X(op, least, most, norms)     \
    const struct ls_op ls_op_##op = { \
        .name = #op, .min_in = 2 + least, .max_in = 2 + most, .update = true, .by_norm = norms, .infer = infer};
#include "config/lists/optimizers.def"
