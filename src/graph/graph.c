#include "graph/graph.h"
#include "base/log.h"
#include "graph/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ls_graph_init(struct ls_graph *g)
{
    *g = (struct ls_graph){
        .input = LS_NONE, .label = LS_NONE, .logits = LS_NONE, .loss = LS_NONE, .label_rank = LS_NONE};
}

void ls_graph_release(struct ls_graph *g)
{
    ls_free(g->tensors);
    ls_free(g->nodes);
    ls_arena_release(&g->strings);
    ls_graph_init(g);
}

/* Makes room for one more element of an array. A full array doubles in size. */
static bool grow(void **array, int count, int *room, size_t size)
{
    if (count < *room)
        return true;
    int more = *room ? *room * 2 : 64;
    void *p = ls_realloc(*array, (size_t)count, (size_t)more, size);
    if (!p)
        return false;
    *array = p;
    *room = more;
    return true;
}

int ls_graph_tensor(struct ls_graph *g, const char *name, enum ls_role role, enum ls_dtype dtype, struct ls_shape shape)
{
    char *copy = ls_arena_strdup(&g->strings, name);
    if (!copy || !grow((void **)&g->tensors, g->n_tensors, &g->tensor_room, sizeof *g->tensors))
        return LS_NONE;
    g->tensors[g->n_tensors] =
        (struct ls_tensor){.name = copy, .role = role, .dtype = dtype, .shape = shape, .grad = LS_NONE};
    return g->n_tensors++;
}

static enum ls_status append(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                             const int *in, int n_in, struct ls_node **node)
{
    char *copy = ls_arena_strdup(&g->strings, name);
    if (!copy || !grow((void **)&g->nodes, g->n_nodes, &g->node_room, sizeof *g->nodes))
        return LS_FAILED;
    struct ls_node *n = &g->nodes[g->n_nodes];
    *n = (struct ls_node){.op = op, .name = copy, .attr = *attr};
    for (int i = 0; i < LS_MAX_IN; i++)
        n->in[i] = i < n_in ? in[i] : LS_NONE;
    for (int i = 0; i < LS_MAX_OUT; i++)
        n->out[i] = LS_NONE;
    *node = n;
    return LS_OK;
}

enum ls_status ls_graph_node(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                             const int *in, int n_in, int *node)
{
    struct ls_node *n;
    if (n_in < op->min_in || n_in > op->max_in || n_in > LS_MAX_IN)
        return ls_fail(LS_USAGE, "layer %s: %s takes %d to %d inputs, %d are given", name, op->name, op->min_in,
                       op->max_in, n_in);
    LS_TRY(append(g, op, name, attr, in, n_in, &n));
    LS_TRY(op->infer(g, n));
    *node = g->n_nodes++;
    return LS_OK;
}

int ls_grad_act(struct ls_graph *g, int like)
{
    char name[256];
    snprintf(name, sizeof name, "d %s", g->tensors[like].name);
    return ls_graph_tensor(g, name, LS_ROLE_ACT, g->tensors[like].dtype, g->tensors[like].shape);
}

int ls_grad_param(struct ls_graph *g, int param)
{
    if (g->tensors[param].grad == LS_NONE) {
        char name[256];
        snprintf(name, sizeof name, "%s.grad", g->tensors[param].name);
        int grad = ls_graph_tensor(g, name, LS_ROLE_GRAD, LS_F32, g->tensors[param].shape);
        g->tensors[param].grad = grad;
    }
    return g->tensors[param].grad;
}

enum ls_status ls_backward_node(struct ls_graph *g, const struct ls_op *op, int forward, const int *in, int n_in,
                                const int *out, int n_out)
{
    struct ls_node *n;
    struct ls_attr attr = g->nodes[forward].attr;
    LS_TRY(append(g, op, g->nodes[forward].name, &attr, in, n_in, &n));
    for (int i = 0; i < n_out; i++)
        n->out[i] = out[i];
    n->phase = LS_BACKWARD;
    g->n_nodes++;
    return LS_OK;
}

int64_t ls_shape_count(const struct ls_shape *s)
{
    int64_t count = 1;
    for (int i = 0; i < s->rank; i++)
        count *= s->dim[i];
    return count;
}

bool ls_shape_equal(const struct ls_shape *a, const struct ls_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

struct ls_shape ls_shape_make(int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct ls_shape){.rank = rank, .dim = {a, b, c, d}};
}

const char *ls_shape_text(const struct ls_shape *s, char text[64])
{
    int used = 0;
    text[0] = 0;
    for (int i = 0; i < s->rank && used < 60; i++)
        used += snprintf(text + used, (size_t)(64 - used), "%s%" PRId64, i ? "x" : "", s->dim[i]);
    return text;
}

size_t ls_dtype_size(enum ls_dtype t)
{
    static const size_t size[] = {[LS_F32] = 4, [LS_BF16] = 2, [LS_F16] = 2, [LS_I32] = 4, [LS_U8] = 1};
    return size[t];
}

const char *ls_dtype_name(enum ls_dtype t)
{
    static const char *const name[] = {
        [LS_F32] = "f32", [LS_BF16] = "bf16", [LS_F16] = "f16", [LS_I32] = "i32", [LS_U8] = "u8"};
    return name[t];
}

const char *ls_act_name(enum ls_act act)
{
    static const char *const name[] = {
        [LS_ACT_NONE] = "none",
        [LS_ACT_RELU] = "relu",
        [LS_ACT_RELU6] = "relu6",
        [LS_ACT_SILU] = "silu",
        [LS_ACT_HARDSWISH] = "hardswish",
        [LS_ACT_SIGMOID] = "sigmoid",
        [LS_ACT_HARDSIGMOID] = "hardsigmoid",
        [LS_ACT_GELU] = "gelu",
    };
    return name[act];
}

const char *ls_init_name(enum ls_init_kind kind)
{
    static const char *const name[] = {
        [LS_INIT_CONST] = "constant",    [LS_INIT_UNIFORM] = "uniform", [LS_INIT_NORMAL] = "normal",
        [LS_INIT_IDENTITY] = "identity", [LS_INIT_WHITEN] = "whiten",
    };
    return name[kind];
}

void ls_graph_set_init(struct ls_graph *g, int tensor, struct ls_init init)
{
    g->tensors[tensor].init = init;
    g->tensors[tensor].frozen = g->tensors[tensor].frozen || init.kind == LS_INIT_WHITEN;
}

enum ls_act ls_act_find(const char *name)
{
    enum ls_act act = LS_ACT_NONE;
    while (act < LS_ACTS && strcmp(ls_act_name(act), name) != 0)
        act++;
    return act;
}

int ls_graph_find(const struct ls_graph *g, const char *name)
{
    for (int t = 0; t < g->n_tensors; t++)
        if (strcmp(g->tensors[t].name, name) == 0)
            return t;
    return LS_NONE;
}

int ls_graph_producer(const struct ls_graph *g, int tensor)
{
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < LS_MAX_OUT; i++)
            if (g->nodes[n].out[i] == tensor)
                return n;
    return LS_NONE;
}

int ls_graph_readers(const struct ls_graph *g, int tensor)
{
    int readers = 0;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < LS_MAX_IN; i++)
            readers += g->nodes[n].in[i] == tensor;
    return readers;
}

int64_t ls_graph_parameters(const struct ls_graph *g, int *n_tensors)
{
    int64_t count = 0;
    int tensors = 0;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == LS_ROLE_PARAM) {
            count += ls_shape_count(&g->tensors[t].shape);
            tensors++;
        }
    if (n_tensors)
        *n_tensors = tensors;
    return count;
}

int64_t ls_graph_macs(const struct ls_graph *g)
{
    int64_t macs = 0;
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].phase == LS_FORWARD && g->nodes[n].op->macs)
            macs += g->nodes[n].op->macs(g, &g->nodes[n]);
    return macs;
}
