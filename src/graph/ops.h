/* The op table. An op is one file in graph/ops/ with a const struct ls_op at its end and one line in ops/list.def.
 *
 * Slots of each op (LS_NONE where absent). "act" tensors are (N,C,H,W) or (N,K).
 *
 *  op                in                                                  out
 *  conv              x  w(O,I/g,KH,KW)  b?(O)                            y
 *  conv_bwd_data     dy w  [attr; x shape from out]                      dx
 *  conv_bwd_weights  dy x                                                dw db?
 *  dense             x (N,K) or (N,C,H,W)  w(O,K)  b?(O)                 y(N,O)
 *  dense_bwd_data    dy w                                                dx
 *  dense_bwd_weights dy x                                                dw db?
 *  bn (training)     x gamma beta running_mean running_var residual?     y mean(C) rstd(C) stat(2,C)[GRAD] index?[u8]
 *  bn (inference)    x gamma beta running_mean running_var residual?     y
 *  bn_bwd            dy dy2? x gamma beta mean rstd y? index?            dx dgamma dbeta dresidual?
 *  bn_running        stat running_mean running_var                       (writes in[1], in[2] in place)
 *  act               x                                                   y
 *  act_bwd           dy y (relu, relu6) or x (the others)                dx
 *  lrn               x                                                   y
 *  lrn_bwd           dy x                                                dx
 *  maxpool           x                                                   y index?[u8; training]
 *  maxpool_bwd       dy index y?[when attr.act]                          dx
 *  avgpool           x                                                   y
 *  avgpool_bwd       dy                                                  dx
 *  adaptive_avgpool  x                                                   y
 *  adaptive_avgpool_bwd dy                                               dx
 *  dropout           x                                                   y   (identity when !attr.training)
 *  dropout_bwd       dy                                                  dx
 *  drop_path         x                                                   y   (identity when !attr.training)
 *  drop_path_bwd     dy                                                  dx
 *  add               a b                                                 y = act(a + b)
 *  mul               a(N,C,H,W) s(N,C,1,1)                               y = a * s
 *  mul_bwd           dy a s                                              da ds
 *  scale             x                                                   y = attr.factor * x (its own gradient as well)
 *  concat            x0 .. xk (k < LS_MAX_IN)                            y along C
 *  slice             dy                                                  dx: channels attr.offset ... + C(dx)
 *  flatten           x(N,C,H,W)                                          y(N,C*H*W)
 *  unflatten         dy(N,C*H*W)                                         dx(N,C,H,W)
 *  split_in          x                                                   x of the worker whose turn it is (ops/split.c)
 *  split_in_bwd      parts of dx (f32), of which the first is the sum   dx
 *  split_out         y of the rows here                                  y of all rows
 *  split_out_bwd     dy of all rows                                      dy of the rows here
 *  sum               a b                                                 y = a + b (gradients of one tensor)
 *  mix               x                                                   y: the images, each mixed with the one before it
 *  views             x                                                   y(V*N,C,H,W): V views of each image (inference)
 *  views_mean        logits(V*N,K)                                       y(N,K): their weighted mean
 *  softmax_xent      logits label                                        loss(N) rank(N)[i32] prob(N,K)[f32]
 *  softmax_xent_bwd  prob label                                          dlogits
 *  l2_loss           x label                                             loss(N) rank(N)[i32]
 *  l2_loss_bwd       x label                                             dx
 *  reorder           x                                                   y, the same values in another layout or type
 *  send              x                                                   (another stage reads x)
 *  receive                                                               y (another stage made it)
 *  ema               value grad average                                  (writes average in place; grad: complete before)
 *  sgd lars adamw …  param grad state*                                   (writes param and state in place)
 *
 * Semantics that are easy to get wrong:
 *  - bn, training: statistics over the first `valid` samples of the batch (struct ls_run) only; biased variance
 *    normalises; stat = run.stat_weight * (mean, unbiased variance). y = act(scale*(x-mean)*rstd + shift + residual),
 *    then, when attr.pool, max-pooled with index. bn_bwd: dz = (dy + dy2) passed back through pool and act (act's
 *    mask from y when given: needed with a residual; else recomputed from x; functions that do not clip multiply by their
 *    slope at the value recomputed from x, and come with neither residual nor pool); dresidual = dz; samples at or beyond
 *    `valid` get dx = 0, dresidual = 0 and enter no sum.
 *  - maxpool index: position inside the window, ky * kernel_w + kx, of the first maximum (u8; windows <= 255);
 *    padding never wins. attr.act applies to the pooled value; maxpool_bwd then masks dy by y.
 *  - act_bwd: relu passes where y > 0; relu6 where 0 < y < 6. hardswish and hardsigmoid have their middle slope where
 *    -3 < x < 3. gelu is the exact one, with erf.
 *  - dropout: element i (logical N,C,H,W index) is kept when uniform(word i%4 of philox(seed, stream, i/4)) >= p,
 *    stream = ls_random_stream(LS_RANDOM_DROPOUT, step, replica, attr.layer); kept values are scaled by 1/(1-p).
 *  - drop_path: all of sample i (counted in its replica) is kept when uniform(word i%4 of philox(seed, stream, i/4)) >= p,
 *    stream as dropout's; the sample is multiplied by 1/(1-p) or by 0, so NaN stays NaN.
 *  - losses: label < 0 means that there is no sample: loss 0, rank -1, gradient 0.
 *    rank = number of classes with a score above the label's (equal scores of lower index count as above).
 *    softmax_xent = -sum q log p with
 *    q = (1-smoothing) onehot + smoothing/K. l2_loss = 0.5*|x - onehot|^2. *_bwd scale by run.grad_scale.
 *  - mix: base/mix.h, stream = ls_random_stream(LS_RANDOM_MIX, step, replica, 0). With attr.mix, softmax_xent's q is weight *
 *    onehot(label) + (1-weight) * onehot(label of the partner) in place of the onehot; the rank is that of the own label.
 *  - views: view v (ls_views) of image n is image v*N + n. A moved image goes on mirrored beyond its border (ls_reflect of
 *    base/crop.h), then the view is mirrored or not. Between views and views_mean tensors have a first dimension of V*N.
 *  - lrn: y = x / (k + alpha/size * sum of squares over size channels around c)^beta, window as in PyTorch
 *    (size/2 below, (size-1)/2 above).
 *  - avgpool: mean over the window; include_pad divides by kernel_h*kernel_w clipped to the padded input.
 *    adaptive: rows floor(o*H/OH) to ceil((o+1)*H/OH).
 *  - Update ops: src/optim/NAME.c has the formula of each optimizer.
 *  - bn_running: running = (1-momentum)*running + momentum*stat.
 */
#ifndef LS_GRAPH_OPS_H
#define LS_GRAPH_OPS_H

#include "graph/graph.h"

enum ls_attr_type { LS_ATTR_INT, LS_ATTR_FLOAT, LS_ATTR_BOOL, LS_ATTR_ACT };

/* An attribute as model files write it. `pair` keys set two fields (h and w) from one number or a list of two.
 * `quad` keys set t, l, b, r from one number, [h, w], or [t, l, b, r]. */
struct ls_attr_key {
    const char *key;
    enum ls_attr_type type;
    size_t offset;  /* offsetof(struct ls_attr, first field) */
    int fields;     /* 1, 2 or 4 consecutive fields */
    double missing; /* value when the key is not given */
    bool required;
    const char *help;
    double low, high;  /* whole numbers: at least low; others: any number where high is 0 and not `above` */
    bool above, below; /* above: the range excludes `low`; below: it excludes `high` */
};

struct ls_op {
    const char *name;
    const char *help;                /* description of the layer for `lockstep help ops` */
    int min_in, max_in;              /* minimum and maximum number of input slots, including parameters and state */
    bool update;                     /* op of an optimizer: the inputs are a parameter, its gradient, and state */
    bool by_norm;                    /* update: norms of whole tensors decide it, so a window must be all of them */
    bool layer;                      /* may appear in a model file */
    bool weights;                    /* its layers have parameters, which build.c makes, and read one tensor */
    const struct ls_attr_key *attrs; /* ends with a NULL key; NULL: none */
    /* Checks inputs and attributes and appends the outputs to n->out. Errors name n->name. */
    enum ls_status (*infer)(struct ls_graph *g, struct ls_node *n);
    /* Appends backward nodes. dout[i] is the gradient of n->out[i] or LS_NONE. The function sets din[i] to the
     * gradient of n->in[i] where want[i], and leaves LS_NONE elsewhere. For parameters it sets
     * g->tensors[param].grad. NULL: no gradient passes. The node is passed by index because appending moves the
     * array. */
    enum ls_status (*backward)(struct ls_graph *g, int node, const int *dout, const bool *want, int *din);
    /* Multiply-accumulates for one sample. NULL: a negligible number. */
    int64_t (*macs)(const struct ls_graph *g, const struct ls_node *n);
    /* Output slot 0 may reuse the memory of input slot `inplace` - 1 (0: never) when this node is the last to use
     * that input. */
    int inplace;
};

/* Ends with NULL. */
extern const struct ls_op *const ls_ops[];
const struct ls_op *ls_op_find(const char *name);
/* Describes the allowed values of an attribute: "whole number from 1", "true or false". */
const char *ls_attr_range(const struct ls_attr_key *key, char text[64]);
bool ls_attr_allowed(const struct ls_attr_key *key, double value);

#define X(name) extern const struct ls_op ls_op_##name;
#include "graph/ops/list.def"
#define X(name, ...) extern const struct ls_op ls_op_##name;
#include "config/lists/optimizers.def"

/* Helpers for backward rules. The outputs of backward nodes have the shapes of known tensors, so these nodes are
 * appended without a call of infer. The caller makes the outputs with these helpers. */
/* A new activation with the shape of tensor `like`, named "d" + its name, in the graph's activation type. */
int ls_grad_act(struct ls_graph *g, int like);
/* The GRAD tensor of a parameter. It is made on first use and recorded in the parameter's .grad. */
int ls_grad_param(struct ls_graph *g, int param);
/* Appends a backward node with the given inputs and outputs (LS_NONE allowed). It takes attributes and name from
 * `forward`. */
enum ls_status ls_backward_node(struct ls_graph *g, const struct ls_op *op, int forward, const int *in, int n_in,
                                const int *out, int n_out);

#endif
