#include "exec/shards/groups.h"
#include "base/memory.h"
#include "exec/shards/plan.h"
#include "graph/ops.h"

#include <string.h>

#define GROUP_MB 4 /* MiB of parameters that are worth a gathering */

/* --- the memory of gradients --------------------------------------------------------------------------------------- */

static int update_by(const struct ls_graph *g, int grad)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (ls_shards_updates(g, n) && g->nodes[n].in[1] == grad)
            return n;
    return LS_NONE;
}

/* Adds a gradient to the last group, or to a new one, and returns the floats that it takes. Statistics belong to no group.
 * The gradient of a frozen parameter, which a layer makes beside others, does: a bucket may begin with it. */
static size_t add_gradient(struct ls_param_groups *p, const struct ls_engine *e, int grad, size_t at, bool statistic,
                           bool *open)
{
    const struct ls_graph *g = &e->train.graph;
    size_t bytes;
    e->backend->memory(e->train.program, grad, &bytes);
    size_t floats = (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN / sizeof(float);
    int update = update_by(g, grad);
    if (statistic) {
        *open = false;
        p->others += floats;
        return floats;
    }
    if (!*open)
        p->list[p->n++] = (struct ls_param_group){.first = at};
    *open = true;
    p->list[p->n - 1].count += floats;
    if (update == LS_NONE)
        return floats;
    p->of[g->nodes[update].in[0]] = p->n - 1;
    p->place[g->nodes[update].in[0]] = at;
    return floats;
}

/* Gradients lie in the order in which nodes make them, each at a multiple of LS_ALIGN. Those of one node stay together. */
static void cut(struct ls_param_groups *p, const struct ls_engine *e, double mib)
{
    const struct ls_graph *g = &e->train.graph;
    size_t at = 0;
    bool open = false;
    for (int n = 0; n < g->n_nodes; n++) {
        for (int o = 0; o < LS_MAX_OUT; o++)
            if (g->nodes[n].out[o] != LS_NONE && g->tensors[g->nodes[n].out[o]].role == LS_ROLE_GRAD)
                at += add_gradient(p, e, g->nodes[n].out[o], at, g->nodes[n].phase == LS_FORWARD, &open);
        open = open && (double)(p->list[p->n - 1].count * sizeof(float)) < mib * 1048576;
    }
}

/* --- groups that a node reads together ----------------------------------------------------------------------------- */

/* The number of a net's tensor in the training graph. */
static int in_training(const struct ls_engine *e, const struct ls_net *net, int tensor)
{
    return net == &e->train ? tensor : ls_graph_find(&e->train.graph, net->graph.tensors[tensor].name);
}

/* Widens the range of groups by those that a node reads. */
static void widen(const struct ls_param_groups *p, const struct ls_engine *e, const struct ls_net *net, int node,
                  int *low, int *high)
{
    for (int i = 0; i < LS_MAX_IN; i++) {
        int tensor = net->graph.nodes[node].in[i];
        if (tensor == LS_NONE || net->graph.tensors[tensor].role != LS_ROLE_PARAM)
            continue;
        int number = in_training(e, net, tensor), group = number == LS_NONE ? LS_NONE : p->of[number];
        if (group == LS_NONE)
            continue;
        *low = group < *low ? group : *low;
        *high = group > *high ? group : *high;
    }
}

/* The lowest and the highest group that a node reads, or one that is computed together with it (PARAM-4). */
static void groups_of(const struct ls_param_groups *p, const struct ls_engine *e, const struct ls_net *net, int node,
                      int *low, int *high)
{
    const struct ls_backend *b = e->backend;
    *low = p->n;
    *high = LS_NONE;
    widen(p, e, net, node, low, high);
    for (int other = 0; b->joined && other < net->end; other++)
        if (b->joined(net->program, node, other) || b->joined(net->program, other, node))
            widen(p, e, net, other, low, high);
}

int ls_param_group_of(const struct ls_param_groups *p, const struct ls_engine *e, const struct ls_net *net, int node)
{
    int low, high;
    groups_of(p, e, net, node, &low, &high);
    return high;
}

/* Makes groups low .. high one. */
static void merge(struct ls_param_groups *p, int n_tensors, int low, int high)
{
    p->list[low].count = p->list[high].first + p->list[high].count - p->list[low].first;
    memmove(p->list + low + 1, p->list + high + 1, (size_t)(p->n - high - 1) * sizeof *p->list);
    p->n -= high - low;
    for (int t = 0; t < n_tensors; t++)
        if (p->of[t] > low)
            p->of[t] = p->of[t] <= high ? low : p->of[t] - (high - low);
}

/* A merged group stays one, so that each node is looked at once. */
static void merge_all(struct ls_param_groups *p, const struct ls_engine *e, const struct ls_net *net)
{
    for (int n = 0; n < net->end; n++) {
        int low, high;
        groups_of(p, e, net, n, &low, &high);
        if (low < high)
            merge(p, e->train.graph.n_tensors, low, high);
    }
}

/* --- the ring ------------------------------------------------------------------------------------------------------- */

/* Room for each two neighbours, where that is at most half of the parameters; in any case for the largest group. */
static void place(struct ls_param_groups *p)
{
    size_t largest = 0, all = 0;
    for (int i = 0; i < p->n; i++) {
        size_t two = p->list[i].count + (i + 1 < p->n ? p->list[i + 1].count : 0);
        largest = p->list[i].count > largest ? p->list[i].count : largest;
        p->pair = two > p->pair ? two : p->pair;
        all += p->list[i].count;
    }
    size_t half = all / 2 / 64 * 64;
    p->ring = p->pair < half ? p->pair : half;
    p->ring = largest > p->ring ? largest : p->ring;
    for (int i = 0; i < p->n; i++)
        p->list[i].at = i % 2 == 0 ? 0 : p->ring - p->list[i].count;
}

enum ls_status ls_param_groups_init(struct ls_param_groups *p, const struct ls_engine *e, const struct ls_options *o)
{
    size_t tensors = (size_t)e->train.graph.n_tensors;
    *p = (struct ls_param_groups){0};
    p->list = ls_alloc(tensors, sizeof *p->list);
    p->of = ls_alloc(tensors, sizeof *p->of);
    p->place = ls_alloc(tensors, sizeof *p->place);
    if (!p->list || !p->of || !p->place)
        return LS_FAILED;
    for (size_t t = 0; t < tensors; t++)
        p->of[t] = LS_NONE;
    cut(p, e, o->bucket_mb > 0 ? o->bucket_mb : GROUP_MB);
    merge_all(p, e, &e->train);
    if (e->eval.program)
        merge_all(p, e, &e->eval);
    place(p);
    return LS_OK;
}

void ls_param_groups_release(struct ls_param_groups *p)
{
    ls_free(p->list);
    ls_free(p->of);
    ls_free(p->place);
    *p = (struct ls_param_groups){0};
}
