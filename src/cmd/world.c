#define _GNU_SOURCE
#include "cmd/world.h"
#include "base/log.h"
#include "base/memory.h"
#include "sync/sync.h"
#include "train/agree.h"

#include <sched.h>
#include <string.h>

static const char *const ways[] = {
    [LS_COLLECTIVE_AUTO] = "auto", [LS_COLLECTIVE_TREE] = "tree", [LS_COLLECTIVE_HIER] = "hier",
    [LS_COLLECTIVE_RING] = "ring", [LS_COLLECTIVE_MPI] = "mpi",
};

const char *ls_collective_name(enum ls_collective way)
{
    return ways[way];
}

/* nccl is the cards' affair: what else is summed goes as it likes best. */
static enum ls_collective collective_of(const char *name)
{
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++)
        if (strcmp(name, ways[i]) == 0)
            return (enum ls_collective)i;
    return LS_COLLECTIVE_AUTO;
}

/* A core that several processes of this host may use counts for each of them by its share. */
static enum ls_status count_cores(struct ls_comm *comm, int64_t *cores)
{
    int size = ls_comm_size(comm), rank = ls_comm_rank(comm), here = ls_comm_node(comm, rank);
    cpu_set_t mine, *all = ls_alloc((size_t)size, sizeof *all);
    double share = 0;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    enum ls_status st = all ? ls_comm_allgather(comm, &mine, sizeof mine, all) : LS_FAILED;
    for (int cpu = 0; st == LS_OK && cpu < CPU_SETSIZE; cpu++) {
        int users = 0;
        for (int r = 0; r < size; r++)
            users += ls_comm_node(comm, r) == here && CPU_ISSET(cpu, &all[r]);
        if (CPU_ISSET(cpu, &mine) && users > 0)
            share += 1.0 / users;
    }
    ls_free(all);
    *cores = share < 1 ? 1 : (int64_t)(share + 1e-6);
    return st;
}

/* Every rank computes with as many threads as the one that has the fewest: the number is part of what a run computes. */
static enum ls_status agree_on_threads(struct ls_comm *comm, struct ls_options *o)
{
    int64_t cores, most;
    LS_TRY(count_cores(comm, &cores));
    LS_TRY(ls_agree_most(comm, -cores, &most));
    o->threads = -most;
    return LS_OK;
}

/* Open MPI's mpirun gives rank 0 a terminal of its own, wherever what is said goes in the end: perhaps a file, where a
 * live line would be noise. */
static void distrust_terminal(const struct ls_launch *launch, struct ls_options *o)
{
    if (launch->kind != LS_LAUNCH_MPI)
        return;
    o->progress = o->progress && ls_options_given(o, "progress");
    o->color = o->color && ls_options_given(o, "color");
}

enum ls_status ls_world_open(struct ls_world *w, struct ls_options *o)
{
    return ls_world_open_for(w, o, 16 << 20);
}

enum ls_status ls_world_open_for(struct ls_world *w, struct ls_options *o, size_t max_bytes)
{
    enum ls_status st = LS_OK;
    *w = (struct ls_world){0};
    LS_TRY(ls_launch_detect(o, &w->launch));
    if (w->launch.kind == LS_LAUNCH_ALONE)
        return LS_OK;
    const struct ls_sync_ops *ops = ls_sync_choose(o);
    bool served = ops && ops->serve;
    struct ls_comm_options options = {
        .collective = collective_of(o->collective),
        .deadline = o->deadline,
        .max_bytes = max_bytes,
        .replicas = ls_options_given(o, "replicas") && !served ? (int)o->replicas : 0,
    };
    LS_TRY_GOTO(failed, ls_comm_open(&w->launch, &options, &w->comm));
    int size = ls_comm_size(w->comm), rank = ls_comm_rank(w->comm);
    if (!ls_options_given(o, "replicas"))
        o->replicas = size > ls_sync_servers(o, size) ? size - ls_sync_servers(o, size) : 1;
    if (o->threads == 0)
        LS_TRY_GOTO(failed, agree_on_threads(w->comm, o));
    distrust_terminal(&w->launch, o);
    if (rank > 0) {
        o->quiet = true;
        o->progress = false;
    }
    return LS_OK;
failed:
    ls_world_close(w, st);
    return st;
}

void ls_world_close(struct ls_world *w, enum ls_status status)
{
    if (w->comm && status != LS_OK && status != LS_PEER_LOST && status != LS_INTERRUPTED)
        ls_comm_abort(w->comm, status, NULL);
    if (w->comm)
        ls_comm_close(w->comm, status == LS_INTERRUPTED ? LS_OK : status);
    ls_launch_release(&w->launch);
    *w = (struct ls_world){0};
}
