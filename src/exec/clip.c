#include "exec/clip.h"
#include "base/log.h"
#include "base/memory.h"
#include "backend/core/clip.h"

#include <string.h>

struct ls_clip {
    int n;         /* sums of the whole model: LS_SPLIT_CHUNKS for each tensor that is clipped, most of them unused */
    int *first;    /* owned; for each node of the training graph: where its sums begin, or LS_NONE */
    int *holder;   /* owned; the lowest rank that has a sum; -1: there is no such sum */
    double *mine;  /* owned; n, and behind them 1 where a gradient is not finite */
    double *all;   /* owned; of each rank */
    double result; /* of the last step */
};

/* The tensor of an update in the order of all updates of the whole model. */
static int number_of(const struct ls_engine *e, int update)
{
    const struct ls_graph *g = &e->train.graph, *whole = ls_engine_whole(e);
    int number = 0;
    for (int n = 0; n < whole->n_nodes; n++) {
        if (ls_clip_limit(&whole->nodes[n]) <= 0)
            continue;
        if (strcmp(whole->tensors[whole->nodes[n].in[0]].name, g->tensors[g->nodes[update].in[0]].name) == 0)
            return number;
        number++;
    }
    return LS_NONE;
}

static int count_clipped(const struct ls_graph *g)
{
    int n = 0;
    for (int node = 0; node < g->n_nodes; node++)
        n += ls_clip_limit(&g->nodes[node]) > 0;
    return n;
}

/* Finds the places of this process's sums, and marks them in `has`. */
static enum ls_status find_own(struct ls_engine *e, struct ls_clip *c, int32_t *has)
{
    const struct ls_graph *g = &e->train.graph;
    double sums[LS_SPLIT_CHUNKS];
    for (int node = 0; node < g->n_nodes; node++) {
        struct ls_split_range r = {0};
        c->first[node] = LS_NONE;
        if (ls_clip_limit(&g->nodes[node]) <= 0)
            continue;
        int number = number_of(e, node);
        if (number == LS_NONE)
            return ls_fail(LS_FAILED, "%s: the whole model has no update of it", g->nodes[node].name);
        ls_split_layer_of(g, g->nodes[node].in[0], &r);
        c->first[node] = number * LS_SPLIT_CHUNKS + r.first;
        for (int i = e->backend->squares(e->train.program, node, sums) - 1; i >= 0; i--)
            has[c->first[node] + i] = 1;
    }
    return LS_OK;
}

static enum ls_status find_holders(struct ls_engine *e, struct ls_clip *c, const int32_t *has)
{
    size_t bytes = (size_t)c->n * sizeof *has;
    int size = ls_comm_size(e->comm);
    int32_t *all = ls_alloc((size_t)size, bytes);
    if (!all)
        return LS_FAILED;
    enum ls_status st = ls_comm_allgather(e->comm, has, bytes, all);
    for (int i = 0; i < c->n; i++) {
        c->holder[i] = -1;
        for (int rank = size - 1; rank >= 0; rank--)
            c->holder[i] = all[rank * c->n + i] ? rank : c->holder[i];
    }
    ls_free(all);
    return st;
}

enum ls_status ls_clip_open(struct ls_engine *e)
{
    int clipped = e->parts ? count_clipped(ls_engine_whole(e)) : 0;
    bool scaled = e->parts && e->train.graph.act_dtype == LS_F16;
    if (clipped == 0 && !scaled)
        return LS_OK;
    struct ls_clip *c = e->clip = ls_alloc(1, sizeof *c);
    if (!c)
        return LS_FAILED;
    c->n = clipped * LS_SPLIT_CHUNKS;
    int32_t *has = ls_alloc((size_t)c->n, sizeof *has);
    c->first = ls_alloc((size_t)e->train.graph.n_nodes, sizeof *c->first);
    c->holder = ls_alloc((size_t)c->n, sizeof *c->holder);
    c->mine = ls_alloc((size_t)c->n + 1, sizeof *c->mine);
    c->all = ls_alloc((size_t)((c->n + 1) * ls_comm_size(e->comm)), sizeof *c->all);
    enum ls_status st = has && c->first && c->holder && c->mine && c->all ? find_own(e, c, has) : LS_FAILED;
    if (st == LS_OK)
        st = find_holders(e, c, has);
    ls_free(has);
    return st;
}

void ls_clip_close(struct ls_engine *e)
{
    struct ls_clip *c = e->clip;
    if (!c)
        return;
    ls_free(c->first);
    ls_free(c->holder);
    ls_free(c->mine);
    ls_free(c->all);
    ls_free(c);
    e->clip = NULL;
}

enum ls_status ls_clip_gather(struct ls_engine *e, struct ls_run *run)
{
    struct ls_clip *c = e->clip;
    bool overflow = false;
    if (!c)
        return LS_OK;
    if (e->backend->inspect)
        LS_TRY(e->backend->inspect(e->train.program, run, &overflow));
    for (int node = e->train.end; node < e->train.graph.n_nodes; node++)
        if (c->first[node] != LS_NONE)
            e->backend->squares(e->train.program, node, c->mine + c->first[node]);
    c->mine[c->n] = overflow;
    LS_TRY(ls_comm_allgather(e->comm, c->mine, ((size_t)c->n + 1) * sizeof *c->mine, c->all));
    c->result = 0;
    for (int i = 0; i < c->n; i++)
        if (c->holder[i] >= 0)
            c->result += c->all[c->holder[i] * (c->n + 1) + i];
    for (int rank = 0; rank < ls_comm_size(e->comm); rank++)
        run->overflow = run->overflow || c->all[rank * (c->n + 1) + c->n] != 0;
    run->squares = c->n > 0 ? &c->result : NULL;
    return LS_OK;
}
