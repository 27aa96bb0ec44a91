/* Every op: its gradient on `ref` by finite differences; forward and backward on `onednn`, or the backend that
 * LOCKSTEP_TEST_BACKEND names, against `ref`. */
#include "ops_session.h"

static void open_case(struct ls_session *s, const struct ls_case *c, const struct ls_backend *backend,
                      enum ls_dtype dtype, const struct ls_backend_options *options)
{
    memset(s, 0, sizeof *s);
    build(&s->g, c, dtype);
    session_open(s, backend, c->valid ? c->valid : c->n, options);
}

/* --- gradients by finite differences ------------------------------------------------------------------ */

enum { SAMPLED = 16 };

/* grad_scale times the sum of the losses. l2_loss is summed again from the logits in double: its f32 value is
 * too coarse for differences where, as in bn, most of it never changes. */
static double total_loss(struct ls_session *s)
{
    session_run(s);
    bool again = s->g.nodes[ls_graph_producer(&s->g, s->g.loss)].op == &ls_op_l2_loss;
    int64_t samples = tensor_count(s, s->g.loss), classes = tensor_count(s, s->g.logits) / samples;
    float *loss = session_read(s, s->g.loss), *logits = session_read(s, s->g.logits);
    double sum = 0;
    for (int64_t n = 0; n < samples; n++) {
        double squares = 0;
        for (int64_t k = 0; k < classes; k++)
            squares += pow((double)logits[n * classes + k] - (k == s->labels[n]), 2);
        double l2 = s->labels[n] < 0 ? 0 : 0.5 * squares;
        sum += again ? l2 : (double)loss[n];
        if (again)
            assert_true(fabs(l2 - loss[n]) <= 1e-6 * l2);
    }
    ls_free(loss);
    ls_free(logits);
    return sum * s->run.grad_scale;
}

/* Compare the analytic gradient with central differences in up to SAMPLED elements of values. */
static void check_gradient(struct ls_session *s, const char *what, double tolerance, int param, float *values,
                           const float *gradient, int64_t n)
{
    const double step = 1.0 / 128;
    float numeric[SAMPLED], analytic[SAMPLED];
    int sampled = n < SAMPLED ? (int)n : SAMPLED;
    for (int k = 0; k < sampled; k++) {
        int64_t i = n <= SAMPLED ? k : (k * 7919) % n;
        double loss[2];
        float value = values[i];
        for (int side = 0; side < 2; side++) {
            values[i] = (float)(value + (side ? step : -step));
            if (param != LS_NONE)
                assert_int_equal(s->backend->write(s->program, param, values), LS_OK);
            loss[side] = total_loss(s);
        }
        values[i] = value;
        numeric[k] = (float)((loss[1] - loss[0]) / (2 * step));
        analytic[k] = gradient[i];
    }
    if (param != LS_NONE)
        assert_int_equal(s->backend->write(s->program, param, values), LS_OK);
    double error = ls_relative_error(numeric, analytic, sampled);
    if (error > tolerance)
        fail_msg("%s: gradient differs from finite differences by %.3g", what, error);
}

/* The whole gradient of x, the output of "pre": what its convolution's weight gradient reads. */
static int gradient_of_pre(const struct ls_graph *g)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &ls_op_conv_bwd_weights && strcmp(g->nodes[n].name, "pre") == 0)
            return g->nodes[n].in[0];
    return LS_NONE;
}

/* Kinks are kept away from: neighbouring values differ by more than the differences taken and none is near 0
 * or 6. Only where a function is to be saturated do they reach that far. */
static void spread_images(struct ls_session *s, float spacing)
{
    for (int64_t i = 0; i < tensor_count(s, s->g.input); i++)
        s->images[i] = ((float)(i * 37 % 101) - 50.5f) * spacing;
}

static void gradient_test(void **state)
{
    const struct ls_case *c = *state;
    /* The kinks at 6, or at 3, are steps of the loss's slope that some differences straddle. */
    bool wide = c->attr.act == LS_ACT_RELU6 || c->attr.act == LS_ACT_HARDSWISH || c->attr.act == LS_ACT_HARDSIGMOID;
    double tolerance = wide ? 1e-1 : 1e-2;
    struct ls_session s;
    char what[160];
    open_case(&s, c, ls_backend_find("ref"), LS_F32, &apart);
    spread_images(&s, wide ? 0.15f : 0.04f);
    for (int t = 0; t < s.g.n_tensors; t++) {
        if (s.g.tensors[t].grad == LS_NONE || strcmp(s.g.tensors[t].name, "pre.weight") == 0)
            continue;
        session_run(&s);
        float *values = session_read(&s, t), *gradient = session_read(&s, s.g.tensors[t].grad);
        snprintf(what, sizeof what, "%s: %s", c->name, s.g.tensors[t].name);
        check_gradient(&s, what, tolerance, t, values, gradient, tensor_count(&s, t));
        ls_free(values);
        ls_free(gradient);
    }
    int dx = gradient_of_pre(&s.g); /* pre copies the image, so this is the image's gradient */
    if (dx != LS_NONE) {
        session_run(&s);
        float *gradient = session_read(&s, dx);
        snprintf(what, sizeof what, "%s: input", c->name);
        check_gradient(&s, what, tolerance, LS_NONE, s.images, gradient, tensor_count(&s, s.g.input));
        ls_free(gradient);
    }
    session_close(&s);
}

/* --- one backend against another ---------------------------------------------------------------------- */

static void compare_case(const struct ls_case *c, const char *precision, const struct ls_backend_options *options,
                         double tolerance)
{
    const struct ls_backend *tested = tested_backend();
    const struct ls_precision *p = ls_precision_find(precision);
    struct ls_selftest t;
    struct ls_selftest_result r;
    if (tested->refuses(p->dtype))
        skip();
    assert_int_equal(ls_selftest_open(&t, c), LS_OK);
    assert_int_equal(ls_selftest_compare(&t, tested, p, options, &r), LS_OK);
    ls_selftest_close(&t);
    tolerance = tolerance > 0 ? tolerance : r.tolerance;
    if (!(r.error <= tolerance))
        fail_msg("%s: tensor %s: relative error %.3g, at most %.3g allowed", c->name, r.tensor, r.error, tolerance);
}

static void compare_f32(void **state)
{
    compare_case(*state, "f32", &apart, 0);
}

static void compare_bf16(void **state)
{
    compare_case(*state, "bf16", &apart, 0);
}

static void compare_fp16(void **state)
{
    compare_case(*state, "fp16", &apart, 0);
}

static void compare_tf32(void **state)
{
    compare_case(*state, "tf32", &apart, 0);
}

/* Whatever the tuner finds fastest here, Winograd among it. */
static void compare_tuned(void **state)
{
    compare_case(*state, "f32", &tuned, 1e-4);
}

/* A second program on the same store (evaluation beside training) sees the first one's parameters. */
static void shared_store_test(void **state)
{
    const struct ls_case *c = *state;
    const struct ls_backend *const backends[] = {ls_backend_find("ref"), tested_backend()};
    struct ls_case evaluation = *c;
    evaluation.inference = true;
    evaluation.n = evaluation.valid = 1;
    for (int i = 0; i < 2; i++) {
        struct ls_session training, alone, beside = {0};
        open_case(&training, c, backends[i], LS_F32, &apart);
        open_case(&alone, &evaluation, backends[0], LS_F32, &apart);
        build(&beside.g, &evaluation, LS_F32);
        beside.store = training.store;
        session_open(&beside, backends[i], 1, &reused);
        session_run(&alone);
        session_run(&beside);
        bool same = same_values(&alone, alone.g.logits, &beside, beside.g.logits, 1e-4, c->name);
        session_close(&beside);
        session_close(&alone);
        session_close(&training);
        assert_true(same);
    }
}

/* A plan that reuses memory gives the bits of one that does not. */
static void reuse_test(void **state)
{
    const struct ls_case *c = *state;
    const struct ls_backend *tested = tested_backend();
    struct ls_session a, b;
    bool same = true;
    open_case(&a, c, tested, LS_F32, &apart);
    open_case(&b, c, tested, LS_F32, &reused);
    session_run(&a);
    session_run(&b);
    for (int t = 0; t < a.g.n_tensors; t++)
        if (t == a.g.loss || a.g.tensors[t].role == LS_ROLE_GRAD)
            same = same_values(&a, t, &b, t, 0, c->name) && same;
    session_close(&a);
    session_close(&b);
    assert_true(same);
}

/* What is not a number comes through to the loss, so that divergence is seen; but for an activation that a library fuses
 * with a product: oneDNN's takes it for 0. */
static bool shows_not_a_number(const struct ls_case *c)
{
    return !ls_case_updates(c) && (c->attr.act == LS_ACT_NONE || (c->op != &ls_op_conv && c->op != &ls_op_dense));
}

static void not_a_number_test(void **state)
{
    const struct ls_case *c = *state;
    struct ls_session s;
    open_case(&s, c, tested_backend(), LS_F32, &apart);
    int64_t samples = tensor_count(&s, s.g.loss), values = tensor_count(&s, s.g.input) / samples;
    for (int64_t i = 0; i < values; i++)
        s.images[i] = NAN;
    session_run(&s);
    float *loss = session_read(&s, s.g.loss);
    bool seen = isnan(loss[0]);
    ls_free(loss);
    session_close(&s);
    if (!seen)
        fail_msg("%s: a sample of NaN has a loss", c->name);
}

/* --- meanings worth pinning down on ref --------------------------------------------------------------- */

/* A sample without a label has no loss, rank -1 and no gradient; bn leaves it out of its statistics. */
static void short_batch_test(void **state)
{
    (void)state;
    const struct ls_case *c = find_case("bn residual short batch");
    struct ls_session s;
    open_case(&s, c, ls_backend_find("ref"), LS_F32, &apart);
    session_run(&s);
    float *mean = session_read(&s, ls_graph_find(&s.g, "op.mean")), *loss = session_read(&s, s.g.loss);
    float *rank = session_read(&s, s.g.label_rank), *dx = session_read(&s, gradient_of_pre(&s.g));
    int64_t sample = c->c * c->h * c->w;
    for (int64_t i = 3 * sample; i < 4 * sample; i++) {
        assert_true(dx[i] == 0);
        s.images[i] = 1e6f;
    }
    assert_true(loss[3] == 0 && rank[3] == -1 && loss[2] > 0 && rank[2] >= 0);
    session_run(&s);
    float *again = session_read(&s, ls_graph_find(&s.g, "op.mean"));
    assert_memory_equal(mean, again, sizeof *mean * (size_t)c->c);
    ls_free(mean);
    ls_free(again);
    ls_free(loss);
    ls_free(rank);
    ls_free(dx);
    session_close(&s);
}

/* The rank counts higher scores, and equal ones that stand before the label. */
static void rank_test(void **state)
{
    (void)state;
    const struct ls_case *c = find_case("softmax_xent");
    struct ls_session s;
    open_case(&s, c, ls_backend_find("ref"), LS_F32, &apart);
    for (int64_t i = 0; i < 40; i++)
        s.images[i] = i % 10 < 2 ? 2 : (float)(i % 10 == 7);
    memcpy(s.labels, (int32_t[]){0, 1, 7, 9}, 4 * sizeof *s.labels);
    session_run(&s);
    float *rank = session_read(&s, s.g.label_rank);
    assert_true(rank[0] == 0 && rank[1] == 1 && rank[2] == 2 && rank[3] == 9);
    ls_free(rank);
    session_close(&s);
}

/* The mask follows (seed, step, replica, layer) alone, and keeps the mean. */
static void dropout_test(void **state)
{
    (void)state;
    const struct ls_case c = {.op = &ls_op_dropout, .n = 4, .c = 64, .h = 8, .w = 8, .attr = {.p = 0.25f, .layer = 3}};
    struct ls_session s;
    open_case(&s, &c, ls_backend_find("ref"), LS_F32, &apart);
    int64_t n = tensor_count(&s, s.g.input), kept = 0;
    for (int64_t i = 0; i < n; i++)
        s.images[i] = 3;
    session_run(&s);
    float *first = session_read(&s, s.g.logits);
    session_run(&s);
    float *again = session_read(&s, s.g.logits);
    assert_memory_equal(first, again, sizeof *first * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        assert_true(first[i] == 0 || fabsf(first[i] - 4) < 1e-6f);
        kept += first[i] > 0;
    }
    assert_true(fabs((double)kept / (double)n - 0.75) < 0.02);
    s.run.replica++;
    session_run(&s);
    float *other = session_read(&s, s.g.logits);
    assert_memory_not_equal(first, other, sizeof *first * (size_t)n);
    ls_free(first);
    ls_free(again);
    ls_free(other);
    session_close(&s);
}

/* A batch is mixed as torchvision's MixUp and CutMix do it: with the sample before, by one weight, or within one box whose
 * area is the weight. Weights follow Beta(1, 1), which is uniform. */
static void mix_test(void **state)
{
    enum { SAMPLES_MIXED = 5, SIDE = 16, STEPS_MIXED = 200 };
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        const struct ls_case c = {.op = &ls_op_mix,
                                  .n = SAMPLES_MIXED,
                                  .c = 1,
                                  .h = SIDE,
                                  .w = SIDE,
                                  .attr = {.mix = {kind == 0, kind == 1, SIDE, SIDE}},
                                  .first = true,
                                  .inference = true};
        struct ls_session s;
        double sum = 0, squares = 0;
        open_case(&s, &c, ls_backend_find("ref"), LS_F32, &apart);
        for (int64_t i = 0; i < tensor_count(&s, s.g.input); i++)
            s.images[i] = (float)(i / (SIDE * SIDE)); /* its sample's number */
        for (s.run.step = 0; s.run.step < STEPS_MIXED; s.run.step++) {
            session_run(&s);
            float *y = session_read(&s, s.g.logits);
            double mean[SAMPLES_MIXED] = {0};
            for (int i = 0; i < SAMPLES_MIXED * SIDE * SIDE; i++)
                mean[i / (SIDE * SIDE)] += (double)y[i] / (SIDE * SIDE);
            double weight = 1 - (1 - mean[1]); /* sample 1 becomes weight * 1 + (1 - weight) * 0 */
            for (int i = 0; i < SAMPLES_MIXED; i++) {
                int other = i ? i - 1 : SAMPLES_MIXED - 1;
                assert_true(fabs(mean[i] - (weight * i + (1 - weight) * other)) < 1e-5);
            }
            for (int i = SIDE * SIDE; kind == 1 && i < 2 * SIDE * SIDE; i++)
                assert_true(y[i] == 0 || y[i] == 1);
            sum += weight / STEPS_MIXED;
            squares += weight * weight / STEPS_MIXED;
            ls_free(y);
        }
        session_close(&s);
        if (kind == 0)
            assert_true(fabs(sum - 0.5) < 0.07 && fabs(squares - 1.0 / 3) < 0.07);
        else
            assert_true(sum > 0.5 && sum < 0.85); /* boxes are cut off at the border */
    }
}

/* --- the list of tests -------------------------------------------------------------------------------- */

enum { MOST = 4096 };

struct list {
    struct CMUnitTest tests[MOST];
    size_t n;
    struct ls_arena names;
};

static void add(struct list *l, const char *kind, const char *name, CMUnitTestFunction test, const void *state)
{
    if (l->n == MOST)
        abort();
    l->tests[l->n++] = (struct CMUnitTest){.name = ls_arena_format(&l->names, "%s%s", kind, name),
                                           .test_func = test,
                                           .initial_state = (void *)(uintptr_t)state};
}

static void add_compared(struct list *l, const char *kind, const char *name, CMUnitTestFunction test, const void *state)
{
    add(l, ls_arena_format(&l->names, "%s %s ", tested_name(), kind), name, test, state);
}

int main(void)
{
    static struct list l;
    const struct ls_backend *tested = ls_backend_find(tested_name());
    for (int i = 0; ls_case_at(i); i++) {
        const struct ls_case *c = ls_case_at(i);
        if (c->large && c->op == &ls_op_dense && strncmp(c->name, "dense in chunks", 15) == 0) {
            add_compared(&l, "f32", c->name, compare_f32, c);
            add_compared(&l, "bf16", c->name, compare_bf16, c);
        }
        if (c->large && c->between && tested && tested->tf32) { /* ref takes seconds for each */
            add_compared(&l, "bf16", c->name, compare_bf16, c);
            add_compared(&l, "fp16", c->name, compare_fp16, c);
        }
        if (c->large) /* for `lockstep doctor --gpu` */
            continue;
        if (!c->inference && !ls_case_updates(c))
            add(&l, "gradient of ", c->name, gradient_test, c);
        if (shows_not_a_number(c))
            add_compared(&l, "NaN", c->name, not_a_number_test, c);
        add_compared(&l, "f32", c->name, compare_f32, c);
        add_compared(&l, "bf16", c->name, compare_bf16, c);
        add_compared(&l, "reuse", c->name, reuse_test, c);
        if (tested && tested->tf32) {
            add_compared(&l, "fp16", c->name, compare_fp16, c);
            add_compared(&l, "tf32", c->name, compare_tf32, c);
        }
        if (c->winograd)
            add_compared(&l, "tuned", c->name, compare_tuned, c);
        if (c->winograd || c->op == &ls_op_dense || strcmp(c->name, "bn relu") == 0)
            add(&l, "two programs: ", c->name, shared_store_test, c);
    }
    add(&l, "short batch", "", short_batch_test, NULL);
    add(&l, "rank of the label", "", rank_test, NULL);
    add(&l, "dropout mask", "", dropout_test, NULL);
    add(&l, "mixup and cutmix", "", mix_test, NULL);
    int failed = _cmocka_run_group_tests("ops", l.tests, l.n, NULL, NULL);
    ls_arena_release(&l.names);
    return failed;
}
