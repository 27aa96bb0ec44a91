#include "optim/optim.h"
#include "base/log.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

const struct ls_optim_kind *const ls_optim_kinds[] = {
#define X(name, ...) &ls_optim_##name,
#include "config/lists/optimizers.def"
    NULL,
};

static const struct ls_optim_kind *find_kind(const char *name)
{
    for (int i = 0; ls_optim_kinds[i]; i++)
        if (strcmp(ls_optim_kinds[i]->name, name) == 0)
            return ls_optim_kinds[i];
    char known[128] = "";
    for (int i = 0, at = 0; ls_optim_kinds[i] && at < (int)sizeof known; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, "%s%s", i ? ", " : "", ls_optim_kinds[i]->name);
    ls_fail(LS_USAGE, "--optimizer %s: unknown; there are %s", name, known);
    return NULL;
}

static enum ls_status append(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                             const int *in, int n_in)
{
    int node;
    LS_TRY(ls_graph_node(g, op, name, attr, in, n_in, &node));
    g->nodes[node].phase = LS_UPDATE;
    return LS_OK;
}

enum ls_status ls_optim_node(struct ls_graph *g, const struct ls_options *o, const struct ls_op *op, int param,
                             const char *const *states)
{
    struct ls_attr attr = {.nesterov = o->nesterov, .hyper.lr_factor = g->tensors[param].lr_factor};
#define X(field) attr.hyper.field = o->field;
#include "config/lists/hyperparameters.def"
    const struct ls_tensor *of = &g->tensors[param];
    attr.hyper.momentum = of->has_momentum ? of->momentum : o->momentum;
    attr.hyper.weight_decay *= of->has_decay_factor ? of->decay_factor : 1;
    if (of->no_decay && !o->decay_all)
        attr.hyper.weight_decay = 0;
    int in[2 + LS_MAX_STATES] = {param, g->tensors[param].grad}, n = 2;
    for (; *states; states++) {
        char name[512];
        snprintf(name, sizeof name, "%s.%s", g->tensors[param].name, *states);
        in[n] = ls_graph_tensor(g, name, LS_ROLE_OPTIMIZER, LS_F32, g->tensors[param].shape);
        if (in[n] == LS_NONE)
            return LS_FAILED;
        g->tensors[in[n++]].init = (struct ls_init){LS_INIT_CONST, 0.0f};
    }
    return append(g, op, g->tensors[param].name, &attr, in, n);
}

/* BN's running statistics move once a step, by the statistics summed over all replicas. */
static enum ls_status update_running(struct ls_graph *g, int bn)
{
    const struct ls_node *n = &g->nodes[bn];
    int in[3] = {n->out[3], n->in[3], n->in[4]};
    struct ls_attr attr = {.momentum = n->attr.momentum};
    return append(g, &ls_op_bn_running, n->name, &attr, in, 3);
}

/* The average of a parameter or running statistic over steps. `grad` is complete before the value changes. */
static enum ls_status average(struct ls_graph *g, const struct ls_options *o, int value, int grad)
{
    char name[512];
    struct ls_attr attr = {.hyper = {.ema = o->ema}};
    snprintf(name, sizeof name, "%s." LS_OPTIM_TRAINED, g->tensors[value].name);
    int in[3] = {value, grad, ls_graph_tensor(g, name, LS_ROLE_OPTIMIZER, LS_F32, g->tensors[value].shape)};
    if (in[2] == LS_NONE)
        return LS_FAILED;
    g->tensors[in[2]].init = (struct ls_init){LS_INIT_CONST, 0.0f};
    return append(g, &ls_op_ema, g->tensors[value].name, &attr, in, 3);
}

/* Behind all updates: nodes 0 .. first-1 are the pass. */
static enum ls_status average_all(struct ls_graph *g, const struct ls_options *o, int first, int n_tensors)
{
    for (int t = 0; t < n_tensors; t++)
        if (g->tensors[t].role == LS_ROLE_PARAM && g->tensors[t].grad != LS_NONE)
            LS_TRY(average(g, o, t, g->tensors[t].grad));
    for (int i = 0; i < first; i++) {
        const struct ls_node bn = g->nodes[i];
        if (bn.op != &ls_op_bn || bn.out[3] == LS_NONE)
            continue;
        LS_TRY(average(g, o, bn.in[3], bn.out[3]));
        LS_TRY(average(g, o, bn.in[4], bn.out[3]));
    }
    return LS_OK;
}

static bool touches(const struct ls_node *n, int tensor)
{
    for (int i = 0; i < LS_MAX_IN; i++)
        if (n->in[i] == tensor)
            return true;
    for (int i = 0; i < LS_MAX_OUT; i++)
        if (n->out[i] == tensor)
            return true;
    return false;
}

/* The last node before `end` that touches what the update node reads or writes. */
static int last_use(const struct ls_graph *g, int update, int end)
{
    for (int i = end - 1; i > 0; i--)
        for (int k = 0; k < LS_MAX_IN; k++) {
            int tensor = g->nodes[update].in[k];
            if (tensor != LS_NONE && touches(&g->nodes[i], tensor))
                return i;
        }
    return 0;
}

/* Nodes first .. n-1 are updates: each moves to right behind its last use. */
static enum ls_status interleave(struct ls_graph *g, int first)
{
    int updates = g->n_nodes - first;
    struct ls_node *nodes = ls_alloc((size_t)g->n_nodes, sizeof *nodes);
    int *after = ls_alloc((size_t)updates, sizeof *after);
    if (!nodes || !after) {
        ls_free(nodes);
        ls_free(after);
        return LS_FAILED;
    }
    for (int u = 0; u < updates; u++)
        after[u] = last_use(g, first + u, first);
    int n = 0;
    for (int i = 0; i < first; i++) {
        nodes[n++] = g->nodes[i];
        for (int u = 0; u < updates; u++)
            if (after[u] == i)
                nodes[n++] = g->nodes[first + u];
    }
    memcpy(g->nodes, nodes, (size_t)n * sizeof *nodes);
    ls_free(nodes);
    ls_free(after);
    return LS_OK;
}

enum ls_status ls_optim_update(struct ls_graph *g, const struct ls_options *o, bool interleaved)
{
    const struct ls_optim_kind *kind = find_kind(o->optimizer);
    if (!kind)
        return LS_USAGE;
    if (kind->check)
        LS_TRY(kind->check(o));
    LS_TRY(ls_optim_rates(g, o));
    int first = g->n_nodes, n_tensors = g->n_tensors;
    for (int t = 0; t < n_tensors; t++)
        if (g->tensors[t].role == LS_ROLE_PARAM && g->tensors[t].grad != LS_NONE && !g->tensors[t].frozen)
            LS_TRY(kind->emit(g, o, t));
    for (int i = 0; i < first; i++)
        if (g->nodes[i].op == &ls_op_bn && g->nodes[i].out[3] != LS_NONE)
            LS_TRY(update_running(g, i));
    if (o->ema > 0)
        LS_TRY(average_all(g, o, first, n_tensors));
    return interleaved && first > 0 ? interleave(g, first) : LS_OK;
}

void ls_optim_describe(const struct ls_options *o, char *text, size_t room)
{
    char own[128] = "";
    for (int i = 0; ls_optim_kinds[i]; i++)
        if (strcmp(ls_optim_kinds[i]->name, o->optimizer) == 0)
            ls_optim_kinds[i]->describe(o, own, sizeof own);
    char clip[64] = "", averaged[64] = "";
    if (o->ema > 0)
        snprintf(averaged, sizeof averaged, ", weights averaged (%g)", o->ema);
    if (o->clip_norm > 0)
        snprintf(clip, sizeof clip, ", gradients clipped to norm %g", o->clip_norm);
    snprintf(text, room, "%s%s, weight decay %g%s%s%s", o->optimizer, own, o->weight_decay,
             o->decay_all ? "" : " (not on BN and biases)", clip, averaged);
}
