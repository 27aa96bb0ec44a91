/* A process can run under several launchers at once: Slurm allocates the machines, mpirun starts the processes, and a script
 * exports RANK. The innermost one counts:
 *
 *   1. the parent of `--workers`                    LOCKSTEP_WORKER_*
 *      a rank of `bench --scale`                    LOCKSTEP_LAUNCH_*
 *   2. mpirun, mpiexec                              OMPI_COMM_WORLD_*, PMI_RANK and PMI_SIZE
 *   3. torchrun, or a script with its variables     RANK, WORLD_SIZE, MASTER_ADDR
 *   4. srun                                         PMIX_RANK, SLURM_PROCID
 *
 * Options add what the launcher leaves open, such as the address of rank 0, but may not contradict it. */
#include "launch/launch.h"

#include "base/log.h"
#include "base/memory.h"
#include "launch/slurm.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROCESSES 65536
#define MIN_TOKEN 8

/* --- the environment ------------------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* Reads a number of 0 or more. Leaves *value unchanged if the variable is not set. */
static enum ls_status number(const char *name, int *value)
{
    const char *text = variable(name);
    if (!text)
        return LS_OK;
    char *end = NULL;
    errno = 0;
    long n = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
    if (!end || *end || errno || n > 1 << 30)
        return ls_fail(LS_USAGE, "%s: '%s' is not a whole number of 0 or more", name, text);
    *value = (int)n;
    return LS_OK;
}

static enum ls_status check_place(const char *how, int rank, int size)
{
    if (size < 1 || size > MAX_PROCESSES)
        return ls_fail(LS_USAGE, "%s: %d processes; it must be 1 to %d", how, size, MAX_PROCESSES);
    if (rank < 0 || rank >= size)
        return ls_fail(LS_USAGE, "%s: rank %d of %d processes; ranks are 0 to %d", how, rank, size, size - 1);
    return LS_OK;
}

/* --- the launchers --------------------------------------------------------------------------------------- */

static enum ls_status by_parent(struct ls_launch *l)
{
    const char *session = variable("LOCKSTEP_WORKER_SESSION");
    l->kind = LS_LAUNCH_WORKERS;
    l->how = "lockstep --workers";
    LS_TRY(number("LOCKSTEP_WORKER_RANK", &l->rank));
    LS_TRY(number("LOCKSTEP_WORKER_SIZE", &l->size));
    if (!session || l->size < 1)
        return ls_fail(LS_USAGE,
                       "LOCKSTEP_WORKER_RANK is set without LOCKSTEP_WORKER_SIZE and LOCKSTEP_WORKER_SESSION; set all "
                       "three, or none");
    l->local_rank = l->rank;
    l->local_size = l->size;
    l->session = ls_strdup(session);
    return l->session ? check_place("LOCKSTEP_WORKER_RANK and LOCKSTEP_WORKER_SIZE", l->rank, l->size) : LS_FAILED;
}

static enum ls_status copy(char **to, const char *text)
{
    char *fresh = ls_strdup(text);
    if (!fresh)
        return LS_FAILED;
    ls_free(*to);
    *to = fresh;
    return LS_OK;
}

/* A rank of a launch has started this process to measure a number of workers (cmd/bench/ranks). Options do not count: the
 * command line is that of the rank. */
static enum ls_status by_bench(struct ls_launch *l)
{
    const char *address = variable("LOCKSTEP_LAUNCH_ADDRESS"), *token = variable("LOCKSTEP_LAUNCH_TOKEN");
    l->kind = LS_LAUNCH_TCP;
    l->how = "lockstep bench --scale";
    LS_TRY(number("LOCKSTEP_LAUNCH_RANK", &l->rank));
    LS_TRY(number("LOCKSTEP_LAUNCH_SIZE", &l->size));
    LS_TRY(number("LOCKSTEP_LAUNCH_PORT", &l->port));
    if (!address || !token || l->port < 1 || l->port > 65535)
        return ls_fail(LS_USAGE, "LOCKSTEP_LAUNCH_RANK is for the processes that bench --scale starts; unset it");
    LS_TRY(copy(&l->address, address));
    LS_TRY(copy(&l->token, token));
    return check_place("LOCKSTEP_LAUNCH_RANK and LOCKSTEP_LAUNCH_SIZE", l->rank, l->size);
}

static enum ls_status by_openmpi(struct ls_launch *l)
{
    l->kind = LS_LAUNCH_MPI;
    l->how = "mpirun (Open MPI)";
    l->mpi = "openmpi";
    LS_TRY(number("OMPI_COMM_WORLD_SIZE", &l->size));
    LS_TRY(number("OMPI_COMM_WORLD_RANK", &l->rank));
    LS_TRY(number("OMPI_COMM_WORLD_LOCAL_SIZE", &l->local_size));
    LS_TRY(number("OMPI_COMM_WORLD_LOCAL_RANK", &l->local_rank));
    return check_place(l->how, l->rank, l->size);
}

/* PMI: mpiexec of MPICH and its derivatives, or srun with PMI2. */
static enum ls_status by_pmi(struct ls_launch *l)
{
    bool slurm = variable("SLURM_PROCID") && !variable("MPI_LOCALNRANKS");
    l->kind = LS_LAUNCH_MPI;
    l->how = slurm ? "srun with PMI2" : "mpiexec (MPICH)";
    l->mpi = "mpich";
    LS_TRY(number("PMI_SIZE", &l->size));
    LS_TRY(number("PMI_RANK", &l->rank));
    LS_TRY(number(slurm ? "SLURM_LOCALID" : "MPI_LOCALRANKID", &l->local_rank));
    LS_TRY(number("MPI_LOCALNRANKS", &l->local_size));
    return check_place(l->how, l->rank, l->size);
}

/* Other programs may use names such as RANK: the variables count only if all are set. */
static enum ls_status by_variables(struct ls_launch *l)
{
    const char *address = variable("MASTER_ADDR");
    bool agent = variable("TORCHELASTIC_USE_AGENT_STORE") != NULL;
    l->kind = LS_LAUNCH_TCP;
    l->how = "RANK and WORLD_SIZE";
    if (!variable("RANK"))
        return ls_fail(LS_USAGE, "WORLD_SIZE is set without RANK; set both (and MASTER_ADDR), or neither");
    if (!variable("WORLD_SIZE"))
        return ls_fail(LS_USAGE, "RANK is set without WORLD_SIZE; set both (and MASTER_ADDR), or neither");
    LS_TRY(number("RANK", &l->rank));
    LS_TRY(number("WORLD_SIZE", &l->size));
    LS_TRY(number("LOCAL_RANK", &l->local_rank));
    LS_TRY(number("LOCAL_WORLD_SIZE", &l->local_size));
    LS_TRY(number("MASTER_PORT", &l->port));
    if (agent && l->port > 0)
        l->port = l->port < 65535 ? l->port + 1 : 1024; /* the agent of torchrun listens on MASTER_PORT */
    l->address = address ? ls_strdup(address) : NULL;
    if (address && !l->address)
        return LS_FAILED;
    return check_place(l->how, l->rank, l->size);
}

/* A batch script has SLURM_PROCID too; only processes of srun belong to a job step. */
static bool in_slurm_step(void)
{
    return variable("SLURM_PROCID") && (variable("SLURM_STEP_NUM_TASKS") || variable("SLURM_STEP_ID"));
}

/* Rank 0 runs on the first node of the job step; srun may run elsewhere. */
static enum ls_status slurm_address(struct ls_launch *l)
{
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"};
    char host[256] = "";
    int nodes = 0, job = 0, step = 0;
    LS_TRY(number("SLURM_NNODES", &nodes));
    LS_TRY(number("SLURM_STEP_NUM_NODES", &nodes));
    LS_TRY(number("SLURM_JOB_ID", &job));
    LS_TRY(number("SLURM_STEP_ID", &step));
    for (int i = 0; i < 3 && !*host; i++)
        if (variable(lists[i]) && !ls_slurm_first_host(variable(lists[i]), host, sizeof host))
            return ls_fail(LS_USAGE, "%s: '%s' is not a list of nodes; give --master-ip HOST", lists[i],
                           variable(lists[i]));
    const char *name = nodes == 1 ? "127.0.0.1" : *host ? host : variable("SLURM_LAUNCH_NODE_IPADDR");
    if (!name)
        return ls_fail(LS_USAGE, "srun does not say which nodes it runs on; give --master-ip HOST");
    l->address = ls_strdup(name);
    l->port =
        20000 + (int)(((unsigned)job * 31 + (unsigned)step) % 10000); /* different jobs on a node use different ports */
    return l->address ? LS_OK : LS_FAILED;
}

static enum ls_status by_slurm(struct ls_launch *l)
{
    int node = 0;
    bool pmix = variable("PMIX_RANK") != NULL;
    l->kind = pmix ? LS_LAUNCH_MPI : LS_LAUNCH_TCP;
    l->how = pmix ? "srun with PMIx" : "srun without PMI";
    l->mpi = pmix ? "openmpi" : NULL;
    LS_TRY(number("SLURM_PROCID", &l->rank));
    LS_TRY(number("SLURM_NTASKS", &l->size));
    LS_TRY(number("SLURM_STEP_NUM_TASKS", &l->size));
    LS_TRY(number("SLURM_LOCALID", &l->local_rank));
    LS_TRY(number("SLURM_NODEID", &node));
    const char *tasks = variable("SLURM_STEP_TASKS_PER_NODE");
    if (tasks)
        l->local_size = ls_slurm_tasks_of(tasks, node);
    LS_TRY(check_place(l->how, l->rank, l->size));
    return pmix || l->size == 1 ? LS_OK : slurm_address(l);
}

/* Another PMIx launcher (prun): only the PMIx library has the number of processes. */
static enum ls_status by_pmix(struct ls_launch *l)
{
    l->kind = LS_LAUNCH_MPI;
    l->how = "a PMIx launcher";
    l->mpi = "openmpi";
    return number("PMIX_RANK", &l->rank);
}

/* RANK and WORLD_SIZE under mpirun must agree with it: scripts export them from its variables. */
static enum ls_status check_variables(const struct ls_launch *l)
{
    int rank = l->rank, size = l->size;
    LS_TRY(number("RANK", &rank));
    LS_TRY(number("WORLD_SIZE", &size));
    if (rank == l->rank && size == l->size)
        return LS_OK;
    return ls_fail(LS_USAGE,
                   "two launchers at once: %s made this rank %d of %d, RANK and WORLD_SIZE say %d of %d; unset these",
                   l->how, l->rank, l->size, rank, size);
}

static enum ls_status innermost(struct ls_launch *l)
{
    bool openmpi = variable("OMPI_COMM_WORLD_SIZE"), pmi = variable("PMI_RANK") && variable("PMI_SIZE");
    bool variables = variable("RANK") || variable("WORLD_SIZE");
    if (variable("LOCKSTEP_WORKER_RANK"))
        return by_parent(l);
    if (variable("LOCKSTEP_LAUNCH_RANK"))
        return by_bench(l);
    if (openmpi || pmi) {
        LS_TRY(openmpi ? by_openmpi(l) : by_pmi(l));
        return l->size > 1 ? check_variables(l) : LS_OK;
    }
    if (variables)
        return by_variables(l);
    if (in_slurm_step())
        return by_slurm(l);
    if (variable("PMIX_RANK"))
        return by_pmix(l);
    l->size = 1;
    l->rank = 0;
    return LS_OK;
}

/* --- with the options ------------------------------------------------------------------------------------ */

/* Applies --rank and --num-nodes. They must agree with the launcher. */
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
    return l->rank < 0 ? LS_OK : check_place("--rank and --num-nodes", l->rank, l->size);
}

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
    return copy(&l->path, o->rendezvous + n);
}

/* Sets address and port of rank 0. */
static enum ls_status meet_at_address(const struct ls_options *o, struct ls_launch *l)
{
    const char *address = o->master_ip ? o->master_ip : l->address ? l->address : variable("MASTER_ADDR");
    if (!address)
        return ls_fail(LS_USAGE,
                       "%s: rank %d of %d, but where is rank 0? Give --master-ip HOST (or MASTER_ADDR), or "
                       "--rendezvous file:///PATH",
                       l->how, l->rank, l->size);
    if (l->rank < 0)
        return ls_fail(LS_USAGE, "--num-nodes %d: which of them is this? Give --rank, 0 to %d", l->size, l->size - 1);
    LS_TRY(copy(&l->address, address));
    if (l->port <= 0)
        LS_TRY(number("MASTER_PORT", &l->port));
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
    return copy(&l->token, o->token);
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

static enum ls_status resolve(const struct ls_options *o, struct ls_launch *l)
{
    LS_TRY(innermost(l));
    l->transport = transport_of(o);
    l->ucx_tcp = o->allow_unprotected_ucx;
    if (l->kind == LS_LAUNCH_WORKERS || l->token) /* by_parent, by_bench */
        return LS_OK;
    if (l->kind == LS_LAUNCH_ALONE && o->num_nodes == 0 && (o->master_ip || o->rendezvous))
        return ls_fail(LS_USAGE, "%s: for how many processes? Give --num-nodes and --rank",
                       o->rendezvous ? "--rendezvous" : "--master-ip");
    if (l->size == 1) { /* a launcher of one process needs no connection */
        l->kind = LS_LAUNCH_ALONE;
        l->mpi = NULL;
    }
    LS_TRY(place(o, l));
    if (o->rendezvous)
        LS_TRY(meet_in_file(o, l));
    else if (l->size != 1 && (o->master_ip || l->kind == LS_LAUNCH_TCP || l->kind == LS_LAUNCH_ALONE)) {
        if (l->kind == LS_LAUNCH_ALONE)
            l->how = "--master-ip";
        LS_TRY(meet_at_address(o, l));
    }
    if (o->workers > 1 && l->size != 1 && o->workers != l->size)
        return ls_fail(LS_USAGE, "--workers %lld starts processes, but %s has done that already; leave it out",
                       (long long)o->workers, l->how);
    return take_token(o, l);
}

enum ls_status ls_launch_detect(const struct ls_options *o, struct ls_launch *launch)
{
    struct ls_launch l = {
        .kind = LS_LAUNCH_ALONE, .how = "alone", .rank = -1, .size = -1, .local_rank = -1, .local_size = -1};
    enum ls_status st = resolve(o, &l);
    if (st != LS_OK || l.size == 1)
        ls_launch_release(&l);
    l.node = variable("LOCKSTEP_NODE");
    if (st == LS_OK)
        *launch = l;
    return st;
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
        if (variable(names[i]))
            return variable(names[i]);
    return "";
}
