/* A pipeline on a backend with a queue gives the bits, the reports and the files of one process without one: what travels waits
 * for the queue, and the queue for what travels. In these tests "cuda" is the backend of queued.h. */
#include "queued_layouts.h"
#include "exec/pipeline/pipeline.h"

#include <sys/stat.h>
#include <unistd.h>

static const char deep_model[] = "input: 1x8x8\n"
                                 "classes: 4\n"
                                 "layers:\n"
                                 "  - {name: conv1, op: conv, out: 4, kernel: 3, pad: 1, bias: false}\n"
                                 "  - {name: bn1, op: bn}\n"
                                 "  - {name: relu1, op: relu}\n"
                                 "  - {name: drop, op: dropout, p: 0.1}\n"
                                 "  - {name: conv2, op: conv, out: 6, kernel: 3, pad: 1, bias: false}\n"
                                 "  - {name: bn2, op: bn}\n"
                                 "  - {name: relu2, op: relu}\n"
                                 "  - {name: pool2, op: maxpool, kernel: 2, stride: 2}\n"
                                 "  - {name: conv3, op: conv, out: 6, kernel: 3, pad: 1, bias: false}\n"
                                 "  - {name: bn3, op: bn}\n"
                                 "  - {name: relu3, op: relu}\n"
                                 "  - {name: fc1, op: dense, out: 8}\n"
                                 "  - {name: relu4, op: relu}\n"
                                 "  - {name: fc2, op: dense, out: classes}\n";

static const char block_model[] = "input: 1x8x8\n"
                                  "classes: 4\n"
                                  "layers:\n"
                                  "  - {name: conv1, op: conv, out: 4, kernel: 3, pad: 1, bias: false}\n"
                                  "  - {name: bn1, op: bn}\n"
                                  "  - {name: relu1, op: relu}\n"
                                  "  - {name: block.conv1, op: conv, out: 4, kernel: 1, bias: false}\n"
                                  "  - {name: block.bn1, op: bn}\n"
                                  "  - {name: block.relu1, op: relu}\n"
                                  "  - {name: block.conv2, op: conv, out: 4, kernel: 3, pad: 1, bias: false}\n"
                                  "  - {name: block.bn2, op: bn}\n"
                                  "  - {name: block.relu2, op: relu}\n"
                                  "  - {name: block.conv3, op: conv, out: 4, kernel: 1, bias: false}\n"
                                  "  - {name: block.bn3, op: bn}\n"
                                  "  - {name: block.add, op: add, from: [block.bn3, relu1]}\n"
                                  "  - {name: block.relu3, op: relu}\n"
                                  "  - {name: fc, op: dense, out: classes}\n";

static int begin(void **state)
{
    return tiny_begin(state) || ls_file_write(tiny_path("deep.yaml"), deep_model, strlen(deep_model)) != LS_OK ||
           ls_file_write(tiny_path("block.yaml"), block_model, strlen(block_model)) != LS_OK;
}

static bool lends;        /* processes map each other's memory */
static const char *wires; /* their devices send messages; where those lie */

static struct ls_options run_options(const char *run, bool queue, const struct layout *l)
{
    struct ls_options o = tiny_options(run);
    tiny_set(&o.backend, queue ? "cuda" : "ref");
    tiny_set(&o.model, tiny_path("deep.yaml"));
    tiny_set(&o.parallel, queue ? l->parallel : "data");
    tiny_set(&o.collective, queue && wires ? "nccl" : "auto");
    o.replicas = l->replicas;
    o.accumulate = l->accumulate;
    o.steps = 8;
    o.check_every = 2;
    return o;
}

static void train_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    queued.lends = lends;
    queued.wires = wires;
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    NEED(t.engine.pipeline && t.stepper.report_delay == 0);
    int stage = t.engine.pipeline->stage, last = t.engine.pipeline->stages - 1;
    bool measured = !strchr(o.parallel, '@') && o.resume == NULL; /* messages, too */
    NEED(queued.maps == (lends ? (stage > 0) + (stage < last) + measured : 0));
    NEED(ls_trainer_run(&t) == LS_OK);
    ls_trainer_close(&t);
    NEED(queued_empty());
    NEED(o.replicas * o.accumulate > 8 || (queued.messages > 0) == (wires != NULL)); /* or few steps have all passes */
    ls_comm_close(c, LS_OK);
}

static void train_layout(const struct ls_options *o, const struct layout *l)
{
    run_ranks((struct ranks){.size = l->ranks, .loud = true, .argument = o}, train_rank);
}

static void compare(const struct layout *l)
{
    struct ls_options plain = run_options("plain", false, l), o = run_options("queue", true, l);
    assert_int_equal(tiny_train(&plain), LS_OK);
    train_layout(&o, l);
    expect_same_run("plain", "queue", 8);
    ls_options_release(&plain);
    ls_options_release(&o);
    forget("plain");
    forget("queue");
}

static void test_stages(void **state)
{
    (void)state;
    compare(&(struct layout){"pipeline:2", 2, 4, 1});
    compare(&(struct layout){"pipeline:3", 3, 4, 1});
    compare(&(struct layout){"pipeline:4", 4, 8, 1});
    compare(&(struct layout){"pipeline:4", 4, 2, 1});         /* fewer passes than stages */
    compare(&(struct layout){"pipeline:2", 2, 1, 1});         /* one pass */
    compare(&(struct layout){"pipeline:3", 3, 1, 3});         /* passes of one replica */
    compare(&(struct layout){"pipeline:2", 2, 6, 4});         /* passes without a sample in the last step of an epoch */
    compare(&(struct layout){"pipeline:3@bn2+fc1", 3, 4, 1}); /* a cut between a convolution and its normalisation */
}

static void test_groups(void **state)
{
    (void)state;
    compare(&(struct layout){"data:2,pipeline:2", 4, 4, 1});
    compare(&(struct layout){"data:3,pipeline:2", 6, 4, 1}); /* some have two parts of the sum */
    compare(&(struct layout){"data:2,pipeline:3", 6, 2, 2});
}

static void test_images_as_bytes(void **state)
{
    (void)state;
    static const struct layout l = {"pipeline:3", 3, 4, 1};
    queued.room = 1 << 20; /* the whole data set */
    compare(&l);
    queued.room = 0;
}

/* Processes of one machine read what is sent in each other's memory. */
static void test_mapped_memory(void **state)
{
    lends = true;
    test_stages(state);
    test_groups(state);
    lends = false;
}

/* Tensors go from device to device, but for those of the first steps and of evaluations. */
static void test_messages(void **state)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s", tiny_path("wires"));
    assert_int_equal(mkdir(folder, 0777), 0);
    wires = folder;
    test_stages(state);
    test_groups(state);
    wires = NULL;
}

/* Checkpoints are whole: a run goes on with any other layout, and with none. */
static void test_goes_on_elsewhere(void **state)
{
    (void)state;
    static const struct layout two = {"pipeline:2", 2, 4, 1}, four = {"data:2,pipeline:2", 4, 4, 1};
    struct ls_options plain = run_options("plain", false, &two), o = run_options("queue", true, &two);
    assert_int_equal(tiny_train(&plain), LS_OK);
    o.steps = 3;
    train_layout(&o, &two);
    tiny_set(&o.resume, "auto");
    tiny_set(&o.parallel, four.parallel);
    o.steps = 6;
    train_layout(&o, &four);
    tiny_set(&o.parallel, "data");
    o.steps = 8;
    assert_int_equal(tiny_train(&o), LS_OK);
    assert_true(tiny_same("plain/checkpoints/step-00000008/model.safetensors",
                          "queue/checkpoints/step-00000008/model.safetensors"));
    assert_true(tiny_same("plain/checkpoints/step-00000008/state.safetensors",
                          "queue/checkpoints/step-00000008/state.safetensors"));
    ls_options_release(&plain);
    ls_options_release(&o);
    forget("plain");
    forget("queue");
}

/* --- layers that are computed together ------------------------------------------------------------------------------ */

/* conv2 with the normalisation before it. */
static bool joins_conv2(const struct ls_program *p, int node, int other)
{
    return strcmp(p->g->nodes[node].name, "conv2") == 0 && strcmp(p->g->nodes[other].name, "bn1") == 0;
}

static void expect_cut_elsewhere(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_engine e;
    struct ls_model_size size = {.batch = 6, .channels = 1, .height = 8, .width = 8, .classes = 4};
    queued_backend.joined = joins_conv2;
    NEED(ls_engine_open(&e, &o, c, &size, NULL, LS_ENGINE_TRAIN) == LS_OK);
    NEED(strcmp(e.pipeline->cut.first[1], "conv2") != 0 && strcmp(e.pipeline->cut.first[1], "drop") != 0);
    ls_engine_close(&e);
    tiny_set(&o.parallel, "pipeline:2@conv2");
    NEED(ls_engine_open(&e, &o, c, &size, NULL, LS_ENGINE_TRAIN) == LS_USAGE);
    NEED(strstr(ls_log_last(), "cannot be cut before 'conv2'"));
    ls_comm_close(c, LS_OK);
}

/* The block is joined to what is before it and behind it. */
static bool joins_block(const struct ls_program *p, int node, int other)
{
    const char *a = p->g->nodes[node].name, *b = p->g->nodes[other].name;
    return (strcmp(a, "block.conv1") == 0 && strcmp(b, "bn1") == 0) ||
           (strcmp(a, "fc") == 0 && strcmp(b, "block.bn3") == 0);
}

static void train_block(struct ls_comm *c, const struct ranks *r)
{
    queued_backend.joined = joins_block;
    train_rank(c, r);
}

static void test_cut_within_a_block(void **state)
{
    (void)state;
    static const struct layout layouts[] = {
        {"pipeline:2", 2, 4, 1}, {"pipeline:2@block.conv2", 2, 4, 1}, {"pipeline:3@block.conv2+block.conv3", 3, 4, 1}};
    for (int i = 0; i < 6; i++) {
        const struct layout *l = &layouts[i / 2];
        struct ls_options plain = run_options("plain", false, l), o = run_options("queue", true, l);
        tiny_set(&plain.model, tiny_path("block.yaml"));
        tiny_set(&o.model, tiny_path("block.yaml"));
        lends = i % 2 && l->ranks == 2;
        assert_int_equal(tiny_train(&plain), LS_OK);
        run_ranks((struct ranks){.size = l->ranks, .loud = true, .argument = &o}, train_block);
        expect_same_run("plain", "queue", 8);
        ls_options_release(&plain);
        ls_options_release(&o);
        forget("plain");
        forget("queue");
    }
    lends = false;
}

static void test_joined_layers_stay_together(void **state)
{
    (void)state;
    static const struct layout l = {"pipeline:2", 2, 4, 1};
    struct ls_options o = run_options("joined", true, &l);
    run_ranks((struct ranks){.size = 2, .argument = &o}, expect_cut_elsewhere);
    ls_options_release(&o);
}

/* --- the fastest layout ------------------------------------------------------------------------------------------ */

static void choose_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    queued.peers = queued.lends = lends;
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    const struct ls_layout *l = &t.layout;
    for (int i = 0; i < l->n; i++) /* all are measured that are possible */
        NEED((l->list[i].p.seconds > 0) == !*l->list[i].why);
    NEED(l->n == 5 && !*l->list[0].why && !*l->list[3].why && strstr(l->report, " processes on "));
    NEED(ls_trainer_run(&t) == LS_OK);
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void test_chosen(void **state)
{
    (void)state;
    static const struct layout l = {"auto", 4, 4, 1};
    struct ls_options plain = run_options("plain", false, &l), o = run_options("queue", true, &l);
    assert_int_equal(tiny_train(&plain), LS_OK);
    for (int i = 0; i < 2; i++) {
        lends = i;
        run_ranks((struct ranks){.size = 4, .replicas = 4, .loud = true, .argument = &o}, choose_rank);
        expect_same_run("plain", "queue", 8);
        forget("queue");
    }
    lends = false;
    ls_options_release(&plain);
    ls_options_release(&o);
    forget("plain");
}

/* --- what an update must know of all gradients ------------------------------------------------------------------- */

static void test_clipped(void **state)
{
    (void)state;
    static const struct layout layouts[] = {
        {"pipeline:2", 2, 4, 1}, {"pipeline:3", 3, 4, 1}, {"data:2,pipeline:2", 4, 4, 1}};
    for (int i = 0; i < 3; i++) {
        struct ls_options plain = run_options("plain", false, &layouts[i]), o = run_options("queue", true, &layouts[i]);
        plain.clip_norm = o.clip_norm = 0.05;
        assert_int_equal(tiny_train(&plain), LS_OK);
        train_layout(&o, &layouts[i]);
        expect_same_run("plain", "queue", 8);
        ls_options_release(&plain);
        ls_options_release(&o);
        forget("plain");
        forget("queue");
    }
}

enum { OVERFLOWING = 3 };

static void overflow_rank(struct ls_comm *c, const struct ranks *r)
{
    queued.overflows = ls_comm_rank(c) == 1 ? OVERFLOWING : 0;
    train_rank(c, r);
}

/* An overflow that one stage sees is one of all. */
static void test_overflow(void **state)
{
    (void)state;
    static const struct layout layouts[] = {{"pipeline:3", 3, 4, 1}, {"data:2,pipeline:2", 4, 4, 1}};
    for (int i = 0; i < 2; i++) {
        struct ls_options one = run_options("one", true, &layouts[i]), o = run_options("queue", true, &layouts[i]);
        tiny_set(&one.parallel, "data");
        tiny_set(&one.dtype, "fp16");
        tiny_set(&o.dtype, "fp16");
        queued.overflows = OVERFLOWING;
        assert_int_equal(tiny_train(&one), LS_OK);
        queued.overflows = 0;
        run_ranks((struct ranks){.size = layouts[i].ranks, .loud = true, .argument = &o}, overflow_rank);
        expect_same_run("one", "queue", 8);
        ls_options_release(&one);
        ls_options_release(&o);
        forget("one");
        forget("queue");
    }
}

/* --- going wrong ------------------------------------------------------------------------------------------------------ */

/* A card that fails in the middle of a step or of an evaluation ends all stages, and leaves nothing behind. */
static void test_card_fails(void **state)
{
    (void)state;
    static const struct layout l = {"pipeline:3", 3, 4, 1};
    for (int transfers = 11; transfers < 120; transfers += 12) {
        struct ls_options o = run_options("failed", true, &l);
        run_ranks((struct ranks){.size = 3, .argument = &(struct going_wrong){&o, .transfers = transfers}}, fail_rank);
        ls_options_release(&o);
        forget("failed");
    }
}

static void fail_with_messages(struct ls_comm *c, const struct ranks *r)
{
    queued.wires = wires;
    fail_rank(c, r);
}

static void test_card_fails_among_messages(void **state)
{
    (void)state;
    static const struct layout l = {"pipeline:3", 3, 4, 1};
    for (int transfers = 30; transfers < 70; transfers += 8) { /* messages that nobody took stay in the folder */
        char folder[256], name[40];
        snprintf(name, sizeof name, "wires-that-fail-%d", transfers);
        snprintf(folder, sizeof folder, "%s", tiny_path(name));
        assert_int_equal(mkdir(folder, 0777), 0);
        wires = folder;
        struct ls_options o = run_options("failed", true, &l);
        run_ranks((struct ranks){.size = 3, .argument = &(struct going_wrong){&o, .transfers = transfers}},
                  fail_with_messages);
        ls_options_release(&o);
        forget("failed");
    }
    wires = NULL;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct layout l = {"pipeline:2", 2, 4, 1};
    struct ls_options o = run_options("refused", true, &l);
    tiny_set(&o.collective, "nccl");
    run_ranks((struct ranks){.size = 2, .argument = &(struct going_wrong){&o, .why = "nccl: the test says so"}},
              refused_rank);
    tiny_set(&o.trace, "2:3");
    run_ranks((struct ranks){.size = 2, .argument = &(struct going_wrong){&o, .why = "--trace does not go with it"}},
              refused_rank);
    ls_options_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_images_as_bytes),
        cmocka_unit_test(test_mapped_memory),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_goes_on_elsewhere),
        cmocka_unit_test(test_joined_layers_stay_together),
        cmocka_unit_test(test_cut_within_a_block),
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_clipped),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_card_fails),
        cmocka_unit_test(test_card_fails_among_messages),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, begin, tiny_end);
}
