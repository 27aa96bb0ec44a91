#include "launch/launch.h"

#include "base/log.h"
#include "base/memory.h"
#include "launch/launchers.h"
#include "launch/nodes.h"
#include "launch/variables.h"

#include <string.h>

#define MIN_TOKEN 8

/* --- ranks ----------------------------------------------------------------------------------------------- */

/* Sets the rank of a pod of Kubernetes from its index, where no option gives it. */
static enum ls_status place_pod(const struct ls_options *o, struct ls_launch *l)
{
    const char *from;
    int index;
    LS_TRY(ls_launchers_pod_index(&index, &from));
    if (o->rank >= 0 || o->rendezvous || l->size < 2 || index < 0)
        return LS_OK;
    if (index >= l->size)
        return ls_fail(LS_USAGE,
                       "--num-nodes %d, but %s makes this number %d, and they count from 0; give the number of pods",
                       l->size, from, index);
    l->rank = index;
    return LS_OK;
}

/* Applies --rank and --num-nodes, which count nodes where each start makes several workers. They must agree with the
 * launcher. */
static enum ls_status place(const struct ls_options *o, struct ls_launch *l)
{
    bool known = l->size > 1;
    if (known && o->num_nodes > 0 && o->num_nodes != l->size)
        return ls_fail(LS_USAGE, "two launchers at once: %s started %d processes, --num-nodes says %lld; leave it out",
                       l->how, l->size, (long long)o->num_nodes);
    if (known && o->rank >= 0 && o->rank != l->rank)
        return ls_fail(LS_USAGE, "two launchers at once: %s made this rank %d, --rank says %lld; leave it out", l->how,
                       l->rank, (long long)o->rank);
    if (known || l->size < 0)
        return LS_OK;
    if (o->num_nodes == 0 && o->rank > 0)
        return ls_fail(LS_USAGE, "--rank %lld of how many? Give --num-nodes", (long long)o->rank);
    l->size = o->num_nodes > 0 ? (int)o->num_nodes : 1;
    l->rank = l->size > 1 || o->rank > 0 ? (int)o->rank : 0;
    LS_TRY(place_pod(o, l));
    return l->rank < 0 ? LS_OK : ls_launch_check_place("--rank and --num-nodes", l->rank, l->size);
}

/* --- where the processes meet ---------------------------------------------------------------------------- */

static enum ls_status meet_in_file(const struct ls_options *o, struct ls_launch *l)
{
    static const char scheme[] = "file://";
    size_t n = strlen(scheme);
    if (strncmp(o->rendezvous, scheme, n) != 0 || o->rendezvous[n] != '/' || !o->rendezvous[n + 1])
        return ls_fail(LS_USAGE, "--rendezvous %s: only file:///PATH is known, a folder that all processes can reach",
                       o->rendezvous);
    if (o->master_ip)
        return ls_fail(LS_USAGE, "--rendezvous and --master-ip are two ways to meet; leave one out");
    if (l->size < 0)
        return ls_fail(LS_USAGE, "--rendezvous %s: for how many processes? Give --num-nodes", o->rendezvous);
    if (l->kind == LS_LAUNCH_ALONE)
        l->how = "--rendezvous";
    l->kind = LS_LAUNCH_FILE;
    return ls_launch_copy(&l->path, o->rendezvous + n);
}

/* Sets address and port of rank 0. */
static enum ls_status meet_at_address(const struct ls_options *o, struct ls_launch *l)
{
    const char *address = o->master_ip ? o->master_ip : l->address ? l->address : ls_variable("MASTER_ADDR");
    if (!address && l->mpi)
        return ls_nodes_refuse_mpi(o, l);
    if (!address && l->rank < 0)
        return ls_fail(LS_USAGE,
                       "--num-nodes %d: where is rank 0, and which rank is this? Give --master-ip HOST and --rank, or "
                       "--rendezvous file:///PATH",
                       l->size);
    if (!address)
        return ls_fail(LS_USAGE,
                       "%s: rank %d of %d, but where is rank 0? Give --master-ip HOST (or MASTER_ADDR), or "
                       "--rendezvous file:///PATH",
                       l->how, l->rank, l->size);
    if (l->rank < 0)
        return ls_fail(LS_USAGE, "--num-nodes %d: which of them is this? Give --rank, 0 to %d", l->size, l->size - 1);
    LS_TRY(ls_launch_copy(&l->address, address));
    if (l->port <= 0)
        LS_TRY(ls_variable_number("MASTER_PORT", &l->port));
    if (l->port <= 0 || ls_options_given(o, "master-port"))
        l->port = (int)o->master_port;
    if (l->port > 65535)
        return ls_fail(LS_USAGE, "MASTER_PORT: %d is out of range; it must be 1 to 65535", l->port);
    l->kind = LS_LAUNCH_TCP;
    l->mpi = NULL;
    return LS_OK;
}

static enum ls_status take_token(const struct ls_options *o, struct ls_launch *l)
{
    if (!o->token || (l->kind != LS_LAUNCH_TCP && l->kind != LS_LAUNCH_FILE))
        return LS_OK;
    if (strlen(o->token) < MIN_TOKEN)
        return ls_fail(LS_USAGE, "the token has fewer than %d characters; `openssl rand -hex 16` makes a good one",
                       MIN_TOKEN);
    return ls_launch_copy(&l->token, o->token);
}

static const char *transport_of(const struct ls_options *o)
{
    static const char *const names[] = {
#define X(name) #name,
#include "config/lists/transports.def"
    };
    size_t i = sizeof names / sizeof *names - 1;
    while (i > 0 && !(o->transport && strcmp(o->transport, names[i]) == 0))
        i--;
    return names[i];
}

/* The workers of a node do not use the launcher's MPI, as there is no process of it for each. */
static enum ls_status meet(const struct ls_options *o, bool nodes, struct ls_launch *l)
{
    if (o->rendezvous)
        return meet_in_file(o, l);
    if (l->size == 1 || (!o->master_ip && !nodes && l->kind == LS_LAUNCH_MPI))
        return LS_OK;
    if (nodes && !o->master_ip && !l->address && ls_launchers_in_slurm())
        LS_TRY(ls_launchers_slurm_address(l));
    if (l->kind == LS_LAUNCH_ALONE)
        l->how = o->hostfile ? "--hostfile" : "--master-ip";
    return meet_at_address(o, l);
}

static enum ls_status resolve(const struct ls_options *o, struct ls_nodes *nodes, struct ls_launch *l)
{
    LS_TRY(ls_launchers_innermost(l));
    l->transport = transport_of(o);
    l->ucx_tcp = o->allow_unprotected_ucx;
    if (l->kind == LS_LAUNCH_WORKERS || ls_variable("LOCKSTEP_LAUNCH_RANK")) /* the parent has resolved everything */
        return LS_OK;
    if (l->kind == LS_LAUNCH_ALONE && o->num_nodes == 0 && !o->hostfile && (o->master_ip || o->rendezvous))
        return ls_fail(LS_USAGE, "%s: for how many processes? Give --num-nodes and --rank",
                       o->rendezvous ? "--rendezvous" : "--master-ip");
    if (l->size == 1) { /* a launcher of one process needs no connection */
        l->kind = LS_LAUNCH_ALONE;
        l->mpi = NULL;
    }
    LS_TRY(ls_nodes_read(o, l, nodes));
    if (nodes->file.n > 0)
        LS_TRY(ls_nodes_place(o, nodes, l));
    else
        LS_TRY(place(o, l));
    LS_TRY(meet(o, nodes->workers > 0, l));
    LS_TRY(take_token(o, l));
    return ls_nodes_multiply(nodes, l);
}

enum ls_status ls_launch_detect(const struct ls_options *o, struct ls_launch *launch)
{
    struct ls_launch l = {
        .kind = LS_LAUNCH_ALONE, .how = "alone", .rank = -1, .size = -1, .local_rank = -1, .local_size = -1};
    struct ls_nodes nodes = {0};
    enum ls_status st = resolve(o, &nodes, &l);
    ls_hostfile_release(&nodes.file);
    int workers = l.workers;
    if (st != LS_OK || l.size == 1)
        ls_launch_release(&l);
    l.workers = workers;
    l.node = ls_variable("LOCKSTEP_NODE");
    l.late_names = ls_launchers_in_pod();
    if (st == LS_OK)
        *launch = l;
    return st;
}

bool ls_launch_may_start_workers(const struct ls_options *o)
{
    return o->workers > 1 || o->npernode > 0 || o->hostfile;
}

void ls_launch_release(struct ls_launch *l)
{
    ls_free(l->address);
    ls_free(l->path);
    ls_free(l->token);
    ls_free(l->session);
    *l = (struct ls_launch){.kind = LS_LAUNCH_ALONE, .how = "alone", .size = 1, .local_size = 1};
}

const char *ls_launch_job(void)
{
    static const char *const names[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ls_variable(names[i]))
            return ls_variable(names[i]);
    return "";
}
