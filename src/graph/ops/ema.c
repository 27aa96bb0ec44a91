/* The average of a value over steps, for --ema: average = share * average + (1 - share) * value. The optimizer pass appends
 * it behind the updates (src/optim). */
#include "graph/ops/op.h"

static enum ls_status infer(struct ls_graph *g, struct ls_node *n)
{
    return ls_op_want_shape(g, n, 2, "average", *ls_op_shape(g, n->in[0]));
}

const struct ls_op ls_op_ema = {.name = "ema", .min_in = 3, .max_in = 3, .update = true, .infer = infer};
