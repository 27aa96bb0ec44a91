/* When devices may sum, and what the backend of each needs from the others. */
#include "exec/device/peers.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/device/device_group.h"
#include "exec/shards/shards.h"

#include <stdio.h>
#include <string.h>

struct ls_peers {
    struct ls_engine *engine; /* borrowed */
    enum ls_peers_kind kind;
    struct ls_peers_group group;
    struct ls_device_group devices;
    struct ls_peers_sum *sums;      /* owned */
    const struct ls_sync_ops *host; /* the strategy where they cannot */
    double deadline;
    bool open; /* the processes are connected */
    enum ls_status (*settle)(void *context, int bucket);
    void *context; /* settle's */
};

void ls_peers_library(const struct ls_engine *e, char *text, size_t room)
{
    if (!e->peers || e->peers->kind != LS_PEERS_NCCL || !e->backend->peers->nccl(text, room))
        text[0] = 0;
}

/* --- what the backend may call --------------------------------------------------------------------------------------- */

static enum ls_status gather(void *context, const void *mine, size_t bytes, void *all)
{
    struct ls_peers *p = context;
    return ls_device_gather(&p->devices, mine, bytes, all);
}

static enum ls_status check_wait(void *context, double seconds)
{
    struct ls_peers *p = context;
    return ls_device_check_wait(&p->devices, seconds);
}

static enum ls_status settle(void *context, int bucket)
{
    struct ls_peers *p = context;
    return p->settle(p->context, bucket);
}

static enum ls_status update(void *context, const struct ls_run *run)
{
    struct ls_peers *p = context;
    return ls_shards_run(p->engine, run);
}

/* --- when they may -------------------------------------------------------------------------------------------------------- */

/* The strategies that devices can sum for, "a, b or c". */
static void name_strategies(char *text, size_t room)
{
    const struct ls_sync_ops *able[32];
    int n = 0, used = 0;
    for (int i = 0; ls_sync_list[i] && n < 32; i++)
        if (ls_sync_list[i]->on_device)
            able[n++] = ls_sync_list[i];
    for (int i = 0; i < n && used < (int)room; i++)
        used += snprintf(text + used, room - (size_t)used, "%s%s",
                         i == 0      ? ""
                         : i + 1 < n ? ", "
                                     : " or ",
                         able[i]->name);
}

static enum ls_status check_nccl(const struct ls_engine *e, const struct ls_options *o)
{
    char names[256] = "";
    name_strategies(names, sizeof names);
    if (!e->backend->peers)
        return ls_fail(LS_USAGE, "--collective nccl sums on GPUs: take --backend cuda, or leave it out");
    if (!ls_sync_find(o->sync)->on_device)
        return ls_fail(LS_USAGE, "--collective nccl is for --sync %s, not %s; leave one of them out", names, o->sync);
    if (strcmp(o->compress, "none") != 0)
        return ls_fail(LS_USAGE, "--collective nccl sums f32: leave --compress %s out", o->compress);
    if (ls_tree_most_parts(e->tree) > 1)
        return ls_fail(
            LS_USAGE,
            "--collective nccl takes one sum from each process, and with --replicas %d one of the %d would have "
            "several: leave it out, or give %d",
            e->tree->replicas, e->tree->size, e->tree->size);
    return LS_OK;
}

bool ls_peers_may_sum(const struct ls_backend *b, const struct ls_comm *comm, const struct ls_options *o,
                      const struct ls_sync_ops *strategy, const struct ls_tree *tree)
{
    return b->peers && comm && strcmp(o->collective, "auto") == 0 && strategy->on_device &&
           strcmp(o->compress, "none") == 0 && strcmp(o->shard, "parameters") != 0 &&
           ls_comm_local_size(comm) == ls_comm_size(comm) && ls_tree_most_parts(tree) == 1;
}

/* --- the strategy ----------------------------------------------------------------------------------------------------- */

/* The last pass has summed and updated. */
static enum ls_status finish(struct ls_sync *s)
{
    (void)s;
    return LS_OK;
}

/* It cuts as the strategy of --sync does, and sums when that one would. */
static struct ls_sync_ops device_strategy(const struct ls_options *o, bool nccl, bool shards)
{
    const struct ls_sync_ops *asked = ls_sync_find(o->sync);
    return (struct ls_sync_ops){.name = "device",
                                .summary = "devices sum gradients among themselves, and update",
                                .summed_by = nccl ? "NCCL" : "the cards",
                                .identity = nccl ? "nccl" : NULL,
                                .cut = asked->cut == LS_CUT_BY_TIME ? LS_CUT_BY_SIZE : asked->cut,
                                .exact = !nccl,
                                .no_reduce = true,
                                .shards_state = shards,
                                .after_pass = !asked->ready,
                                .finish = finish};
}

enum ls_status ls_peers_plan(struct ls_engine *e, const struct ls_options *o)
{
    bool nccl = strcmp(o->collective, "nccl") == 0;
    if (e->pipeline)
        return LS_OK; /* the host sums: NCCL only carries what goes from stage to stage */
    if (nccl)
        LS_TRY(check_nccl(e, o));
    else if (e->mesh.axes[LS_PARALLEL_DENSE].size > 1 ||
             !ls_peers_may_sum(e->backend, e->comm, o, e->strategy, e->tree))
        return LS_OK; /* the host sums: also where workers hold parts of layers */
    struct ls_peers *p = e->peers = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    p->engine = e;
    p->kind = nccl ? LS_PEERS_NCCL : LS_PEERS_MEMORY;
    p->deadline = o->deadline;
    p->host = e->strategy;
    e->device = device_strategy(o, nccl, e->strategy->shards_state);
    e->strategy = &e->device;
    return LS_OK;
}

/* --- opened and closed ------------------------------------------------------------------------------------------------ */

static void peers_free(struct ls_engine *e)
{
    ls_device_group_close(&e->peers->devices);
    ls_free(e->peers->sums);
    ls_free(e->peers);
    e->peers = NULL;
}

/* With one part a rank, parts are numbered like ranks. */
static enum ls_status describe(struct ls_peers *p)
{
    struct ls_engine *e = p->engine;
    int n_sums = e->tree->n_sums;
    LS_TRY(ls_device_group_open(&p->devices, e->comm, p->deadline));
    p->sums = ls_alloc((size_t)n_sums, sizeof *p->sums);
    if (!p->sums)
        return LS_FAILED;
    for (int i = 0; i < n_sums; i++)
        p->sums[i] = (struct ls_peers_sum){e->tree->sums[i].to, e->tree->sums[i].from};
    p->group = ls_device_group_of(&p->devices);
    p->group.sums = p->sums;
    p->group.n_sums = n_sums;
    p->group.grads = e->kept;
    p->group.count = e->n_grads;
    p->group.gather = gather;
    p->group.check_wait = check_wait;
    p->group.settle = settle;
    p->group.update = e->strategy->shards_state ? update : NULL;
    p->group.context = p;
    return LS_OK;
}

enum ls_status ls_peers_open(struct ls_engine *e)
{
    struct ls_peers *p = e->peers;
    char why[256] = "";
    if (!p)
        return LS_OK;
    LS_TRY(describe(p));
    LS_TRY(e->backend->peers->open(e->train.program, p->kind, &p->group, why, sizeof why));
    p->open = !*why;
    if (p->open)
        return LS_OK;
    if (p->kind == LS_PEERS_NCCL)
        return ls_fail(LS_USAGE, "--collective nccl: %s", why);
    if (p->group.rank == 0)
        ls_note("The host sums the gradients of the cards: %s.", why);
    e->strategy = p->host;
    peers_free(e);
    return LS_OK;
}

enum ls_status ls_peers_share(struct ls_engine *e, enum ls_status (*settle_bucket)(void *context, int bucket),
                              void *context)
{
    struct ls_peers *p = e->peers;
    if (!p)
        return LS_OK;
    struct ls_peers_cut *cuts = ls_alloc((size_t)e->n_buckets, sizeof *cuts);
    if (!cuts)
        return LS_FAILED;
    for (int b = 0; b < e->n_buckets; b++)
        cuts[b] = (struct ls_peers_cut){e->buckets[b].first, e->buckets[b].count, e->buckets[b].ready};
    p->settle = settle_bucket;
    p->context = context;
    enum ls_status st = e->backend->peers->share(e->train.program, cuts, e->n_buckets, e->train.end);
    ls_free(cuts);
    p->devices.begun = st == LS_OK;
    return st;
}

void ls_peers_close(struct ls_engine *e, bool together)
{
    if (!e->peers)
        return;
    if (e->peers->open)
        e->backend->peers->close(e->train.program, together);
    peers_free(e);
}
