/* Large dense layers divided among processes on a backend with a queue give the bits, the reports and the files of one process
 * without one: values that travel wait for the queue, and rooms of the host are used again only behind it. In these tests "cuda"
 * is the backend of queued.h. */
#include "queued_layouts.h"
#include "exec/split/split.h"

#include <unistd.h>

/* Two large layers, of eight chunks and of columns that are no multiple of anything. */
static const char wide_model[] = "input: 1x8x8\n"
                                 "classes: 4\n"
                                 "layers:\n"
                                 "  - {name: conv1, op: conv, out: 4, kernel: 3, pad: 1}\n"
                                 "  - {name: bn1, op: bn}\n"
                                 "  - {name: relu1, op: relu}\n"
                                 "  - {name: fc1, op: dense, out: 2001}\n"
                                 "  - {name: relu2, op: relu}\n"
                                 "  - {name: fc2, op: dense, out: 2003}\n"
                                 "  - {name: relu3, op: relu}\n"
                                 "  - {name: drop, op: dropout, p: 0.3}\n"
                                 "  - {name: fc3, op: dense, out: 2005}\n"
                                 "  - {name: fc4, op: dense, out: classes}\n";

static int begin(void **state)
{
    return tiny_begin(state) || ls_file_write(tiny_path("wide.yaml"), wide_model, strlen(wide_model)) != LS_OK;
}

static double clip_norm; /* of the runs that follow */
static bool views;
static uint64_t overflow_step; /* in which rank 1 sees an overflow; 0: none */

static struct ls_options run_options(const char *run, bool queue, const struct layout *l)
{
    struct ls_options o = tiny_options(run);
    tiny_set(&o.backend, queue ? "cuda" : "ref");
    tiny_set(&o.model, tiny_path("wide.yaml"));
    tiny_set(&o.parallel, queue ? l->parallel : "data");
    tiny_set(&o.data, "synthetic:1x8x8:4:13");
    o.batch = 8;
    o.replicas = l->replicas;
    o.accumulate = l->accumulate;
    o.steps = 3; /* the second has five samples */
    o.check_every = 1;
    o.clip_norm = clip_norm;
    if (views)
        tiny_set(&o.tta, "mirror");
    return o;
}

static void train_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    queued.overflows = ls_comm_rank(c) == 1 ? overflow_step : 0;
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    NEED(t.engine.split && t.engine.split->n_layers == 2 && t.stepper.report_delay == 0);
    NEED(ls_trainer_run(&t) == LS_OK);
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void train_layout(const struct ls_options *o, const struct layout *l)
{
    run_ranks((struct ranks){.size = l->ranks, .replicas = (int)l->replicas, .loud = true, .argument = o}, train_rank);
}

static void compare(const struct layout *l)
{
    struct ls_options plain = run_options("plain", false, l), o = run_options("queue", true, l);
    assert_int_equal(tiny_train(&plain), LS_OK);
    train_layout(&o, l);
    expect_same_run("plain", "queue", 3);
    ls_options_release(&plain);
    ls_options_release(&o);
    forget("plain");
    forget("queue");
}

static void test_workers(void **state)
{
    (void)state;
    compare(&(struct layout){"dense:3", 3, 5, 1}); /* some serve others in rounds without a pass of their own */
    views = true;                                  /* evaluations have twice the rows of a pass */
    compare(&(struct layout){"dense:2", 2, 2, 3}); /* passes without a sample */
    views = false;
}

static void test_groups(void **state)
{
    (void)state;
    compare(&(struct layout){"data:2,dense:3", 6, 7, 1}); /* with several parts of a sum */
}

/* Workers exchange the squares of their rows, chunk by chunk. */
static void test_clipping(void **state)
{
    (void)state;
    clip_norm = 0.05;
    compare(&(struct layout){"dense:3", 3, 5, 1});
    clip_norm = 0;
}

/* An overflow that one worker sees is one of all. */
static void test_overflow(void **state)
{
    (void)state;
    static const struct layout l = {"data:2,dense:2", 4, 4, 1};
    clip_norm = 0.05;
    struct ls_options one = run_options("one", true, &l), o = run_options("queue", true, &l);
    clip_norm = 0;
    tiny_set(&one.parallel, "data");
    tiny_set(&one.dtype, "fp16");
    tiny_set(&o.dtype, "fp16");
    queued.overflows = 1;
    assert_int_equal(tiny_train(&one), LS_OK);
    queued.overflows = 0;
    overflow_step = 1;
    train_layout(&o, &l);
    overflow_step = 0;
    expect_same_run("one", "queue", 3);
    ls_options_release(&one);
    ls_options_release(&o);
    forget("one");
    forget("queue");
}

/* Checkpoints are whole: a run goes on with any other layout, and with none. */
static void test_goes_on_elsewhere(void **state)
{
    (void)state;
    static const struct layout two = {"dense:2", 2, 4, 1}, four = {"data:2,dense:2", 4, 4, 1};
    struct ls_options plain = run_options("plain", false, &two), o = run_options("queue", true, &two);
    assert_int_equal(tiny_train(&plain), LS_OK);
    o.steps = 1;
    train_layout(&o, &two);
    tiny_set(&o.resume, "auto");
    tiny_set(&o.parallel, four.parallel);
    o.steps = 2;
    train_layout(&o, &four);
    tiny_set(&o.parallel, "data");
    o.steps = 3;
    assert_int_equal(tiny_train(&o), LS_OK);
    assert_true(tiny_same("plain/checkpoints/step-00000003/model.safetensors",
                          "queue/checkpoints/step-00000003/model.safetensors"));
    assert_true(tiny_same("plain/checkpoints/step-00000003/state.safetensors",
                          "queue/checkpoints/step-00000003/state.safetensors"));
    ls_options_release(&plain);
    ls_options_release(&o);
    forget("plain");
    forget("queue");
}

/* --- going wrong ------------------------------------------------------------------------------------------------------ */

/* A card that fails in the middle of a step ends all workers, and leaves nothing behind. */
static void test_card_fails(void **state)
{
    (void)state;
    static const struct layout l = {"dense:3", 3, 3, 1};
    struct ls_options o = run_options("failed", true, &l);
    run_ranks((struct ranks){.size = 3, .argument = &(struct going_wrong){&o, .transfers = 5}}, fail_rank);
    ls_options_release(&o);
    forget("failed");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct layout l = {"dense:2", 2, 2, 1};
    struct ls_options o = run_options("refused", true, &l);
    tiny_set(&o.collective, "nccl");
    run_ranks((struct ranks){.size = 2, .argument = &(struct going_wrong){&o, .why = "with --collective nccl"}},
              refused_rank);
    ls_options_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers),  cmocka_unit_test(test_groups),   cmocka_unit_test(test_goes_on_elsewhere),
        cmocka_unit_test(test_clipping), cmocka_unit_test(test_overflow), cmocka_unit_test(test_card_fails),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, begin, tiny_end);
}
