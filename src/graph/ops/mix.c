/* Mixup and cutmix of the images of a batch. The loss mixes the labels alike. Images need no gradient. */
#include "graph/ops/op.h"

static enum ls_status mix_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, 0, 4));
    return ls_op_output_act(g, n, *ls_op_shape(g, n->in[0]));
}

const struct ls_op ls_op_mix = {.name = "mix", .min_in = 1, .max_in = 1, .infer = mix_infer};
