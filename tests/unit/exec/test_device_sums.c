/* Training where cards sum gradients among themselves gives the bits, the reports and the files of one process without a
 * queue; it stops, goes on and fails like any other. In these tests "cuda" is the backend of queued.h. */
#include "train_story.h"
#include "comm_ranks.h"
#include "queued.h"

static struct ls_options run_options(const char *run, const char *collective)
{
    struct ls_options o = tiny_options(run);
    tiny_set(&o.backend, collective ? "cuda" : "ref");
    tiny_set(&o.collective, collective ? collective : "auto");
    return o;
}

/* --- one process ------------------------------------------------------------------------------------------------- */

static void compare_alone(int64_t replicas, int64_t accumulate, int64_t batch, int64_t steps)
{
    for (int nccl = 0; nccl < 2; nccl++) {
        struct ls_options o = run_options(nccl ? "cards" : "plain", nccl ? "nccl" : NULL);
        struct ls_trainer t;
        o.replicas = replicas;
        o.accumulate = accumulate;
        o.batch = batch;
        o.steps = steps;
        o.checkpoint_every = 3;
        o.keep = 100;
        queued.sums = 0;
        assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
        assert_true(nccl == !!t.engine.peers);
        assert_true(t.stepper.report_delay == (nccl && replicas * accumulate == 1));
        int buckets = t.engine.n_buckets;
        assert_int_equal(ls_trainer_run(&t), LS_OK);
        assert_int_equal(queued.sums, nccl ? steps * buckets : 0);
        ls_trainer_close(&t);
        ls_options_release(&o);
    }
    for (int64_t step = 3; step <= steps; step += 3)
        expect_same_run("plain", "cards", (int)step);
    expect_same_run("plain", "cards", (int)steps);
    assert_true(queued_empty());
    forget("plain");
    forget("cards");
}

static void test_alone(void **state)
{
    (void)state;
    compare_alone(1, 1, 24, 13);
    compare_alone(1, 1, 1, 4);
    compare_alone(1, 3, 24, 13);
    compare_alone(6, 4, 24, 5); /* passes without a sample in the last step of an epoch */
}

static void refuse(struct ls_options *o, const char *said)
{
    assert_int_equal(tiny_train(o), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), said));
    assert_true(queued_empty());
    ls_options_release(o);
}

static void test_refused(void **state)
{
    (void)state;
    struct ls_options o = run_options("refused", "nccl");
    tiny_set(&o.backend, "ref");
    refuse(&o, "take --backend cuda");
    o = run_options("refused", "nccl");
    tiny_set(&o.sync, "local");
    refuse(&o, "not local");
    o = run_options("refused", "nccl");
    tiny_set(&o.compress, "fp16");
    refuse(&o, "leave --compress fp16 out");
    queued.peers = false;
    o = run_options("refused", "nccl");
    refuse(&o, "--collective nccl: the test says so");
    queued.peers = true;
}

/* --- several ----------------------------------------------------------------------------------------------------- */

struct together {
    int ranks, replicas;
    int64_t accumulate, batch, steps;
    const char *sync;
    double bucket_mb;
};

struct watch {
    uint64_t first, last;
};

static void watch_step(void *context, uint64_t step)
{
    struct watch *w = context;
    if (step == 2)
        w->first = ls_memory_calls();
    if (step <= 4) /* before anything is saved or compared */
        w->last = ls_memory_calls();
}

/* Has every rank one part of the sum? */
static bool one_part(int replicas, int ranks)
{
    struct ls_tree tree;
    NEED(ls_tree_init(&tree, replicas, ranks) == LS_OK);
    bool one = ls_tree_most_parts(&tree) == 1;
    ls_tree_release(&tree);
    return one;
}

static void train_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    struct watch w = {0};
    queued.sums = 0;
    bool cards = strcmp(o.backend, "cuda") == 0, served = cards && one_part(r->replicas, r->size);
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    NEED(served == !!t.engine.peers);
    NEED(t.stepper.report_delay == (served && r->replicas == r->size && o.accumulate == 1));
    t.on_step = watch_step;
    t.context = &w;
    int buckets = t.engine.n_buckets;
    NEED(ls_trainer_run(&t) == LS_OK);
    NEED(w.first == w.last);
    NEED(queued.sums == (served ? (uint64_t)(o.steps * buckets) : 0));
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void compare_together(const struct together *c)
{
    static const char *const runs[] = {"plain", "nccl", "memory"}, *const ways[] = {NULL, "nccl", "auto"};
    for (int i = 0; i < 3; i++) {
        struct ls_options o = run_options(runs[i], ways[i]);
        bool even = one_part(c->replicas, c->ranks);
        tiny_set(&o.sync, c->sync);
        tiny_set(&o.collective, ways[i] && even ? ways[i] : "auto");
        o.replicas = c->replicas;
        o.accumulate = c->accumulate;
        o.batch = c->batch;
        o.bucket_mb = c->bucket_mb;
        o.steps = c->steps;
        o.check_every = 5;
        run_ranks((struct ranks){.size = i == 0 ? 1 : c->ranks, .replicas = c->replicas, .loud = true, .argument = &o},
                  train_rank);
        ls_options_release(&o);
    }
    expect_same_run("plain", "nccl", (int)c->steps);
    expect_same_run("plain", "memory", (int)c->steps);
    for (int i = 0; i < 3; i++)
        forget(runs[i]);
}

static void refuse_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_trainer t;
    NEED(ls_trainer_open(&t, r->argument, c) == LS_USAGE);
    NEED(strstr(ls_log_last(), "with --replicas 3 one of the 2 would have several: leave it out, or give 2"));
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void test_parts(void **state)
{
    (void)state;
    struct ls_options o = run_options("refused", "nccl");
    o.replicas = 3;
    run_ranks((struct ranks){.size = 2, .replicas = 3, .argument = &o}, refuse_rank);
    ls_options_release(&o);
}

static void test_together(void **state)
{
    (void)state;
    static const struct together cases[] = {
        {2, 2, 1, 24, 13, "overlap", 0.0001},
        {2, 2, 1, 24, 10, "overlap", 0},
        {4, 4, 1, 24, 10, "overlap", 0.0001},
        {3, 3, 1, 3, 38, "overlap", 0.0001}, /* the epoch's last step has no sample for the last rank */
        {2, 2, 1, 24, 8, "allreduce", 0},
        {2, 4, 1, 24, 8, "overlap", 0.0001},
        {4, 4, 4, 24, 8, "overlap", 0.0001}, /* likewise, and passes */
        {3, 4, 1, 24, 8, "overlap", 0.0001}, /* one rank has two replicas, the others one */
        {2, 3, 1, 24, 8, "overlap", 0.0001}, /* by the host: a rank has two parts */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare_together(&cases[i]);
}

/* --- stopping and failing ------------------------------------------------------------------------------------------ */

static void stop_one(void *context, uint64_t step)
{
    if (step == 6 && *(const int *)context == 1)
        raise(SIGTERM);
}

static void stop_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    int rank = ls_comm_rank(c);
    NEED(ls_trainer_open(&t, &o, c) == LS_OK && t.stepper.report_delay);
    t.on_step = stop_one;
    t.context = &rank;
    NEED(ls_trainer_run(&t) == LS_INTERRUPTED);
    NEED(t.state.step == 7); /* the wish is known a step late */
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void test_stop(void **state)
{
    (void)state;
    static const char *const ways[] = {"nccl", "auto"};
    struct ls_options whole = run_options("whole", NULL);
    whole.replicas = 2;
    assert_int_equal(tiny_train(&whole), LS_OK);
    for (int i = 0; i < 2; i++) {
        struct ls_options o = run_options("stopped", ways[i]);
        o.replicas = 2;
        run_ranks((struct ranks){.size = 2, .replicas = 2, .loud = true, .argument = &o}, stop_rank);
        tiny_set(&o.collective, "auto");
        expect_goes_on(&o);
    }
    ls_options_release(&whole);
    forget("whole");
}

static void die(void *context, uint64_t step)
{
    if (step == 3 && *(const int *)context == 1)
        raise(SIGKILL);
}

static void lose_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    int rank = ls_comm_rank(c);
    NEED(ls_trainer_open(&t, &o, c) == LS_OK && t.engine.peers);
    t.on_step = die;
    t.context = &rank;
    NEED(ls_trainer_run(&t) == LS_PEER_LOST);
    NEED(strstr(ls_log_last(), "rank 1 "));
    NEED(rank > 0 || (!t.writing && t.checkpoint && ls_file_exists(t.checkpoint)));
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_PEER_LOST);
}

/* The others end; what was saved before is whole. */
static void test_lost(void **state)
{
    (void)state;
    static const char *const ways[] = {"nccl", "auto"};
    for (int i = 0; i < 4; i++) {
        struct ls_options o = run_options("lost", ways[i % 2]);
        o.replicas = 3;
        o.accumulate = 1 + i / 2;
        o.checkpoint_every = 2;
        struct ranks r = {.size = 3, .replicas = 3, .deadline = 20, .argument = &o};
        start_ranks(&r, lose_rank);
        wait_ranks(&r);
        for (int rank = 0; rank < 3; rank++)
            assert_int_equal(r.status[rank], rank == 1 ? SIGKILL : 0);
        ls_options_release(&o);
        forget("lost");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),    cmocka_unit_test(test_refused), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_together), cmocka_unit_test(test_stop),    cmocka_unit_test(test_lost),
    };
    queued.peers = true;
    return cmocka_run_group_tests_name("peers", tests, tiny_begin, tiny_end);
}
