/* A graph around one op: image -> pre -> the op -> flatten -> l2_loss, and backward. */
#ifndef LS_TESTS_OPS_BUILD_H
#define LS_TESTS_OPS_BUILD_H

#include "ops_cases.h"
#include "ops_session.h"

static inline int append(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                         const int *in, int n_in)
{
    int node = LS_NONE;
    assert_int_equal(ls_graph_node(g, op, name, attr, in, n_in, &node), LS_OK);
    return node;
}

/* The same, giving the first output. */
static inline int layer(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                        const int *in, int n_in)
{
    int node = append(g, op, name, attr, in, n_in);
    return g->nodes[node].out[0];
}

static inline int parameter(struct ls_graph *g, enum ls_role role, const char *owner, const char *part,
                            struct ls_shape shape)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", owner, part);
    int t = ls_graph_tensor(g, name, role, LS_F32, shape);
    assert_int_not_equal(t, LS_NONE);
    return t;
}

/* A 1x1 convolution that keeps channels apart, or mixes them when their number changes. */
static inline int pointwise(struct ls_graph *g, const char *name, int x, int64_t out)
{
    int64_t channels = g->tensors[x].shape.dim[1];
    bool depthwise = out == channels;
    struct ls_attr attr = {
        .out = out, WINDOW(1, 1, 0), .dilation_h = 1, .dilation_w = 1, .groups = depthwise ? channels : 1};
    struct ls_shape w = ls_shape_make(4, out, depthwise ? 1 : channels, 1, 1);
    int in[] = {x, parameter(g, LS_ROLE_PARAM, name, "weight", w)};
    return layer(g, &ls_op_conv, name, &attr, in, 2);
}

static inline int flatten(struct ls_graph *g, const char *name, int x)
{
    struct ls_attr attr = {0};
    return g->tensors[x].shape.rank == 2 ? x : layer(g, &ls_op_flatten, name, &attr, &x, 1);
}

static inline int dense(struct ls_graph *g, const char *name, int x, int64_t out)
{
    struct ls_attr attr = {.out = out};
    struct ls_shape w = ls_shape_make(2, out, g->tensors[x].shape.dim[1], 0, 0);
    int in[] = {x, parameter(g, LS_ROLE_PARAM, name, "weight", w)};
    return layer(g, &ls_op_dense, name, &attr, in, 2);
}

/* The op's inputs: activations first, then the parameters it needs. */
static inline int inputs_of(struct ls_graph *g, const struct op_case *c, const struct ls_attr *a, int *in)
{
    int n = 1;
    in[0] = c->first ? g->input : pointwise(g, "pre", g->input, c->c);
    if (c->flat)
        in[0] = flatten(g, "pre_flat", in[0]);
    const struct ls_shape x = g->tensors[in[0]].shape;
    struct ls_shape per_out = ls_shape_make(1, a->out, 0, 0, 0), per_channel = ls_shape_make(1, x.dim[1], 0, 0, 0);
    if (c->op == &ls_op_conv) {
        struct ls_shape w = ls_shape_make(4, a->out, x.dim[1] / a->groups, a->kernel_h, a->kernel_w);
        in[n++] = parameter(g, LS_ROLE_PARAM, "op", "weight", w);
    }
    if (c->op == &ls_op_dense) {
        struct ls_shape w = ls_shape_make(2, a->out, ls_shape_count(&x) / x.dim[0], 0, 0);
        in[n++] = parameter(g, LS_ROLE_PARAM, "op", "weight", w);
    }
    if (a->bias)
        in[n++] = parameter(g, LS_ROLE_PARAM, "op", "bias", per_out);
    if (c->op == &ls_op_bn) {
        in[n++] = parameter(g, LS_ROLE_PARAM, "op", "weight", per_channel);
        in[n++] = parameter(g, LS_ROLE_PARAM, "op", "bias", per_channel);
        in[n++] = parameter(g, LS_ROLE_STATE, "op", "running_mean", per_channel);
        in[n++] = parameter(g, LS_ROLE_STATE, "op", "running_var", per_channel);
    }
    if (c->op == &ls_op_add || c->op == &ls_op_concat || c->residual)
        in[n++] = pointwise(g, "second", in[0], c->other ? c->other : c->c);
    if (c->op == &ls_op_softmax_xent || c->op == &ls_op_l2_loss)
        in[n++] = g->label;
    return n;
}

static inline void build(struct ls_graph *g, const struct op_case *c, enum ls_dtype dtype)
{
    struct ls_attr attr = c->attr;
    int in[LS_MAX_IN];
    attr.stride_h += !attr.stride_h, attr.stride_w += !attr.stride_w;
    attr.dilation_h += !attr.dilation_h, attr.dilation_w += !attr.dilation_w;
    attr.groups += !attr.groups;
    attr.training = !c->inference;
    ls_graph_init(g);
    g->training = !c->inference;
    g->act_dtype = dtype;
    g->input = ls_graph_tensor(g, "images", LS_ROLE_INPUT, LS_F32, ls_shape_make(4, c->n, c->c, c->h, c->w));
    g->label = ls_graph_tensor(g, "labels", LS_ROLE_INPUT, LS_I32, ls_shape_make(1, c->n, 0, 0, 0));
    int n_in = inputs_of(g, c, &attr, in);
    int node = append(g, c->op, "op", &attr, in, n_in);
    g->logits = in[0];
    if (c->op != &ls_op_softmax_xent && c->op != &ls_op_l2_loss) {
        g->logits = flatten(g, "flat", g->nodes[node].out[0]);
        if (c->head)
            g->logits = dense(g, "head", g->logits, 10);
        node = append(g, &ls_op_l2_loss, "loss", &attr, (int[]){g->logits, g->label}, 2);
    }
    g->loss = g->nodes[node].out[0];
    g->rank = g->nodes[node].out[1];
    if (!c->inference)
        assert_int_equal(ls_graph_backward(g), LS_OK);
}

#endif
