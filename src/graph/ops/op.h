/* Helpers of the op files: shape checks whose errors name the layer, window arithmetic, outputs. */
#ifndef LS_GRAPH_OPS_OP_H
#define LS_GRAPH_OPS_OP_H

#include "base/log.h"
#include "graph/graph.h"
#include "graph/ops.h"

#include <stddef.h>

/* The last arguments are the help and optionally the range, as in "output channels", .low = 1. */
#define LS_ATTR(name, kind, field, count, value, must, ...)                                                      \
    {                                                                                                            \
        .key = name, .type = kind, .offset = offsetof(struct ls_attr, field), .fields = count, .missing = value, \
        .required = must, .help = __VA_ARGS__                                                                    \
    }

static inline const struct ls_shape *ls_op_shape(const struct ls_graph *g, int tensor)
{
    return &g->tensors[tensor].shape;
}

/* Checks that input `slot` has that rank. */
enum ls_status ls_op_want_rank(const struct ls_graph *g, const struct ls_node *n, int slot, int rank);
/* Checks that input `slot`, if present, has exactly that shape. `what` names the input in the error ("weight"). */
enum ls_status ls_op_want_shape(const struct ls_graph *g, const struct ls_node *n, int slot, const char *what,
                                struct ls_shape shape);
/* Appends output `slot`, named after the layer plus suffix. A size that no machine can hold is an error. */
enum ls_status ls_op_output(struct ls_graph *g, struct ls_node *n, int slot, const char *suffix, enum ls_role role,
                            enum ls_dtype dtype, struct ls_shape shape);
/* Appends output 0 as an activation. */
enum ls_status ls_op_output_act(struct ls_graph *g, struct ls_node *n, struct ls_shape shape);
/* The output rows and columns of a window (kernel, stride, pad, dilation) over an h x w input. */
enum ls_status ls_op_window(struct ls_node *n, int64_t h, int64_t w, int64_t *out_h, int64_t *out_w);
/* The same for poolings, where each window must contain at least one pixel that is not padding. A stride of 0 is
 * replaced by the kernel's size. */
enum ls_status ls_op_pool_window(struct ls_node *n, int64_t h, int64_t w, int64_t *out_h, int64_t *out_w);
/* The output shape of a max pooling, for maxpool and for bn with a fused pooling. */
enum ls_status ls_op_maxpool_shape(struct ls_node *n, const struct ls_shape *x, struct ls_shape *y);

/* Sets *dz to the gradient before the fused activation: dy itself, or the output of an act_bwd node on the node's
 * output 0. */
enum ls_status ls_op_act_backward(struct ls_graph *g, int node, int dy, int *dz);
/* The backward rule of an op with one activation input, when `in` (n_in tensors) holds all inputs of its gradient.
 * Appends `op`, which writes a gradient shaped like input 0. */
enum ls_status ls_op_unary_backward(struct ls_graph *g, const struct ls_op *op, int node, const int *in, int n_in,
                                    const bool *want, int *din);

#endif
