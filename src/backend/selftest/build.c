#include "backend/selftest/list.h"

#include <stdio.h>
#include <string.h>

/* Errors stick, as in graph/build.h. */
struct ls_case_maker {
    struct ls_graph *g;
    enum ls_status st;
};

static int append(struct ls_case_maker *m, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                  const int *in, int n_in)
{
    int node = LS_NONE;
    if (m->st == LS_OK)
        m->st = ls_graph_node(m->g, op, name, attr, in, n_in, &node);
    return m->st == LS_OK ? node : LS_NONE;
}

/* The same, giving the first output. */
static int layer(struct ls_case_maker *m, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                 const int *in, int n_in)
{
    int node = append(m, op, name, attr, in, n_in);
    return node == LS_NONE ? LS_NONE : m->g->nodes[node].out[0];
}

static int tensor(struct ls_case_maker *m, enum ls_role role, const char *owner, const char *part,
                  struct ls_shape shape)
{
    char name[128];
    if (m->st != LS_OK)
        return LS_NONE;
    snprintf(name, sizeof name, "%.80s.%s", owner, part);
    int t = ls_graph_tensor(m->g, name, role, LS_F32, shape);
    m->st = t == LS_NONE ? LS_FAILED : LS_OK;
    return t;
}

struct ls_shape ls_case_shape(const struct ls_case_maker *m, int t)
{
    return t == LS_NONE ? ls_shape_make(4, 1, 1, 1, 1) : m->g->tensors[t].shape;
}

/* A convolution that keeps the size of the map. */
static int convolve(struct ls_case_maker *m, const char *name, int x, int64_t out, int kernel, int64_t groups)
{
    struct ls_attr attr = {.out = out, WINDOW(kernel, 1, kernel / 2), .groups = groups};
    attr.dilation_h = attr.dilation_w = 1;
    struct ls_shape shape = ls_shape_make(4, out, ls_case_shape(m, x).dim[1] / groups, kernel, kernel);
    int in[] = {x, tensor(m, LS_ROLE_PARAM, name, "weight", shape)};
    return layer(m, &ls_op_conv, name, &attr, in, 2);
}

/* A 1x1 convolution that keeps channels apart, or mixes them when their number changes. */
static int pointwise(struct ls_case_maker *m, const char *name, int x, int64_t out)
{
    int64_t channels = ls_case_shape(m, x).dim[1];
    return convolve(m, name, x, out, 1, out == channels ? channels : 1);
}

/* What reads the result of a bn between convolutions: one of them, and with a residual an addition, too. */
static int behind(struct ls_case_maker *m, const struct ls_case *c, int x)
{
    struct ls_attr attr = {0};
    int y = convolve(m, "behind", x, c->c, c->between, 1);
    return c->residual ? layer(m, &ls_op_add, "sum", &attr, (int[]){y, x}, 2) : y;
}

static int flatten(struct ls_case_maker *m, const char *name, int x)
{
    struct ls_attr attr = {0};
    return ls_case_shape(m, x).rank == 2 ? x : layer(m, &ls_op_flatten, name, &attr, &x, 1);
}

static int dense(struct ls_case_maker *m, const char *name, int x, int64_t out)
{
    struct ls_attr attr = {.out = out};
    int in[] = {x, tensor(m, LS_ROLE_PARAM, name, "weight", ls_shape_make(2, out, ls_case_shape(m, x).dim[1], 0, 0))};
    return layer(m, &ls_op_dense, name, &attr, in, 2);
}

int ls_case_param(struct ls_case_maker *m, const char *part, struct ls_shape shape)
{
    return tensor(m, LS_ROLE_PARAM, "op", part, shape);
}

int ls_case_state(struct ls_case_maker *m, const char *part, struct ls_shape shape)
{
    return tensor(m, LS_ROLE_STATE, "op", part, shape);
}

int ls_case_second(struct ls_case_maker *m, const struct ls_case *c, int first)
{
    int64_t channels = c->other ? c->other : ls_case_shape(m, first).dim[1];
    return c->flat ? dense(m, "second", first, channels) : pointwise(m, "second", first, channels);
}

int ls_case_pooled(struct ls_case_maker *m, int x)
{
    struct ls_attr attr = {.out_h = 1, .out_w = 1};
    return layer(m, &ls_op_adaptive_avgpool, "pooled", &attr, &x, 1);
}

int ls_case_label(const struct ls_case_maker *m)
{
    return m->g->label;
}

static void build_op(struct ls_case_maker *m, const struct ls_case *c)
{
    struct ls_graph *g = m->g;
    struct ls_attr attr = c->attr;
    int in[LS_MAX_IN];
    attr.stride_h += !attr.stride_h, attr.stride_w += !attr.stride_w;
    attr.dilation_h += !attr.dilation_h, attr.dilation_w += !attr.dilation_w;
    attr.groups += !attr.groups;
    attr.training = !c->inference;
    const struct ls_case_family *family = ls_case_family(c);
    in[0] = c->first ? g->input : pointwise(m, "pre", g->input, c->c);
    if (c->flat)
        in[0] = flatten(m, "pre_flat", in[0]);
    if (c->between)
        in[0] = convolve(m, "before", in[0], c->c, c->between, 1);
    int n_in = family->inputs ? family->inputs(m, c, &attr, in) : 1;
    int node = append(m, c->op, "op", &attr, in, n_in);
    g->logits = in[0];
    if (node != LS_NONE && !family->loss) {
        int y = g->nodes[node].out[0];
        g->logits = flatten(m, "flat", c->between ? behind(m, c, y) : y);
        if (c->head)
            g->logits = dense(m, "head", g->logits, 10);
        node = append(m, &ls_op_l2_loss, "loss", &attr, (int[]){g->logits, g->label}, 2);
    }
    if (node == LS_NONE)
        return;
    g->loss = g->nodes[node].out[0];
    g->label_rank = g->nodes[node].out[1];
    if (!c->inference)
        m->st = ls_graph_backward(g);
}

static void append_update(struct ls_case_maker *m, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                          const int *in, int n_in)
{
    int node = append(m, op, name, attr, in, n_in);
    if (node != LS_NONE)
        m->g->nodes[node].phase = LS_UPDATE;
}

/* A layer with all its parameters updated. */
static void build_updates(struct ls_case_maker *m, const struct ls_case *c)
{
    struct ls_graph *g = m->g;
    struct ls_case layer_case = *c;
    bool bn = c->attr.out == 0, conv = c->attr.kernel_h > 0;
    layer_case.op = bn ? &ls_op_bn : conv ? &ls_op_conv : &ls_op_dense;
    layer_case.flat = !bn && !conv;
    layer_case.attr =
        bn ? (struct ls_attr){.eps = 1e-5f, .momentum = 0.1f} : (struct ls_attr){.out = c->attr.out, .bias = true};
    layer_case.attr.kernel_h = c->attr.kernel_h, layer_case.attr.kernel_w = c->attr.kernel_w;
    build_op(m, &layer_case);
    int tensors = g->n_tensors;
    for (int t = 0; t < tensors && m->st == LS_OK; t++) {
        if (g->tensors[t].role != LS_ROLE_PARAM || (conv && g->tensors[t].shape.rank != 4))
            continue;
        char name[96];
        snprintf(name, sizeof name, "%.80s", g->tensors[t].name);
        int in[2 + LS_MAX_STATES] = {t, g->tensors[t].grad}, n = 2;
        for (int i = 0; i < LS_MAX_STATES && c->states[i]; i++)
            in[n++] = tensor(m, LS_ROLE_OPTIMIZER, name, c->states[i], g->tensors[t].shape);
        append_update(m, c->op, name, &c->attr, in, n);
    }
    if (!bn)
        return;
    int stat[] = {ls_graph_find(g, "op.stat"), ls_graph_find(g, "op.running_mean"), ls_graph_find(g, "op.running_var")};
    append_update(m, &ls_op_bn_running, "op", &layer_case.attr, stat, 3);
}

bool ls_case_updates(const struct ls_case *c)
{
    return c->op->update;
}

enum ls_status ls_case_build(const struct ls_case *c, enum ls_dtype dtype, struct ls_graph *g)
{
    struct ls_case_maker m = {.g = g};
    ls_graph_init(g);
    g->training = !c->inference;
    g->act_dtype = dtype;
    g->input = ls_graph_tensor(g, "images", LS_ROLE_INPUT, LS_F32, ls_shape_make(4, c->n, c->c, c->h, c->w));
    g->label = ls_graph_tensor(g, "labels", LS_ROLE_INPUT, LS_I32, ls_shape_make(1, c->n, 0, 0, 0));
    if (g->input == LS_NONE || g->label == LS_NONE)
        return LS_FAILED;
    if (ls_case_updates(c))
        build_updates(&m, c);
    else
        build_op(&m, c);
    return m.st;
}

static const struct ls_case_family *const families[] = {
#define X(name) &ls_cases_##name,
#include "backend/selftest/ops/list.def"
    NULL};

const struct ls_case *ls_case_at(int i)
{
    for (const struct ls_case_family *const *f = families; *f; f++)
        for (const struct ls_case *c = (*f)->cases; c->name; c++)
            if (i-- == 0)
                return c;
    return NULL;
}

const struct ls_case_family *ls_case_family(const struct ls_case *c)
{
    for (const struct ls_case_family *const *f = families; *f; f++)
        for (const struct ls_case *other = (*f)->cases; other->name; other++)
            if (other->op == c->op)
                return *f;
    return NULL;
}

const struct ls_case *ls_case_find(const char *name)
{
    for (int i = 0; ls_case_at(i); i++)
        if (strcmp(ls_case_at(i)->name, name) == 0)
            return ls_case_at(i);
    return NULL;
}
