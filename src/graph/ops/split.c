/* A dense layer whose rows are divided among workers (graph/split.h). Around its nodes, which see one worker's samples at a
 * time, stand four ops: the step exchanges values with the other workers there (exec/split).
 *   split_in       x of this worker becomes that of each worker in turn; its gradient adds what the workers' rows give, in f32,
 *                  and its node gives the sum the type of activations
 *   split_out      the results of all workers' rows, for the samples of this worker; its gradient sends each its columns */
#include "graph/ops/op.h"

static enum ls_status in_infer(struct ls_graph *g, struct ls_node *n)
{
    return ls_op_output_act(g, n, *ls_op_shape(g, n->in[0]));
}

static enum ls_status in_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    return ls_op_unary_backward(g, &ls_op_split_in_bwd, node, dout, 1, want, din);
}

static enum ls_status out_infer(struct ls_graph *g, struct ls_node *n)
{
    return ls_op_output_act(g, n, ls_shape_make(2, ls_op_shape(g, n->in[0])->dim[0], n->attr.out, 0, 0));
}

static enum ls_status out_backward(struct ls_graph *g, int node, const int *dout, const bool *want, int *din)
{
    return ls_op_unary_backward(g, &ls_op_split_out_bwd, node, dout, 1, want, din);
}

const struct ls_op ls_op_split_in = {
    .name = "split_in", .min_in = 1, .max_in = 1, .infer = in_infer, .backward = in_backward};

const struct ls_op ls_op_split_in_bwd = {.name = "split_in_bwd", .min_in = 1, .max_in = 1};

const struct ls_op ls_op_split_out = {
    .name = "split_out", .min_in = 1, .max_in = 1, .infer = out_infer, .backward = out_backward};

const struct ls_op ls_op_split_out_bwd = {.name = "split_out_bwd", .min_in = 1, .max_in = 1};
