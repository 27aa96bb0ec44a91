/* How a process was started, from tables of environments and options. */
#include "base/log.h"
#include "launch/launch.h"
#include "launch/slurm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const variables[] = {
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PMIX_RANK",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NNODES",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_JOB_ID",
    "SLURM_LAUNCH_NODE_IPADDR",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "LOCKSTEP_WORKER_RANK",
    "LOCKSTEP_WORKER_SIZE",
    "LOCKSTEP_WORKER_SESSION",
    "LOCKSTEP_LAUNCH_RANK",
    "LOCKSTEP_LAUNCH_SIZE",
    "LOCKSTEP_LAUNCH_ADDRESS",
    "LOCKSTEP_LAUNCH_PORT",
    "LOCKSTEP_LAUNCH_TOKEN",
    "LOCKSTEP_LAUNCH_PATH",
    "LOCKSTEP_LAUNCH_LOCAL_RANK",
    "LOCKSTEP_LAUNCH_LOCAL_SIZE",
    "JOB_COMPLETION_INDEX",
    "KUBERNETES_SERVICE_HOST",
    "LOCKSTEP_TOKEN",
    "LOCKSTEP_WORKERS",
    "LOCKSTEP_RANK",
    "LOCKSTEP_NUM_NODES",
};

/* The words of a line that is at most 1000 characters long. */
static int cut(const char *line, char room[1024], char **words)
{
    int n = 0;
    snprintf(room, 1024, "%s", line);
    for (char *word = strtok(room, " "); word; word = strtok(NULL, " "))
        words[n++] = word;
    return n;
}

static enum ls_status detect(const char *environment, const char *line, struct ls_launch *launch)
{
    char room[1024], *words[64];
    struct ls_options o;
    bool help;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    for (int i = cut(environment, room, words); i-- > 0;) {
        char *equals = strchr(words[i], '=');
        *equals = 0;
        setenv(words[i], equals + 1, 1);
    }
    int n = cut(line, room, words);
    assert_int_equal(ls_options_parse(&o, LS_CMD_TRAIN, n, words, &help), LS_OK);
    enum ls_status st = ls_launch_detect(&o, launch);
    ls_options_release(&o);
    return st;
}

#define SRUN "SLURM_JOB_ID=1234 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_NTASKS=4 "
#define SRUN_NODES "SLURM_NNODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n[07-08] SLURM_STEP_TASKS_PER_NODE=2(x2) "
#define TORCH "RANK=1 WORLD_SIZE=4 MASTER_ADDR=10.0.0.1 MASTER_PORT=1234 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "
#define OPENMPI \
    "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
#define BENCH(rank, size)                                        \
    "LOCKSTEP_LAUNCH_RANK=" #rank " LOCKSTEP_LAUNCH_SIZE=" #size \
    " LOCKSTEP_LAUNCH_ADDRESS=h LOCKSTEP_LAUNCH_PORT=2345 LOCKSTEP_LAUNCH_TOKEN=0123456789 "
#define HYDRA "PMI_RANK=1 PMI_SIZE=4 PMI_FD=6 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4 "

#define SRUN_ONE_EACH                                                                                 \
    "SLURM_JOB_ID=1234 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=2 " \
    "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[07-08] SLURM_STEP_TASKS_PER_NODE=1(x2) "
#define OPENMPI_NODES \
    "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "
#define HYDRA_NODES "PMI_RANK=1 PMI_SIZE=2 PMI_FD=6 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 "
#define WORKER \
    "LOCKSTEP_LAUNCH_SIZE=8 LOCKSTEP_LAUNCH_PORT=9 LOCKSTEP_LAUNCH_LOCAL_RANK=1 LOCKSTEP_LAUNCH_LOCAL_SIZE=4 "
/* Files that main writes. */
#define HOSTS "test_launch_hosts"
#define ONE_HOST "test_launch_one_host"

static const struct {
    const char *environment, *options;
    enum ls_launch_kind kind;
    int rank, size, local_rank, local_size;
    const char *mpi, *address;
    int port;
    const char *path, *how;
} good[] = {
    {"", "", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    {"", "--workers 4", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    {"LOCKSTEP_WORKER_RANK=2 LOCKSTEP_WORKER_SIZE=4 LOCKSTEP_WORKER_SESSION=abc " OPENMPI, "--workers 4",
     LS_LAUNCH_WORKERS, 2, 4, 2, 4, NULL, NULL, 0, NULL, "lockstep --workers"},
    /* a rank of bench --scale: neither its launcher nor its options count */
    {BENCH(1, 2) OPENMPI "PMIX_RANK=2", "--workers 2", LS_LAUNCH_TCP, 1, 2, -1, -1, NULL, "h", 2345, NULL,
     "lockstep bench --scale"},
    {BENCH(1, 2) TORCH, "--rendezvous file:///x --num-nodes 4 --rank 1", LS_LAUNCH_TCP, 1, 2, -1, -1, NULL, "h", 2345,
     NULL, "lockstep bench --scale"},
    {BENCH(0, 1) SRUN SRUN_NODES, "--master-ip x", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    /* MPI */
    {OPENMPI "PMIX_RANK=2", "", LS_LAUNCH_MPI, 2, 4, 0, 2, "openmpi", NULL, 0, NULL, "mpirun (Open MPI)"},
    {OPENMPI "RANK=2 WORLD_SIZE=4 " SRUN, "", LS_LAUNCH_MPI, 2, 4, 0, 2, "openmpi", NULL, 0, NULL, "mpirun (Open MPI)"},
    {OPENMPI, "--workers 4", LS_LAUNCH_MPI, 2, 4, 0, 2, "openmpi", NULL, 0, NULL, "mpirun (Open MPI)"},
    {"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", "", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    {"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", "--workers 2", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL,
     "alone"},
    {HYDRA, "", LS_LAUNCH_MPI, 1, 4, 1, 4, "mpich", NULL, 0, NULL, "mpiexec (MPICH)"},
    {"PMI_RANK=0 PMI_SIZE=1", "", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    {SRUN SRUN_NODES "PMI_RANK=3 PMI_SIZE=4", "", LS_LAUNCH_MPI, 3, 4, 1, 2, "mpich", NULL, 0, NULL, "srun with PMI2"},
    {SRUN SRUN_NODES "PMIX_RANK=3", "", LS_LAUNCH_MPI, 3, 4, 1, 2, "openmpi", NULL, 0, NULL, "srun with PMIx"},
    {"PMIX_RANK=3", "", LS_LAUNCH_MPI, -1, -1, -1, -1, "openmpi", NULL, 0, NULL, "a PMIx launcher"},
    /* Slurm alone */
    {SRUN SRUN_NODES, "", LS_LAUNCH_TCP, 3, 4, 1, 2, NULL, "n07", 28254, NULL, "srun without PMI"},
    {SRUN SRUN_NODES, "--master-port 7000 --master-ip head", LS_LAUNCH_TCP, 3, 4, 1, 2, NULL, "head", 7000, NULL,
     "srun without PMI"},
    {SRUN "SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n5", "", LS_LAUNCH_TCP, 3, 4, 1, -1, NULL, "127.0.0.1", 28254,
     NULL, "srun without PMI"},
    {SRUN "SLURM_NNODES=2 SLURM_LAUNCH_NODE_IPADDR=10.1.1.1", "", LS_LAUNCH_TCP, 3, 4, 1, -1, NULL, "10.1.1.1", 28254,
     NULL, "srun without PMI"},
    {SRUN SRUN_NODES, "--rendezvous file:///home/me/meet", LS_LAUNCH_FILE, 3, 4, 1, 2, NULL, "n07", 28254,
     "/home/me/meet", "srun without PMI"},
    {"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", "", LS_LAUNCH_ALONE, 0, 1,
     0, 1, NULL, NULL, 0, NULL, "alone"},
    {"SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4", "", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    /* torchrun's variables */
    {TORCH, "", LS_LAUNCH_TCP, 1, 4, 1, 2, NULL, "10.0.0.1", 1234, NULL, "RANK and WORLD_SIZE"},
    {TORCH "TORCHELASTIC_USE_AGENT_STORE=True", "", LS_LAUNCH_TCP, 1, 4, 1, 2, NULL, "10.0.0.1", 1235, NULL,
     "RANK and WORLD_SIZE"},
    {TORCH SRUN SRUN_NODES "PMIX_RANK=3", "", LS_LAUNCH_TCP, 1, 4, 1, 2, NULL, "10.0.0.1", 1234, NULL,
     "RANK and WORLD_SIZE"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "", LS_LAUNCH_TCP, 0, 2, -1, -1, NULL, "h", 29500, NULL,
     "RANK and WORLD_SIZE"},
    {"RANK=0 WORLD_SIZE=1", "", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    /* by hand */
    {"", "--master-ip 10.0.0.1 --num-nodes 4 --rank 3", LS_LAUNCH_TCP, 3, 4, -1, -1, NULL, "10.0.0.1", 29500, NULL,
     "--master-ip"},
    {"MASTER_ADDR=h MASTER_PORT=9", "--num-nodes 4 --rank 0", LS_LAUNCH_TCP, 0, 4, -1, -1, NULL, "h", 9, NULL,
     "--master-ip"},
    {"LOCKSTEP_RANK=3 LOCKSTEP_NUM_NODES=4", "--master-ip 10.0.0.1", LS_LAUNCH_TCP, 3, 4, -1, -1, NULL, "10.0.0.1",
     29500, NULL, "--master-ip"},
    {"", "--master-ip 10.0.0.1 --num-nodes 1 --rank 0", LS_LAUNCH_ALONE, 0, 1, 0, 1, NULL, NULL, 0, NULL, "alone"},
    {"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", "--master-ip h --num-nodes 4 --rank 2", LS_LAUNCH_TCP, 2, 4, -1,
     -1, NULL, "h", 29500, NULL, NULL},
    {"", "--rendezvous file:///tmp/meet --num-nodes 3", LS_LAUNCH_FILE, -1, 3, -1, -1, NULL, NULL, 0, "/tmp/meet",
     "--rendezvous"},
    {"", "--rendezvous file:///tmp/meet --num-nodes 3 --rank 1", LS_LAUNCH_FILE, 1, 3, -1, -1, NULL, NULL, 0,
     "/tmp/meet", "--rendezvous"},
    {OPENMPI, "--rendezvous file:///tmp/meet", LS_LAUNCH_FILE, 2, 4, 0, 2, "openmpi", NULL, 0, "/tmp/meet",
     "mpirun (Open MPI)"},
    {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", "--rendezvous file:///tmp/meet", LS_LAUNCH_ALONE, 0, 1, 0,
     1, NULL, NULL, 0, NULL, "alone"},
};

/* Processes that start workers: the rank of the first worker, the workers of all nodes, and those of this node. */
static const struct {
    const char *environment, *options;
    enum ls_launch_kind kind;
    int rank, size, workers;
    const char *address;
} parents[] = {
    {"", "--workers 4", LS_LAUNCH_ALONE, 0, 1, 4, NULL},
    {"", "-n 4", LS_LAUNCH_ALONE, 0, 1, 4, NULL},
    {"", "--npernode 4", LS_LAUNCH_ALONE, 0, 1, 4, NULL},
    {"", "--npernode 1", LS_LAUNCH_ALONE, 0, 1, 0, NULL},
    {"", "--workers 4 --num-nodes 1 --rank 0 --master-ip h", LS_LAUNCH_ALONE, 0, 1, 4, NULL},
    {"OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", "--workers 2", LS_LAUNCH_ALONE, 0, 1, 2, NULL},
    {"", "--workers 4 --num-nodes 3 --rank 2 --master-ip h", LS_LAUNCH_TCP, 8, 12, 4, "h"},
    {"", "--workers 4 --num-nodes 4 --rank 0 --master-ip h", LS_LAUNCH_TCP, 0, 16, 4, "h"},
    {"", "--npernode 2 --num-nodes 3 --rank 1 --master-ip h", LS_LAUNCH_TCP, 2, 6, 2, "h"},
    {"MASTER_ADDR=h", "--workers 2 --num-nodes 3 --rank 1", LS_LAUNCH_TCP, 2, 6, 2, "h"},
    {"", "--workers 2 --num-nodes 3 --rendezvous file:///x", LS_LAUNCH_FILE, -1, 6, 2, NULL},
    {"", "--workers 2 --num-nodes 3 --rank 2 --rendezvous file:///x", LS_LAUNCH_FILE, 4, 6, 2, NULL},
    /* a launcher with one process on each node */
    {SRUN_ONE_EACH, "--workers 4", LS_LAUNCH_TCP, 4, 8, 4, "n07"},
    {SRUN_ONE_EACH, "--workers 2", LS_LAUNCH_TCP, 2, 4, 2, "n07"},
    {SRUN_ONE_EACH "PMIX_RANK=1", "--workers 4", LS_LAUNCH_TCP, 4, 8, 4, "n07"},
    {SRUN_ONE_EACH "PMI_RANK=1 PMI_SIZE=2", "--npernode 4", LS_LAUNCH_TCP, 4, 8, 4, "n07"},
    {SRUN_ONE_EACH "PMIX_RANK=1", "--workers 4 --num-nodes 2 --rank 1 --master-ip m", LS_LAUNCH_TCP, 4, 8, 4, "m"},
    {SRUN_ONE_EACH, "--workers 4 --rendezvous file:///x", LS_LAUNCH_FILE, 4, 8, 4, "n07"},
    {SRUN_ONE_EACH, "", LS_LAUNCH_TCP, 1, 2, 0, "n07"},
    {OPENMPI_NODES, "--workers 4 --master-ip m", LS_LAUNCH_TCP, 4, 8, 4, "m"},
    {OPENMPI_NODES, "", LS_LAUNCH_MPI, 1, 2, 0, NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h", "--workers 4", LS_LAUNCH_TCP, 4, 8, 4, "h"},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", "--workers 4", LS_LAUNCH_TCP, 4, 8, 4, "h"},
    /* the launcher has started as many on each node */
    {OPENMPI, "--npernode 2", LS_LAUNCH_MPI, 2, 4, 0, NULL},
    {SRUN SRUN_NODES, "--npernode 2", LS_LAUNCH_TCP, 3, 4, 0, "n07"},
    {TORCH, "--npernode 2", LS_LAUNCH_TCP, 1, 4, 0, "10.0.0.1"},
    /* pods */
    {"JOB_COMPLETION_INDEX=2", "--num-nodes 3 --master-ip h", LS_LAUNCH_TCP, 2, 3, 0, "h"},
    {"JOB_COMPLETION_INDEX=2", "--num-nodes 3 --master-ip h --workers 4", LS_LAUNCH_TCP, 8, 12, 4, "h"},
    {"JOB_COMPLETION_INDEX=2", "--num-nodes 3 --master-ip h --rank 1", LS_LAUNCH_TCP, 1, 3, 0, "h"},
    {"JOB_COMPLETION_INDEX=2", "--num-nodes 3 --rendezvous file:///x", LS_LAUNCH_FILE, -1, 3, 0, NULL},
    {"JOB_COMPLETION_INDEX=2", "", LS_LAUNCH_ALONE, 0, 1, 0, NULL},
    /* hostfiles */
    {"", "--hostfile " HOSTS " --rank 0", LS_LAUNCH_TCP, 0, 9, 4, "10.255.255.1"},
    {"", "--hostfile " HOSTS " --rank 1", LS_LAUNCH_TCP, 4, 9, 2, "10.255.255.1"},
    {"", "--hostfile " HOSTS " --rank 2", LS_LAUNCH_TCP, 6, 9, 3, "10.255.255.1"},
    {"", "--hostfile " HOSTS " --rank 2 --master-ip m", LS_LAUNCH_TCP, 6, 9, 3, "m"},
    {"", "--hostfile " HOSTS " --rank 2 --workers 1", LS_LAUNCH_TCP, 2, 3, 0, "10.255.255.1"},
    {"", "--hostfile " HOSTS " --rank 1 --npernode 2", LS_LAUNCH_TCP, 2, 6, 2, "10.255.255.1"},
    {"", "--hostfile " HOSTS " --rank 2 --rendezvous file:///x", LS_LAUNCH_FILE, 6, 9, 3, "10.255.255.1"},
    {"", "--hostfile " ONE_HOST, LS_LAUNCH_ALONE, 0, 1, 3, NULL},
    /* workers themselves */
    {"LOCKSTEP_WORKER_RANK=2 LOCKSTEP_WORKER_SIZE=4 LOCKSTEP_WORKER_SESSION=abc " SRUN_ONE_EACH,
     "--workers 4 --num-nodes 2 --rank 1", LS_LAUNCH_WORKERS, 2, 4, 0, NULL},
    {WORKER "LOCKSTEP_LAUNCH_ADDRESS=h LOCKSTEP_LAUNCH_RANK=5 " SRUN_ONE_EACH "PMIX_RANK=1", "--workers 4",
     LS_LAUNCH_TCP, 5, 8, 0, "h"},
    {WORKER "LOCKSTEP_LAUNCH_PATH=/x LOCKSTEP_LAUNCH_RANK=any", "--workers 4 --num-nodes 2", LS_LAUNCH_FILE, -1, 8, 0,
     NULL},
};

static void same_text(const char *a, const char *b)
{
    assert_true((a == NULL) == (b == NULL));
    if (a)
        assert_string_equal(a, b);
}

static void launchers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ls_launch l;
        if (detect(good[i].environment, good[i].options, &l) != LS_OK)
            fail_msg("row %zu (%s | %s): %s", i, good[i].environment, good[i].options, ls_log_last());
        if (l.kind != good[i].kind || l.size != good[i].size || (l.rank != good[i].rank && l.size != -1))
            fail_msg("row %zu (%s | %s): kind %d, rank %d of %d", i, good[i].environment, good[i].options, (int)l.kind,
                     l.rank, l.size);
        if (good[i].kind != LS_LAUNCH_FILE) { /* the address does not matter there */
            same_text(l.address, good[i].address);
            assert_int_equal(l.port, good[i].port);
            same_text(l.mpi, good[i].mpi);
        }
        assert_int_equal(l.local_rank, good[i].local_rank);
        assert_int_equal(l.local_size, good[i].local_size);
        same_text(l.path, good[i].path);
        if (good[i].how)
            same_text(l.how, good[i].how);
        assert_true((l.session != NULL) == (l.kind == LS_LAUNCH_WORKERS));
        ls_launch_release(&l);
        assert_null(l.address);
    }
}

static void workers_of_nodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        struct ls_launch l;
        if (detect(parents[i].environment, parents[i].options, &l) != LS_OK)
            fail_msg("row %zu (%s | %s): %s", i, parents[i].environment, parents[i].options, ls_log_last());
        if (l.kind != parents[i].kind || l.size != parents[i].size || l.rank != parents[i].rank ||
            l.workers != parents[i].workers)
            fail_msg("row %zu (%s | %s): kind %d, rank %d of %d, %d workers", i, parents[i].environment,
                     parents[i].options, (int)l.kind, l.rank, l.size, l.workers);
        same_text(l.address, parents[i].address);
        ls_launch_release(&l);
    }
}

static const struct {
    const char *environment, *options, *error;
} bad[] = {
    {"RANK=1", "", "RANK is set without WORLD_SIZE"},
    {"WORLD_SIZE=4", "", "WORLD_SIZE is set without RANK"},
    {"RANK=4 WORLD_SIZE=4 MASTER_ADDR=h", "", "rank 4 of 4 processes; ranks are 0 to 3"},
    {"RANK=x WORLD_SIZE=4 MASTER_ADDR=h", "", "RANK: 'x' is not a whole number"},
    {"RANK=0 WORLD_SIZE=0", "", "0 processes"},
    {"RANK=0 WORLD_SIZE=99999999", "", "99999999 processes"},
    {"RANK=1 WORLD_SIZE=4", "", "where is rank 0? Give --master-ip"},
    {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=70000", "", "MASTER_PORT: 70000"},
    {OPENMPI "RANK=1 WORLD_SIZE=2", "", "two launchers at once"},
    {OPENMPI, "--num-nodes 3", "two launchers at once: mpirun (Open MPI) started 4 processes, --num-nodes says 3"},
    {OPENMPI, "--rank 3", "two launchers at once: mpirun (Open MPI) made this rank 2, --rank says 3"},
    {OPENMPI, "--workers 3", "--workers 3 starts processes, but mpirun (Open MPI) has done that already"},
    {"OMPI_COMM_WORLD_SIZE=2", "", "rank -1 of 2"},
    {"", "--rank 3", "--rank 3 of how many?"},
    {"", "--rank 3 --num-nodes 3", "rank 3 of 3"},
    {"", "--num-nodes 3", "--num-nodes 3: where is rank 0, and which rank is this?"},
    {"", "--num-nodes 3 --master-ip h", "which of them is this? Give --rank, 0 to 2"},
    {"", "--master-ip h", "--master-ip: for how many processes?"},
    {"", "--rendezvous file:///x", "--rendezvous: for how many processes?"},
    {"", "--rendezvous tcp://h --num-nodes 2", "only file:///PATH is known"},
    {"", "--rendezvous file://x/y --num-nodes 2", "only file:///PATH is known"},
    {"", "--rendezvous file:/// --num-nodes 2", "only file:///PATH is known"},
    {"", "--rendezvous file:///x --num-nodes 2 --master-ip h", "two ways to meet"},
    {"LOCKSTEP_TOKEN=short", "--rank 0 --num-nodes 3 --master-ip h", "the token has fewer than 8"},
    {"LOCKSTEP_WORKER_RANK=1", "", "set all three, or none"},
    {"LOCKSTEP_LAUNCH_RANK=1", "", "is for the processes that Lockstep itself starts; unset it"},
    {"LOCKSTEP_LAUNCH_RANK=any LOCKSTEP_LAUNCH_SIZE=2 LOCKSTEP_LAUNCH_ADDRESS=h LOCKSTEP_LAUNCH_PORT=1", "",
     "unset it"},
    {BENCH(2, 2), "", "rank 2 of 2"},
    {SRUN "SLURM_STEP_NODELIST=n[1", "", "is not a list of nodes"},
    {SRUN, "", "does not say which nodes"},
    /* workers of several nodes */
    {"", "--workers 2 --npernode 3", "--workers 2 and --npernode 3 both say how many a node has"},
    {"", "--workers 4096 --num-nodes 65536 --rank 0 --master-ip h", "--workers and --num-nodes: 268435456 processes"},
    {OPENMPI_NODES, "--workers 4", "let it start the workers (mpirun -npernode 4), or give --master-ip HOST"},
    {HYDRA_NODES, "--npernode 2", "let it start the workers (mpirun -ppn 2)"},
    {OPENMPI, "--npernode 3", "--npernode 3, but mpirun (Open MPI) started 2 processes on this node"},
    {SRUN SRUN_NODES, "--workers 2", "--workers 2 starts processes, but srun without PMI has done that already"},
    {SRUN SRUN_NODES, "--rank 1", "two launchers at once: srun without PMI made this rank 3, --rank says 1"},
    {SRUN_ONE_EACH, "--workers 4 --rank 0", "made this rank 1, --rank says 0"},
    {SRUN_ONE_EACH, "--workers 4 --num-nodes 4", "started 2 processes, --num-nodes says 4"},
    {OPENMPI, "--hostfile " HOSTS,
     "--hostfile " HOSTS " places processes, but mpirun (Open MPI) has done that already"},
    {TORCH, "--npernode 4", "--npernode 4, but RANK and WORLD_SIZE started 2 processes"},
    {"RANK=1 WORLD_SIZE=6 MASTER_ADDR=h LOCAL_RANK=1", "--npernode 4",
     "the 6 processes of RANK and WORLD_SIZE are not a"},
    {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=h LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "", "LOCAL_RANK 2 of LOCAL_WORLD_SIZE 2"},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", "",
     "LOCAL_WORLD_SIZE 4 is more than WORLD_SIZE 2"},
    {"RANK=0 WORLD_SIZE=4 MASTER_ADDR=h LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "", "LOCAL_RANK 1 with RANK 0"},
    /* pods */
    {"JOB_COMPLETION_INDEX=3", "--num-nodes 3 --master-ip h",
     "--num-nodes 3, but JOB_COMPLETION_INDEX makes this number 3"},
    {"JOB_COMPLETION_INDEX=x", "--num-nodes 3 --master-ip h", "JOB_COMPLETION_INDEX: 'x' is not a whole number"},
    /* hostfiles */
    {"", "--hostfile " HOSTS " --rank 3", "--rank 3, but the 3 hosts of " HOSTS " are number 0 to 2"},
    {"", "--hostfile " HOSTS " --num-nodes 2 --rank 0", HOSTS " has 3 hosts, --num-nodes says 2"},
    {"", "--hostfile " HOSTS " --rank 0 --workers 3", "--workers 3, but " HOSTS ":4 gives 10.255.255.2 2 slots"},
    {"", "--hostfile " HOSTS, "is not one of its 3 hosts; add it, or give --rank, 0 to 2"},
};

static void contradictions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_launch l;
        enum ls_status st = detect(bad[i].environment, bad[i].options, &l);
        if (st != LS_USAGE || !strstr(ls_log_last(), bad[i].error))
            fail_msg("row %zu (%s | %s): %d, %s", i, bad[i].environment, bad[i].options, (int)st, ls_log_last());
        assert_null(strstr(ls_log_last(), "short"));
    }
}

static void tokens(void **state)
{
    (void)state;
    struct ls_launch l;
    assert_int_equal(detect("LOCKSTEP_TOKEN=from-the-environment", "--rank 0 --num-nodes 3 --master-ip h", &l), LS_OK);
    assert_string_equal(l.token, "from-the-environment");
    ls_launch_release(&l);
    assert_int_equal(detect("LOCKSTEP_TOKEN=from-the-environment", "", &l), LS_OK);
    assert_null(l.token);
    ls_launch_release(&l);
}

static void node_lists(void **state)
{
    (void)state;
    static const char *const lists[][2] = {
        {"n1", "n1"},        {"n1,n2", "n1"},          {"n[01-03,07]", "n01"},
        {"n[7,9],m2", "n7"}, {"r[1-2]n[3-4]", "r1n3"}, {"gpu-[003-010]-ib", "gpu-003-ib"},
        {"n[5]", "n5"},
    };
    char host[32];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_true(ls_slurm_first_host(lists[i][0], host, sizeof host));
        assert_string_equal(host, lists[i][1]);
    }
    assert_false(ls_slurm_first_host("", host, sizeof host));
    assert_false(ls_slurm_first_host("n[1-2", host, sizeof host));
    assert_false(ls_slurm_first_host("a-name-that-is-longer-than-there-is-room-for", host, sizeof host));
    assert_false(ls_slurm_first_host("n[00000000000000000000000000000000000000000001-2]", host, sizeof host));
    assert_int_equal(ls_slurm_tasks_of("2(x3),1", 0), 2);
    assert_int_equal(ls_slurm_tasks_of("2(x3),1", 2), 2);
    assert_int_equal(ls_slurm_tasks_of("2(x3),1", 3), 1);
    assert_int_equal(ls_slurm_tasks_of("2(x3),1", 4), -1);
    assert_int_equal(ls_slurm_tasks_of("", 0), -1);
    assert_int_equal(ls_slurm_tasks_of("x", 0), -1);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* In a folder of its own, as several tests run at once. */
static int set_up(void **state)
{
    static char folder[] = "/tmp/lockstep-launch-XXXXXX";
    *state = mkdtemp(folder);
    ls_log_mute(1);
    assert_non_null(*state);
    assert_int_equal(chdir(folder), 0);
    write_text(
        HOSTS,
        "# the hosts\n10.255.255.1 slots=4 max_slots=8\n\n10.255.255.2:2\r\n 10.255.255.3  # one\n10.255.255.3 slots=2");
    write_text(ONE_HOST, "localhost:3");
    return 0;
}

static int tear_down(void **state)
{
    remove(HOSTS);
    remove(ONE_HOST);
    return rmdir(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers), cmocka_unit_test(workers_of_nodes), cmocka_unit_test(contradictions),
        cmocka_unit_test(tokens),    cmocka_unit_test(node_lists),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
