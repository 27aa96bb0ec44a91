/* Training from options to weights: learning, replicas, resuming, stopping, diverging. */
#include "train_story.h"

#include "graph/ops.h"
#include "optim/optim.h"
#include "train/evaluation/evaluate.h"
#include "base/system/interrupt.h"
#include "checkpoint/weights.h"

#include <inttypes.h>
#include <sys/wait.h>
#include <unistd.h>
#include <math.h>

static const char *backend_name; /* NULL: as tiny_options says */

static struct ls_options run_options(const char *run)
{
    struct ls_options o = tiny_options(run);
    if (backend_name)
        tiny_set(&o.backend, backend_name);
    return o;
}

/* --- the tree of replicas ----------------------------------------------------------------------------- */

/* Every pass of every replica has a gradient of its own, of sizes far apart, so that the order of additions
 * shows. */
static float pass_gradient(int replica, int pass, int k)
{
    static const float sizes[] = {1.0f, 1e-7f, 3.3e4f, -1.0f, 0.7e-3f, 2.9f, -3.3e4f};
    return sizes[(replica * 3 + pass * 5 + k) % 7] * (1.0f + 0.01f * (float)replica);
}

struct fake {
    struct ls_replicas *r;
    float gradient[3];
    int order[64], n;
    int passes;
};

static enum ls_status fake_pass(void *context, int replica, int pass, bool last)
{
    struct fake *f = context;
    f->order[f->n++] = replica * f->passes + pass;
    for (int k = 0; k < 3; k++)
        f->gradient[k] = pass_gradient(replica, pass, k);
    if (last) { /* EXEC-5 */
        LS_TRY(ls_replicas_settle(f->r, 0, 1));
        LS_TRY(ls_replicas_settle(f->r, 1, 2));
    }
    return LS_OK;
}

/* EXEC-1, EXEC-2 word by word. */
static float expected(int replicas, int passes, int v, int s, int k)
{
    if (s < replicas) {
        float left = expected(replicas, passes, v, 2 * s, k);
        return v + s < replicas ? left + expected(replicas, passes, v + s, 2 * s, k) : left;
    }
    float sum = pass_gradient(v, 0, k);
    for (int pass = 1; pass < passes; pass++)
        sum = sum + pass_gradient(v, pass, k);
    return sum;
}

/* All processes of a tree, one after the other, then the sums that are left. */
static void check_tree(int replicas, int size, int passes)
{
    struct ls_tree tree;
    float parts[16][3];
    int runs = 0;
    assert_int_equal(ls_tree_init(&tree, replicas, size), LS_OK);
    for (int rank = 0; rank < size; rank++) {
        struct ls_replicas r;
        float side[16 * 3];
        struct fake f = {.r = &r, .passes = passes};
        int first, n = ls_tree_parts(&tree, rank, &first);
        struct ls_replicas_memory memory = {
            .grads = f.gradient, .count = 3, .sum = f.gradient, .side = side, .backend = ls_backend_find("ref")};
        assert_int_equal(ls_replicas_init(&r, &tree, rank, passes, &memory), LS_OK);
        assert_int_equal(ls_replicas_run(&r, fake_pass, &f), LS_OK);
        assert_int_equal(f.n, r.n_slices);
        assert_memory_equal(f.order, r.order, (size_t)f.n * sizeof *f.order);
        runs += f.n;
        assert_int_equal(r.n_parts, n);
        for (int i = 0; i < n; i++)
            memcpy(parts[first + i], r.parts[i], sizeof parts[0]);
        /* EXEC-4 */
        assert_int_equal(r.levels, (int)ceil(log2(replicas)) + (passes > 1));
        ls_replicas_release(&r);
    }
    assert_int_equal(runs, replicas * passes);
    for (int i = 0; i < tree.n_sums; i++)
        for (int k = 0; k < 3; k++)
            parts[tree.sums[i].to][k] += parts[tree.sums[i].from][k];
    for (int k = 0; k < 3; k++)
        assert_true(parts[0][k] == expected(replicas, passes, 0, 1, k));
    ls_tree_release(&tree);
}

static void test_tree(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= 9; replicas++)
        for (int size = 1; size <= replicas; size++)
            for (int passes = 1; passes <= 3; passes++)
                check_tree(replicas, size, passes);
}

/* SYNC-3: totals do not depend on which pass or process counts a sample. */
static void test_totals(void **state)
{
    (void)state;
    enum { N = 257 };
    float loss[N];
    int32_t rank[N];
    struct ls_totals whole = {0}, parts[3] = {{0}}, sum = {0};
    for (int i = 0; i < N; i++) {
        loss[i] = 1e3f / (float)(i + 1) + 1e-7f * (float)i;
        rank[i] = i % 9 - 1;
    }
    ls_totals_count(&whole, loss, rank, N);
    for (int i = 0; i < N; i++)
        ls_totals_count(&parts[i % 3], &loss[i], &rank[i], 1);
    for (int i = 2; i >= 0; i--)
        ls_totals_add(&sum, &parts[i]);
    assert_true(sum.loss == whole.loss);
    assert_int_equal(sum.top1, whole.top1);
    assert_int_equal(sum.top5, whole.top5);
    assert_int_equal(sum.samples, N - 29); /* a rank of -1, every ninth: left out */
    assert_true(sum.top5 > sum.top1 && sum.top1 > 0 && sum.top5 < N);
}

/* Level 1 adds (v, v+V/2), level 2 (v, v+V/4). */
static void test_tree_of_four(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        float g[4];
        for (int v = 0; v < 4; v++)
            g[v] = pass_gradient(v, 0, k);
        assert_true(expected(4, 1, 0, 1, k) == (g[0] + g[2]) + (g[1] + g[3]));
    }
}

/* --- where updates stand ------------------------------------------------------------------------------ */

static void test_interleave(void **state)
{
    (void)state;
    struct ls_options o = run_options("unused");
    struct ls_engine e;
    struct ls_model_size size = {.batch = 4, .channels = 1, .height = 8, .width = 8, .classes = 4};
    assert_int_equal(ls_engine_open(&e, &o, NULL, &size, NULL, LS_ENGINE_TRAIN), LS_OK);
    const struct ls_graph *g = &e.train.graph;
    int updates = 0, last_backward = 0, before_last = 0;
    if (e.backend->queue->delay) { /* updates run as one, at the end */
        ls_engine_close(&e);
        skip();
    }
    assert_int_equal(e.train.end, g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++)
        last_backward = g->nodes[i].phase != LS_UPDATE ? i : last_backward;
    for (int u = 0; u < g->n_nodes; u++) {
        if (g->nodes[u].phase != LS_UPDATE)
            continue;
        updates++;
        before_last += u < last_backward;
        /* nothing after an update reads what it changed, or writes what it read */
        for (int i = u + 1; i < g->n_nodes; i++)
            for (int k = 0; k < LS_MAX_IN && g->nodes[i].phase != LS_UPDATE; k++)
                assert_true(g->nodes[i].in[k] == LS_NONE || g->nodes[i].in[k] != g->nodes[u].in[0]);
    }
    assert_int_equal(updates, 6); /* five parameters and one BN */
    assert_true(before_last >= 3);
    ls_engine_close(&e);

    o.accumulate = 2;
    assert_int_equal(ls_engine_open(&e, &o, NULL, &size, NULL, LS_ENGINE_TRAIN), LS_OK);
    for (int i = 0; i < e.train.graph.n_nodes; i++)
        assert_true((e.train.graph.nodes[i].phase == LS_UPDATE) == (i >= e.train.end));
    ls_engine_close(&e);
    ls_options_release(&o);
}

static void test_decay_and_momentum(void **state)
{
    (void)state;
    struct ls_options o = run_options("unused");
    struct ls_engine e;
    struct ls_model_size size = {.batch = 4, .channels = 1, .height = 8, .width = 8, .classes = 4};
    o.decay_all = false;
    tiny_set(&o.optimizer, "lars");
    assert_int_equal(ls_engine_open(&e, &o, NULL, &size, NULL, LS_ENGINE_TRAIN), LS_OK);
    int lars = 0, sgd = 0;
    for (int i = 0; i < e.train.graph.n_nodes; i++) {
        const struct ls_node *n = &e.train.graph.nodes[i];
        lars += n->op == &ls_op_lars;
        sgd += n->op == &ls_op_sgd;
        if (n->op == &ls_op_sgd)
            assert_true(n->attr.hyper.weight_decay == 0);
        if (n->op == &ls_op_lars)
            assert_true(n->attr.hyper.weight_decay == o.weight_decay);
    }
    assert_int_equal(lars, 2);
    assert_int_equal(sgd, 3);
    ls_engine_close(&e);
    tiny_set(&o.optimizer, "adagrad");
    assert_int_equal(ls_engine_open(&e, &o, NULL, &size, NULL, LS_ENGINE_TRAIN), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "sgd, lars"));
    ls_options_release(&o);
}

/* --- learning ----------------------------------------------------------------------------------------- */

static void test_learns(void **state)
{
    (void)state;
    struct ls_options o = run_options("learn");
    struct ls_trainer t;
    o.epochs = 8;
    assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
    assert_int_equal(ls_trainer_run(&t), LS_OK);
    assert_int_equal(t.state.step, 8 * TINY_STEPS);
    assert_int_equal(t.last_eval.samples, 22);
    assert_true(t.last_eval.top1 > 0.8);
    assert_true(t.last_eval.top5 == 1.0);
    assert_true(t.state.best_top1 >= t.last_eval.top1);
    ls_trainer_close(&t);
    assert_true(ls_file_exists(tiny_path("learn/config.yaml")));
    assert_true(ls_file_exists(tiny_path("learn/log.txt")));
    assert_true(ls_file_exists(tiny_path("learn/checkpoints/best/model.safetensors")));
    assert_int_equal(tiny_train(&o), LS_USAGE); /* not over what is there */
    assert_non_null(strstr(ls_log_last(), "--resume"));
    ls_options_release(&o);
}

/* Evaluates what test_learns trained. Of the last pass: logits and losses, where they are not NULL. */
static struct ls_report evaluate_learnt(const char *tta, int64_t batch, struct ls_confusion *confusion, float *logits,
                                        float *losses)
{
    struct ls_options o = run_options("unused");
    struct ls_task task;
    struct ls_engine e;
    struct ls_stepper s;
    struct ls_console console;
    struct ls_report r = {0};
    o.batch = batch;
    tiny_set(&o.tta, tta);
    assert_int_equal(ls_task_open(&task, &o, false, true, NULL), LS_OK);
    assert_int_equal(ls_engine_open(&e, &o, NULL, &task.size, NULL, LS_ENGINE_EVAL), LS_OK);
    assert_int_equal(ls_weights_load(&e, LS_WEIGHTS_MODEL, tiny_path("learn/checkpoints/best/model.safetensors")),
                     LS_OK);
    assert_int_equal(ls_stepper_init(&s, &e, (struct ls_feed){0}, &o), LS_OK);
    ls_console_begin(&console, &o, 0);
    assert_int_equal(ls_evaluate(&s, &task, &o, &console, &r, confusion), LS_OK);
    if (logits)
        assert_int_equal(e.backend->read(e.eval.program, e.eval.graph.logits, logits), LS_OK);
    if (losses)
        assert_int_equal(e.backend->read(e.eval.program, e.eval.graph.loss, losses), LS_OK);
    ls_stepper_release(&s);
    ls_engine_close(&e);
    ls_task_close(&task);
    ls_options_release(&o);
    return r;
}

/* Each test sample counts once, whatever the batch. */
static void test_evaluation_is_exact(void **state)
{
    (void)state;
    static const int64_t batches[] = {24, 22, 7, 1};
    struct ls_report r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = evaluate_learnt(NULL, batches[i], NULL, NULL, NULL);
        assert_int_equal(r[i].samples, 22);
        assert_true(r[i].top1 == r[0].top1 && r[i].top5 == r[0].top5);
        assert_true(fabs(r[i].loss - r[0].loss) < 1e-5);
    }
}

/* The two highest of four logits. */
static float margin_of(const float logits[4])
{
    float first = -INFINITY, second = -INFINITY;
    for (int c = 0; c < 4; c++) {
        if (logits[c] > first)
            second = first, first = logits[c];
        else if (logits[c] > second)
            second = logits[c];
    }
    return first - second;
}

/* LEAST-1: 7 of 22 samples get all views, whatever the batch. */
static void test_least_certain_get_views(void **state)
{
    (void)state;
    static const int64_t batches[] = {24, 22, 7, 1};
    float logits[22 * 4], one[22], all[22];
    double expected = 0;
    evaluate_learnt(NULL, 22, NULL, logits, one);
    evaluate_learnt("mirror,shift:1", 22, NULL, NULL, all);
    for (int i = 0; i < 22; i++) {
        int before = 0;
        for (int k = 0; k < 22; k++)
            before += margin_of(logits + 4 * k) < margin_of(logits + 4 * i);
        expected += (double)(before < 7 ? all[i] : one[i]) / 22;
    }
    for (int i = 0; i < 4; i++) {
        struct ls_confusion confusion = {0};
        struct ls_report r = evaluate_learnt("mirror,shift:1,least:0.3", batches[i], &confusion, NULL, NULL);
        int64_t counted = 0, right = 0;
        assert_int_equal(r.samples, 22);
        assert_true(fabs(r.loss - expected) < 1e-5);
        for (int k = 0; k < 16; k++)
            counted += confusion.counts[k], right += k % 5 == 0 ? confusion.counts[k] : 0;
        assert_int_equal(counted, 22);
        assert_true(fabs(r.top1 - (double)right / 22) < 1e-9);
        ls_confusion_release(&confusion);
    }
    /* All of them, and one. */
    assert_true(evaluate_learnt("mirror,least:0.99", 7, NULL, NULL, NULL).loss ==
                evaluate_learnt("mirror", 7, NULL, NULL, NULL).loss);
    assert_true(fabs(evaluate_learnt("mirror,least:0.01", 7, NULL, NULL, NULL).loss -
                     evaluate_learnt(NULL, 7, NULL, NULL, NULL).loss) > 1e-9);
}

/* --- replicas and accumulation ------------------------------------------------------------------------ */

static void read_bias(const struct ls_trainer *t, float values[4])
{
    const struct ls_net *net = ls_engine_net(&t->engine);
    assert_int_equal(t->engine.backend->read(net->program, ls_graph_find(&net->graph, "fc.bias"), values), LS_OK);
}

/* Without BN and dropout, dealing the batch out changes nothing but rounding: the mean is over samples, also
 * in the uneven last step. */
static void test_replicas_mean_over_samples(void **state)
{
    (void)state;
    static const int64_t parts[][2] = {{1, 1}, {2, 1}, {4, 1}, {3, 1}, {1, 3}, {2, 2}, {8, 3}};
    float whole[4], bias[4];
    for (int i = 0; i < 7; i++) {
        char run[32];
        struct ls_trainer t;
        snprintf(run, sizeof run, "parts-%d", i);
        struct ls_options o = run_options(run);
        tiny_set(&o.model, tiny_path("plain.yaml"));
        o.replicas = parts[i][0];
        o.accumulate = parts[i][1];
        o.epochs = 2;
        assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
        assert_int_equal(ls_trainer_run(&t), LS_OK);
        read_bias(&t, i == 0 ? whole : bias);
        for (int k = 0; i > 0 && k < 4; k++)
            assert_true(fabsf(bias[k] - whole[k]) < 1e-5f);
        ls_trainer_close(&t);
        ls_options_release(&o);
    }
}

/* A batch need not divide by the replicas, but each must get a sample. */
static void test_uneven_batch(void **state)
{
    (void)state;
    struct ls_options o = run_options("uneven");
    o.replicas = 5;
    assert_true(o.batch % 5 != 0);
    assert_int_equal(tiny_train(&o), LS_OK);
    ls_options_release(&o);
    o = run_options("five");
    o.replicas = o.batch + 1;
    assert_int_equal(tiny_train(&o), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "too small"));
    assert_false(ls_file_exists(tiny_path("five")));
    ls_options_release(&o);
}

/* --- stopping and going on ---------------------------------------------------------------------------- */

/* Steps behind all lines about ranks in metrics.jsonl of a run of one process. */
static int64_t ranked_steps(const char *run)
{
    char path[64], line[4096];
    int64_t sum = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    FILE *f = fopen(tiny_path(path), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *object = json_loads(line, 0, NULL);
        if (strcmp(json_string_value(json_object_get(object, "kind")), "rank") == 0)
            sum += json_integer_value(json_object_get(object, "steps"));
        json_decref(object);
    }
    fclose(f);
    return sum;
}

/* K4: stopped in the middle of an epoch, at its end before the evaluation, and right after the first step. */
static void resume_equals(int64_t replicas, int64_t accumulate)
{
    static const uint64_t stops[] = {7, TINY_STEPS, 1, 3 * TINY_STEPS};
    struct ls_options whole = run_options("whole");
    whole.replicas = replicas;
    whole.accumulate = accumulate;
    assert_int_equal(tiny_train(&whole), LS_OK);
    for (int i = 0; i < 4; i++) {
        struct ls_options o = run_options("stopped");
        o.replicas = replicas;
        o.accumulate = accumulate;
        assert_int_equal(train_until(&o, stops[i]), LS_INTERRUPTED);
        tiny_set(&o.resume, "auto");
        assert_int_equal(tiny_train(&o), LS_OK);
        expect_same_run("whole", "stopped", 3 * TINY_STEPS);
        assert_int_equal(ranked_steps("stopped"), 3 * TINY_STEPS);
        ls_options_release(&o);
        assert_int_equal(ls_dir_remove(tiny_path("stopped")), LS_OK);
    }
    ls_options_release(&whole);
    assert_int_equal(ls_dir_remove(tiny_path("whole")), LS_OK);
}

static void test_resume(void **state)
{
    (void)state;
    resume_equals(1, 1);
    resume_equals(4, 2);
    resume_equals(3, 1);
}

static void test_resume_onednn(void **state)
{
    (void)state;
    if (!ls_backend_find("onednn")) {
        print_message("built without onednn\n");
        skip();
    }
    backend_name = "onednn";
    resume_equals(1, 1);
    resume_equals(4, 2);
    backend_name = NULL;
}

/* What came after the checkpoint is told again, not twice: here the process was killed after step 9, saved
 * at 6. */
static void test_resume_after_crash(void **state)
{
    (void)state;
    struct ls_options whole = run_options("calm"), o = run_options("crashed");
    whole.checkpoint_every = o.checkpoint_every = 6;
    assert_int_equal(tiny_train(&whole), LS_OK);
    assert_int_equal(train_until(&o, 9), LS_INTERRUPTED);
    assert_int_equal(ls_dir_remove(tiny_path("crashed/checkpoints/step-00000009")), LS_OK);
    tiny_set(&o.resume, "auto");
    assert_int_equal(tiny_train(&o), LS_OK);
    expect_same_run("calm", "crashed", 3 * TINY_STEPS);
    ls_options_release(&whole);
    ls_options_release(&o);
}

static void die_at_step(void *context, uint64_t step)
{
    if (step == *(const uint64_t *)context)
        _exit(0); /* as by kill -9: what only the process has is lost */
}

/* How often each step stands in metrics.jsonl of a run. */
static void count_steps(const char *run, int *times, int64_t most)
{
    char path[64], line[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    FILE *f = fopen(tiny_path(path), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        int64_t step;
        if (sscanf(line, "{\"kind\": \"step\", \"step\": %" SCNd64, &step) == 1 && step <= most)
            times[step]++;
    }
    fclose(f);
}

/* The steps before a checkpoint are in metrics.jsonl when it is, and after --resume each stands there once. */
static void test_metrics_after_kill(void **state)
{
    (void)state;
    if (getenv("LOCKSTEP_TEST_BACKEND")) /* a card does not survive fork */
        skip();
    struct ls_options o = tiny_options("killed");
    int times[13] = {0}, status;
    o.steps = 12;
    o.checkpoint_every = 3;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ls_trainer t;
        uint64_t last = 8;
        if (ls_trainer_open(&t, &o, NULL) != LS_OK)
            _exit(1);
        t.on_step = die_at_step;
        t.context = &last;
        ls_trainer_run(&t);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tiny_set(&o.resume, "auto");
    assert_int_equal(tiny_train(&o), LS_OK);
    count_steps("killed", times, 12);
    for (int step = 1; step <= 12; step++)
        assert_int_equal(times[step], 1);
    ls_options_release(&o);
}

static void test_resume_refuses_another_run(void **state)
{
    (void)state;
    struct ls_options o = run_options("calm");
    tiny_set(&o.resume, "auto");
    o.batch = 12;
    assert_int_equal(tiny_train(&o), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "--batch 12"));
    o.batch = 24;
    o.seed = 9;
    assert_int_equal(tiny_train(&o), LS_USAGE);
    tiny_set(&o.resume, tiny_path("nowhere"));
    assert_int_equal(tiny_train(&o), LS_BAD_INPUT);
    ls_options_release(&o);
}

static void test_complete_run_again(void **state)
{
    (void)state;
    struct ls_options o = run_options("calm");
    char *before = story("calm");
    o.checkpoint_every = 6;
    tiny_set(&o.resume, "auto");
    assert_int_equal(tiny_train(&o), LS_OK);
    char *after = story("calm");
    assert_string_equal(before, after);
    free(before);
    free(after);
    ls_options_release(&o);
}

static void test_init(void **state)
{
    (void)state;
    struct ls_options o = run_options("init");
    tiny_set(&o.init, tiny_path("calm/checkpoints/step-00000015/model.safetensors"));
    o.steps = 1;
    o.lr = o.weight_decay = 0;
    assert_int_equal(tiny_train(&o), LS_OK);
    float a[4], b[4];
    struct ls_safetensors x, y;
    assert_int_equal(ls_safetensors_open(o.init, &x), LS_OK);
    assert_int_equal(ls_safetensors_open(tiny_path("init/checkpoints/step-00000001/model.safetensors"), &y), LS_OK);
    assert_int_equal(ls_safetensors_f32(ls_safetensors_find(&x, "fc.bias"), "x", a), LS_OK);
    assert_int_equal(ls_safetensors_f32(ls_safetensors_find(&y, "fc.bias"), "y", b), LS_OK);
    assert_memory_equal(a, b, sizeof a);
    ls_safetensors_release(&x);
    ls_safetensors_release(&y);
    ls_options_release(&o);
}

/* --- going wrong -------------------------------------------------------------------------------------- */

static void test_diverged(void **state)
{
    (void)state;
    struct ls_options o = run_options("diverged");
    o.lr = 1e30;
    o.checkpoint_every = 1;
    assert_int_equal(tiny_train(&o), LS_DIVERGED);
    assert_non_null(strstr(ls_log_last(), "finite") ? ls_log_last() : strstr(ls_log_last(), "--lr"));
    assert_false(ls_file_exists(tiny_path("diverged/checkpoints/step-00000005")));
    o.checkpoint_every = 0;
    tiny_set(&o.run, tiny_path("diverged-2"));
    assert_int_equal(tiny_train(&o), LS_DIVERGED);
    assert_non_null(strstr(ls_log_last(), "diverged"));
    assert_non_null(strstr(ls_log_last(), "step "));
    ls_options_release(&o);
}

static void test_run_directory_in_the_way(void **state)
{
    (void)state;
    struct ls_options o = run_options("file/run");
    assert_int_equal(ls_file_write(tiny_path("file"), "x", 1), LS_OK);
    assert_int_equal(tiny_train(&o), LS_FAILED);
    assert_non_null(strstr(ls_log_last(), "file"));
    ls_options_release(&o);
}

/* --- slow input --------------------------------------------------------------------------------------- */

static int times_in_log(const char *run, const char *words)
{
    char path[64], *text;
    size_t size;
    int n = 0;
    snprintf(path, sizeof path, "%s/log.txt", run);
    assert_int_equal(ls_file_read(tiny_path(path), 1 << 24, &text, &size), LS_OK);
    for (const char *at = text; (at = strstr(at, words)); at++)
        n++;
    ls_free(text);
    return n;
}

static void test_advice(void **state)
{
    (void)state;
    struct ls_options o = run_options("advice");
    struct ls_trainer t;
    struct ls_report slow = {.seconds = 10, .input_seconds = 6.2}, fast = {.seconds = 10, .input_seconds = 0.9},
                     brief = {.seconds = 0.1, .input_seconds = 0.09};
    assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
    ls_trainer_advise(&t, &fast);
    ls_trainer_advise(&t, &brief); /* the first batch of a short run says nothing about it */
    assert_false(t.advised);
    assert_int_equal(times_in_log("advice", "Advice:"), 0);
    ls_trainer_advise(&t, &slow);
    assert_true(t.advised);
    assert_int_equal(times_in_log("advice", "Advice: 62% of the training time"), 1);
    if (ls_task_cores(&t.engine) > 1) /* one loader thread was asked for */
        assert_int_equal(times_in_log("advice", "leave --loader-threads out"), 1);
    ls_trainer_close(&t);
    ls_options_release(&o);
}

/* --- nothing is allocated in a step ------------------------------------------------------------------- */

struct allocations {
    uint64_t first, last;
};

static void count_allocations(void *context, uint64_t step)
{
    struct allocations *a = context;
    if (step == 1)
        a->first = ls_memory_calls();
    a->last = ls_memory_calls();
}

static void test_nothing_allocated(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "onednn"};
    for (int i = 0; i < 2; i++)
        for (int64_t replicas = 1; replicas <= 4 && ls_backend_find(names[i]); replicas += 3) {
            char run[32];
            struct allocations a = {0};
            struct ls_trainer t;
            snprintf(run, sizeof run, "lean-%d-%d", i, (int)replicas);
            struct ls_options o = run_options(run);
            tiny_set(&o.backend, names[i]);
            o.replicas = replicas;
            o.steps = TINY_STEPS - 1;
            tiny_set(&o.trace, replicas > 1 ? "1:4" : NULL); /* neither with a trace nor without */
            assert_int_equal(ls_trainer_open(&t, &o, NULL), LS_OK);
            t.on_step = count_allocations;
            t.context = &a;
            assert_int_equal(ls_trainer_run(&t), LS_OK);
            assert_int_equal(a.first, a.last);
            ls_trainer_close(&t);
            ls_options_release(&o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_tree_of_four),
        cmocka_unit_test(test_interleave),
        cmocka_unit_test(test_decay_and_momentum),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_evaluation_is_exact),
        cmocka_unit_test(test_least_certain_get_views),
        cmocka_unit_test(test_replicas_mean_over_samples),
        cmocka_unit_test(test_uneven_batch),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_onednn),
        cmocka_unit_test(test_resume_after_crash),
        cmocka_unit_test(test_metrics_after_kill),
        cmocka_unit_test(test_resume_refuses_another_run),
        cmocka_unit_test(test_complete_run_again),
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_diverged),
        cmocka_unit_test(test_run_directory_in_the_way),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_nothing_allocated),
    };
    return cmocka_run_group_tests(tests, tiny_begin, tiny_end);
}
