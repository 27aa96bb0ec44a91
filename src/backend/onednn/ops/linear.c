/* Convolutions and dense layers: oneDNN primitives, or our own methods, as tune.c chooses.
 *
 * The forward node of the training program decides the layout of the weights, once, and the store keeps it. It is the layout
 * that the chosen forward implementation prefers; the other passes use it or reorder the weights. */
#include "backend/onednn/program.h"
#include "base/log.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

/* The slots of the operands in each pass: src-like, weights-like, bias-like, dst-like tensors. */
struct operands {
    int src, wei, bias, dst;
};

static enum dnn_pass pass_of(const struct ls_op *op)
{
    if (op == &ls_op_conv_bwd_data || op == &ls_op_dense_bwd_data)
        return DNN_BWD_DATA;
    if (op == &ls_op_conv_bwd_weights || op == &ls_op_dense_bwd_weights)
        return DNN_BWD_WEIGHTS;
    return DNN_FORWARD;
}

static struct operands operands_of(const struct ls_node *n, enum dnn_pass pass)
{
    switch (pass) {
    case DNN_BWD_DATA:
        return (struct operands){n->out[0], n->in[1], LS_NONE, n->in[0]};
    case DNN_BWD_WEIGHTS:
        return (struct operands){n->in[1], n->out[0], n->out[1], n->in[0]};
    default:
        return (struct operands){n->in[0], n->in[1], n->in[2], n->out[0]};
    }
}

static void spec_of(const struct ls_program *p, const struct ls_node *n, const struct operands *o, enum dnn_pass pass,
                    struct dnn_spec *s)
{
    const struct ls_shape *src = tensor_shape(p, o->src), *wei = tensor_shape(p, o->wei),
                          *dst = tensor_shape(p, o->dst);
    const struct ls_attr *a = &n->attr;
    bool conv = wei->rank == 4;
    *s = (struct dnn_spec){.kind = conv ? DNN_CONV : DNN_DENSE,
                           .pass = pass,
                           .rank = src->rank,
                           .bias = o->bias != LS_NONE,
                           .act = pass == DNN_FORWARD ? a->act : LS_ACT_NONE,
                           .dtype = p->core.g->act_dtype,
                           .src_md = &p->layouts[o->src].md,
                           .dst_md = &p->layouts[o->dst].md};
    memcpy(s->src, src->dim, sizeof s->src);
    memcpy(s->dst, dst->dim, sizeof s->dst);
    if (!conv) { /* weights follow the shape of what they multiply: (O, K) or (O, C, H, W) */
        s->w_rank = src->rank;
        memcpy(s->wei, src->dim, sizeof src->dim);
        s->wei[0] = dst->dim[1];
        return;
    }
    s->stride[0] = a->stride_h, s->stride[1] = a->stride_w;
    s->dilation[0] = a->dilation_h - 1, s->dilation[1] = a->dilation_w - 1;
    s->pad_l[0] = a->pad_t, s->pad_l[1] = a->pad_l;
    /* The right padding of oneDNN makes the sizes match exactly. */
    s->pad_r[0] = (dst->dim[2] - 1) * a->stride_h + (wei->dim[2] - 1) * a->dilation_h + 1 - src->dim[2] - a->pad_t;
    s->pad_r[1] = (dst->dim[3] - 1) * a->stride_w + (wei->dim[3] - 1) * a->dilation_w + 1 - src->dim[3] - a->pad_l;
    if (a->groups > 1) {
        s->w_rank = 5;
        s->wei[0] = a->groups;
        s->wei[1] = wei->dim[0] / a->groups;
        memcpy(s->wei + 2, wei->dim + 1, 3 * sizeof *s->wei);
    } else {
        s->w_rank = 4;
        memcpy(s->wei, wei->dim, 4 * sizeof *s->wei);
    }
}

/* Decide how the parameter is stored. In bf16 the master weights are f32, laid out as f32 would have them. */
static enum ls_status place_weights(struct ls_program *p, const struct ls_node *n, int wei, const struct dnn_spec *spec)
{
    struct ls_store_entry *entry = ls_store_find(p->core.store, p->core.g->tensors[wei].name);
    if (p->core.places[wei].placed)
        return LS_OK;
    if (entry && entry->layout_bytes == sizeof(struct dnn_md))
        return place_as(p, wei, (const struct dnn_md *)entry->layout);
    struct dnn_spec s = *spec;
    struct dnn_md src = {0}, dst = {0};
    struct choice c = {0};
    enum ls_status st = LS_OK;
    if (own_dense_fits(p, n)) {
        LS_TRY(own_dense_layout(p, n->in[0], s.wei[0], &c.wei));
        st = place_as(p, wei, &c.wei);
        choice_release(&c);
        return st;
    }
    enum ls_conv_method own = own_conv_placing(p, spec);
    if (own) {
        LS_TRY(own_conv_layout(p, spec, own, &c.wei));
        st = place_as(p, wei, &c.wei);
        choice_release(&c);
        return st;
    }
    if (s.dtype == LS_BF16) {
        enum dnn_tag tag = p->k.block == 16 ? DNN_BLOCKED_16 : DNN_BLOCKED_8;
        s.dtype = LS_F32;
        s.act = LS_ACT_NONE;
        st = dnn_md_init(&src, s.rank, s.src, LS_F32, p->layouts[n->in[0]].blocked ? tag : DNN_PLAIN);
        if (st == LS_OK)
            st = dnn_md_init(&dst, s.kind == DNN_CONV ? 4 : 2, s.dst, LS_F32, s.kind == DNN_CONV ? tag : DNN_PLAIN);
        s.src_md = &src;
        s.dst_md = &dst;
    }
    if (st == LS_OK)
        st = tune_pick(p, n->name, &s, NULL, &c);
    if (st == LS_OK)
        st = place_as(p, wei, &c.wei);
    choice_release(&c);
    dnn_md_release(&src);
    dnn_md_release(&dst);
    return st;
}

/* bf16 primitives read bf16 images. One copy is for all nodes that read them. */
static enum ls_status match_input(struct ls_program *p, int *node, int *src)
{
    struct dnn_md md = {0};
    int from = *src;
    if (p->core.g->tensors[from].dtype == p->core.g->act_dtype)
        return LS_OK;
    LS_TRY(dnn_md_plain(&md, &p->layouts[from].md, p->core.g->act_dtype));
    LS_TRY(insert_reorder_before(p, node, from, &md, src));
    for (int n = *node; n < p->core.g->n_nodes; n++)
        for (int i = 0; i < LS_MAX_IN; i++)
            if (p->core.g->nodes[n].in[i] == from)
                p->core.g->nodes[n].in[i] = *src;
    dnn_md_release(&md);
    return LS_OK;
}

static enum ls_status make_primitive(struct ls_program *p, int node, const struct dnn_spec *spec,
                                     const struct choice *c)
{
    static const int args[][5] = {
        [DNN_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
        [DNN_BWD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
        [DNN_BWD_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST,
                             DNNL_ARG_SCRATCHPAD},
    };
    struct node_exec *exec = &p->execs[node];
    struct dnn_md scratch;
    enum dnn_pass pass = spec->pass;
    snprintf(exec->note, sizeof exec->note, "%s", c->pd.name);
    if (c->own) {
        own_conv_shape(p, spec, c->own, &exec->own);
        p->core.nodes[node].scratch_bytes = p->k.conv[c->own].scratch(&exec->own);
        return LS_OK;
    }
    LS_TRY(dnn_prim_init(&p->dnn, &c->pd, args[pass], 5, &exec->prim));
    LS_TRY(dnn_pd_md(&c->pd, DNNL_ARG_SCRATCHPAD, &scratch));
    p->core.nodes[node].scratch_bytes = dnn_md_bytes(&scratch);
    dnn_md_release(&scratch);
    return LS_OK;
}

/* Pick the implementation of a pass that reads the weights (input 1 of the node), with a reorder before it when it
 * needs them in another layout or type. */
static enum ls_status choose(struct ls_program *p, int node, int wei, const struct dnn_spec *spec)
{
    struct choice c = {0};
    enum ls_status st = LS_OK;
    const struct dnn_md *stored = &p->layouts[wei].md;
    LS_TRY(tune_pick(p, p->core.g->nodes[node].name, spec, p->core.g->act_dtype == LS_F32 ? stored : NULL, &c));
    if (!dnn_md_equal(&c.wei, stored)) {
        int copy;
        st = insert_reorder_before(p, &node, wei, &c.wei, &copy);
        if (st == LS_OK)
            p->core.g->nodes[node].in[1] = copy;
    }
    if (st == LS_OK)
        st = make_primitive(p, node, spec, &c);
    choice_release(&c);
    return st;
}

static enum ls_status prepare_forward(struct ls_program *p, int node)
{
    struct ls_node n = p->core.g->nodes[node];
    enum dnn_pass pass = pass_of(n.op);
    struct dnn_spec spec;
    LS_TRY(place_default(p, n.out[0]));
    LS_TRY(match_input(p, &node, &n.in[0]));
    p->core.g->nodes[node].in[0] = n.in[0];
    struct operands o = operands_of(&n, pass);
    if (o.bias != LS_NONE)
        LS_TRY(place_default(p, o.bias));
    spec_of(p, &n, &o, pass, &spec);
    LS_TRY(place_weights(p, &n, o.wei, &spec));
    return own_dense_fits(p, &n) ? own_dense_prepare(p, node) : choose(p, node, o.wei, &spec);
}

static enum ls_status prepare_bwd_data(struct ls_program *p, int node)
{
    struct ls_node n = p->core.g->nodes[node];
    struct operands o = operands_of(&n, DNN_BWD_DATA);
    struct dnn_spec spec;
    LS_TRY(place_default(p, o.src));
    if (own_dense_fits(p, &n))
        return own_dense_prepare(p, node);
    spec_of(p, &n, &o, DNN_BWD_DATA, &spec);
    return choose(p, node, o.wei, &spec);
}

/* The parameter whose gradient this is. */
static int parameter_of(const struct ls_program *p, int grad)
{
    for (int t = 0; t < p->core.g->n_tensors; t++)
        if (p->core.g->tensors[t].grad == grad && p->core.g->tensors[t].role == LS_ROLE_PARAM)
            return t;
    return LS_NONE;
}

/* Our own kernel for depthwise weights takes over where oneDNN has only reference code: it reads blocked maps and
 * writes the layout that depthwise weights have there anyway. */
static bool own_depthwise(const struct ls_program *p, const struct ls_node *n, const struct operands *o,
                          const struct choice *c)
{
    char layout[48];
    dnn_md_text(&p->layouts[o->wei].md, layout, sizeof layout);
    return strstr(c->pd.name, "ref") && n->attr.groups == tensor_shape(p, o->src)->dim[1] &&
           n->attr.groups == tensor_shape(p, o->dst)->dim[1] && p->layouts[o->src].blocked &&
           (tensor_shape(p, o->wei)->dim[3] - 1) * n->attr.dilation_w < LS_DEPTHWISE_REACH &&
           strcmp(layout, p->k.block == 16 ? "Abcde16a" : "Abcde8a") == 0;
}

static enum ls_status run_linear(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct node_exec *s = &p->execs[node];
    (void)run;
    if (s->dense.n > 0) {
        own_dense_run(p, node);
        return LS_OK;
    }
    if (!s->own.method)
        return dnn_prim_run(&p->dnn, &s->prim);
    p->k.conv[s->own.method].run(&s->own);
    return LS_OK;
}

static enum ls_status run_bwd_weights(struct ls_program *p, int node, const struct ls_run *run)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_attr *a = &n->attr;
    if (p->execs[node].prim.p || p->execs[node].own.method || p->execs[node].dense.n > 0)
        return run_linear(p, node, run);
    struct operands o = operands_of(n, DNN_BWD_WEIGHTS);
    const struct ls_shape *wei = tensor_shape(p, o.wei);
    struct ls_depthwise d = {.in = tensor_map(p, o.src, run),
                             .out = tensor_map(p, o.dst, run),
                             .kernel_h = wei->dim[2],
                             .kernel_w = wei->dim[3],
                             .stride_h = a->stride_h,
                             .stride_w = a->stride_w,
                             .pad_t = a->pad_t,
                             .pad_l = a->pad_l,
                             .dilation_h = a->dilation_h,
                             .dilation_w = a->dilation_w,
                             .x = tensor_data(p, o.src),
                             .dy = tensor_data(p, o.dst),
                             .dw = (float *)tensor_data(p, o.wei),
                             .db = (float *)tensor_data(p, o.bias)};
    p->k.depthwise_bwd_weights(&d);
    return LS_OK;
}

static enum ls_status prepare_bwd_weights(struct ls_program *p, int node)
{
    struct ls_node n = p->core.g->nodes[node];
    struct operands o = operands_of(&n, DNN_BWD_WEIGHTS);
    struct dnn_spec spec;
    struct choice c = {0};
    LS_TRY(match_input(p, &node, &o.src));
    p->core.g->nodes[node].in[1] = o.src;
    const struct dnn_md *wei = &p->layouts[parameter_of(p, o.wei)].md;
    LS_TRY(place_as(p, o.wei, wei)); /* DNN-2 */
    if (o.bias != LS_NONE)
        LS_TRY(place_default(p, o.bias));
    if (own_dense_fits(p, &n))
        return own_dense_prepare(p, node);
    spec_of(p, &n, &o, DNN_BWD_WEIGHTS, &spec);
    LS_TRY(tune_pick(p, n.name, &spec, &p->layouts[o.wei].md, &c));
    if (own_depthwise(p, &n, &o, &c)) {
        snprintf(p->execs[node].note, sizeof p->execs[node].note, "depthwise:%s", p->k.isa);
        choice_release(&c);
        return LS_OK;
    }
    enum ls_status st = make_primitive(p, node, &spec, &c);
    if (st == LS_OK && !dnn_md_equal(&c.wei, &p->layouts[o.wei].md))
        st = insert_reorder_after(p, node, 0, &c.wei);
    choice_release(&c);
    return st;
}

static void bind_linear(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    struct node_exec *s = &p->execs[node];
    enum dnn_pass pass = pass_of(n->op);
    struct operands o = operands_of(n, pass);
    if (s->dense.n > 0) {
        own_dense_bind(p, node);
        return;
    }
    if (s->own.method) {
        own_conv_point(&s->own, tensor_data(p, o.src), tensor_data(p, o.wei), tensor_data(p, o.bias),
                       tensor_data(p, o.dst), p->core.nodes[node].scratch);
        return;
    }
    bool data = pass == DNN_BWD_DATA, weights = pass == DNN_BWD_WEIGHTS, bwd = data || weights;
    dnn_prim_point(&s->prim, data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, tensor_data(p, o.src));
    dnn_prim_point(&s->prim, weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, tensor_data(p, o.wei));
    dnn_prim_point(&s->prim, weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, tensor_data(p, o.bias));
    dnn_prim_point(&s->prim, bwd ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, tensor_data(p, o.dst));
    dnn_prim_point(&s->prim, DNNL_ARG_SCRATCHPAD, p->core.nodes[node].scratch);
}

const struct kernel ls_onednn_ops_linear[] = {
    {"conv", prepare_forward, bind_linear, run_linear},
    {"conv_bwd_data", prepare_bwd_data, bind_linear, run_linear},
    {"conv_bwd_weights", prepare_bwd_weights, bind_linear, run_bwd_weights},
    {"dense", prepare_forward, bind_linear, run_linear},
    {"dense_bwd_data", prepare_bwd_data, bind_linear, run_linear},
    {"dense_bwd_weights", prepare_bwd_weights, bind_linear, run_bwd_weights},
    {0},
};
