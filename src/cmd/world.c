#define _GNU_SOURCE
#include "cmd/world.h"
#include "base/system/cgroup.h"
#include "base/log.h"
#include "base/memory.h"
#include "parallel/mesh.h"
#include "sync/sync.h"
#include "exec/identity.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static const char *const ways[] = {
#define X(name, NAME) [LS_COLLECTIVE_##NAME] = #name,
#define DEVICE(name)
#include "config/lists/collectives.def"
};

const char *ls_collective_name(enum ls_collective way)
{
    return ways[way];
}

/* AUTO also for algorithms of devices. */
static enum ls_collective collective_of(const char *name)
{
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++)
        if (strcmp(name, ways[i]) == 0)
            return (enum ls_collective)i;
    return LS_COLLECTIVE_AUTO;
}

/* The data of one rank for the choice of the number of threads. */
struct bid {
    cpu_set_t cpus;
    double quota; /* cores' worth of CPU time, 0: no limit */
    uint64_t group;
    int64_t threads; /* as requested; 0: not requested */
};

/* The number of cores of a rank. A core or a quota that several processes of a host may use is divided equally among
 * them. */
static int64_t cores_of(const struct ls_comm *comm, const struct bid *all, int rank)
{
    int size = ls_comm_size(comm), here = ls_comm_node(comm, rank), sharers = 0;
    double share = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int users = 0;
        for (int r = 0; r < size && CPU_ISSET(cpu, &all[rank].cpus); r++)
            users += ls_comm_node(comm, r) == here && CPU_ISSET(cpu, &all[r].cpus);
        share += users > 0 ? 1.0 / users : 0;
    }
    for (int r = 0; r < size; r++)
        sharers += ls_comm_node(comm, r) == here && all[r].group == all[rank].group;
    if (all[rank].quota > 0 && ceil(all[rank].quota) / sharers < share)
        share = ceil(all[rank].quota) / sharers;
    return share < 1 ? 1 : (int64_t)(share + 1e-6);
}

static enum ls_status threads_differ(const struct ls_comm *comm, const struct bid *all, int rank)
{
    return ls_fail(
        LS_USAGE,
        "--threads %lld on rank 0 (%s), %lld on rank %d (%s): the number is part of what a run computes; start all "
        "with the same",
        (long long)all[0].threads, ls_comm_host(comm, 0), (long long)all[rank].threads, rank, ls_comm_host(comm, rank));
}

/* All ranks compute with the number of threads of the rank with the fewest cores, because the number is part of what
 * a run computes. */
static enum ls_status take_fewest(const struct ls_comm *comm, const struct bid *all, struct ls_options *o)
{
    int few = 0, many = 0;
    for (int r = 1; r < ls_comm_size(comm); r++) {
        few = cores_of(comm, all, r) < cores_of(comm, all, few) ? r : few;
        many = cores_of(comm, all, r) > cores_of(comm, all, many) ? r : many;
    }
    o->threads = cores_of(comm, all, few);
    if (ls_comm_rank(comm) == 0 && !o->quiet && ls_comm_node(comm, few) != ls_comm_node(comm, many) &&
        cores_of(comm, all, many) > o->threads)
        ls_warn("rank %d (%s) has %lld cores and rank %d (%s) has %lld: every rank computes with %lld threads", many,
                ls_comm_host(comm, many), (long long)cores_of(comm, all, many), few, ls_comm_host(comm, few),
                (long long)o->threads, (long long)o->threads);
    return LS_OK;
}

static enum ls_status agree_on_threads(struct ls_comm *comm, struct ls_options *o)
{
    int size = ls_comm_size(comm), odd = 0;
    struct bid mine, *all = ls_alloc((size_t)size, sizeof *all);
    memset(&mine, 0, sizeof mine);
    sched_getaffinity(0, sizeof mine.cpus, &mine.cpus);
    mine.quota = ls_cgroup_cpus("", &mine.group);
    if (o->plan && o->threads == 0)
        o->threads = ls_identity_plan_threads(o->plan);
    mine.threads = o->threads;
    enum ls_status st = all ? ls_comm_allgather(comm, &mine, sizeof mine, all) : LS_FAILED;
    for (int r = size - 1; st == LS_OK && r > 0; r--)
        odd = all[r].threads != all[0].threads ? r : odd;
    if (st == LS_OK && odd > 0)
        st = threads_differ(comm, all, odd);
    else if (st == LS_OK && o->threads == 0)
        st = take_fewest(comm, all, o);
    ls_free(all);
    return st;
}

/* Open MPI's mpirun gives rank 0 a terminal even when its output goes to a file. Progress lines and colours are
 * therefore off unless an option turns them on. */
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
    /* every process has replicas, unless it may have a stage */
    bool apart = ls_mesh_has_pipeline(o->parallel) ||
                 (ls_mesh_is_auto(o->parallel) && w->launch.size > 0 && o->replicas < w->launch.size);
    struct ls_comm_options options = {
        .collective = collective_of(o->collective),
        .deadline = o->deadline,
        .max_bytes = max_bytes,
        .replicas = ls_options_given(o, "replicas") && ls_sync_servers(o, 2) == 0 && !apart ? (int)o->replicas : 0,
    };
    LS_TRY_GOTO(failed, ls_comm_open(&w->launch, &options, &w->comm));
    int size = ls_comm_size(w->comm), rank = ls_comm_rank(w->comm);
    if (!ls_options_given(o, "replicas"))
        o->replicas = size > ls_sync_servers(o, size) ? size - ls_sync_servers(o, size) : 1;
    st = agree_on_threads(w->comm, o);
    if (st != LS_OK) {
        ls_world_close(w, st == LS_USAGE ? LS_OK : st); /* all ranks found the same error */
        return st;
    }
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
