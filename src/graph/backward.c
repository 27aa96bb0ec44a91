/* Autodiff. It visits the forward nodes from the loss back to the input. Each op appends the nodes of its gradient.
 * A tensor that several nodes read gets the sum of their gradients. */
#include "base/log.h"
#include "graph/graph.h"
#include "graph/ops.h"

#include <string.h>

struct walk {
    struct ls_graph *g;
    int *grad;   /* gradient of each forward tensor so far, or LS_NONE */
    bool *needs; /* whether the tensor depends on a trained parameter */
};

static enum ls_status add_gradient(struct walk *w, int tensor, int gradient)
{
    if (w->grad[tensor] == LS_NONE) {
        w->grad[tensor] = gradient;
        return LS_OK;
    }
    int node, in[2] = {w->grad[tensor], gradient};
    struct ls_attr attr = {0};
    LS_TRY(ls_graph_node(w->g, &ls_op_sum, w->g->tensors[tensor].name, &attr, in, 2, &node));
    w->g->nodes[node].phase = LS_BACKWARD;
    w->grad[tensor] = w->g->nodes[node].out[0];
    return LS_OK;
}

static enum ls_status visit(struct walk *w, int n)
{
    struct ls_graph *g = w->g;
    struct ls_node node = g->nodes[n];
    int dout[LS_MAX_OUT], din[LS_MAX_IN];
    bool want[LS_MAX_IN], reached = node.out[0] == g->loss;
    for (int i = 0; i < LS_MAX_OUT; i++) {
        dout[i] = node.out[i] == LS_NONE ? LS_NONE : w->grad[node.out[i]];
        reached = reached || dout[i] != LS_NONE;
    }
    for (int i = 0; i < LS_MAX_IN; i++) {
        din[i] = LS_NONE;
        want[i] = node.in[i] != LS_NONE && w->needs[node.in[i]];
    }
    if (!reached || !w->needs[node.out[0]])
        return LS_OK;
    if (!node.op->backward)
        return ls_fail(LS_FAILED, "layer %s: op %s has no gradient", node.name, node.op->name);
    for (int i = 0; i < LS_MAX_IN; i++)
        if (want[i] && g->tensors[node.in[i]].role == LS_ROLE_PARAM && g->tensors[node.in[i]].grad != LS_NONE)
            return ls_fail(LS_FAILED, "layer %s: parameter %s is used by two layers, which is not supported", node.name,
                           g->tensors[node.in[i]].name);
    LS_TRY(node.op->backward(g, n, dout, want, din));
    for (int i = 0; i < LS_MAX_IN; i++)
        if (din[i] != LS_NONE && g->tensors[node.in[i]].role == LS_ROLE_ACT)
            LS_TRY(add_gradient(w, node.in[i], din[i]));
    return LS_OK;
}

/* bn_bwd reads two gradients of its output in one pass, so a sum node whose only reader is bn_bwd is removed. */
static void fold_sums(struct ls_graph *g)
{
    int kept = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        struct ls_node *sum = &g->nodes[n];
        struct ls_node *reader = NULL;
        if (sum->op == &ls_op_sum && ls_graph_readers(g, sum->out[0]) == 1)
            for (int m = n + 1; m < g->n_nodes && !reader; m++)
                if (g->nodes[m].in[0] == sum->out[0])
                    reader = &g->nodes[m];
        if (reader && reader->op == &ls_op_bn_bwd && reader->in[1] == LS_NONE) {
            reader->in[0] = sum->in[0];
            reader->in[1] = sum->in[1];
            sum->in[0] = sum->in[1] = sum->out[0] = LS_NONE;
            continue;
        }
        g->nodes[kept++] = *sum;
    }
    g->n_nodes = kept;
}

enum ls_status ls_graph_backward(struct ls_graph *g)
{
    enum ls_status st = LS_OK;
    int n_nodes = g->n_nodes, n_tensors = g->n_tensors;
    struct walk w = {.g = g};
    w.grad = ls_alloc((size_t)n_tensors, sizeof *w.grad);
    w.needs = ls_alloc((size_t)n_tensors, sizeof *w.needs);
    if (!w.grad || !w.needs) {
        st = LS_FAILED;
        goto free_walk;
    }
    for (int t = 0; t < n_tensors; t++)
        w.grad[t] = LS_NONE;
    ls_graph_find_trained(g, n_nodes, w.needs);
    for (int n = n_nodes - 1; n >= 0; n--)
        LS_TRY_GOTO(free_walk, visit(&w, n));
    fold_sums(g);
free_walk:
    ls_free(w.grad);
    ls_free(w.needs);
    return st;
}
