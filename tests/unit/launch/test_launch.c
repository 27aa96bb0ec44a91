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
    {SRUN SRUN_NODES "PMI_RANK=3 PMI_SIZE=4", "", LS_LAUNCH_MPI, 3, 4, 1, -1, "mpich", NULL, 0, NULL, "srun with PMI2"},
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
    {"", "--num-nodes 3", "where is rank 0?"},
    {"", "--num-nodes 3 --master-ip h", "which of them is this? Give --rank, 0 to 2"},
    {"", "--master-ip h", "--master-ip: for how many processes?"},
    {"", "--rendezvous file:///x", "--rendezvous: for how many processes?"},
    {"", "--rendezvous tcp://h --num-nodes 2", "only file:///PATH is known"},
    {"", "--rendezvous file://x/y --num-nodes 2", "only file:///PATH is known"},
    {"", "--rendezvous file:/// --num-nodes 2", "only file:///PATH is known"},
    {"", "--rendezvous file:///x --num-nodes 2 --master-ip h", "two ways to meet"},
    {"", "--rank 0 --num-nodes 3 --master-ip h --workers 2", "--workers 2 starts processes"},
    {"LOCKSTEP_TOKEN=short", "--rank 0 --num-nodes 3 --master-ip h", "the token has fewer than 8"},
    {"LOCKSTEP_WORKER_RANK=1", "", "set all three, or none"},
    {"LOCKSTEP_LAUNCH_RANK=1", "", "is for the processes that bench --scale starts; unset it"},
    {BENCH(2, 2), "", "rank 2 of 2"},
    {SRUN "SLURM_STEP_NODELIST=n[1", "", "is not a list of nodes"},
    {SRUN, "", "does not say which nodes"},
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

static int set_up(void **state)
{
    (void)state;
    ls_log_mute(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(tokens),
        cmocka_unit_test(node_lists),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
