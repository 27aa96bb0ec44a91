/* Several views of each image for evaluation, and the mean of their logits. */
#include "graph/ops/op.h"

static enum ls_status views_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, 0, 4));
    struct ls_shape y = *ls_op_shape(g, n->in[0]);
    if (n->attr.views.shift >= y.dim[2] || n->attr.views.shift >= y.dim[3])
        return ls_fail(LS_USAGE, "--tta shift:%d: the images are only %lldx%lld", (int)n->attr.views.shift,
                       (long long)y.dim[2], (long long)y.dim[3]);
    y.dim[0] *= ls_views_count(&n->attr.views);
    return ls_op_output_act(g, n, y);
}

static enum ls_status mean_infer(struct ls_graph *g, struct ls_node *n)
{
    LS_TRY(ls_op_want_rank(g, n, 0, 2));
    struct ls_shape y = *ls_op_shape(g, n->in[0]);
    y.dim[0] /= ls_views_count(&n->attr.views);
    return ls_op_output_act(g, n, y);
}

const struct ls_op ls_op_views = {.name = "views", .min_in = 1, .max_in = 1, .infer = views_infer};

const struct ls_op ls_op_views_mean = {.name = "views_mean", .min_in = 1, .max_in = 1, .infer = mean_infer};
