/* Cards that sum gradients among themselves: who may, and what the backend is told of the others. */
#include "base/log.h"
#include "base/memory.h"
#include "exec/engine.h"

#include <string.h>

struct ls_peers {
    struct ls_engine *engine; /* borrowed */
    enum ls_peers_kind kind;
    struct ls_peers_group group;
    int *nodes;                /* owned */
    struct ls_peers_sum *sums; /* owned */
    double deadline;           /* seconds; for connecting */
    bool shared;               /* steps may have begun */
    enum ls_status (*settle)(void *context, int bucket);
    void *context; /* settle's */
};

const char *ls_peers_name(const struct ls_peers *p)
{
    return p->kind == LS_PEERS_NCCL ? "NCCL" : "the cards";
}

/* --- what the backend may ask --------------------------------------------------------------------------------------- */

static enum ls_status gather(void *context, const void *mine, size_t bytes, void *all)
{
    struct ls_peers *p = context;
    if (p->engine->comm)
        return ls_comm_allgather(p->engine->comm, mine, bytes, all);
    if (all != mine)
        memcpy(all, mine, bytes);
    return LS_OK;
}

/* A step may take as long as it takes, unless a process is gone, or keeps the others waiting. */
static enum ls_status patience(void *context, double seconds)
{
    struct ls_peers *p = context;
    struct ls_comm *comm = p->engine->comm;
    if (!comm)
        return LS_OK;
    if (p->shared)
        return ls_comm_overdue(comm, seconds);
    LS_TRY(ls_comm_broken(comm));
    if (seconds < p->deadline)
        return LS_OK;
    return ls_fail(
        LS_PEER_LOST,
        "--collective nccl: NCCL did not connect the processes within --deadline %g s; NCCL_DEBUG=INFO shows "
        "what it tries, or leave --collective out",
        p->deadline);
}

static enum ls_status settle(void *context, int bucket)
{
    struct ls_peers *p = context;
    return p->settle(p->context, bucket);
}

/* --- who may -------------------------------------------------------------------------------------------------------- */

static bool sums_all(const struct ls_options *o)
{
    return strcmp(o->sync, "overlap") == 0 || strcmp(o->sync, "allreduce") == 0;
}

enum ls_status ls_peers_check(const struct ls_engine *e, const struct ls_options *o)
{
    if (!e->nccl)
        return LS_OK;
    if (!e->backend->peers)
        return ls_fail(LS_USAGE, "--collective nccl sums on GPUs: take --backend cuda, or leave it out");
    if (!sums_all(o))
        return ls_fail(LS_USAGE, "--collective nccl is for --sync overlap or allreduce, not %s; leave one of them out",
                       o->sync);
    if (strcmp(o->compress, "none") != 0)
        return ls_fail(LS_USAGE, "--collective nccl sums f32: leave --compress %s out", o->compress);
    if (ls_tree_most_parts(e->tree) > 1)
        return ls_fail(
            LS_USAGE,
            "--collective nccl takes one sum from each process, and with --replicas %d one of the %d would have "
            "several: leave it out, or say %d",
            e->tree->replicas, e->tree->size, e->tree->size);
    return LS_OK;
}

/* Sums by the tree, of processes on one machine that each have one part of it. */
static bool memory_serves(const struct ls_engine *e, const struct ls_options *o)
{
    return e->backend->peers && e->comm && strcmp(o->collective, "auto") == 0 && sums_all(o) &&
           strcmp(o->compress, "none") == 0 && ls_comm_local_size(e->comm) == ls_comm_size(e->comm) &&
           ls_tree_most_parts(e->tree) == 1;
}

/* --- opened and closed ------------------------------------------------------------------------------------------------ */

static void peers_free(struct ls_peers *p)
{
    if (!p)
        return;
    ls_free(p->nodes);
    ls_free(p->sums);
    ls_free(p);
}

/* With one part a rank, parts are numbered like ranks. */
static enum ls_status describe(struct ls_peers *p)
{
    struct ls_engine *e = p->engine;
    int size = e->comm ? ls_comm_size(e->comm) : 1, n_sums = e->tree->n_sums;
    p->nodes = ls_alloc((size_t)size, sizeof *p->nodes);
    p->sums = ls_alloc((size_t)n_sums, sizeof *p->sums);
    if (!p->nodes || !p->sums)
        return LS_FAILED;
    for (int rank = 0; rank < size && e->comm; rank++)
        p->nodes[rank] = ls_comm_node(e->comm, rank);
    for (int i = 0; i < n_sums; i++)
        p->sums[i] = (struct ls_peers_sum){e->tree->sums[i].to, e->tree->sums[i].from};
    p->group = (struct ls_peers_group){.rank = e->comm ? ls_comm_rank(e->comm) : 0,
                                       .size = size,
                                       .nodes = p->nodes,
                                       .sums = p->sums,
                                       .n_sums = n_sums,
                                       .grads = e->kept,
                                       .count = e->n_grads,
                                       .gather = gather,
                                       .patience = patience,
                                       .settle = settle,
                                       .context = p};
    return LS_OK;
}

enum ls_status ls_peers_open(struct ls_engine *e, const struct ls_options *o)
{
    enum ls_status st = LS_OK;
    char why[256] = "";
    if (!e->nccl && !memory_serves(e, o))
        return LS_OK;
    struct ls_peers *p = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    p->engine = e;
    p->kind = e->nccl ? LS_PEERS_NCCL : LS_PEERS_MEMORY;
    p->deadline = o->deadline;
    LS_TRY_GOTO(free_peers, describe(p));
    LS_TRY_GOTO(free_peers, e->backend->peers->open(e->train.program, p->kind, &p->group, why, sizeof why));
    if (!*why) {
        e->peers = p;
        return LS_OK;
    }
    if (e->nccl)
        st = ls_fail(LS_USAGE, "--collective nccl: %s", why);
    else if (p->group.rank == 0)
        ls_note("Gradients of the cards meet in the host's memory: %s.", why);
free_peers:
    peers_free(p);
    return st;
}

enum ls_status ls_peers_share(struct ls_engine *e, const struct ls_sync_ops *ops,
                              enum ls_status (*settle_bucket)(void *context, int bucket), void *context)
{
    struct ls_peers *p = e->peers;
    struct ls_peers_cut *cuts = ls_alloc((size_t)e->n_buckets, sizeof *cuts);
    if (!cuts)
        return LS_FAILED;
    for (int b = 0; b < e->n_buckets; b++)
        cuts[b] = (struct ls_peers_cut){.first = e->buckets[b].first,
                                        .count = e->buckets[b].count,
                                        .ready = ops->ready ? e->buckets[b].ready : e->train.end - 1};
    p->settle = settle_bucket;
    p->context = context;
    enum ls_status st = e->backend->peers->share(e->train.program, cuts, e->n_buckets, e->train.end);
    ls_free(cuts);
    p->shared = st == LS_OK;
    return st;
}

void ls_peers_close(struct ls_engine *e, bool together)
{
    if (!e->peers)
        return;
    e->backend->peers->close(e->train.program, together);
    peers_free(e->peers);
    e->peers = NULL;
}
