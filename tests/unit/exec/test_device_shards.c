/* Optimizer state and parameters in shards on a backend with a queue: the bits of one process without one, checkpoints that go on
 * anywhere, and less of the backend's memory. In these tests "cuda" is the backend of queued.h. */
#include "train_story.h"
#include "comm_ranks.h"
#include "exec/shards/shards.h"
#include "queued.h"

struct rule {
    const char *optimizer;
    double clip_norm, ema;
    int64_t accumulate;
};

static const char *shard = "state", *dtype = "f32", *frozen;

/* Layers of about the same size, so that several groups of parameters have room at a time. */
static const char deep_model[] = "input: 1x8x8\n"
                                 "classes: 4\n"
                                 "layers:\n"
                                 "  - {name: conv1, op: conv, out: 6, kernel: 3, pad: 1, bias: false}\n"
                                 "  - {name: bn1, op: bn}\n"
                                 "  - {name: relu1, op: relu}\n"
                                 "  - {name: conv2, op: conv, out: 6, kernel: 3, stride: 2, pad: 1, bias: false}\n"
                                 "  - {name: bn2, op: bn}\n"
                                 "  - {name: relu2, op: relu}\n"
                                 "  - {name: conv3, op: conv, out: 6, kernel: 3, stride: 2, pad: 1}\n"
                                 "  - {name: relu3, op: relu}\n"
                                 "  - {name: fc1, op: dense, out: 12}\n"
                                 "  - {name: relu4, op: relu}\n"
                                 "  - {name: fc2, op: dense, out: classes}\n";

static struct ls_options run_options(const char *run, bool queue, const struct rule *rule)
{
    struct ls_options o = tiny_options(run);
    tiny_set(&o.backend, queue ? "cuda" : "ref");
    tiny_set(&o.optimizer, rule->optimizer);
    tiny_set(&o.shard, queue ? shard : "none");
    tiny_set(&o.dtype, dtype);
    if (strcmp(shard, "parameters") == 0) {
        tiny_set(&o.model, tiny_path("deep.yaml"));
        tiny_set(&o.freeze, frozen);
        o.epoch_size = 50; /* the last step of an epoch has two samples */
        o.eval_every = 2;
    }
    o.clip_norm = rule->clip_norm;
    o.ema = rule->ema;
    o.accumulate = rule->accumulate;
    o.replicas = 4;
    o.bucket_mb = 0.0005; /* several buckets */
    o.steps = 8;
    o.check_every = 2;
    return o;
}

static bool peers;             /* devices sum among themselves, where each process has one part of the sum */
static uint64_t overflow_step; /* in which rank 1 sees an overflow; 0: none */

static void train_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    queued.peers = peers;
    queued.overflows = overflow_step;
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    bool parameters = strcmp(o.shard, "parameters") == 0;
    bool sums = peers && !parameters && ls_tree_most_parts(t.engine.tree) == 1;
    NEED(t.engine.shards && (t.engine.grads == t.engine.kept) == sums && !t.engine.peers == !sums);
    NEED(!t.engine.params == !parameters);
    NEED(ls_trainer_run(&t) == LS_OK);
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void train(const struct ls_options *o, int ranks)
{
    run_ranks((struct ranks){.size = ranks, .replicas = 4, .loud = true, .argument = o}, train_rank);
}

static void compare(const struct rule *rule, int ranks)
{
    struct ls_options plain = run_options("plain", false, rule), o = run_options("queue", true, rule);
    assert_int_equal(tiny_train(&plain), LS_OK);
    train(&o, ranks);
    expect_same_run("plain", "queue", 8);
    ls_options_release(&plain);
    ls_options_release(&o);
    forget("plain");
    forget("queue");
}

static void test_bits(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        compare(&(struct rule){"sgd", 0, 0, 1}, ranks);
        compare(&(struct rule){"adamw", 0, 0.9, 2}, ranks);
    }
    compare(&(struct rule){"adamw", 0.05, 0, 1}, 3); /* clipping sees all gradients */
    compare(&(struct rule){"lars", 0, 0, 1}, 2);     /* a tensor's norm needs all of it */
    compare(&(struct rule){"lamb", 0.1, 0.9, 1}, 3);
    compare(&(struct rule){"muon", 0, 0, 1}, 2);
}

static void test_bits_summed_by_devices(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        peers = true;
        compare(&(struct rule){"sgd", 0, 0, 1}, ranks);
        compare(&(struct rule){"adamw", 0.05, 0.9, 2}, ranks);
        compare(&(struct rule){"lamb", 0, 0, 1}, ranks);
    }
    peers = false;
}

/* What three processes saved in shards goes on in two, and alone. */
static void go_on(const struct rule *rule)
{
    struct ls_options plain = run_options("plain", false, rule), o = run_options("queue", true, rule);
    assert_int_equal(tiny_train(&plain), LS_OK);
    o.steps = 3;
    train(&o, 3);
    tiny_set(&o.resume, "auto");
    o.steps = 6;
    train(&o, 2);
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

static void test_goes_on(void **state)
{
    (void)state;
    go_on(&(struct rule){"adamw", 0, 0, 1});
    shard = "parameters";
    go_on(&(struct rule){"adamw", 0, 0.9, 1});
    shard = "state";
}

static void test_parameters(void **state)
{
    (void)state;
    shard = "parameters";
    for (int ranks = 2; ranks <= 4; ranks++) {
        queued.joins = ranks == 3; /* nodes that are computed together read one group */
        frozen = ranks == 4 ? "^conv1|bn2.bias" : NULL;
        compare(&(struct rule){"sgd", 0, 0, 1}, ranks);
        compare(&(struct rule){"adamw", 0.05, 0.9, 2}, ranks);
        dtype = "bf16"; /* with copies in 16 bits */
        compare(&(struct rule){"lamb", 0, 0.9, 1}, ranks);
        dtype = "f32";
    }
    frozen = NULL;
    queued.joins = false;
    compare(&(struct rule){"lars", 0, 0, 1}, 3);
    compare(&(struct rule){"muon", 0, 0, 1}, 2);
    shard = "state";
}

/* An overflow that one rank sees leaves a step out on all of them. */
static void overflow(void)
{
    static const struct rule rule = {"adamw", 0, 0, 1};
    dtype = "fp16";
    struct ls_options one = run_options("plain", true, &rule), o = run_options("queue", true, &rule);
    tiny_set(&one.shard, "none");
    overflow_step = queued.overflows = 3;
    assert_int_equal(tiny_train(&one), LS_OK);
    queued.overflows = 0;
    train(&o, 4);
    overflow_step = 0;
    dtype = "f32";
    expect_same_run("plain", "queue", 8);
    ls_options_release(&one);
    ls_options_release(&o);
    forget("plain");
    forget("queue");
}

static void test_overflow(void **state)
{
    (void)state;
    overflow();
    peers = true;
    overflow();
    peers = false;
    shard = "parameters";
    overflow();
    shard = "state";
}

static int begin(void **state)
{
    return tiny_begin(state) != 0 || ls_file_write(tiny_path("deep.yaml"), deep_model, strlen(deep_model)) != LS_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_bits_summed_by_devices),
    };
    return cmocka_run_group_tests(tests, begin, tiny_end);
}
