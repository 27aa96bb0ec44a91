/* A group never hangs (comm.h, COMM-3): who is gone, stopped, lost or different is named, and the others end in time. */
#include "comm_ranks.h"
#include "launch/children/failed_rank.h"

#include <sys/mman.h>

enum { VICTIM = 1, ENDLESS = 1 << 20 };
#define DEADLINE 2.0
/* A second by itself; more where all cores are busy with other tests. Less than the deadlines of those who do not wait
 * for one. */
#define PROMPT 60.0

/* Shared with the children, so that the test acts in the middle of things. */
struct stage {
    atomic_int steps[MOST_RANKS]; /* each rank's */
    char said[MOST_RANKS][512];
    double seconds[MOST_RANKS]; /* from the deed to the end */
    _Atomic double deed;
    int bucket; /* values; 0: messages instead */
};

static struct stage *new_stage(int bucket)
{
    struct stage *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    s->bucket = bucket;
    return s;
}

static enum ls_status one_step(struct ls_comm *c, const struct stage *s, float *data, uint64_t step)
{
    int me = ls_comm_rank(c), n = ls_comm_size(c);
    uint32_t out = 1, in;
    struct ls_work sum = {
        .kind = LS_WORK_ALLREDUCE, .data = data, .bytes = (size_t)s->bucket * sizeof(float), .step = step, .bucket = 4};
    struct ls_work send = {
        .kind = LS_WORK_SEND, .peer = (me + 1) % n, .tag = 1, .data = &out, .bytes = 4, .step = step};
    struct ls_work take = {
        .kind = LS_WORK_RECEIVE, .peer = (me + n - 1) % n, .tag = 1, .data = &in, .bytes = 4, .step = step};
    if (s->bucket > 0)
        return ls_comm_do(c, &sum);
    ls_comm_post(c, &send);
    enum ls_status st = ls_comm_do(c, &take);
    enum ls_status sent = ls_comm_wait(c, &send);
    return st != LS_OK ? st : sent;
}

/* Steps until something happens; it has to be LS_PEER_LOST. */
static void step_on(struct ls_comm *c, const struct ranks *r)
{
    struct stage *s = (struct stage *)(uintptr_t)r->argument;
    int me = ls_comm_rank(c);
    float *data = ls_alloc((size_t)s->bucket + 1, sizeof(float));
    enum ls_status st = LS_OK;
    NEED(data != NULL);
    for (uint64_t step = 1; step < ENDLESS && st == LS_OK; step++) {
        ls_comm_position(c, step, 4, LS_STAGE_COMPUTE);
        st = one_step(c, s, data, step);
        atomic_store(&s->steps[me], (int)step);
    }
    s->seconds[me] = ls_now() - atomic_load(&s->deed);
    NEED(st == LS_PEER_LOST);
    NEED(ls_comm_barrier(c) == LS_PEER_LOST); /* and so it stays */
    snprintf(s->said[me], sizeof s->said[me], "%s", ls_log_last());
    ls_comm_close(c, st);
    ls_free(data);
}

static void until_step(const struct ranks *r, struct stage *s, int step)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    double start = ls_now();
    for (int rank = 0; rank < r->size; rank++)
        while (atomic_load(&s->steps[rank]) < step) {
            assert_true(ls_now() - start < 200);
            nanosleep(&moment, NULL);
        }
}

static void lose_one(struct ranks r, int bucket, int signal, double seconds, const char *expected)
{
    struct stage *s = new_stage(bucket);
    r.argument = s;
    if (r.deadline == 0)
        r.deadline = r.per_node ? 2 * DEADLINE : DEADLINE; /* heartbeats come once a second */
    start_ranks(&r, step_on);
    until_step(&r, s, 20);
    atomic_store(&s->deed, ls_now());
    kill(r.pids[VICTIM], signal);
    for (int rank = 0; rank < r.size; rank++)
        if (rank != VICTIM)
            assert_int_equal(waitpid(r.pids[rank], &r.status[rank], 0), r.pids[rank]);
    kill(r.pids[VICTIM], SIGKILL);
    assert_int_equal(waitpid(r.pids[VICTIM], &r.status[VICTIM], 0), r.pids[VICTIM]);
    for (int rank = 0; rank < r.size; rank++) {
        if (rank == VICTIM)
            continue;
        assert_int_equal(r.status[rank], 0);
        if (!strstr(s->said[rank], expected) || s->seconds[rank] > seconds)
            print_error("rank %d after %.2f s: %s\n", rank, s->seconds[rank], s->said[rank]);
        assert_non_null(strstr(s->said[rank], expected));
        assert_true(s->seconds[rank] < seconds);
    }
    munmap(s, sizeof *s);
    no_leftovers();
}

static void a_killed_rank_is_found_at_once(void **state)
{
    (void)state;
    lose_one((struct ranks){.size = 2, .deadline = 300}, 1000, SIGKILL, PROMPT, "rank 1 (pid ");
    lose_one((struct ranks){.size = 4, .deadline = 300}, 100000, SIGKILL, PROMPT,
             "is gone; it was last seen computing in step ");
    lose_one((struct ranks){.size = 3, .deadline = 300}, 0, SIGKILL, PROMPT, "rank 1 (pid ");
}

static void a_stopped_rank_is_named_after_the_deadline(void **state)
{
    (void)state;
    lose_one((struct ranks){.size = 2}, 1000, SIGSTOP, DEADLINE + PROMPT, "rank 1 (host ");
    lose_one((struct ranks){.size = 4}, 100000, SIGSTOP, DEADLINE + PROMPT, "bucket 4 of step ");
    lose_one((struct ranks){.size = 3}, 0, SIGSTOP, DEADLINE + PROMPT, "rank 1 (host ");
}

/* Over messages nobody sees the process; heartbeats tell who is silent, even to those who wait for somebody else. */
static void a_rank_of_another_node_is_named_after_the_deadline(void **state)
{
    (void)state;
    lose_one((struct ranks){.size = 2, .per_node = 1}, 1000, SIGKILL, 2 * DEADLINE + PROMPT, "rank 1 (host ");
    lose_one((struct ranks){.size = 4, .per_node = 1}, 100000, SIGSTOP, 2 * DEADLINE + PROMPT, "rank 1 (host ");
    lose_one((struct ranks){.size = 4, .per_node = 2}, 100000, SIGKILL, 2 * DEADLINE + PROMPT, "rank 1 (");
    lose_one((struct ranks){.size = 3, .per_node = 1}, 0, SIGKILL, 2 * DEADLINE + PROMPT, "rank 1 (host ");
}

/* --- failures that are said ------------------------------------------------------------------------------------------------- */

/* Everyone has its group before one of them fails. */
static void gather(struct ls_comm *c, const struct ranks *r)
{
    struct stage *s = (struct stage *)(uintptr_t)r->argument;
    ls_comm_position(c, 1, 0, LS_STAGE_COMPUTE); /* who still starts is excused for longer */
    atomic_store(&s->steps[ls_comm_rank(c)], 1);
    until_step(r, s, 1);
}

static void fail_on_one(struct ls_comm *c, const struct ranks *r)
{
    int me = ls_comm_rank(c);
    gather(c, r);
    double start = ls_now();
    if (me == VICTIM) {
        ls_comm_abort(c, LS_BAD_INPUT, "x.png: is no image");
        NEED(ls_comm_barrier(c) == LS_BAD_INPUT);
        ls_comm_close(c, LS_BAD_INPUT);
        return;
    }
    NEED(ls_comm_barrier(c) == LS_PEER_LOST);
    NEED(ls_now() - start < PROMPT);
    NEED(strstr(ls_log_last(), "rank 1 (host "));
    NEED(strstr(ls_log_last(), LS_HAS_FAILED "x.png: is no image"));
    ls_comm_close(c, LS_PEER_LOST);
}

static void leave_early(struct ls_comm *c, const struct ranks *r)
{
    gather(c, r);
    double start = ls_now();
    if (ls_comm_rank(c) == VICTIM) {
        ls_comm_close(c, LS_FAILED);
        return;
    }
    NEED(ls_comm_barrier(c) == LS_PEER_LOST);
    NEED(ls_now() - start < PROMPT);
    NEED(strstr(ls_log_last(), "rank 1 (host "));
    NEED(strstr(ls_log_last(), "ended early"));
    ls_comm_close(c, LS_PEER_LOST);
}

static void a_failure_is_told_to_all(void **state)
{
    (void)state;
    for (int per_node = 0; per_node <= 2; per_node++) {
        struct stage *s = new_stage(0);
        run_ranks((struct ranks){.size = 3, .per_node = per_node, .argument = s}, fail_on_one);
        memset(s->steps, 0, sizeof s->steps);
        run_ranks((struct ranks){.size = 4, .per_node = per_node, .argument = s}, leave_early);
        munmap(s, sizeof *s);
    }
    no_leftovers();
}

static void do_other_things(struct ls_comm *c, const struct ranks *r)
{
    float data[64] = {0};
    struct ls_work w = {.kind = LS_WORK_ALLREDUCE, .data = data, .bytes = ls_comm_rank(c) == VICTIM ? 128 : 256};
    (void)r;
    NEED(ls_comm_do(c, &w) == LS_PEER_LOST);
    NEED(strstr(ls_log_last(), "rank"));
    NEED(strstr(ls_log_last(), "allreduce of 128 bytes"));
    ls_comm_close(c, LS_PEER_LOST);
}

static void different_work_is_an_error(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 3}, do_other_things);
}

/* --- time -------------------------------------------------------------------------------------------------------------------- */

static void save_alone(struct ls_comm *c, const struct ranks *r)
{
    const struct timespec longer = {.tv_sec = (time_t)(2 * r->deadline)};
    NEED(ls_comm_barrier(c) == LS_OK);
    if (ls_comm_rank(c) == 0) {
        ls_comm_allow(c, 30);
        nanosleep(&longer, NULL); /* the thing itself: work beyond the deadline */
    }
    NEED(ls_comm_barrier(c) == LS_OK);
    ls_comm_close(c, LS_OK);
}

static void a_rank_may_ask_for_time(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 2, .deadline = 1}, save_alone);
    run_ranks((struct ranks){.size = 2, .deadline = 2, .per_node = 1}, save_alone);
}

/* Rank 0 takes from anybody, but it is rank 1 that it lacks; rank 2 waits for rank 0. Rank 1 runs, and does not come. */
static void lack_one(struct ls_comm *c, const struct ranks *r)
{
    struct stage *s = (struct stage *)(uintptr_t)r->argument;
    const struct timespec moment = {.tv_nsec = 10000000};
    int me = ls_comm_rank(c);
    uint32_t in;
    struct ls_work take = {.kind = LS_WORK_RECEIVE,
                           .peer = me == 0 ? LS_ANY_RANK : 0,
                           .tag = 1,
                           .late = me == 0 ? 1 + VICTIM : 0,
                           .data = &in,
                           .bytes = 4};
    gather(c, r);
    while (me == VICTIM && atomic_load(&s->steps[0]) + atomic_load(&s->steps[2]) < 4)
        nanosleep(&moment, NULL);
    NEED(ls_comm_do(c, &take) == LS_PEER_LOST);
    NEED(strstr(ls_log_last(), "rank 1 (host "));
    atomic_store(&s->steps[me], 2);
    ls_comm_close(c, LS_PEER_LOST);
}

static void who_is_lacked_among_many_is_named(void **state)
{
    (void)state;
    for (int per_node = 0; per_node <= 1; per_node++) {
        struct stage *s = new_stage(0);
        run_ranks((struct ranks){.size = 3, .deadline = 2 * DEADLINE, .per_node = per_node, .argument = s}, lack_one);
        munmap(s, sizeof *s);
    }
    no_leftovers();
}

/* Rank 0 waits for rank 2, which lacks rank 1, which waits for rank 2 and is stopped: all of them say that they wait.
 * Rank 0 waits longest, and its deadline passes before it shows that rank 1 does not run. */
static void wait_in_cycle(struct ls_comm *c, const struct ranks *r)
{
    struct stage *s = (struct stage *)(uintptr_t)r->argument;
    const struct timespec later = {.tv_sec = (time_t)(r->deadline / 2)};
    int me = ls_comm_rank(c);
    uint32_t in;
    struct ls_work take = {.kind = LS_WORK_RECEIVE,
                           .peer = me == 2 ? LS_ANY_RANK : 2,
                           .tag = 1,
                           .late = me == 2 ? 1 + VICTIM : 0,
                           .data = &in,
                           .bytes = 4};
    gather(c, r);
    if (me == 2)
        nanosleep(&later, NULL);
    ls_comm_post(c, &take);
    atomic_store(&s->steps[me], 2);
    NEED(ls_comm_wait(c, &take) == LS_PEER_LOST);
    NEED(strstr(ls_log_last(), "rank 1 (host "));
    ls_comm_close(c, LS_PEER_LOST);
}

static void who_was_stopped_in_a_cycle_is_named(void **state)
{
    (void)state;
    for (int per_node = 0; per_node <= 2; per_node++) {
        struct stage *s = new_stage(0);
        struct ranks r = {.size = 3, .deadline = DEADLINE, .per_node = per_node, .argument = s};
        start_ranks(&r, wait_in_cycle);
        until_step(&r, s, 2);
        kill(r.pids[VICTIM], SIGSTOP);
        for (int rank = 0; rank < r.size; rank += 2)
            assert_int_equal(waitpid(r.pids[rank], &r.status[rank], 0), r.pids[rank]);
        kill(r.pids[VICTIM], SIGKILL);
        assert_int_equal(waitpid(r.pids[VICTIM], &r.status[VICTIM], 0), r.pids[VICTIM]);
        assert_int_equal(r.status[0], 0);
        assert_int_equal(r.status[2], 0);
        munmap(s, sizeof *s);
    }
    no_leftovers();
}

/* A worker that never comes: the others say which. */
static void a_missing_worker_is_named(void **state)
{
    struct ls_comm *c;
    char session[64];
    struct ls_launch launch = {.kind = LS_LAUNCH_WORKERS, .rank = 0, .size = 3, .session = session};
    struct ls_comm_options o = {.deadline = 0.3, .replicas = 3, .max_bytes = 4096};
    (void)state;
    snprintf(session, sizeof session, "test-%d-missing", (int)getpid());
    ls_log_mute(1);
    assert_int_equal(ls_comm_open(&launch, &o, &c), LS_PEER_LOST);
    assert_non_null(strstr(ls_log_last(), "workers 1, 2 of 3 did not start within"));
    ls_log_mute(0);
    no_leftovers();
}

static void a_missing_module_is_named(void **state)
{
    struct ls_comm *c;
    struct ls_launch launch = {.kind = LS_LAUNCH_MPI, .mpi = "mpich", .rank = 0, .size = 2};
    struct ls_comm_options o = {.deadline = 1, .max_bytes = 4096};
    (void)state;
    setenv("LOCKSTEP_MODULES", "/nowhere", 1);
    ls_log_mute(1);
    assert_int_equal(ls_comm_open(&launch, &o, &c), LS_FAILED);
    assert_non_null(strstr(ls_log_last(), "lockstep-mpi-mpich.so was not found in /nowhere, "));
    ls_log_mute(0);
    unsetenv("LOCKSTEP_MODULES");
}

/* --- waiting for something else ----------------------------------------------------------------------------------------- */

struct elsewhere {
    uint64_t step; /* the victim's; the others compute step 5 */
    enum ls_stage stage;
    bool stops;
    const char *expected; /* NULL: all wait on */
};

static void wait_elsewhere(struct ls_comm *c, const struct ranks *r)
{
    const struct elsewhere *e = r->argument;
    const struct timespec moment = {.tv_nsec = 10000000};
    bool victim = ls_comm_rank(c) == VICTIM;
    enum ls_status st = LS_OK;
    NEED(ls_comm_barrier(c) == LS_OK);
    ls_comm_position(c, victim ? e->step : 5, 0, victim ? e->stage : LS_STAGE_COMPUTE);
    if (victim && e->stops)
        raise(SIGSTOP);
    double start = ls_now(), most = e->expected ? r->deadline + PROMPT : 3 * r->deadline;
    while (st == LS_OK && ls_now() - start < most) {
        st = victim ? ls_comm_broken(c) : ls_comm_overdue(c, ls_now() - start);
        nanosleep(&moment, NULL);
    }
    NEED(st == (e->expected ? LS_PEER_LOST : LS_OK));
    NEED(!e->expected || (ls_now() - start > r->deadline && strstr(ls_log_last(), e->expected)));
    NEED(!e->expected || strstr(ls_log_last(), "rank 1 (host "));
    ls_comm_close(c, st);
}

static void who_keeps_others_from_waiting_for_a_card_is_named(void **state)
{
    (void)state;
    static const struct elsewhere cases[] = {
        {5, LS_STAGE_COMPUTE, false, NULL}, /* nobody is late */
        {5, LS_STAGE_SAVE, false, NULL},
        {6, LS_STAGE_INPUT, false, NULL},
        {5, LS_STAGE_INPUT, false,
         "did not come through step 5 within 2 s; it was last seen waiting for input in step 5 "},
        {4, LS_STAGE_COMPUTE, false, "did not come through step 5 within 2 s; it was last seen computing in step 4 "},
        {5, LS_STAGE_COMPUTE, true, "did not come through step 5 within 2 s; "},
    };
    struct ranks all[12];
    for (int i = 0; i < 12; i++) { /* at once: they mostly sleep */
        all[i] = (struct ranks){.size = 3, .per_node = i / 6, .deadline = DEADLINE, .argument = &cases[i % 6]};
        start_ranks(&all[i], wait_elsewhere);
    }
    for (int i = 0; i < 12; i++) {
        struct ranks *r = &all[i];
        bool stops = cases[i % 6].stops;
        for (int rank = 0; rank < r->size; rank++)
            if (rank != VICTIM || !stops) {
                assert_int_equal(waitpid(r->pids[rank], &r->status[rank], 0), r->pids[rank]);
                assert_int_equal(r->status[rank], 0);
            }
        if (stops) {
            kill(r->pids[VICTIM], SIGKILL);
            assert_int_equal(waitpid(r->pids[VICTIM], &r->status[VICTIM], 0), r->pids[VICTIM]);
        }
    }
    no_leftovers();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_found_at_once),
        cmocka_unit_test(a_stopped_rank_is_named_after_the_deadline),
        cmocka_unit_test(a_rank_of_another_node_is_named_after_the_deadline),
        cmocka_unit_test(a_failure_is_told_to_all),
        cmocka_unit_test(different_work_is_an_error),
        cmocka_unit_test(a_rank_may_ask_for_time),
        cmocka_unit_test(who_is_lacked_among_many_is_named),
        cmocka_unit_test(who_was_stopped_in_a_cycle_is_named),
        cmocka_unit_test(who_keeps_others_from_waiting_for_a_card_is_named),
        cmocka_unit_test(a_missing_worker_is_named),
        cmocka_unit_test(a_missing_module_is_named),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
