/* What can be refused and predicted before anything is sharded. */
#include "exec/shards/plan.h"
#include "exec/shards/params.h"
#include "exec/tta.h"
#include "base/log.h"
#include "base/memory.h"
#include "parallel/mesh.h"

#include <string.h>

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static const char *why_not(const struct ls_sync_ops *ops)
{
    if (ops->servers)
        return "its servers hold the state";
    if (ops->shards)
        return "it gives whole buckets to ranks in its own way";
    if (ops->no_reduce)
        return "each worker updates all parameters by its own gradients";
    return "it gives every worker all sums";
}

static enum ls_status check_parameters(const struct ls_options *o)
{
    struct ls_tta tta;
    LS_TRY(ls_tta_parse(o->tta, &tta));
    if (o->bn_samples > 0)
        return ls_fail(LS_USAGE, "--shard parameters: not with --bn-samples: passes that only measure gather no "
                                 "parameters; use --shard state");
    if (tta.least < 1)
        return ls_fail(LS_USAGE,
                       "--shard parameters: not with --tta least: passes over one view gather no parameters; use "
                       "--shard state, or leave out least");
    return LS_OK;
}

enum ls_status ls_shards_check(const struct ls_options *o, const struct ls_backend *b, int size)
{
    const struct ls_sync_ops *ops = ls_sync_choose(o, size);
    if (strcmp(o->shard, "none") == 0 || size == 1)
        return LS_OK;
    if (!ops->shards_state)
        return ls_fail(LS_USAGE, "--shard %s: not with --sync %s: %s; use --sync overlap or allreduce", o->shard,
                       o->sync, why_not(ops));
    struct ls_mesh mesh;
    LS_TRY(ls_mesh_parse(o->parallel, size, 0, &mesh));
    if (mesh.axes[LS_PARALLEL_DATA].size != size)
        return ls_fail(LS_USAGE,
                       "--shard %s: not with --parallel %s: there a worker holds the state of its part of the model "
                       "already; leave one out",
                       o->shard, o->parallel);
    if (strcmp(o->compress, "none") != 0)
        return ls_fail(LS_USAGE,
                       "--shard %s: --compress %s would round parameters, which travel in place of sums; leave one out",
                       o->shard, o->compress);
    if (strcmp(o->collective, "auto") != 0 && strcmp(o->collective, "tree") != 0)
        return ls_fail(LS_USAGE,
                       "--shard %s: --collective %s sums for all workers, and here each gets its part of a sum; use "
                       "--collective tree, or leave it out",
                       o->shard, o->collective);
    if (strcmp(o->shard, "parameters") == 0)
        LS_TRY(check_parameters(o));
    if (!b->point)
        return ls_fail(LS_USAGE, "--shard %s: backend %s cannot hold a part of a tensor yet; use --backend onednn",
                       o->shard, b->name);
    return LS_OK;
}

/* --- balance ------------------------------------------------------------------------------------------------------ */

enum ls_status ls_shards_balance(const size_t *counts, int n, int size, int *ranks)
{
    size_t *load = ls_alloc((size_t)size, sizeof *load);
    bool *given = ls_alloc((size_t)n, sizeof *given);
    enum ls_status st = load && given ? LS_OK : LS_FAILED;
    for (int turn = 0; st == LS_OK && turn < n; turn++) {
        int largest = LS_NONE, least = 0;
        for (int i = 0; i < n; i++)
            if (!given[i] && counts[i] > 0 && (largest == LS_NONE || counts[i] > counts[largest]))
                largest = i;
        if (largest == LS_NONE)
            break;
        for (int r = 1; r < size; r++)
            least = load[r] < load[least] ? r : least;
        given[largest] = true;
        ranks[largest] = least;
        load[least] += counts[largest];
    }
    ls_free(load);
    ls_free(given);
    return st;
}

/* --- prediction --------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct ls_engine *e, int tensor)
{
    size_t bytes = 0;
    if (tensor != LS_NONE)
        e->backend->memory(e->train.program, tensor, &bytes);
    return (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
}

/* Bytes that are sharded: of the state of an update, with the averages of its parameter or without. */
static size_t state_bytes(const struct ls_engine *e, int node, bool with_averages)
{
    const struct ls_graph *g = &e->train.graph;
    int average = with_averages ? ls_shards_average(g, node) : LS_NONE;
    size_t all = average == LS_NONE ? 0 : bytes_of(e, g->nodes[average].in[2]);
    for (int i = 0; i < LS_MAX_STATES; i++)
        all += bytes_of(e, g->nodes[node].in[2 + i]);
    return all;
}

/* Of the sharded bytes of each node: their sum, and what the rank that holds most has. */
static enum ls_status share_out(const struct ls_engine *e, const size_t *bytes, int size, size_t *all, size_t *most)
{
    const struct ls_graph *g = &e->train.graph;
    size_t *counts = ls_alloc((size_t)g->n_nodes, sizeof *counts), *load = ls_alloc((size_t)size, sizeof *load);
    int *ranks = ls_alloc((size_t)g->n_nodes, sizeof *ranks);
    enum ls_status st = LS_FAILED;
    size_t each = 0;
    *all = *most = 0;
    if (!counts || !ranks || !load)
        goto free_lists;
    for (int n = 0; n < g->n_nodes; n++) {
        *all += bytes[n];
        counts[n] = g->nodes[n].op->by_norm ? bytes[n] : 0;
        each += bytes[n] - counts[n];
    }
    LS_TRY_GOTO(free_lists, ls_shards_balance(counts, g->n_nodes, size, ranks));
    for (int n = 0; n < g->n_nodes; n++)
        if (counts[n] > 0)
            load[ranks[n]] += counts[n];
    for (int r = 0; r < size; r++)
        *most = load[r] > *most ? load[r] : *most;
    *most += (each + (size_t)size - 1) / (size_t)size;
free_lists:
    ls_free(counts);
    ls_free(ranks);
    ls_free(load);
    return st;
}

enum ls_status ls_shards_predict(const struct ls_engine *e, const struct ls_options *o, int size,
                                 struct ls_shards_bytes *bytes)
{
    const struct ls_graph *g = &e->train.graph;
    bool parameters = strcmp(o->shard, "parameters") == 0;
    size_t *of = ls_alloc((size_t)g->n_nodes, sizeof *of);
    enum ls_status st = of ? LS_OK : LS_FAILED;
    *bytes = (struct ls_shards_bytes){0};
    for (int n = 0; st == LS_OK && n < g->n_nodes; n++)
        of[n] = ls_shards_updates(g, n) ? state_bytes(e, n, parameters) : 0;
    if (st == LS_OK)
        st = share_out(e, of, size, &bytes->all, &bytes->most);
    for (int n = 0; st == LS_OK && n < g->n_nodes; n++)
        of[n] = ls_shards_updates(g, n) ? bytes_of(e, g->nodes[n].in[0]) : 0;
    if (st == LS_OK && parameters)
        st = share_out(e, of, size, &bytes->all_parameters, &bytes->most_parameters);
    if (st == LS_OK && parameters)
        st = ls_params_bytes(e, o, &bytes->ring, &bytes->gradients);
    ls_free(of);
    return st;
}
