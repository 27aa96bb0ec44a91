/* liblockstep as a program sees it (include/lockstep.h), alone and among children of the test over shared memory. */
#define _GNU_SOURCE
#include <lockstep.h>

#include "base/log.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5, LIFETIME = 300, LARGE = 5000000 /* floats: more than one piece */ };

#define NEED(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #condition, ls_log_last()); \
            _exit(1);                                                                                     \
        }                                                                                                 \
    } while (0)

/* What a process of several does; its exit code. */
typedef int process(struct lockstep *l);

static int be_process(int rank, int size, int nodes, const char *session, const struct lockstep_options *o,
                      process *run)
{
    char text[16];
    alarm(LIFETIME);
    snprintf(text, sizeof text, "%d", rank);
    setenv("LOCKSTEP_WORKER_RANK", text, 1);
    snprintf(text, sizeof text, "%d", size);
    setenv("LOCKSTEP_WORKER_SIZE", text, 1);
    setenv("LOCKSTEP_WORKER_SESSION", session, 1);
    if (nodes > 1) {
        snprintf(text, sizeof text, "%d", rank % nodes);
        setenv("LOCKSTEP_NODE", text, 1);
    }
    if (rank == 1 && getenv("LOCKSTEP_TEST_COMPRESS"))
        setenv("LOCKSTEP_COMPRESS", getenv("LOCKSTEP_TEST_COMPRESS"), 1);
    struct lockstep *l = lockstep_init(o);
    NEED(lockstep_status(l) == LOCKSTEP_OK);
    NEED(lockstep_rank(l) == rank && lockstep_size(l) == size);
    return run(l);
}

/* Run it in so many processes, each with its expected exit code: codes[rank], NULL: 0. */
static void among(int size, int nodes, const struct lockstep_options *o, const int *codes, process *run)
{
    static int times;
    char session[64];
    pid_t pids[MOST];
    int status;
    snprintf(session, sizeof session, "/lockstep-lib-%d-%d", (int)getpid(), times++);
    fflush(stdout);
    for (int rank = 0; rank < size; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0)
            _exit(be_process(rank, size, nodes, session, o, run));
    }
    for (int rank = 0; rank < size; rank++) {
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), codes ? codes[rank] : 0);
    }
}

static float value(int rank, size_t i, int round)
{
    return (float)((int)((i * 31 + (size_t)(rank * 7 + round)) % 1001) - 500) / 64.0f;
}

static void fill(const struct lockstep *l, float *data, size_t count, int round)
{
    for (size_t i = 0; i < count; i++)
        data[i] = value(lockstep_rank(l), i, round);
}

/* The values are multiples of 1/64 and small, so their sums are exact. */
static bool holds(const struct lockstep *l, const float *data, size_t count, int round, enum lockstep_op op)
{
    int size = lockstep_size(l);
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int rank = 0; rank < size; rank++)
            sum += value(rank, i, round);
        if (data[i] != (op == LOCKSTEP_MEAN ? sum / (float)size : sum))
            return false;
    }
    return true;
}

/* --- alone ------------------------------------------------------------------------------------------------------ */

static void alone_it_does_nothing(void **state)
{
    size_t first, last;
    float data[3] = {1, 2, 3};
    struct lockstep *l = lockstep_init(NULL);
    (void)state;
    assert_int_equal(lockstep_status(l), LOCKSTEP_OK);
    assert_string_equal(lockstep_error(l), "");
    assert_int_equal(lockstep_rank(l), 0);
    assert_int_equal(lockstep_size(l), 1);
    assert_int_equal(lockstep_local_rank(l), 0);
    assert_int_equal(lockstep_local_size(l), 1);
    lockstep_shard(l, 10, &first, &last);
    assert_int_equal(first, 0);
    assert_int_equal(last, 10);
    assert_int_equal(lockstep_broadcast(l, 0, data, sizeof data), LOCKSTEP_OK);
    assert_int_equal(lockstep_submit(l, 4, data, 3, LOCKSTEP_MEAN), LOCKSTEP_OK);
    assert_int_equal(lockstep_wait(l, 4), LOCKSTEP_OK);
    assert_int_equal(lockstep_wait(l, 4), LOCKSTEP_OK);
    assert_int_equal(lockstep_allreduce(l, data, 3, LOCKSTEP_SUM), LOCKSTEP_OK);
    assert_int_equal(lockstep_barrier(l), LOCKSTEP_OK);
    assert_true(data[0] == 1 && data[1] == 2 && data[2] == 3);
    float *memory = lockstep_alloc(l, 1000);
    assert_non_null(memory);
    assert_true(memory[0] == 0 && memory[249] == 0);
    lockstep_allow(l, 1);
    assert_int_equal(lockstep_finish(l, 0), LOCKSTEP_OK);
    l = lockstep_init(NULL);
    assert_int_equal(lockstep_finish(l, 7), 7);
}

static void expect_refused(struct lockstep_options o, const char *why)
{
    float data[1] = {1};
    size_t first, last;
    o.quiet = 1;
    ls_log_mute(1); /* also of what is said before it is known to be quiet */
    struct lockstep *l = lockstep_init(&o);
    assert_int_equal(lockstep_status(l), LOCKSTEP_USAGE);
    assert_non_null(strstr(lockstep_error(l), why));
    assert_null(strstr(lockstep_error(l), "--")); /* no options of a command line */
    assert_int_equal(lockstep_rank(l), 0);        /* a program may divide by the size before it looks */
    assert_int_equal(lockstep_size(l), 1);
    assert_int_equal(lockstep_local_rank(l), 0);
    assert_int_equal(lockstep_local_size(l), 1);
    lockstep_shard(l, 10, &first, &last);
    assert_true(first == 0 && last == 10);
    assert_int_equal(lockstep_broadcast(l, 0, data, 4), LOCKSTEP_USAGE);
    assert_int_equal(lockstep_submit(l, 0, data, 1, LOCKSTEP_SUM), LOCKSTEP_USAGE);
    assert_int_equal(lockstep_wait(l, 0), LOCKSTEP_USAGE);
    assert_int_equal(lockstep_wait_all(l), LOCKSTEP_USAGE);
    assert_int_equal(lockstep_barrier(l), LOCKSTEP_USAGE);
    assert_null(lockstep_alloc(l, 4));
    lockstep_abort(l, "no matter");
    assert_int_equal(lockstep_finish(l, 0), LOCKSTEP_USAGE);
}

static void wrong_options_are_refused(void **state)
{
    const size_t size = sizeof(struct lockstep_options);
    (void)state;
    expect_refused((struct lockstep_options){.size = 0}, "sizeof");
    expect_refused((struct lockstep_options){.size = size + 8}, "sizeof");
    expect_refused((struct lockstep_options){.size = size, .compress = "fp8"}, "fp8");
    expect_refused((struct lockstep_options){.size = size, .compress = "powersgd"}, "1bit");
    expect_refused((struct lockstep_options){.size = size, .deadline = -1}, "deadline");
    expect_refused((struct lockstep_options){.size = size, .num_nodes = 2, .rank = 2, .master_ip = "127.0.0.1"},
                   "rank 2");
    expect_refused((struct lockstep_options){.size = size, .rendezvous = "/tmp"}, "Give num_nodes and rank");
    expect_refused((struct lockstep_options){.size = size, .rendezvous = "/tmp", .num_nodes = 2, .rank = -1},
                   "rendezvous /tmp: only file:///PATH is known");
    expect_refused((struct lockstep_options){.size = size, .rendezvous = "file:///x", .num_nodes = 2, .master_ip = "h"},
                   "rendezvous and master_ip are two ways");
    expect_refused((struct lockstep_options){.size = size, .master_ip = "127.0.0.1"}, "Give num_nodes and rank");
    expect_refused((struct lockstep_options){.size = size, .num_nodes = 2}, "Give master_ip HOST");
    expect_refused((struct lockstep_options){.size = size, .num_nodes = 2, .rank = -1, .master_ip = "127.0.0.1"},
                   "Give rank");
    expect_refused((struct lockstep_options){.size = size, .num_nodes = 2, .master_ip = "127.0.0.1", .token = "short"},
                   "8 characters");
    expect_refused((struct lockstep_options){.size = size, .num_nodes = 2, .master_ip = "h", .master_port = 70000},
                   "master_port");
    expect_refused((struct lockstep_options){.size = size, .num_nodes = -3, .master_ip = "h"}, "num_nodes");
}

static void nothing_at_all_is_a_failure(void **state)
{
    size_t first, last;
    (void)state;
    assert_int_equal(lockstep_status(NULL), LOCKSTEP_FAILED);
    assert_int_equal(lockstep_wait_all(NULL), LOCKSTEP_FAILED);
    assert_int_equal(lockstep_wait(NULL, 0), LOCKSTEP_FAILED);
    assert_int_equal(lockstep_submit(NULL, 0, NULL, 0, LOCKSTEP_SUM), LOCKSTEP_FAILED);
    assert_int_equal(lockstep_rank(NULL), 0);
    assert_int_equal(lockstep_size(NULL), 1);
    lockstep_shard(NULL, 5, &first, &last);
    assert_int_equal(last, 5);
    assert_null(lockstep_alloc(NULL, 1));
    assert_int_equal(lockstep_finish(NULL, 0), LOCKSTEP_FAILED);
    assert_int_equal(lockstep_finish(NULL, 3), 3);
}

/* Each on a fresh one, since a failure lasts. */
static void wrong_calls_are_refused(void **state)
{
    const struct lockstep_options quiet = {.size = sizeof quiet, .quiet = 1};
    float data[2] = {0};
    (void)state;
    for (int which = 0; which < 9; which++) {
        struct lockstep *l = lockstep_init(&quiet);
        int found = 0;
        assert_int_equal(lockstep_submit(l, 0, data, 2, LOCKSTEP_SUM), LOCKSTEP_OK);
        if (which == 0)
            found = lockstep_submit(l, 0, data, 2, LOCKSTEP_SUM); /* twice */
        assert_int_equal(lockstep_wait_all(l), which == 0 ? LOCKSTEP_USAGE : LOCKSTEP_OK);
        if (which == 1)
            found = lockstep_submit(l, 0, data, 1, LOCKSTEP_SUM); /* another count */
        if (which == 2)
            found = lockstep_submit(l, -1, data, 1, LOCKSTEP_SUM);
        if (which == 3)
            found = lockstep_submit(l, LOCKSTEP_ID_LIMIT, data, 1, LOCKSTEP_SUM);
        if (which == 4)
            found = lockstep_broadcast(l, 1, data, 8);
        if (which == 5)
            found = lockstep_allreduce(l, data, 1, (enum lockstep_op)9);
        if (which == 6)
            found = lockstep_allreduce(l, NULL, 1, LOCKSTEP_SUM);
        if (which == 7)
            found = lockstep_submit(l, 1, NULL, 1, LOCKSTEP_SUM);
        if (which == 8)
            found = lockstep_broadcast(l, 0, NULL, 1);
        assert_int_equal(found, LOCKSTEP_USAGE);
        assert_int_equal(lockstep_status(l), LOCKSTEP_USAGE);
        assert_true(strlen(lockstep_error(l)) > 10);
        assert_int_equal(lockstep_barrier(l), LOCKSTEP_USAGE);
        assert_int_equal(lockstep_finish(l, 0), LOCKSTEP_USAGE);
    }
}

static void an_abort_lasts(void **state)
{
    const struct lockstep_options quiet = {.size = sizeof quiet, .quiet = 1};
    float data[2] = {0};
    (void)state;
    struct lockstep *l = lockstep_init(&quiet);
    lockstep_abort(l, "the third sample is blue");
    lockstep_abort(l, "another thread says so, too");
    assert_int_equal(lockstep_status(l), LOCKSTEP_FAILED);
    assert_string_equal(lockstep_error(l), "the third sample is blue");
    assert_int_equal(lockstep_submit(l, 0, data, 2, LOCKSTEP_SUM), LOCKSTEP_FAILED);
    assert_int_equal(lockstep_wait_all(l), LOCKSTEP_FAILED);
    assert_int_equal(lockstep_finish(l, 0), LOCKSTEP_FAILED);
}

/* --- together --------------------------------------------------------------------------------------------------- */

static int sum_everything(struct lockstep *l)
{
    static const size_t counts[] = {0, 1, 17, 1000, 300000};
    enum { N = sizeof counts / sizeof *counts };
    float *own = ls_alloc(LARGE, sizeof *own), *shared = lockstep_alloc(l, LARGE * sizeof(float));
    NEED(own && shared);
    for (int round = 0; round < 4; round++) { /* in shared memory or not; sum or mean */
        float *at[N], *memory = round & 1 ? shared : own;
        enum lockstep_op op = round & 2 ? LOCKSTEP_MEAN : LOCKSTEP_SUM;
        for (int i = N - 1; i >= 0; i--) {
            at[i] = memory;
            memory += counts[i];
            fill(l, at[i], counts[i], i + round);
            NEED(lockstep_submit(l, 3 * i, at[i], counts[i], op) == LOCKSTEP_OK);
        }
        NEED(lockstep_wait(l, 3 * (N - 1)) == LOCKSTEP_OK);
        NEED(holds(l, at[N - 1], counts[N - 1], N - 1 + round, op));
        NEED(lockstep_wait_all(l) == LOCKSTEP_OK);
        for (int i = 0; i < N; i++)
            NEED(holds(l, at[i], counts[i], i + round, op));
        fill(l, memory, 1000, round);
        NEED(lockstep_allreduce(l, memory, 1000, op) == LOCKSTEP_OK);
        NEED(holds(l, memory, 1000, round, op));
    }
    ls_free(own);
    NEED(lockstep_barrier(l) == LOCKSTEP_OK);
    return lockstep_finish(l, 0);
}

static void sums_and_means(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++)
        among(size, 1, NULL, NULL, sum_everything);
}

static void sums_and_means_between_nodes(void **state)
{
    (void)state;
    among(2, 2, NULL, NULL, sum_everything);
    among(4, 2, NULL, NULL, sum_everything);
    among(3, 2, NULL, NULL, sum_everything);
}

static int sum_large(struct lockstep *l)
{
    float *data = ls_alloc(LARGE, sizeof *data);
    NEED(data != NULL);
    fill(l, data, LARGE, 1);
    NEED(lockstep_submit(l, 0, data, LARGE, LOCKSTEP_SUM) == LOCKSTEP_OK);
    NEED(lockstep_wait_all(l) == LOCKSTEP_OK);
    NEED(holds(l, data, LARGE, 1, LOCKSTEP_SUM));
    fill(l, data, LARGE, 2);
    NEED(lockstep_allreduce(l, data, LARGE, LOCKSTEP_MEAN) == LOCKSTEP_OK);
    NEED(holds(l, data, LARGE, 2, LOCKSTEP_MEAN));
    ls_free(data);
    return lockstep_finish(l, 0);
}

static void sums_larger_than_a_piece(void **state)
{
    (void)state;
    among(2, 1, NULL, NULL, sum_large);
    among(2, 2, NULL, NULL, sum_large);
}

/* Nothing is allocated in them after the first. */
static int many_steps(struct lockstep *l)
{
    float data[600];
    uint64_t calls = 0;
    for (int step = 0; step < 400; step++) {
        fill(l, data, 600, step);
        NEED(lockstep_submit(l, 1, data, 500, LOCKSTEP_SUM) == LOCKSTEP_OK);
        NEED(lockstep_submit(l, 0, data + 500, 100, LOCKSTEP_MEAN) == LOCKSTEP_OK);
        NEED(lockstep_wait_all(l) == LOCKSTEP_OK);
        NEED(holds(l, data, 500, step, LOCKSTEP_SUM));
        if (step == 0)
            calls = ls_memory_calls();
    }
    NEED(ls_memory_calls() == calls);
    return lockstep_finish(l, 0);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    among(3, 1, NULL, NULL, many_steps);
}

static int deal(struct lockstep *l)
{
    unsigned char root[5000];
    float counts[37] = {0};
    size_t first, last;
    int size = lockstep_size(l);
    memset(root, lockstep_rank(l) + 1, sizeof root);
    NEED(lockstep_broadcast(l, size - 1, root, sizeof root) == LOCKSTEP_OK);
    NEED(root[0] == size && root[4999] == size);
    lockstep_shard(l, 37, &first, &last);
    NEED(last - first == 37u / (unsigned)size || last - first == 37u / (unsigned)size + 1);
    for (size_t i = first; i < last; i++)
        counts[i] += 1;
    NEED(lockstep_allreduce(l, counts, 37, LOCKSTEP_SUM) == LOCKSTEP_OK);
    for (int i = 0; i < 37; i++)
        NEED(counts[i] == 1);
    lockstep_shard(l, 1, &first, &last);
    NEED(last - first == (lockstep_rank(l) == 0));
    return lockstep_finish(l, 0);
}

static void every_sample_is_dealt_once(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++)
        among(size, 1, NULL, NULL, deal);
}

/* --- compressed ------------------------------------------------------------------------------------------------- */

/* Large values whose sum fp16 does not hold, and whose mean it does. */
static int mean_of_large(struct lockstep *l)
{
    float data[2000];
    for (int i = 0; i < 2000; i++)
        data[i] = 40000.0f - (float)i;
    NEED(lockstep_submit(l, 0, data, 2000, LOCKSTEP_MEAN) == LOCKSTEP_OK);
    NEED(lockstep_wait_all(l) == LOCKSTEP_OK);
    for (int i = 0; i < 2000; i++)
        NEED(fabsf(data[i] - (40000.0f - (float)i)) < 40000.0f / 256);
    fill(l, data, 2000, 5);
    NEED(lockstep_allreduce(l, data, 2000, LOCKSTEP_SUM) == LOCKSTEP_OK); /* never compressed */
    NEED(holds(l, data, 2000, 5, LOCKSTEP_SUM));
    return lockstep_finish(l, 0);
}

/* What one step rounds away comes in later ones: over many steps the sums add up. */
static int feedback_makes_up(struct lockstep *l)
{
    enum { COUNT = 3000, ROUNDS = 200 };
    static float data[COUNT], total[COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        fill(l, data, COUNT, 0);
        NEED(lockstep_submit(l, 2, data, COUNT, LOCKSTEP_SUM) == LOCKSTEP_OK);
        NEED(lockstep_wait_all(l) == LOCKSTEP_OK);
        for (int i = 0; i < COUNT; i++)
            total[i] += data[i];
    }
    double error = 0, norm = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double exact = 0;
        for (int rank = 0; rank < lockstep_size(l); rank++)
            exact += ROUNDS * (double)value(rank, i, 0);
        error += (total[i] - exact) * (total[i] - exact);
        norm += exact * exact;
    }
    NEED(error < 0.1 * 0.1 * norm);
    return lockstep_finish(l, 0);
}

static void compression(void **state)
{
    struct lockstep_options o = {.size = sizeof o};
    (void)state;
    o.compress = "fp16";
    among(3, 1, &o, NULL, mean_of_large);
    among(3, 3, &o, NULL, mean_of_large);
    o.compress = "bf16";
    among(2, 1, &o, NULL, mean_of_large);
    o.compress = "1bit";
    among(2, 1, &o, NULL, feedback_makes_up);
    among(2, 2, &o, NULL, feedback_makes_up);
}

/* --- when it goes wrong ----------------------------------------------------------------------------------------- */

static const struct lockstep_options hushed = {.size = sizeof hushed, .quiet = 1, .deadline = 20};

/* Rank 1 ends without a word. Rank 0 does not wait: its communication thread finds the loss, and prints nothing. */
static int lose_quietly(struct lockstep *l)
{
    char path[] = "/tmp/lockstep-quiet-XXXXXX", last[1024] = "";
    struct stat about;
    if (lockstep_rank(l) == 1)
        return 0;
    int file = mkstemp(path), before = dup(STDERR_FILENO);
    unlink(path);
    dup2(file, STDERR_FILENO);
    for (int i = 0; i < 2000 && !strstr(last, "rank 1"); i++) {
        usleep(10000);
        ls_log_last_copy(last, sizeof last); /* the other thread may be reporting */
    }
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    NEED(strstr(last, "rank 1"));
    NEED(fstat(file, &about) == 0 && about.st_size == 0);
    return 0;
}

static void quiet_holds_for_the_communication_thread(void **state)
{
    (void)state;
    among(2, 1, &hushed, NULL, lose_quietly);
}

/* Two calls that do not go together. After `before` others, rank 1 makes the second and all others the first. */
struct pair {
    const char *first, *second; /* as the message has them */
    int (*one)(struct lockstep *l), (*other)(struct lockstep *l);
};
static float room[300000];
static int before;
static const struct pair *pair;

static int sum_10(struct lockstep *l)
{
    return lockstep_allreduce(l, room, 10, LOCKSTEP_SUM);
}
static int sum_20(struct lockstep *l)
{
    return lockstep_allreduce(l, room, 20, LOCKSTEP_SUM);
}
static int sum_nothing(struct lockstep *l)
{
    return lockstep_allreduce(l, room, 0, LOCKSTEP_SUM);
}
static int sum_many(struct lockstep *l)
{
    return lockstep_allreduce(l, room, 300000, LOCKSTEP_SUM);
}
static int mean_10(struct lockstep *l)
{
    return lockstep_allreduce(l, room, 10, LOCKSTEP_MEAN);
}
static int mean_many(struct lockstep *l)
{
    return lockstep_allreduce(l, room, 300000, LOCKSTEP_MEAN);
}
static int broadcast_40(struct lockstep *l)
{
    return lockstep_broadcast(l, 0, room, 40);
}
static int broadcast_from_1(struct lockstep *l)
{
    return lockstep_broadcast(l, 1, room, 40);
}
static int broadcast_many(struct lockstep *l)
{
    return lockstep_broadcast(l, 0, room, sizeof room);
}
static int submit_5(struct lockstep *l)
{
    lockstep_submit(l, 5, room, 10, LOCKSTEP_SUM);
    lockstep_submit(l, 6, room + 10, 10, LOCKSTEP_SUM);
    return lockstep_wait_all(l);
}
static int submit_6(struct lockstep *l)
{
    lockstep_submit(l, 6, room + 10, 10, LOCKSTEP_SUM);
    lockstep_submit(l, 5, room, 10, LOCKSTEP_SUM);
    return lockstep_wait_all(l);
}
static int alloc_100(struct lockstep *l)
{
    return lockstep_alloc(l, 100) == NULL;
}
static int alloc_5000(struct lockstep *l)
{
    return lockstep_alloc(l, 5000) == NULL;
}

static const struct pair pairs[] = {
    {"calls lockstep_allreduce for 10 floats (sum)", "calls lockstep_allreduce for 20 floats (sum)", sum_10, sum_20},
    {"calls lockstep_allreduce for 10 floats (sum)", "calls lockstep_allreduce for 300000 floats (sum)", sum_10,
     sum_many},
    {"calls lockstep_allreduce for 300000 floats (sum)", "calls lockstep_allreduce for 10 floats (sum)", sum_many,
     sum_10},
    {"calls lockstep_allreduce for 10 floats (sum)", "calls lockstep_allreduce for 10 floats (mean)", sum_10, mean_10},
    {"calls lockstep_allreduce for 300000 floats (sum)", "calls lockstep_allreduce for 300000 floats (mean)", sum_many,
     mean_many},
    {"calls lockstep_broadcast for 40 bytes from rank 0", "calls lockstep_allreduce for 10 floats (sum)", broadcast_40,
     sum_10},
    {"calls lockstep_allreduce for 10 floats (sum)", "calls lockstep_broadcast for 40 bytes from rank 0", sum_10,
     broadcast_40},
    {"calls lockstep_broadcast for 40 bytes from rank 0", "calls lockstep_broadcast for 40 bytes from rank 1",
     broadcast_40, broadcast_from_1},
    {"calls lockstep_broadcast for 1200000 bytes from rank 0", "calls lockstep_allreduce for 300000 floats (sum)",
     broadcast_many, sum_many},
    {"calls lockstep_barrier", "calls lockstep_allreduce for 0 floats (sum)", lockstep_barrier, sum_nothing},
    {"calls lockstep_allreduce for 0 floats (sum)", "calls lockstep_allreduce for 300000 floats (sum)", sum_nothing,
     sum_many},
    {"submits tensor 5 of 10 floats (sum)", "submits tensor 6 of 10 floats (sum)", submit_5, submit_6},
    {"submits tensor 5 of 10 floats (sum)", "calls lockstep_allreduce for 10 floats (sum)", submit_5, sum_10},
    {"calls lockstep_alloc for 100 bytes", "calls lockstep_alloc for 5000 bytes", alloc_100, alloc_5000},
    {"calls lockstep_allreduce for 10 floats (sum)", "calls lockstep_finish", sum_10, NULL},
};
enum { PAIRS = sizeof pairs / sizeof *pairs, REFUSED = 42 };

/* The larger of two ranks is named first, whoever finds it. */
static bool is_named(const char *error)
{
    char higher[200], lower[200];
    snprintf(higher, sizeof higher, "call %d: rank 1 %s where rank 0 %s; all ranks", before + 1, pair->second,
             pair->first);
    bool found = strstr(error, higher) != NULL;
    for (int rank = 2; rank < MOST && !found; rank++) {
        snprintf(lower, sizeof lower, "call %d: rank %d %s where rank 1 %s; all ranks", before + 1, rank, pair->first,
                 pair->second);
        found = strstr(error, lower) != NULL;
    }
    if (!found)
        fprintf(stderr, "expected: %s\n   found: %s\n", higher, error);
    return found;
}

/* A rank that is behind may learn of it before it has come to that call itself. */
static int differ(struct lockstep *l)
{
    int st = LOCKSTEP_OK;
    for (int i = 0; i < before && st == LOCKSTEP_OK; i++)
        st = i % 3 ? sum_10(l) : i % 2 ? lockstep_barrier(l) : broadcast_40(l);
    int (*mine)(struct lockstep * l) = lockstep_rank(l) == 1 ? pair->other : pair->one;
    if (mine && st == LOCKSTEP_OK)
        st = mine(l);
    if (mine || st != LOCKSTEP_OK) {
        NEED(st != LOCKSTEP_OK);
        NEED(lockstep_status(l) == LOCKSTEP_USAGE);
        NEED(is_named(lockstep_error(l)));
        NEED(sum_10(l) == LOCKSTEP_USAGE);
        NEED(lockstep_wait_all(l) == LOCKSTEP_USAGE);
    }
    NEED(lockstep_finish(l, 0) == LOCKSTEP_USAGE);
    NEED(is_named(ls_log_last()));
    return REFUSED;
}

/* L2, on one node, between nodes, and both. */
static void another_call_is_named(void **state)
{
    const int codes[] = {REFUSED, REFUSED, REFUSED, REFUSED};
    (void)state;
    before = 3;
    for (pair = pairs; pair < pairs + PAIRS; pair++) {
        among(2, 1, &hushed, codes, differ);
        among(2, 2, &hushed, codes, differ);
        among(3, 3, &hushed, codes, differ);
        among(4, 2, &hushed, codes, differ);
    }
}

static void the_last_call_is_compared_like_the_first(void **state)
{
    static const int calls[] = {0, 254, 255, 256, 257, 1000};
    const int codes[] = {REFUSED, REFUSED, REFUSED, REFUSED};
    (void)state;
    /* On one core a rank hands over to the next at once. On several, each call waits for a time slice of what else runs. */
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        before = calls[i];
        pair = &pairs[i % PAIRS];
        among(2, 1, &hushed, codes, differ);
        among(2, 2, &hushed, codes, differ);
        if (before > 0) /* else two may part while others still connect */
            among(4, 2, &hushed, codes, differ);
    }
    before = 70000;
    pair = &pairs[3]; /* of equal size */
    among(2, 1, &hushed, codes, differ);
    among(2, 2, &hushed, codes, differ);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* One that sends its gradients in another way than the others. */
static int compress_alone(struct lockstep *l)
{
    lockstep_submit(l, 0, room, 1000, LOCKSTEP_SUM);
    NEED(lockstep_wait_all(l) == LOCKSTEP_USAGE);
    NEED(strstr(lockstep_error(l), "compressed in another way"));
    NEED(lockstep_finish(l, 0) == LOCKSTEP_USAGE);
    return REFUSED;
}

static void another_compression_is_named(void **state)
{
    const int codes[] = {REFUSED, REFUSED};
    (void)state;
    for (int nodes = 1; nodes <= 2; nodes++) {
        setenv("LOCKSTEP_TEST_COMPRESS", "fp16", 1); /* of rank 1 alone */
        among(2, nodes, &hushed, codes, compress_alone);
        unsetenv("LOCKSTEP_TEST_COMPRESS");
    }
}

static int give_up(struct lockstep *l)
{
    float data[10] = {0};
    lockstep_barrier(l); /* all have begun */
    if (lockstep_rank(l) == 1) {
        lockstep_abort(l, "the third sample is blue");
        NEED(lockstep_barrier(l) == LOCKSTEP_FAILED);
        return lockstep_finish(l, 0);
    }
    while (lockstep_submit(l, 0, data, 10, LOCKSTEP_SUM) == 0 && lockstep_wait_all(l) == 0)
        ;
    NEED(strstr(lockstep_error(l), "rank 1"));
    NEED(strstr(lockstep_error(l), "the third sample is blue"));
    return lockstep_finish(l, 0);
}

static int fail_and_leave(struct lockstep *l)
{
    float data[10] = {0};
    lockstep_barrier(l); /* all have begun */
    if (lockstep_rank(l) == 1)
        return lockstep_finish(l, 3);
    while (lockstep_submit(l, 0, data, 10, LOCKSTEP_SUM) == 0 && lockstep_wait_all(l) == 0)
        ;
    NEED(strstr(lockstep_error(l), "rank 1"));
    return lockstep_finish(l, 0);
}

static void a_failure_is_told(void **state)
{
    const int codes[] = {4, 3, 4}, aborted[] = {4, 1, 4};
    (void)state;
    among(3, 1, &hushed, aborted, give_up);
    among(3, 3, &hushed, aborted, give_up);
    among(3, 1, &hushed, codes, fail_and_leave);
}

/* A rank that goes without a word is named, and what was submitted is the program's again. */
static int vanish(struct lockstep *l)
{
    static float data[2][100000];
    lockstep_barrier(l);
    if (lockstep_rank(l) == 1)
        _exit(9);
    lockstep_submit(l, 0, data[0], 100000, LOCKSTEP_SUM);
    lockstep_submit(l, 1, data[1], 100000, LOCKSTEP_SUM);
    NEED(lockstep_wait_all(l) == LOCKSTEP_PEER_LOST);
    NEED(strstr(lockstep_error(l), "rank 1 (pid"));
    NEED(lockstep_wait(l, 0) == LOCKSTEP_PEER_LOST);
    memset(data, 1, sizeof data);
    return lockstep_finish(l, 0);
}

static void a_dead_rank_is_named(void **state)
{
    const int codes[] = {4, 9, 4};
    (void)state;
    among(3, 1, &hushed, codes, vanish);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_it_does_nothing),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(nothing_at_all_is_a_failure),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(an_abort_lasts),
        cmocka_unit_test(sums_and_means),
        cmocka_unit_test(sums_and_means_between_nodes),
        cmocka_unit_test(sums_larger_than_a_piece),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(every_sample_is_dealt_once),
        cmocka_unit_test(compression),
        cmocka_unit_test(another_call_is_named),
        cmocka_unit_test(the_last_call_is_compared_like_the_first),
        cmocka_unit_test(another_compression_is_named),
        cmocka_unit_test(a_failure_is_told),
        cmocka_unit_test(a_dead_rank_is_named),
        cmocka_unit_test(quiet_holds_for_the_communication_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
