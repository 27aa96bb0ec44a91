#include "launch/nodes.h"

#include "base/log.h"
#include "launch/launchers.h"

#include <string.h>

/* --- what the options ask for ---------------------------------------------------------------------------- */

/* The launcher has started several processes on a node, or an unknown number. */
static enum ls_status check_launcher(const struct ls_options *o, const struct ls_launch *l)
{
    bool several = l->size != 1 && !l->one_per_node;
    if (o->hostfile && l->size != 1)
        return ls_fail(LS_USAGE, "--hostfile %s places processes, but %s has done that already; leave it out",
                       o->hostfile, l->how);
    if (several && o->npernode > 0 && l->local_size > 0 && o->npernode != l->local_size)
        return ls_fail(LS_USAGE,
                       "--npernode %lld, but %s started %d processes on this node; change one of them, or let it "
                       "start one process on each node",
                       (long long)o->npernode, l->how, l->local_size);
    if (several && o->npernode > 0 && l->size > 0 && l->size % o->npernode != 0)
        return ls_fail(LS_USAGE, "--npernode %lld: the %d processes of %s are not a multiple of it",
                       (long long)o->npernode, l->size, l->how);
    if (several && o->npernode == 0 && o->workers > 1 && o->workers != l->size)
        return ls_fail(LS_USAGE, "--workers %lld starts processes, but %s has done that already; leave it out",
                       (long long)o->workers, l->how);
    return LS_OK;
}

enum ls_status ls_nodes_read(const struct ls_options *o, const struct ls_launch *l, struct ls_nodes *nodes)
{
    *nodes = (struct ls_nodes){0};
    if (o->npernode > 0 && ls_options_given(o, "workers") && o->workers != o->npernode)
        return ls_fail(LS_USAGE, "--workers %lld and --npernode %lld both say how many a node has; leave one out",
                       (long long)o->workers, (long long)o->npernode);
    LS_TRY(check_launcher(o, l));
    if (l->size == 1 || l->one_per_node) {
        nodes->workers = (int)(o->npernode > 0 ? o->npernode : o->workers);
        nodes->workers = nodes->workers > 1 ? nodes->workers : 0;
    }
    return o->hostfile ? ls_hostfile_read(o->hostfile, &nodes->file) : LS_OK;
}

/* --- hostfile -------------------------------------------------------------------------------------------- */

/* --workers takes as many slots of each host. */
static enum ls_status limit_slots(const struct ls_options *o, struct ls_nodes *nodes)
{
    bool given = o->npernode > 0 || ls_options_given(o, "workers");
    int wanted = nodes->workers > 0 ? nodes->workers : 1;
    for (int i = 0; given && i < nodes->file.n; i++) {
        struct ls_hostfile_host *host = &nodes->file.hosts[i];
        if (wanted > host->slots)
            return ls_fail(LS_USAGE, "--%s %d, but %s:%d gives %s %d slot%s", o->npernode > 0 ? "npernode" : "workers",
                           wanted, o->hostfile, host->line, host->name, host->slots, host->slots == 1 ? "" : "s");
        host->slots = wanted;
    }
    return LS_OK;
}

enum ls_status ls_nodes_place(const struct ls_options *o, struct ls_nodes *nodes, struct ls_launch *l)
{
    const struct ls_hostfile *h = &nodes->file;
    LS_TRY(limit_slots(o, nodes));
    if (o->num_nodes > 0 && o->num_nodes != h->n)
        return ls_fail(LS_USAGE, "%s has %d host%s, --num-nodes says %lld; leave it out", o->hostfile, h->n,
                       h->n == 1 ? "" : "s", (long long)o->num_nodes);
    if (o->rank >= h->n)
        return ls_fail(LS_USAGE, "--rank %lld, but the %d host%s of %s are number 0 to %d", (long long)o->rank, h->n,
                       h->n == 1 ? "" : "s", o->hostfile, h->n - 1);
    if (o->rank >= 0)
        nodes->this = (int)o->rank;
    else
        LS_TRY(ls_hostfile_find_this(h, o->hostfile, &nodes->this));
    nodes->workers = h->hosts[nodes->this].slots;
    l->size = h->n;
    l->rank = nodes->this;
    return ls_launch_copy(&l->address, h->hosts[0].name);
}

/* --- workers of several nodes ---------------------------------------------------------------------------- */

/* Counts the workers of the nodes before this one, and of all. */
static void count_workers(const struct ls_nodes *nodes, const struct ls_launch *l, int *before, int64_t *all)
{
    *before = l->rank * nodes->workers;
    *all = (int64_t)l->size * nodes->workers;
    if (nodes->file.n == 0)
        return;
    *before = 0;
    *all = 0;
    for (int i = 0; i < nodes->file.n; i++) {
        *before += i < nodes->this ? nodes->file.hosts[i].slots : 0;
        *all += nodes->file.hosts[i].slots;
    }
}

enum ls_status ls_nodes_multiply(const struct ls_nodes *nodes, struct ls_launch *l)
{
    int before;
    int64_t all;
    if (nodes->workers == 0)
        return LS_OK;
    l->workers = nodes->workers > 1 ? nodes->workers : 0;
    if (l->size == 1) /* one node: the workers are the whole run */
        return LS_OK;
    count_workers(nodes, l, &before, &all);
    l->rank = l->rank < 0 ? -1 : before; /* -1: in the order of arrival */
    l->size = all < 1 << 30 ? (int)all : 1 << 30;
    return ls_launch_check_place(nodes->file.n > 0 ? "--hostfile" : "--workers and --num-nodes",
                                 l->rank < 0 ? 0 : l->rank, l->size);
}

enum ls_status ls_nodes_refuse_mpi(const struct ls_options *o, const struct ls_launch *l)
{
    long long n = o->npernode > 0 ? o->npernode : o->workers;
    const char *more = strcmp(l->mpi, "openmpi") == 0 ? "-npernode" : "-ppn";
    return ls_fail(LS_USAGE,
                   "%s started one process on each node and does not tell where the first is; let it start the workers "
                   "(mpirun %s %lld), or give --master-ip HOST or --rendezvous file:///PATH",
                   l->how, more, n);
}
