/* lockstep bench --profile: the time of a step by node. Bytes and operations are the least that a node needs (cost.h), and its
 * roofline is the least time that this machine needs for them (peaks.h). */
#include "cmd/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/profile/cost.h"
#include "cmd/bench/profile/peaks.h"
#include "exec/node_times.h"
#include "graph/ops.h"
#include "report/formats/table.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct cost {
    const char *op, *layer;
    int node, times;
    double seconds, bytes, operations;
    double roof; /* the least seconds; 0: peaks are not known */
};

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
        ops[k].roof += nodes[i].roof;
    }
    return n_ops;
}

static struct cost total_of(const struct cost *nodes, int n)
{
    struct cost total = {0};
    for (int i = 0; i < n; i++) {
        total.seconds += nodes[i].seconds;
        total.roof += nodes[i].roof;
    }
    return total;
}

static double share_of_roof(const struct cost *c)
{
    return c->seconds > 0 ? c->roof / c->seconds : 0;
}

static void add_figures(struct ls_table *t, const struct cost *c, double total)
{
    ls_table_cell(t, "%.4f", 1e3 * c->seconds);
    ls_table_cell(t, "%.1f%%", total > 0 ? 100 * c->seconds / total : 0);
    ls_table_cell(t, "%.1f", c->bytes / 1e6);
    ls_table_cell(t, "%.0f", c->seconds > 0 ? c->bytes / c->seconds / 1e9 : 0);
    if (c->operations > 0)
        ls_table_cell(t, "%.2f", c->seconds > 0 ? c->operations / c->seconds / 1e12 : 0);
    else
        ls_table_cell(t, "%s", "");
    if (c->roof > 0)
        ls_table_cell(t, "%.0f%%", 100 * share_of_roof(c));
    else
        ls_table_cell(t, "%s", "");
}

static void print_head(const struct ls_engine *e, const char *dtype, const struct ls_bench_peaks *p,
                       const struct cost *total, int n)
{
    char threads[32] = "";
    if (!e->backend->queue->own_memory)
        snprintf(threads, sizeof threads, " on %d thread%s", e->threads, e->threads == 1 ? "" : "s");
    printf("\nOne step, %.3f ms in %d nodes, by op:\n", 1e3 * total->seconds, n);
    if (total->roof > 0)
        printf(
            "This machine reaches %.1f GB/s and %.2f TFLOP/s in %s%s (measured %s). The roofline is the least time that it\n"
            "needs for what a node reads, writes and multiplies; over 100%%: the data lie in a cache. The step reaches %.0f%%\n"
            "of its roofline: %.3f of %.3f ms.\n",
            p->bytes / 1e9, p->operations / 1e12, dtype, threads, p->date, 100 * share_of_roof(total),
            1e3 * total->roof, 1e3 * total->seconds);
}

static enum ls_status print_ops(const struct cost *nodes, int n, double total)
{
    static const char *const heads[] = {"op", "nodes", "ms", "share", "MB", "GB/s", "TFLOP/s", "of roofline"};
    struct ls_table t;
    struct cost *ops = ls_alloc((size_t)n + 1, sizeof *ops);
    if (!ops)
        return LS_FAILED;
    int n_ops = by_op(nodes, n, ops);
    qsort(ops, (size_t)n_ops, sizeof *ops, slower_first);
    ls_table_init(&t, "lrrrrrrr", heads);
    for (int i = 0; i < n_ops; i++) {
        ls_table_row(&t);
        ls_table_cell(&t, "%s", ops[i].op);
        ls_table_cell(&t, "%d", ops[i].times);
        add_figures(&t, &ops[i], total);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    ls_free(ops);
    return st;
}

static enum ls_status print_nodes(const struct ls_engine *e, struct cost *nodes, int n, double total)
{
    enum { SLOWEST = 40 };
    static const char *const heads[] = {"layer", "op", "ms", "share", "MB", "GB/s", "TFLOP/s", "of roofline", "kernel"};
    struct ls_table t;
    qsort(nodes, (size_t)n, sizeof *nodes, slower_first);
    printf("\nThe slowest nodes:\n");
    ls_table_init(&t, "llrrrrrrl", heads);
    for (int i = 0; i < n && i < SLOWEST; i++) {
        char text[160];
        e->backend->describe(e->train.program, nodes[i].node, text, sizeof text);
        ls_table_row(&t);
        ls_table_cell(&t, "%s", nodes[i].layer);
        ls_table_cell(&t, "%s", nodes[i].op);
        add_figures(&t, &nodes[i], total);
        ls_table_cell(&t, "%.28s", text);
    }
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

static enum ls_status put_json(json_t *out)
{
    int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0 || printf("\n") < 0;
    json_decref(out);
    return bad ? ls_fail(LS_FAILED, "the result cannot be written to standard output") : LS_OK;
}

static enum ls_status print_json(const struct ls_engine *e, const char *dtype, const struct ls_bench_peaks *p,
                                 const struct cost *nodes, int n)
{
    struct cost total = total_of(nodes, n);
    for (int i = 0; i < n; i++) {
        char text[160];
        e->backend->describe(e->train.program, nodes[i].node, text, sizeof text);
        LS_TRY(put_json(json_pack("{s:s, s:i, s:s, s:s, s:f, s:f, s:f, s:s, s:f}", "kind", "node", "node",
                                  nodes[i].node, "layer", nodes[i].layer, "op", nodes[i].op, "ms",
                                  1e3 * nodes[i].seconds, "bytes", nodes[i].bytes, "operations", nodes[i].operations,
                                  "kernel", text, "roofline_ms", 1e3 * nodes[i].roof)));
    }
    if (!(total.roof > 0))
        return LS_OK;
    return put_json(json_pack("{s:s, s:f, s:f, s:s, s:i, s:s, s:f, s:f, s:f}", "kind", "peaks", "bytes_per_second",
                              p->bytes, "operations_per_second", p->operations, "dtype", dtype, "threads", e->threads,
                              "date", p->date, "step_ms", 1e3 * total.seconds, "roofline_ms", 1e3 * total.roof,
                              "roofline_share", share_of_roof(&total)));
}

static enum ls_status print(const struct ls_engine *e, const char *dtype, const struct ls_bench_peaks *p,
                            struct cost *nodes, int n)
{
    struct cost total = total_of(nodes, n);
    print_head(e, dtype, p, &total, n);
    LS_TRY(print_ops(nodes, n, total.seconds));
    return print_nodes(e, nodes, n, total.seconds);
}

static void fill_costs(const struct ls_options *o, const struct ls_engine *e, const double *seconds,
                       struct ls_bench_peaks *peaks, struct cost *nodes)
{
    const struct ls_graph *g = &e->train.graph;
    double fastest = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        nodes[i] = (struct cost){.op = g->nodes[i].op->name,
                                 .layer = g->nodes[i].name,
                                 .node = i,
                                 .seconds = seconds[i],
                                 .bytes = ls_bench_node_bytes(g, &g->nodes[i]),
                                 .operations = ls_bench_node_operations(g, &g->nodes[i])};
        /* a convolution may need fewer operations than are counted, by Winograd's method */
        bool counts = strncmp(nodes[i].op, "dense", 5) == 0 && seconds[i] > 0;
        double rate = counts ? nodes[i].operations / seconds[i] : 0;
        fastest = rate > fastest ? rate : fastest;
    }
    ls_bench_peaks_raise(o, e, fastest, peaks);
    for (int i = 0; i < g->n_nodes; i++)
        nodes[i].roof = ls_bench_roof(peaks, nodes[i].bytes, nodes[i].operations);
}

enum ls_status ls_bench_profile(const struct ls_options *o, struct ls_engine *e, const struct ls_run *run)
{
    int n = e->train.graph.n_nodes;
    struct ls_bench_peaks peaks = {0};
    double *seconds = ls_alloc((size_t)n, sizeof *seconds);
    struct cost *nodes = ls_alloc((size_t)n, sizeof *nodes);
    enum ls_status st = seconds && nodes ? ls_time_nodes(e->backend, &e->train, run, seconds) : LS_FAILED;
    if (st == LS_OK)
        st = ls_bench_peaks(o, e, &peaks);
    if (st == LS_OK) {
        fill_costs(o, e, seconds, &peaks, nodes);
        st = o->json ? print_json(e, o->dtype, &peaks, nodes, n) : print(e, o->dtype, &peaks, nodes, n);
    }
    ls_free(seconds);
    ls_free(nodes);
    return st;
}
