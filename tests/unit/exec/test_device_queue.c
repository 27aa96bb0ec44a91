/* Training on a backend with a queue gives the bits, the reports and the files of one without: alone with reports that lag a
 * step behind, with several passes a step, and with several processes. In these tests "cuda" is the backend of queued.h. */
#include "exec/rank_reduce.h"
#include "train_story.h"
#include "comm_ranks.h"
#include "ops_session.h"
#include "queued.h"

#include "base/system/clock.h"
#include "cmd/cmd.h"

#include <fcntl.h>
#include <unistd.h>

static struct ls_options run_options(const char *run, bool queue)
{
    struct ls_options o = tiny_options(run);
    tiny_set(&o.backend, queue ? "cuda" : "ref");
    return o;
}

/* --- alone ---------------------------------------------------------------------------------------------------- */

static void compare_alone(int64_t replicas, int64_t accumulate, int64_t batch, int64_t steps)
{
    static const char *const runs[] = {"plain", "queue"};
    for (int queue = 0; queue < 2; queue++) {
        struct ls_options o = run_options(runs[queue], queue);
        o.replicas = replicas;
        o.accumulate = accumulate;
        o.batch = batch;
        o.steps = steps;
        o.checkpoint_every = 3;
        o.keep = 100;
        assert_int_equal(tiny_train(&o), LS_OK);
        ls_options_release(&o);
    }
    for (int step = 3; step <= steps; step += 3)
        expect_same_run("plain", "queue", step);
    expect_same_run("plain", "queue", (int)steps);
    assert_true(queued_empty());
    forget("plain");
    forget("queue");
}

static void test_one_pass(void **state)
{
    (void)state;
    compare_alone(1, 1, 24, 15); /* whole epochs */
    compare_alone(1, 1, 24, 13); /* ends within one */
    compare_alone(1, 1, 110, 3); /* every step is an epoch */
    compare_alone(1, 1, 1, 4);
}

static void test_several_passes(void **state)
{
    (void)state;
    compare_alone(1, 3, 24, 13);
    compare_alone(4, 1, 24, 15);
    compare_alone(3, 2, 24, 13);
    compare_alone(6, 4, 24, 5); /* passes without a sample in the last step of an epoch */
}

struct watch {
    int pending; /* steps after which work was still in the queue */
    uint64_t first, last;
};

static void watch_step(void *context, uint64_t step)
{
    struct watch *w = context;
    w->pending += queued.n > 0;
    if (step == 2)
        w->first = ls_memory_calls();
    w->last = ls_memory_calls();
}

/* A trace of such a run shows what the host enqueues. */
static void expect_enqueues(const char *trace, int steps)
{
    char *text;
    size_t size;
    int found = 0;
    assert_int_equal(ls_file_read(tiny_path(trace), 1 << 24, &text, &size), LS_OK);
    for (const char *at = text; (at = strstr(at, "\"cat\":\"enqueue\"")); at++)
        found++;
    assert_int_equal(found, steps);
    assert_null(strstr(text, "\"cat\":\"node\""));
    ls_free(text);
}

/* A step only enqueues: nobody waits for it before the next is in the queue, and then for no more than two. */
static void expect_no_wait(const char *trace)
{
    struct ls_options o = run_options("lean", true);
    struct watch w = {0};
    struct ls_trainer t;
    o.steps = TINY_STEPS - 1;
    tiny_set(&o.trace, trace);
    assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
    assert_true(t.stepper.report_delay);
    t.on_step = watch_step;
    t.context = &w;
    queued.most_runs = 0;
    queued.launched = 0;
    assert_int_equal(ls_trainer_run(&t), LS_OK);
    assert_int_equal(w.pending, o.steps);
    assert_int_equal(w.first, w.last); /* nothing was allocated */
    assert_int_equal(queued.most_runs, 2);
    assert_int_equal(queued.launched, o.steps + 1); /* a pass with its updates is one run; one of evaluation */
    ls_trainer_close(&t);
    assert_true(queued_empty());
    if (trace)
        expect_enqueues("lean/trace.json", (int)o.steps);
    forget("lean");
    ls_options_release(&o);
}

static void test_nothing_waits(void **state)
{
    (void)state;
    expect_no_wait(NULL);
    expect_no_wait("1:4");
}

static void await_sample(void *context, uint64_t step)
{
    struct ls_trainer *t = context;
    struct ls_gpu_sums sums = {0};
    double deadline = ls_now() + 30;
    while (step == 2 && sums.n[0] == 0) {
        ls_gpu_sums(&t->gpu, &sums);
        usleep(1000);
        assert_true(ls_now() < deadline);
    }
}

/* What the driver's library says of the card stands in the metrics and in the log. */
static void test_gpu_figures(void **state)
{
    (void)state;
    struct ls_options o = run_options("watched", true);
    struct ls_trainer t;
    char *text;
    size_t size;
    queued.bus = "0000:01:00.0"; /* as tests/probes/nvml.c knows it */
    assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
    t.on_step = await_sample;
    t.context = &t;
    assert_int_equal(ls_trainer_run(&t), LS_OK);
    ls_trainer_close(&t);
    queued.bus = NULL;
    assert_int_equal(ls_file_read(tiny_path("watched/metrics.jsonl"), 1 << 24, &text, &size), LS_OK);
    int lines = 0, figures = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const char *power = strstr(line, "\"gpu_power_w\": 412, \"gpu_clock_mhz\": 1755");
        bool eval = strncmp(line, "{\"kind\": \"eval\"", 15) == 0;
        lines += !eval;
        figures += power && power < strchr(line, '\n');
    }
    assert_true(lines > 0);
    assert_int_equal(lines, figures);
    assert_non_null(strstr(text, "\"gpu_memory_bytes\": 10737418240,"));
    assert_non_null(strstr(text, "\"gpu_temperature_c\": null"));
    ls_free(text);
    assert_int_equal(ls_file_read(tiny_path("watched/log.txt"), 1 << 24, &text, &size), LS_OK);
    assert_non_null(strstr(text, "% busy on average, 412 W, 1755 MHz, 10.0 GiB"));
    ls_free(text);
    forget("watched");
    ls_options_release(&o);
}

/* --- stopping, going on, going wrong ---------------------------------------------------------------------------- */

static void test_resume(void **state)
{
    (void)state;
    static const uint64_t stops[] = {7, TINY_STEPS, 1, 3 * TINY_STEPS};
    struct ls_options whole = run_options("whole", false);
    assert_int_equal(tiny_train(&whole), LS_OK);
    for (int i = 0; i < 4; i++) {
        struct ls_options o = run_options("stopped", true);
        assert_int_equal(train_until(&o, stops[i]), LS_INTERRUPTED);
        expect_goes_on(&o);
    }
    ls_options_release(&whole);
    forget("whole");
}

/* The folder of checkpoints becomes a file, in which nothing can be made. */
static void spoil(void *context, uint64_t step)
{
    char folder[256];
    (void)context;
    if (step != 2)
        return;
    snprintf(folder, sizeof folder, "%s", tiny_path("spoilt/checkpoints"));
    assert_int_equal(ls_dir_remove(folder), LS_OK);
    assert_int_equal(ls_file_write(folder, "", 0), LS_OK);
}

/* A thread writes; what became of it is known before the run ends. */
static void test_cannot_save(void **state)
{
    (void)state;
    struct ls_options o = run_options("spoilt", true);
    struct ls_trainer t;
    assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
    t.on_step = spoil;
    assert_int_equal(ls_trainer_run(&t), LS_FAILED);
    assert_null(t.checkpoint);
    ls_trainer_close(&t);
    assert_true(queued_empty());
    forget("spoilt");
    ls_options_release(&o);
}

/* A feed whose slots cannot be read from one on. */
struct starving {
    struct ls_feed feed;
    int64_t left;
};

static enum ls_status starving_next(void *context, const struct ls_slot **slot)
{
    struct starving *s = context;
    return s->left-- > 0 ? s->feed.next(s->feed.context, slot) : ls_fail(LS_BAD_INPUT, "a broken image");
}

static bool starving_ready(void *context, int64_t slots)
{
    const struct starving *s = context;
    return s->left >= slots;
}

static void starve(struct ls_trainer *t, struct starving *s, int64_t left)
{
    *s = (struct starving){t->stepper.feed, left};
    t->stepper.feed = (struct ls_feed){starving_next, s, starving_ready};
}

/* What can be read of a step that cannot be finished leaves nothing behind: the step before it is saved. */
static void test_unreadable(void **state)
{
    (void)state;
    static const struct {
        int64_t replicas, accumulate, slots;
        uint64_t step;
    } cases[] = {{1, 1, 7, 7}, {1, 1, 1, 1}, {1, 1, TINY_STEPS, TINY_STEPS}, {1, 3, 20, 6}, {4, 1, 13, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_options whole = run_options("whole", false), o = run_options("stopped", true);
        struct ls_trainer t;
        struct starving s;
        whole.replicas = o.replicas = cases[i].replicas;
        whole.accumulate = o.accumulate = cases[i].accumulate;
        assert_int_equal(tiny_train(&whole), LS_OK);
        assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
        starve(&t, &s, cases[i].slots);
        assert_int_equal(ls_trainer_run(&t), LS_BAD_INPUT);
        assert_int_equal(t.state.step, cases[i].step);
        ls_trainer_close(&t);
        assert_true(queued_empty());
        expect_goes_on(&o);
        ls_options_release(&whole);
        forget("whole");
    }
}

static void test_scale_goes_on(void **state)
{
    (void)state;
    struct ls_options o = run_options("stopped", true);
    queued.scale = (struct ls_loss_scale){.scale = 512, .steady = 7};
    assert_int_equal(train_until(&o, 7), LS_INTERRUPTED);
    queued.scale = (struct ls_loss_scale){.scale = 65536};
    tiny_set(&o.resume, "auto");
    assert_int_equal(tiny_train(&o), LS_OK);
    assert_true(queued.scale.scale == 512 && queued.scale.steady == 7);
    queued.scale = (struct ls_loss_scale){0};
    ls_options_release(&o);
    forget("stopped");
}

/* The step that is named, and what is told of the steps before it, are those of a run without a queue; whether the next
 * step is already under way or the state is about to be saved. */
static void test_diverged(void **state)
{
    (void)state;
    for (int64_t every = 0; every < 3; every++) {
        char said[1024];
        struct ls_options plain = run_options("plain", false), o = run_options("queue", true);
        plain.lr = o.lr = 1e20;
        plain.checkpoint_every = o.checkpoint_every = every;
        assert_int_equal(tiny_train(&plain), LS_DIVERGED);
        snprintf(said, sizeof said, "%s", ls_log_last());
        assert_int_equal(tiny_train(&o), LS_DIVERGED);
        assert_string_equal(ls_log_last(), said);
        char *told = story("plain"), *again = story("queue");
        assert_string_equal(told, again);
        free(told);
        free(again);
        assert_true(queued_empty());
        ls_options_release(&plain);
        ls_options_release(&o);
        forget("plain");
        forget("queue");
    }
}

static void test_types(void **state)
{
    (void)state;
    static const char *const types[] = {"tf32", "fp16"};
    for (int i = 0; i < 2; i++) {
        struct ls_options o = run_options("types", false);
        tiny_set(&o.dtype, types[i]);
        assert_int_equal(tiny_train(&o), LS_USAGE);
        assert_non_null(strstr(ls_log_last(), "--backend cuda"));
        tiny_set(&o.backend, "cuda");
        assert_int_equal(tiny_train(&o), LS_OK);
        ls_options_release(&o);
        forget("types");
    }
}

/* A run that was one of several processes goes on as one: there is nothing to compress. */
static void test_compress_alone(void **state)
{
    (void)state;
    struct ls_options o = run_options("alone", true);
    o.replicas = 2;
    tiny_set(&o.compress, "1bit");
    assert_int_equal(tiny_train(&o), LS_OK);
    assert_true(queued_empty());
    ls_options_release(&o);
    forget("alone");
}

/* --- together ----------------------------------------------------------------------------------------------------- */

static void train_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    NEED(t.stepper.report_delay ==
         (t.engine.backend->queue->delay && strcmp(o.sync, "local") == 0 && o.accumulate == 1));
    queued.fetches = 0;
    NEED(ls_trainer_run(&t) == LS_OK);
    NEED(queued.fetches == 0 || t.engine.grads != t.engine.kept);
    NEED((t.engine.grads != t.engine.kept) == (strcmp(o.backend, "ref") != 0 && strcmp(o.sync, "local") != 0));
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

struct together {
    int ranks, replicas, servers;
    const char *sync, *compress, *model;
    double bucket_mb;          /* 0: cut by time, which no two runs do alike */
    int64_t accumulate, batch; /* 0: as usual */
};

static void compare_together(const struct together *c)
{
    static const char *const runs[] = {"plain", "queue"};
    int64_t steps = 8;
    for (int queue = 0; queue < 2; queue++) {
        struct ls_options o = run_options(runs[queue], queue);
        tiny_set(&o.sync, c->sync);
        tiny_set(&o.compress, c->compress ? c->compress : "none");
        tiny_set(&o.model, tiny_path(c->model ? c->model : "tiny.yaml"));
        o.replicas = c->replicas;
        o.accumulate = c->accumulate ? c->accumulate : 1;
        o.batch = c->batch ? c->batch : o.batch;
        o.servers = c->servers;
        o.cutoff_k = c->ranks - 1;
        o.local_steps = 3;
        o.block_momentum = strcmp(c->sync, "local") == 0 ? 0.5 : 0;
        o.bucket_mb = c->bucket_mb;
        o.steps = steps;
        o.check_every = 2;
        bool served = c->servers > 0;
        run_ranks((struct ranks){.size = c->ranks, .replicas = served ? 0 : c->replicas, .loud = true, .argument = &o},
                  train_rank);
        ls_options_release(&o);
    }
    expect_same_run("plain", "queue", (int)steps);
    forget("plain");
    forget("queue");
}

/* The last rank cannot read its ninth step. All stop at the same one, also where reports lag behind. */
static void starved_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    struct starving s;
    NEED(ls_trainer_open(&t, &o, c) == LS_OK);
    bool last = ls_comm_rank(c) + 1 == ls_comm_size(c);
    starve(&t, &s, last ? 8 * t.stepper.replicas.n_slices : 1 << 20);
    NEED(ls_trainer_run(&t) == LS_BAD_INPUT);
    NEED(t.state.step == 8 && t.all_know);
    ls_trainer_close(&t);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void test_unreadable_together(void **state)
{
    (void)state;
    static const char *const syncs[] = {"overlap", "gather", "server", "local"};
    for (int i = 0; i < 8; i++) {
        struct ls_options o = run_options("starved", i < 4);
        char path[64];
        tiny_set(&o.sync, syncs[i % 4]);
        o.replicas = 3;
        o.local_steps = 3;
        run_ranks((struct ranks){.size = 3, .replicas = 3, .argument = &o}, starved_rank);
        snprintf(path, sizeof path, "starved/checkpoints/step-%08d/state.json", 8);
        assert_true(ls_file_exists(tiny_path(path)));
        assert_false(ls_file_exists(tiny_path("starved/lock")));
        ls_options_release(&o);
        forget("starved");
    }
}

/* A bucket for each tensor needs marks of its own; more of them share. */
static void write_deep_model(void)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "input: 1x8x8\nclasses: 4\nlayers:\n");
    for (int i = 0; i < LS_QUEUE_MARKS / 2 + 8; i++)
        fprintf(out, "  - {name: conv%d, op: conv, out: 1, kernel: 1}\n", i);
    fprintf(out, "  - {name: fc, op: dense, out: classes}\n");
    fclose(out);
    assert_int_equal(ls_file_write(tiny_path("deep.yaml"), text, size), LS_OK);
    free(text);
}

static void test_together(void **state)
{
    (void)state;
    static const struct together cases[] = {
        {.ranks = 2, .replicas = 2, .sync = "overlap", .bucket_mb = 0.0001},
        {.ranks = 2, .replicas = 2, .sync = "overlap"},
        {.ranks = 3, .replicas = 3, .sync = "overlap", .bucket_mb = 1},
        {.ranks = 2, .replicas = 3, .sync = "overlap", .bucket_mb = 0.0001},
        {.ranks = 3, .replicas = 8, .sync = "overlap", .bucket_mb = 0.0001, .accumulate = 2},
        {.ranks = 2, .replicas = 2, .sync = "allreduce"},
        {.ranks = 2, .replicas = 3, .sync = "gather"},
        {.ranks = 2, .replicas = 2, .sync = "gather", .model = "deep.yaml"},
        {.ranks = 2, .replicas = 2, .sync = "overlap", .compress = "1bit", .bucket_mb = 0.0001},
        {.ranks = 2, .replicas = 2, .sync = "overlap", .compress = "fp16", .bucket_mb = 0.0001},
        {.ranks = 2, .replicas = 2, .sync = "allreduce", .compress = "powersgd:1", .bucket_mb = 0.0001},
        {.ranks = 3, .replicas = 3, .sync = "server", .bucket_mb = 0.0001},
        {.ranks = 3, .replicas = 2, .sync = "server", .servers = 1, .bucket_mb = 0.0001},
        {.ranks = 3, .replicas = 2, .sync = "cutoff", .servers = 1, .bucket_mb = 0.0001},
        {.ranks = 2, .replicas = 1, .sync = "async", .servers = 1},
        {.ranks = 3, .replicas = 3, .sync = "local"},
        {.ranks = 3, .replicas = 3, .sync = "local", .accumulate = 2},
        {.ranks = 3, .replicas = 3, .sync = "local", .batch = 27},
    };
    write_deep_model();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare_together(&cases[i]);
}

/* fp16: all must see the same gradients overflow. */
static void refused_rank(struct ls_comm *c, const struct ranks *r)
{
    struct ls_options o = *(const struct ls_options *)r->argument;
    struct ls_trainer t;
    NEED(ls_trainer_open(&t, &o, c) == LS_USAGE);
    NEED(queued_empty());
    ls_comm_close(c, LS_OK);
}

static void test_fp16_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"server", "none"}, {"async", "none"}, {"overlap", "fp16"}, {"allreduce", "1bit"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct ls_options o = run_options("refused", true);
        tiny_set(&o.dtype, "fp16");
        tiny_set(&o.sync, pairs[i][0]);
        tiny_set(&o.compress, pairs[i][1]);
        bool served = strcmp(o.sync, "async") == 0;
        o.replicas = served ? 1 : 2;
        o.servers = served;
        run_ranks((struct ranks){.size = 2, .replicas = served ? 0 : 2, .argument = &o}, refused_rank);
        ls_options_release(&o);
        forget("refused");
    }
}

struct failure {
    struct ls_options o;
    int victim, transfers; /* whose card is gone, and when */
    int absent;            /* who comes to the step only then */
};

static void fail_rank(struct ls_comm *c, const struct ranks *r)
{
    const struct failure *f = r->argument;
    bool victim = ls_comm_rank(c) == f->victim;
    struct ls_trainer t;
    char last[256];
    NEED(ls_trainer_open(&t, &f->o, c) == LS_OK);
    ls_log_mute(1);
    if (ls_comm_rank(c) == f->absent)
        NEED(ls_rank_reduce_status(c, LS_OK) == LS_OK); /* that all have samples, as a run begins */
    while (ls_comm_rank(c) == f->absent && ls_comm_broken(c) == LS_OK)
        usleep(1000);
    queued.transfers = victim ? f->transfers : 0;
    enum ls_status st = ls_trainer_run(&t);
    NEED(st == (victim ? LS_FAILED : LS_PEER_LOST));
    ls_log_last_copy(last, sizeof last);
    NEED(strstr(last, "the card is gone"));
    ls_trainer_close(&t);
    NEED(ls_comm_broken(c) != LS_OK); /* nothing of it is under way any more */
    NEED(queued_empty());
    ls_comm_close(c, st);
}

/* What a step had handed over when it failed is given up before its memory goes; the others hear why. */
static void test_card_fails(void **state)
{
    (void)state;
    static const struct together cases[] = {
        {.ranks = 2, .replicas = 2, .sync = "overlap", .bucket_mb = 0.0001},
        {.ranks = 2, .replicas = 2, .sync = "overlap", .compress = "1bit", .bucket_mb = 0.0001},
        {.ranks = 3, .replicas = 2, .sync = "async", .servers = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct together *c = &cases[i];
        /* A worker that has handed its first bucket over, or the server at its first update. */
        struct failure f = {.o = run_options("failed", true),
                            .victim = c->ranks - 1,
                            .transfers = c->servers > 0 ? 1 : 2,
                            .absent = c->ranks - 2};
        tiny_set(&f.o.sync, c->sync);
        tiny_set(&f.o.compress, c->compress ? c->compress : "none");
        f.o.replicas = c->replicas;
        f.o.servers = c->servers;
        f.o.bucket_mb = c->bucket_mb;
        run_ranks((struct ranks){.size = c->ranks, .replicas = c->servers > 0 ? 0 : c->replicas, .argument = &f},
                  fail_rank);
        ls_options_release(&f.o);
        forget("failed");
    }
}

/* --- the tests of ops --------------------------------------------------------------------------------------------- */

/* Sessions, with which every op is tested, put up with a queue. */
static void test_sessions(void **state)
{
    (void)state;
    for (int i = 0; ls_case_at(i) && !ls_case_at(i)->large; i += 7) {
        const struct ls_case *c = ls_case_at(i);
        struct ls_session a = {0}, b = {0};
        build(&a.g, c, LS_F32);
        build(&b.g, c, LS_F32);
        session_open(&a, ls_backend_find("ref"), c->valid ? c->valid : c->n, &apart);
        session_open(&b, ls_backend_find("cuda"), c->valid ? c->valid : c->n, &apart);
        for (int round = 0; round < 2; round++) {
            a.images[0] = b.images[0] = (float)round;
            session_run(&a);
            session_run(&b);
            assert_true(same_values(&a, a.g.loss, &b, b.g.loss, 0, c->name));
        }
        session_close(&a);
        session_close(&b);
        assert_true(queued_empty());
    }
}

/* --- bench -------------------------------------------------------------------------------------------------------- */

/* What it prints, as JSON. */
static json_t *bench(int64_t accumulate)
{
    struct ls_options o = run_options("unused", true);
    const char *path = tiny_path("bench.json");
    o.json = true;
    o.accumulate = accumulate;
    o.steps = 5;
    o.repeat = 3;
    fflush(stdout);
    int terminal = dup(1), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(terminal >= 0 && file >= 0 && dup2(file, 1) == 1);
    enum ls_status st = ls_cmd_bench(&o);
    fflush(stdout);
    dup2(terminal, 1);
    close(terminal);
    close(file);
    assert_int_equal(st, LS_OK);
    ls_options_release(&o);
    return json_load_file(path, 0, NULL);
}

/* Each repetition is timed as a whole, over all its samples. */
static void test_bench(void **state)
{
    (void)state;
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        json_t *said = bench(accumulate), *ms = json_object_get(said, "step_ms");
        assert_int_equal(json_array_size(ms), 15);
        for (size_t i = 0; i < 15; i++) {
            double step = json_real_value(json_array_get(ms, i));
            double speed = json_real_value(json_array_get(json_object_get(said, "samples_per_s_repeats"), i / 5));
            assert_true(step > 0 && step == json_real_value(json_array_get(ms, i / 5 * 5)));
            assert_true(fabs(step * speed / 1000 - 24) < 0.5); /* samples a step */
        }
        json_decref(said);
        assert_true(queued_empty());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_pass),      cmocka_unit_test(test_several_passes),
        cmocka_unit_test(test_nothing_waits), cmocka_unit_test(test_gpu_figures),
        cmocka_unit_test(test_resume),        cmocka_unit_test(test_scale_goes_on),
        cmocka_unit_test(test_cannot_save),   cmocka_unit_test(test_diverged),
        cmocka_unit_test(test_unreadable),    cmocka_unit_test(test_diverged),
        cmocka_unit_test(test_types),         cmocka_unit_test(test_together),
        cmocka_unit_test(test_types),         cmocka_unit_test(test_unreadable_together),
        cmocka_unit_test(test_fp16_refused),  cmocka_unit_test(test_compress_alone),
        cmocka_unit_test(test_sessions),      cmocka_unit_test(test_bench),
        cmocka_unit_test(test_card_fails),
    };
    return cmocka_run_group_tests_name("queue", tests, tiny_begin, tiny_end);
}
