/* lockstep bench --profile: the time of a step by node. Bytes are the minimum that a node moves (each input read once, each
 * output written once); operations are those of its products. The last columns compare kernels with the limits of the
 * machine. */
#include "base/system/clock.h"
#include "cmd/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "graph/ops.h"
#include "report/formats/table.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct cost {
    const char *op, *layer;
    int node, times;
    double seconds, bytes, operations;
};

/* Updates both read and write parameters. A tensor that is several inputs counts once. */
static double bytes_of(const struct ls_graph *g, const struct ls_node *n)
{
    double bytes = 0;
    for (int i = 0; i < LS_MAX_IN + LS_MAX_OUT; i++) {
        int t = i < LS_MAX_IN ? n->in[i] : n->out[i - LS_MAX_IN];
        if (t == LS_NONE)
            continue;
        double size = (double)ls_shape_count(&g->tensors[t].shape) * (double)ls_dtype_size(g->tensors[t].dtype);
        bool written = n->phase == LS_UPDATE && g->tensors[t].role != LS_ROLE_GRAD;
        bytes += written ? 2 * size : size;
    }
    return bytes;
}

/* Operations of a product in any direction: output positions times weights, times two for multiply and add. */
static double operations_of(const struct ls_graph *g, const struct ls_node *n)
{
    bool conv = strncmp(n->op->name, "conv", 4) == 0, dense = strncmp(n->op->name, "dense", 5) == 0;
    if (!conv && !dense)
        return 0;
    bool forward = n->phase == LS_FORWARD, data = n->op == &ls_op_conv_bwd_data || n->op == &ls_op_dense_bwd_data;
    int y = forward ? n->out[0] : n->in[0], w = forward || data ? n->in[1] : n->out[0];
    const struct ls_shape *out = &g->tensors[y].shape;
    double positions = (double)ls_shape_count(out) / (double)out->dim[1];
    return 2 * positions * (double)ls_shape_count(&g->tensors[w].shape);
}

/* CPU kernels are timed one by one; the fastest of a few rounds counts. */
static enum ls_status time_nodes(struct ls_engine *e, const struct ls_run *run, double *seconds)
{
    enum { ROUNDS = 5 };
    const struct ls_backend *b = e->backend;
    if (b->profile)
        return b->profile(e->train.program, 0, e->train.graph.n_nodes, run, seconds);
    for (int round = 0; round < ROUNDS; round++)
        for (int n = 0; n < e->train.graph.n_nodes; n++) {
            double start = ls_now();
            LS_TRY(b->run(e->train.program, n, n + 1, run));
            double took = ls_now() - start;
            seconds[n] = round > 0 && seconds[n] < took ? seconds[n] : took;
        }
    return LS_OK;
}

static int slower_first(const void *a, const void *b)
{
    const struct cost *x = a, *y = b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : x->node - y->node;
}

/* Adds up the entries of nodes by op. */
static int by_op(const struct cost *nodes, int n, struct cost *ops)
{
    int n_ops = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < n_ops && strcmp(ops[k].op, nodes[i].op) != 0)
            k++;
        if (k == n_ops)
            ops[n_ops++] = (struct cost){.op = nodes[i].op, .node = i};
        ops[k].times++;
        ops[k].seconds += nodes[i].seconds;
        ops[k].bytes += nodes[i].bytes;
        ops[k].operations += nodes[i].operations;
    }
    return n_ops;
}

static void add_figures(struct ls_table *t, const struct cost *c, double total)
{
    ls_table_cell(t, "%.4f", 1e3 * c->seconds);
    ls_table_cell(t, "%.1f%%", total > 0 ? 100 * c->seconds / total : 0);
    ls_table_cell(t, "%.1f", c->bytes / 1e6);
    ls_table_cell(t, "%.0f", c->seconds > 0 ? c->bytes / c->seconds / 1e9 : 0);
    if (c->operations > 0)
        ls_table_cell(t, "%.2f", c->seconds > 0 ? c->operations / c->seconds / 1e12 : 0);
}

static enum ls_status print(const struct ls_engine *e, struct cost *nodes, int n)
{
    enum { SLOWEST = 40 };
    static const char *const op_heads[] = {"op", "nodes", "ms", "share", "MB", "GB/s", "TFLOP/s"};
    static const char *const node_heads[] = {"layer", "op", "ms", "share", "MB", "GB/s", "TFLOP/s", "kernel"};
    struct ls_table t;
    double total = 0;
    struct cost *ops = ls_alloc((size_t)n + 1, sizeof *ops);
    if (!ops)
        return LS_FAILED;
    int n_ops = by_op(nodes, n, ops);
    for (int i = 0; i < n; i++)
        total += nodes[i].seconds;
    qsort(ops, (size_t)n_ops, sizeof *ops, slower_first);
    qsort(nodes, (size_t)n, sizeof *nodes, slower_first);
    printf("\nOne step, %.3f ms in %d nodes, by op:\n", 1e3 * total, n);
    ls_table_init(&t, "lrrrrrr", op_heads);
    for (int i = 0; i < n_ops; i++) {
        ls_table_row(&t);
        ls_table_cell(&t, "%s", ops[i].op);
        ls_table_cell(&t, "%d", ops[i].times);
        add_figures(&t, &ops[i], total);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    ls_free(ops);
    LS_TRY(st);
    printf("\nThe slowest nodes:\n");
    ls_table_init(&t, "llrrrrrl", node_heads);
    for (int i = 0; i < n && i < SLOWEST; i++) {
        char text[160];
        e->backend->describe(e->train.program, nodes[i].node, text, sizeof text);
        ls_table_row(&t);
        ls_table_cell(&t, "%s", nodes[i].layer);
        ls_table_cell(&t, "%s", nodes[i].op);
        add_figures(&t, &nodes[i], total);
        if (nodes[i].operations <= 0)
            ls_table_cell(&t, "%s", "");
        ls_table_cell(&t, "%.28s", text);
    }
    st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static enum ls_status print_json(const struct ls_engine *e, const struct cost *nodes, int n)
{
    for (int i = 0; i < n; i++) {
        char text[160];
        e->backend->describe(e->train.program, nodes[i].node, text, sizeof text);
        json_t *out = json_pack("{s:s, s:i, s:s, s:s, s:f, s:f, s:f, s:s}", "kind", "node", "node", nodes[i].node,
                                "layer", nodes[i].layer, "op", nodes[i].op, "ms", 1e3 * nodes[i].seconds, "bytes",
                                nodes[i].bytes, "operations", nodes[i].operations, "kernel", text);
        int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0 || printf("\n") < 0;
        json_decref(out);
        if (bad)
            return ls_fail(LS_FAILED, "the result cannot be written to standard output");
    }
    return LS_OK;
}

enum ls_status ls_bench_profile(const struct ls_options *o, struct ls_engine *e, const struct ls_run *run)
{
    const struct ls_graph *g = &e->train.graph;
    int n = g->n_nodes;
    double *seconds = ls_alloc((size_t)n, sizeof *seconds);
    struct cost *nodes = ls_alloc((size_t)n, sizeof *nodes);
    enum ls_status st = seconds && nodes ? time_nodes(e, run, seconds) : LS_FAILED;
    for (int i = 0; i < n && st == LS_OK; i++)
        nodes[i] = (struct cost){.op = g->nodes[i].op->name,
                                 .layer = g->nodes[i].name,
                                 .node = i,
                                 .seconds = seconds[i],
                                 .bytes = bytes_of(g, &g->nodes[i]),
                                 .operations = operations_of(g, &g->nodes[i])};
    if (st == LS_OK)
        st = o->json ? print_json(e, nodes, n) : print(e, nodes, n);
    ls_free(seconds);
    ls_free(nodes);
    return st;
}
