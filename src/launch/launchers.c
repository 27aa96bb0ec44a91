/* A process can run under several launchers at once: Slurm allocates the machines, mpirun starts the processes, and a script
 * exports RANK. The innermost one counts:
 *
 *   1. a parent of workers on one node              LOCKSTEP_WORKER_*
 *      a parent of workers on several nodes, or
 *      a rank of `bench --scale`                    LOCKSTEP_LAUNCH_*
 *   2. mpirun, mpiexec                              OMPI_COMM_WORLD_*, PMI_RANK and PMI_SIZE
 *   3. torchrun, or a script with its variables     RANK, WORLD_SIZE, MASTER_ADDR
 *   4. srun                                         PMIX_RANK, SLURM_PROCID
 *
 * Options add what the launcher leaves open, such as the address of rank 0, but may not contradict it. */
#define _GNU_SOURCE
#include "launch/launchers.h"

#include "base/log.h"
#include "base/memory.h"
#include "launch/slurm.h"
#include "launch/variables.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PROCESSES 65536

enum ls_status ls_launch_check_place(const char *how, int rank, int size)
{
    if (size < 1 || size > MAX_PROCESSES)
        return ls_fail(LS_USAGE, "%s: %d processes; it must be 1 to %d", how, size, MAX_PROCESSES);
    if (rank < 0 || rank >= size)
        return ls_fail(LS_USAGE, "%s: rank %d of %d processes; ranks are 0 to %d", how, rank, size, size - 1);
    return LS_OK;
}

enum ls_status ls_launch_copy(char **to, const char *text)
{
    char *fresh = ls_strdup(text);
    if (!fresh)
        return LS_FAILED;
    ls_free(*to);
    *to = fresh;
    return LS_OK;
}

static enum ls_status by_parent(struct ls_launch *l)
{
    const char *session = ls_variable("LOCKSTEP_WORKER_SESSION");
    l->kind = LS_LAUNCH_WORKERS;
    l->how = "lockstep --workers";
    LS_TRY(ls_variable_number("LOCKSTEP_WORKER_RANK", &l->rank));
    LS_TRY(ls_variable_number("LOCKSTEP_WORKER_SIZE", &l->size));
    if (!session || l->size < 1)
        return ls_fail(LS_USAGE,
                       "LOCKSTEP_WORKER_RANK is set without LOCKSTEP_WORKER_SIZE and LOCKSTEP_WORKER_SESSION; set all "
                       "three, or none");
    l->local_rank = l->rank;
    l->local_size = l->size;
    l->session = ls_strdup(session);
    return l->session ? ls_launch_check_place("LOCKSTEP_WORKER_RANK and LOCKSTEP_WORKER_SIZE", l->rank, l->size)
                      : LS_FAILED;
}

/* The parent of this process has resolved how it meets the others: a parent of workers (child.c), or a rank that measures a
 * number of workers (cmd/bench/ranks). Options do not count: the command line is that of the parent. */
static enum ls_status by_lockstep(struct ls_launch *l)
{
    const char *address = ls_variable("LOCKSTEP_LAUNCH_ADDRESS"), *token = ls_variable("LOCKSTEP_LAUNCH_TOKEN");
    const char *path = address ? NULL : ls_variable("LOCKSTEP_LAUNCH_PATH");
    bool any = strcmp(ls_variable("LOCKSTEP_LAUNCH_RANK"), "any") == 0;
    l->kind = path ? LS_LAUNCH_FILE : LS_LAUNCH_TCP;
    if (!any)
        LS_TRY(ls_variable_number("LOCKSTEP_LAUNCH_RANK", &l->rank));
    LS_TRY(ls_variable_number("LOCKSTEP_LAUNCH_SIZE", &l->size));
    LS_TRY(ls_variable_number("LOCKSTEP_LAUNCH_PORT", &l->port));
    LS_TRY(ls_variable_number("LOCKSTEP_LAUNCH_LOCAL_RANK", &l->local_rank));
    LS_TRY(ls_variable_number("LOCKSTEP_LAUNCH_LOCAL_SIZE", &l->local_size));
    l->how = l->local_rank >= 0 ? "lockstep --workers" : "lockstep bench --scale";
    if (!path && (!address || any || l->port < 1 || l->port > 65535))
        return ls_fail(LS_USAGE, "LOCKSTEP_LAUNCH_RANK is for the processes that Lockstep itself starts; unset it");
    if (address)
        LS_TRY(ls_launch_copy(&l->address, address));
    if (path)
        LS_TRY(ls_launch_copy(&l->path, path));
    if (token)
        LS_TRY(ls_launch_copy(&l->token, token));
    return ls_launch_check_place("LOCKSTEP_LAUNCH_RANK and LOCKSTEP_LAUNCH_SIZE", any ? 0 : l->rank, l->size);
}

static enum ls_status by_openmpi(struct ls_launch *l)
{
    l->kind = LS_LAUNCH_MPI;
    l->how = "mpirun (Open MPI)";
    l->mpi = "openmpi";
    LS_TRY(ls_variable_number("OMPI_COMM_WORLD_SIZE", &l->size));
    LS_TRY(ls_variable_number("OMPI_COMM_WORLD_RANK", &l->rank));
    LS_TRY(ls_variable_number("OMPI_COMM_WORLD_LOCAL_SIZE", &l->local_size));
    LS_TRY(ls_variable_number("OMPI_COMM_WORLD_LOCAL_RANK", &l->local_rank));
    l->one_per_node = l->local_size == 1;
    return ls_launch_check_place(l->how, l->rank, l->size);
}

/* How many tasks the step has on this node, and whether it has one on each. */
static enum ls_status slurm_tasks(struct ls_launch *l)
{
    int node = 0, nodes = 0;
    const char *tasks = ls_variable("SLURM_STEP_TASKS_PER_NODE");
    LS_TRY(ls_variable_number("SLURM_NODEID", &node));
    LS_TRY(ls_variable_number("SLURM_NNODES", &nodes));
    LS_TRY(ls_variable_number("SLURM_STEP_NUM_NODES", &nodes));
    if (tasks)
        l->local_size = ls_slurm_tasks_of(tasks, node);
    l->one_per_node = nodes == l->size;
    return LS_OK;
}

/* PMI: mpiexec of MPICH and its derivatives, or srun with PMI2. */
static enum ls_status by_pmi(struct ls_launch *l)
{
    bool slurm = ls_variable("SLURM_PROCID") && !ls_variable("MPI_LOCALNRANKS");
    l->kind = LS_LAUNCH_MPI;
    l->how = slurm ? "srun with PMI2" : "mpiexec (MPICH)";
    l->mpi = "mpich";
    LS_TRY(ls_variable_number("PMI_SIZE", &l->size));
    LS_TRY(ls_variable_number("PMI_RANK", &l->rank));
    LS_TRY(ls_variable_number(slurm ? "SLURM_LOCALID" : "MPI_LOCALRANKID", &l->local_rank));
    LS_TRY(ls_variable_number("MPI_LOCALNRANKS", &l->local_size));
    l->one_per_node = l->local_size == 1;
    if (slurm)
        LS_TRY(slurm_tasks(l));
    return ls_launch_check_place(l->how, l->rank, l->size);
}

/* A process has at least as many ranks before it as its node has. */
static enum ls_status check_local(const struct ls_launch *l)
{
    int local = l->local_rank < 0 ? 0 : l->local_rank;
    if (l->local_size >= 0 && local >= l->local_size)
        return ls_fail(LS_USAGE, "LOCAL_RANK %d of LOCAL_WORLD_SIZE %d; local ranks are 0 to %d", local, l->local_size,
                       l->local_size - 1);
    if (l->local_size > l->size)
        return ls_fail(LS_USAGE,
                       "LOCAL_WORLD_SIZE %d is more than WORLD_SIZE %d; WORLD_SIZE counts the processes of all "
                       "nodes",
                       l->local_size, l->size);
    if (l->rank >= 0 && local > l->rank)
        return ls_fail(LS_USAGE,
                       "LOCAL_RANK %d with RANK %d: RANK counts through all nodes, so it is at least LOCAL_RANK", local,
                       l->rank);
    return LS_OK;
}

/* Other programs may use names such as RANK: the variables count only if all are set. */
static enum ls_status by_variables(struct ls_launch *l)
{
    const char *address = ls_variable("MASTER_ADDR");
    bool agent = ls_variable("TORCHELASTIC_USE_AGENT_STORE") != NULL;
    l->kind = LS_LAUNCH_TCP;
    l->how = "RANK and WORLD_SIZE";
    if (!ls_variable("RANK"))
        return ls_fail(LS_USAGE, "WORLD_SIZE is set without RANK; set both (and MASTER_ADDR), or neither");
    if (!ls_variable("WORLD_SIZE"))
        return ls_fail(LS_USAGE, "RANK is set without WORLD_SIZE; set both (and MASTER_ADDR), or neither");
    LS_TRY(ls_variable_number("RANK", &l->rank));
    LS_TRY(ls_variable_number("WORLD_SIZE", &l->size));
    LS_TRY(ls_variable_number("LOCAL_RANK", &l->local_rank));
    LS_TRY(ls_variable_number("LOCAL_WORLD_SIZE", &l->local_size));
    LS_TRY(check_local(l));
    l->one_per_node = l->local_size == 1 || (l->local_size < 0 && l->local_rank < 0);
    LS_TRY(ls_variable_number("MASTER_PORT", &l->port));
    if (agent && l->port > 0)
        l->port = l->port < 65535 ? l->port + 1 : 1024; /* the agent of torchrun listens on MASTER_PORT */
    l->address = address ? ls_strdup(address) : NULL;
    if (address && !l->address)
        return LS_FAILED;
    return ls_launch_check_place(l->how, l->rank, l->size);
}

bool ls_launchers_in_slurm(void)
{
    return ls_variable("SLURM_PROCID") && (ls_variable("SLURM_STEP_NUM_TASKS") || ls_variable("SLURM_STEP_ID"));
}

enum ls_status ls_launchers_slurm_address(struct ls_launch *l)
{
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"};
    char host[256] = "";
    int nodes = 0, job = 0, step = 0;
    LS_TRY(ls_variable_number("SLURM_NNODES", &nodes));
    LS_TRY(ls_variable_number("SLURM_STEP_NUM_NODES", &nodes));
    LS_TRY(ls_variable_number("SLURM_JOB_ID", &job));
    LS_TRY(ls_variable_number("SLURM_STEP_ID", &step));
    for (int i = 0; i < 3 && !*host; i++)
        if (ls_variable(lists[i]) && !ls_slurm_first_host(ls_variable(lists[i]), host, sizeof host))
            return ls_fail(LS_USAGE, "%s: '%s' is not a list of nodes; give --master-ip HOST", lists[i],
                           ls_variable(lists[i]));
    const char *name = nodes == 1 ? "127.0.0.1" : *host ? host : ls_variable("SLURM_LAUNCH_NODE_IPADDR");
    if (!name)
        return ls_fail(LS_USAGE, "srun does not say which nodes it runs on; give --master-ip HOST");
    l->address = ls_strdup(name);
    l->port =
        20000 + (int)(((unsigned)job * 31 + (unsigned)step) % 10000); /* different jobs on a node use different ports */
    return l->address ? LS_OK : LS_FAILED;
}

static enum ls_status by_slurm(struct ls_launch *l)
{
    bool pmix = ls_variable("PMIX_RANK") != NULL;
    l->kind = pmix ? LS_LAUNCH_MPI : LS_LAUNCH_TCP;
    l->how = pmix ? "srun with PMIx" : "srun without PMI";
    l->mpi = pmix ? "openmpi" : NULL;
    LS_TRY(ls_variable_number("SLURM_PROCID", &l->rank));
    LS_TRY(ls_variable_number("SLURM_NTASKS", &l->size));
    LS_TRY(ls_variable_number("SLURM_STEP_NUM_TASKS", &l->size));
    LS_TRY(ls_variable_number("SLURM_LOCALID", &l->local_rank));
    LS_TRY(slurm_tasks(l));
    LS_TRY(ls_launch_check_place(l->how, l->rank, l->size));
    return pmix || l->size == 1 ? LS_OK : ls_launchers_slurm_address(l);
}

/* Another PMIx launcher (prun): only the PMIx library has the number of processes. */
static enum ls_status by_pmix(struct ls_launch *l)
{
    l->kind = LS_LAUNCH_MPI;
    l->how = "a PMIx launcher";
    l->mpi = "openmpi";
    return ls_variable_number("PMIX_RANK", &l->rank);
}

/* RANK and WORLD_SIZE under mpirun must agree with it: scripts export them from its variables. */
static enum ls_status check_variables(const struct ls_launch *l)
{
    int rank = l->rank, size = l->size;
    LS_TRY(ls_variable_number("RANK", &rank));
    LS_TRY(ls_variable_number("WORLD_SIZE", &size));
    if (rank == l->rank && size == l->size)
        return LS_OK;
    return ls_fail(LS_USAGE,
                   "two launchers at once: %s made this rank %d of %d, RANK and WORLD_SIZE say %d of %d; unset these",
                   l->how, l->rank, l->size, rank, size);
}

enum ls_status ls_launchers_innermost(struct ls_launch *l)
{
    bool openmpi = ls_variable("OMPI_COMM_WORLD_SIZE"), pmi = ls_variable("PMI_RANK") && ls_variable("PMI_SIZE");
    bool variables = ls_variable("RANK") || ls_variable("WORLD_SIZE");
    if (ls_variable("LOCKSTEP_WORKER_RANK"))
        return by_parent(l);
    if (ls_variable("LOCKSTEP_LAUNCH_RANK"))
        return by_lockstep(l);
    if (openmpi || pmi) {
        LS_TRY(openmpi ? by_openmpi(l) : by_pmi(l));
        return l->size > 1 ? check_variables(l) : LS_OK;
    }
    if (variables)
        return by_variables(l);
    if (ls_launchers_in_slurm())
        return by_slurm(l);
    if (ls_variable("PMIX_RANK"))
        return by_pmix(l);
    l->size = 1;
    l->rank = 0;
    return LS_OK;
}

/* --- pods of Kubernetes ---------------------------------------------------------------------------------- */

/* Reads the number at the end of a name such as "train-12"; -1: there is none. */
static int index_of(const char *name)
{
    const char *dot = strchr(name, '.'), *end = dot ? dot : name + strlen(name), *digits = end;
    while (digits > name && isdigit((unsigned char)digits[-1]))
        digits--;
    if (digits == end || digits == name || digits[-1] != '-' || end - digits > 6)
        return -1;
    return (int)strtol(digits, NULL, 10);
}

bool ls_launchers_in_pod(void)
{
    return ls_variable("KUBERNETES_SERVICE_HOST") || ls_variable("JOB_COMPLETION_INDEX");
}

enum ls_status ls_launchers_pod_index(int *index, const char **from)
{
    char name[256] = "";
    *index = -1;
    *from = "JOB_COMPLETION_INDEX";
    LS_TRY(ls_variable_number("JOB_COMPLETION_INDEX", index));
    if (*index >= 0 || !ls_variable("KUBERNETES_SERVICE_HOST"))
        return LS_OK;
    *from = "the host name";
    if (gethostname(name, sizeof name - 1) == 0)
        *index = index_of(name);
    return LS_OK;
}
