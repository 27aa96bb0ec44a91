/* One member of each model family against PyTorch: names, logits, loss, gradients, running statistics, evaluation,
 * and ten steps of SGD. The expected values are double precision (tests/golden/make.py), so every difference is an
 * error of this program. */
#include "tested.h"
#include "base/log.h"
#include "base/random.h"
#include "graph/ops.h"
#include "model/model.h"
#include "optim/optim.h"
#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/golden/"
#define TOLERANCE 1e-4
#define LOSS_TOLERANCE 1e-3

/* As in make.py. */
enum { BATCH = 8, CLASSES = 10, STEPS = 10, MANY_SAMPLES = 256, IMAGE_STREAM = 1000000, MOST_PARAMS = 512 };

struct session {
    const struct ls_backend *backend;
    struct ls_safetensors golden;
    struct ls_graph train, eval;
    struct ls_program *train_program, *eval_program;
    struct ls_store *store;
    void *arena, *grads;
    size_t arena_bytes, grad_bytes;
    int end; /* nodes 0 .. end-1 of train are the pass, the rest updates */
    int params[MOST_PARAMS], n_params;
    float *images;
    int32_t labels[BATCH];
    struct ls_run run;
    uint64_t seed;
    float bn[4];     /* ranges of BN scales and shifts */
    int64_t samples; /* of each gradient and statistic */
    int wrong;
};

/* --- what is expected ---------------------------------------------------------------------------------------- */

/* The values under that name in the golden file. */
static float *expected(const struct session *s, const char *name, int64_t *count)
{
    const struct ls_st_tensor *t = ls_safetensors_find(&s->golden, name);
    if (!t)
        fail_msg("the golden file has no %s; make.py makes it again", name);
    float *values = ls_alloc((size_t)t->count, sizeof *values);
    assert_non_null(values);
    assert_int_equal(ls_safetensors_f32(t, name, values), LS_OK);
    *count = (int64_t)t->count;
    return values;
}

/* |found - want|, and |want|. */
static double distance(const float *found, const float *want, int64_t n, double *size)
{
    double difference = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)found[i] - want[i]) * ((double)found[i] - want[i]);
        sum += (double)want[i] * want[i];
    }
    *size = sqrt(sum);
    return sqrt(difference);
}

/* Counts a tensor as wrong when |found - want| > tolerance * scale; not a number is wrong too. */
static void judge(struct session *s, const char *what, double difference, double scale, double tolerance)
{
    if (difference <= tolerance * scale)
        return;
    if (s->wrong++ < 5)
        print_error("%s: off by %.3g of its size, at most %.0e is right\n", what, difference / scale, tolerance);
}

static float *read_tensor(const struct session *s, const struct ls_graph *g, struct ls_program *p, int tensor,
                          int64_t *count)
{
    *count = ls_shape_count(&g->tensors[tensor].shape);
    float *values = ls_alloc((size_t)*count, sizeof *values);
    assert_non_null(values);
    assert_int_equal(s->backend->read(p, tensor, values), LS_OK);
    return values;
}

/* Keep one element of each of `most` equal stretches, as make.py does; how many are left. */
static int64_t pick_samples(float *values, int64_t n, int64_t most)
{
    int64_t count = n < most ? n : most;
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i * n / count + i * 7919 % (n / count)];
    return count;
}

/* A tensor, or `samples` of it, against an entry of the file. */
static void compare(struct session *s, const struct ls_graph *g, struct ls_program *p, int tensor, const char *name,
                    int64_t samples)
{
    int64_t n, want_n;
    double size;
    float *found = read_tensor(s, g, p, tensor, &n), *want = expected(s, name, &want_n);
    n = pick_samples(found, n, samples);
    assert_int_equal(n, want_n);
    double difference = distance(found, want, n, &size);
    judge(s, name, difference, size, TOLERANCE);
    ls_free(found);
    ls_free(want);
}

/* --- a model on a backend ------------------------------------------------------------------------------------ */

static void build(struct session *s, const char *model, bool training, struct ls_graph *g)
{
    struct ls_model_request request = {
        .model = model, .training = training, .dtype = LS_F32, .loss = "xent", .dropout = 0};
    int64_t c, h, w;
    assert_int_equal(
        sscanf(ls_safetensors_metadata(&s->golden, "input"), "%" SCNd64 "x%" SCNd64 "x%" SCNd64, &c, &h, &w), 3);
    request.size = (struct ls_model_size){BATCH, c, h, w, CLASSES};
    assert_int_equal(ls_model_build(&request, g), LS_OK);
    assert_int_equal(ls_graph_fuse(g, true), LS_OK);
    if (!training)
        return;
    struct ls_options o = {.optimizer = (char[]){"sgd"}, .momentum = 0.9, .weight_decay = 1e-4, .decay_all = true};
    assert_int_equal(ls_graph_backward(g), LS_OK);
    assert_int_equal(ls_optim_update(g, &o, false), LS_OK);
}

/* Both programs, fused, in one arena. */
static void prepare(struct session *s, bool tune)
{
    struct ls_backend_options options = {.threads = 2, .reuse = true, .keep_grads = true, .tune = tune};
    s->store = ls_store_new(s->backend);
    assert_non_null(s->store);
    assert_int_equal(s->backend->prepare(&options, &s->train, s->store, &s->train_program), LS_OK);
    assert_int_equal(s->backend->prepare(&options, &s->eval, s->store, &s->eval_program), LS_OK);
    size_t train = s->backend->arena_bytes(s->train_program), eval = s->backend->arena_bytes(s->eval_program);
    s->arena_bytes = train > eval ? train : eval;
    assert_int_equal(ls_backend_take(s->backend, s->arena_bytes, &s->arena), LS_OK);
    s->grad_bytes = s->backend->grad_bytes(s->train_program);
    assert_int_equal(ls_backend_take(s->backend, s->grad_bytes, &s->grads), LS_OK);
    assert_int_equal(s->backend->bind(s->train_program, s->arena, s->grads), LS_OK);
    assert_int_equal(s->backend->bind(s->eval_program, s->arena, NULL), LS_OK);
    for (s->end = s->train.n_nodes; s->end > 0 && s->train.nodes[s->end - 1].phase == LS_UPDATE;)
        s->end--;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Parameter number k as parameter_values in make.py has it. */
static void make_values(const struct session *s, int k, int64_t n, float *values)
{
    const struct ls_tensor *t = &s->train.tensors[s->params[k]];
    float low = -0.1f, high = 0.1f;
    if (t->shape.rank > 1) {
        high = (float)sqrt(6.0 / (double)(n / t->shape.dim[0]));
        low = -high;
    } else if (ends_with(t->name, ".bn3.weight")) {
        low = 0.1f, high = 0.3f;
    } else if (ends_with(t->name, ".weight")) {
        low = s->bn[0], high = s->bn[1];
    } else if (s->train.tensors[s->params[k - 1]].shape.rank == 1) {
        low = s->bn[2], high = s->bn[3];
    }
    ls_random_fill_uniform(s->seed, (uint64_t)k, low, high, n, values);
}

static void fill_params(struct session *s)
{
    assert_int_equal(ls_program_init_params(s->backend, s->train_program, &s->train, 1), LS_OK);
    for (int k = 0; k < s->n_params; k++) {
        int64_t n = ls_shape_count(&s->train.tensors[s->params[k]].shape);
        float *values = ls_alloc((size_t)n, sizeof *values);
        assert_non_null(values);
        make_values(s, k, n, values);
        assert_int_equal(s->backend->write(s->train_program, s->params[k], values), LS_OK);
        ls_free(values);
    }
}

static void open_session(struct session *s, const char *model, const char *backend, bool tune)
{
    char path[128];
    *s = (struct session){.backend = ls_backend_find(backend)};
    assert_non_null(s->backend);
    snprintf(path, sizeof path, FOLDER "%s.safetensors", model);
    assert_int_equal(ls_safetensors_open(path, &s->golden), LS_OK);
    s->seed = strtoull(ls_safetensors_metadata(&s->golden, "seed"), NULL, 10);
    assert_int_equal(
        sscanf(ls_safetensors_metadata(&s->golden, "bn"), "%f %f %f %f", s->bn, s->bn + 1, s->bn + 2, s->bn + 3), 4);
    const char *samples = ls_safetensors_metadata(&s->golden, "samples");
    s->samples = samples ? strtoll(samples, NULL, 10) : MANY_SAMPLES;
    build(s, model, true, &s->train);
    build(s, model, false, &s->eval);
    for (int t = 0; t < s->train.n_tensors; t++)
        if (s->train.tensors[t].role == LS_ROLE_PARAM) {
            assert_true(s->n_params < MOST_PARAMS);
            s->params[s->n_params++] = t;
        }
    /* Where there are many layers measuring takes long. */
    prepare(s, s->samples == MANY_SAMPLES && (tune || s->backend->measures));
    fill_params(s);
    s->images = ls_alloc((size_t)ls_shape_count(&s->train.tensors[s->train.input].shape), sizeof *s->images);
    assert_non_null(s->images);
    s->run = (struct ls_run){.seed = 1,
                             .valid = BATCH,
                             .grad_scale = 1.0f / BATCH,
                             .stat_weight = 1,
                             .lr = strtof(ls_safetensors_metadata(&s->golden, "lr"), NULL)};
}

static void close_session(struct session *s)
{
    s->backend->release(s->train_program);
    s->backend->release(s->eval_program);
    ls_store_free(s->store);
    ls_backend_give(s->backend, s->arena, s->arena_bytes);
    ls_backend_give(s->backend, s->grads, s->grad_bytes);
    ls_graph_release(&s->train);
    ls_graph_release(&s->eval);
    ls_safetensors_release(&s->golden);
    ls_free(s->images);
}

/* --- running ------------------------------------------------------------------------------------------------- */

static void load_batch(struct session *s, int step, const struct ls_graph *g, struct ls_program *p)
{
    ls_random_fill_uniform(s->seed, (uint64_t)(IMAGE_STREAM + step), -1.75f, 1.75f,
                           ls_shape_count(&g->tensors[g->input].shape), s->images);
    for (int i = 0; i < BATCH; i++)
        s->labels[i] = (3 * i + step) % CLASSES;
    assert_int_equal(s->backend->input(p, g->input, s->images), LS_OK);
    assert_int_equal(s->backend->input(p, g->label, s->labels), LS_OK);
}

/* Forward and backward of the step's batch; the mean loss. */
static double run_pass(struct session *s, int step)
{
    float loss[BATCH];
    double mean = 0;
    load_batch(s, step, &s->train, s->train_program);
    s->run.step = (uint64_t)step;
    assert_int_equal(s->backend->run(s->train_program, 0, s->end, &s->run), LS_OK);
    assert_int_equal(s->backend->read(s->train_program, s->train.loss, loss), LS_OK);
    for (int i = 0; i < BATCH; i++)
        mean += (double)loss[i] / BATCH;
    return mean;
}

static void run_update(struct session *s)
{
    assert_int_equal(s->backend->run(s->train_program, s->end, s->train.n_nodes, &s->run), LS_OK);
}

/* --- comparing ----------------------------------------------------------------------------------------------- */

static void check_names(struct session *s)
{
    char *listing = ls_strdup(ls_safetensors_metadata(&s->golden, "parameters")), *rest = listing;
    assert_non_null(listing);
    for (int k = 0; k < s->n_params; k++) {
        const struct ls_tensor *t = &s->train.tensors[s->params[k]];
        const char *line = strsep(&rest, "\n");
        char found[512], shape[64];
        snprintf(found, sizeof found, "%s %s", t->name, ls_shape_text(&t->shape, shape));
        assert_non_null(line);
        assert_string_equal(found, line);
    }
    assert_null(rest);
    ls_free(listing);
}

/* A gradient is measured against its own size, but that of a bias (or BN's shift) against no less than a twentieth
 * of its weight's: a BN further on takes the mean out again, so what reaches the bias cancels, wholly for a
 * convolution's bias in front of BN, and rounding is left. Where BN follows BN, as in a DenseNet, the gradient of the scale
 * cancels as well: it is measured against the weights of its convolution. */
static double gradient_scale(const struct session *s, int k, double own, const float *norms)
{
    bool bias = ends_with(s->train.tensors[s->params[k]].name, ".bias");
    int owner = bias ? k - 1 : k;
    double size = bias ? (double)norms[owner] : own;
    if (s->train.tensors[s->params[owner]].shape.rank == 1 && owner > 0 && size < 1e-4 * (double)norms[owner - 1])
        size = 0.05 * (double)norms[owner - 1];
    return bias ? fmax(own, 0.05 * size) : size;
}

static void check_gradients(struct session *s)
{
    int64_t n_norms;
    float *norms = expected(s, "norms", &n_norms);
    assert_int_equal(n_norms, s->n_params);
    for (int k = 0; k < s->n_params; k++) {
        const struct ls_tensor *t = &s->train.tensors[s->params[k]];
        int64_t n, want_n;
        double size, norm;
        char name[300];
        snprintf(name, sizeof name, "grad/%s", t->name);
        float *found = read_tensor(s, &s->train, s->train_program, t->grad, &n), *want = expected(s, name, &want_n);
        (void)distance(found, found, n, &norm);
        n = pick_samples(found, n, s->samples);
        assert_int_equal(n, want_n);
        double difference = distance(found, want, n, &size);
        judge(s, name, difference, gradient_scale(s, k, size, norms), TOLERANCE);
        judge(s, name, fabs(norm - (double)norms[k]), gradient_scale(s, k, (double)norms[k], norms), TOLERANCE);
        ls_free(found);
        ls_free(want);
    }
    ls_free(norms);
}

static void check_statistics(struct session *s)
{
    char name[300];
    for (int t = 0; t < s->train.n_tensors; t++) {
        const char *tensor = s->train.tensors[t].name;
        if (s->train.tensors[t].role != LS_ROLE_STATE ||
            !(ends_with(tensor, ".running_mean") || ends_with(tensor, ".running_var")))
            continue;
        snprintf(name, sizeof name, "stat/%s", tensor);
        compare(s, &s->train, s->train_program, t, name, s->samples);
    }
}

static void check_eval(struct session *s)
{
    load_batch(s, 0, &s->eval, s->eval_program);
    assert_int_equal(s->backend->run(s->eval_program, 0, s->eval.n_nodes, &s->run), LS_OK);
    compare(s, &s->eval, s->eval_program, s->eval.logits, "eval", INT64_MAX);
}

static void follow(const char *model, const char *backend, int steps, bool tune)
{
    struct session s;
    int64_t n;
    open_session(&s, model, backend, tune);
    check_names(&s);
    float *losses = expected(&s, "losses", &n);
    assert_true(steps <= n);
    for (int step = 0; step < steps; step++) {
        char what[64];
        double loss = run_pass(&s, step);
        snprintf(what, sizeof what, "%s on %s: loss of step %d", model, backend, step);
        judge(&s, what, fabs(loss - (double)losses[step]), (double)losses[step], step ? LOSS_TOLERANCE : TOLERANCE);
        if (step == 0) {
            compare(&s, &s.train, s.train_program, s.train.logits, "logits", INT64_MAX);
            check_gradients(&s);
        }
        run_update(&s);
        if (step == 0) {
            check_statistics(&s);
            check_eval(&s);
        }
    }
    int wrong = s.wrong;
    ls_free(losses);
    close_session(&s);
    if (wrong)
        fail_msg("%s on %s: %d tensors differ from PyTorch's", model, backend, wrong);
}

/* tune: kernels are measured, where a rule chooses them otherwise. */
struct golden_case {
    const char *model, *backend;
    int steps;
    bool tune;
};

/* A sanitizer finds in one step what it finds in ten, and in the rule's kernels what it finds in all. It takes several times as
 * long for each. What it finds in the naive backend it finds in its small models and in test_ops. */
#ifdef __SANITIZE_ADDRESS__
enum { STEPS_MOST = 1, MAY_TUNE = false, REF_MOST = 2 };
#else
enum { STEPS_MOST = STEPS, MAY_TUNE = true, REF_MOST = INT_MAX };
#endif

static void follows_pytorch(void **state)
{
    const struct golden_case *c = *state;
    follow(c->model, c->backend, c->steps < STEPS_MOST ? c->steps : STEPS_MOST, c->tune && MAY_TUNE);
}

/* An argument is a pattern of names, such as 'resnet*': only these run. */
int main(int argc, char **argv)
{
    /* The naive backend takes part where it is quick enough: every op of the families in one step, ten where small. */
    const char *tested = tested_name();
    struct golden_case cases[] = {
        {"mlp", "ref", STEPS, false},
        {"lenet", "ref", STEPS, false},
        {"convnet", "ref", 1, false},
        {"alexnet-cntk", "ref", 1, false},
        {"mobilenet_v2", "ref", 1, false},
        {"squeezenet1_1", "ref", 1, false},
        {"mobilenet_v3_small", "ref", 1, false},
        {"mlp", tested, STEPS, true},
        {"lenet", tested, STEPS, true},
        {"convnet", tested, STEPS, true},
        {"vgg11-cifar", tested, STEPS, true},
        {"alexnet", tested, STEPS, false},
        {"alexnet-cntk", tested, STEPS, false},
        {"vgg11", tested, 2, false},
        {"vgg11_bn", tested, STEPS, false},
        {"resnet18", tested, STEPS, true},
        {"resnet50", tested, STEPS, false},
        {"mobilenet_v2", tested, STEPS, true},
        {"resnext50_32x4d", tested, 2, false},
        {"densenet121", tested, 2, false},
        {"squeezenet1_1", tested, 2, false},
        {"efficientnet_b0", tested, 2, false},
        {"mobilenet_v3_small", tested, 2, false},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    static char names[CASES][64];
    struct CMUnitTest tests[CASES] = {0};
    int n = 0, ref = 0;
    for (int i = 0; i < CASES; i++) {
        if (strcmp(cases[i].backend, "ref") == 0 && ref++ >= REF_MOST)
            continue;
        snprintf(names[n], sizeof names[n], "%s on %s follows PyTorch", cases[i].model, cases[i].backend);
        tests[n] = (struct CMUnitTest){.name = names[n], .test_func = follows_pytorch, .initial_state = &cases[i]};
        n++;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
