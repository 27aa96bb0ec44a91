/* A group of processes for the tests of src/comm: children of the test, over shared memory. A child says what is wrong on
 * standard error and ends with 1; whatever happens it ends within LIFETIME seconds. */
#ifndef LS_TESTS_COMM_RANKS_H
#define LS_TESTS_COMM_RANKS_H

#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/comm.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 8, LIFETIME = 300 };

#define NEED(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #condition, ls_log_last()); \
            _exit(1);                                                                                     \
        }                                                                                                 \
    } while (0)

struct ranks {
    int size, replicas, per_node; /* per_node 0: all on one; else so many ranks count as a node */
    enum ls_collective collective;
    double deadline;
    size_t max_bytes;
    bool loud; /* errors are expected unless this is set */
    const void *argument;
    pid_t pids[MOST_RANKS];
    int status[MOST_RANKS]; /* as waitpid has it */
};

typedef void rank_function(struct ls_comm *c, const struct ranks *r);

static inline void be_rank(const struct ranks *r, int rank, const char *session, rank_function *run)
{
    struct ls_comm *c;
    char node[16];
    struct ls_launch launch = {.kind = r->size == 1 ? LS_LAUNCH_ALONE : LS_LAUNCH_WORKERS,
                               .how = "a test",
                               .rank = rank,
                               .size = r->size,
                               .local_rank = rank,
                               .local_size = r->size,
                               .session = (char *)(uintptr_t)session};
    struct ls_comm_options o = {.collective = r->collective,
                                .deadline = r->deadline > 0 ? r->deadline : 30,
                                .replicas = r->replicas,
                                .max_bytes = r->max_bytes ? r->max_bytes : 8u << 20};
    alarm(LIFETIME);
    ls_log_mute(!r->loud);
    if (r->per_node > 0) {
        snprintf(node, sizeof node, "%d", rank / r->per_node);
        launch.node = node;
    }
    NEED(ls_comm_open(&launch, &o, &c) == LS_OK);
    run(c, r);
    _exit(0);
}

/* Start them; they run side by side with the test. */
static inline void start_ranks(struct ranks *r, rank_function *run)
{
    static int times;
    char session[64];
    snprintf(session, sizeof session, "test-%d-%d", (int)getpid(), times++);
    fflush(stdout);
    for (int rank = 0; rank < r->size; rank++) {
        r->pids[rank] = fork();
        assert_true(r->pids[rank] >= 0);
        if (r->pids[rank] == 0)
            be_rank(r, rank, session, run);
    }
}

static inline void wait_ranks(struct ranks *r)
{
    for (int rank = 0; rank < r->size; rank++)
        assert_int_equal(waitpid(r->pids[rank], &r->status[rank], 0), r->pids[rank]);
}

/* Start, wait, expect that all end well. */
static inline void run_ranks(struct ranks r, rank_function *run)
{
    start_ranks(&r, run);
    wait_ranks(&r);
    for (int rank = 0; rank < r.size; rank++)
        assert_int_equal(r.status[rank], 0);
}

/* Nothing of ours is left in /dev/shm. */
static inline void no_leftovers(void)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "lockstep-test-%d-", (int)getpid());
    DIR *d = opendir("/dev/shm");
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        assert_int_not_equal(strncmp(e->d_name, prefix, strlen(prefix)), 0);
    closedir(d);
}

#endif
