#include "graph/split.h"
#include "graph/ops.h"

#include <string.h>

int ls_split_first_chunk(const struct ls_split_way *way, int64_t rows, int place, int workers)
{
    int chunks = ls_split_count(rows), together = way->together > 1 ? way->together : 1;
    int first = ls_split_most(way, chunks) * place / workers * together;
    return first < chunks ? first : chunks;
}

int64_t ls_split_first_row(const struct ls_split_way *way, int64_t rows, int place, int workers)
{
    int64_t first = ls_split_chunk(rows) * ls_split_first_chunk(way, rows, place, workers);
    return first < rows ? first : rows;
}

int ls_split_layer_of(const struct ls_graph *g, int parameter, struct ls_split_range *r)
{
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        bool reads = node->in[1] == parameter || node->in[2] == parameter;
        if (reads && strcmp(node->op->name, ls_op_dense.name) == 0) /* a backend's module has another op of that name */
            return ls_split_range_of(&node->attr, &g->tensors[node->in[1]].shape, r) ? n : LS_NONE;
    }
    return LS_NONE;
}

/* Brings the nodes from `from` to the end to `to`, before those that are there. */
static enum ls_status move_nodes(struct ls_graph *g, int from, int to)
{
    int n = g->n_nodes - from;
    struct ls_node *moved = ls_alloc((size_t)n, sizeof *moved);
    if (!moved)
        return LS_FAILED;
    memcpy(moved, g->nodes + from, (size_t)n * sizeof *moved);
    memmove(g->nodes + to + n, g->nodes + to, (size_t)(from - to) * sizeof *moved);
    memcpy(g->nodes + to, moved, (size_t)n * sizeof *moved);
    ls_free(moved);
    return LS_OK;
}

/* Appends a node that writes the tensor `out`. */
static enum ls_status append(struct ls_graph *g, const struct ls_op *op, const char *name, const struct ls_attr *attr,
                             int in, int out)
{
    int node, n_tensors = g->n_tensors;
    LS_TRY(ls_graph_node(g, op, name, attr, &in, 1, &node));
    if (out != LS_NONE) {
        g->n_tensors = n_tensors; /* not the one that infer made */
        g->nodes[node].out[0] = out;
    }
    return LS_OK;
}

/* x -> dense(act) -> y   becomes   x -> split_in -> dense of some rows -> split_out -> act -> y. */
static enum ls_status split_node(struct ls_graph *g, const struct ls_split_way *way, int n, int place, int workers)
{
    struct ls_node dense = g->nodes[n];
    struct ls_attr *a = &dense.attr;
    int y = dense.out[0], end = g->n_nodes;
    int64_t rows = a->out, batch = g->tensors[y].shape.dim[0];
    enum ls_act act = a->act;
    a->whole_rows = rows;
    a->first_row = ls_split_first_row(way, rows, place, workers);
    a->out = ls_split_first_row(way, rows, place + 1, workers) - a->first_row;
    a->act = LS_ACT_NONE;
    for (int i = 1; i <= 2; i++)
        if (dense.in[i] != LS_NONE)
            g->tensors[dense.in[i]].shape.dim[0] = a->out;
    LS_TRY(append(g, &ls_op_split_in, dense.name, &(struct ls_attr){0}, dense.in[0], LS_NONE));
    dense.in[0] = g->nodes[end].out[0];
    dense.out[0] =
        ls_graph_tensor(g, dense.name, LS_ROLE_ACT, g->tensors[y].dtype, ls_shape_make(2, batch, a->out, 0, 0));
    if (dense.out[0] == LS_NONE)
        return LS_FAILED;
    g->nodes[n] = dense;
    LS_TRY(append(g, &ls_op_split_out, dense.name, &(struct ls_attr){.out = rows}, dense.out[0],
                  act == LS_ACT_NONE ? y : LS_NONE));
    if (act != LS_ACT_NONE)
        LS_TRY(append(g, &ls_op_act, dense.name, &(struct ls_attr){.act = act}, g->nodes[end + 1].out[0], y));
    LS_TRY(move_nodes(g, end + 1, n + 1));   /* split_out and act */
    return move_nodes(g, g->n_nodes - 1, n); /* split_in, which is the last now */
}

enum ls_status ls_graph_split(struct ls_graph *g, const struct ls_split_way *way, int place, int workers, int *layers)
{
    *layers = 0;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct ls_node *node = &g->nodes[n];
        if (node->op != &ls_op_dense || node->attr.whole_rows > 0)
            continue;
        const struct ls_shape *weights = &g->tensors[node->in[1]].shape;
        if (!ls_split_is_large(weights) || ls_shape_count(weights) < way->weights ||
            g->tensors[node->in[0]].role != LS_ROLE_ACT ||
            ls_split_most(way, ls_split_count(weights->dim[0])) < workers)
            continue;
        LS_TRY(split_node(g, way, n, place, workers));
        ++*layers;
    }
    return LS_OK;
}
