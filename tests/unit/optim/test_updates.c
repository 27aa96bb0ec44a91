/* What is kept from step to step: the optimizers' rules, BN's running statistics, and their store. */
#include "ops_session.h"
#include "backend/core/store.h"

static const char *const update_cases[] = {"sgd plain",
                                           "sgd decay",
                                           "sgd momentum",
                                           "sgd nesterov",
                                           "sgd nesterov of a dense layer",
                                           "lars",
                                           "lars of a dense layer"};

static void open_updates(struct ls_session *s, const struct ls_case *c, const struct ls_backend *backend)
{
    memset(s, 0, sizeof *s);
    build(&s->g, c, LS_F32);
    session_open(s, backend, c->n, &apart);
}

static void tested_test(void **state)
{
    const struct ls_case *c = *state;
    const struct ls_backend *tested = tested_backend();
    struct ls_selftest t;
    struct ls_selftest_result r;
    assert_int_equal(ls_selftest_open(&t, c), LS_OK);
    assert_int_equal(ls_selftest_compare(&t, tested, ls_precision_find("f32"), &apart, &r), LS_OK);
    ls_selftest_close(&t);
    if (!(r.error <= 1e-5))
        fail_msg("%s: tensor %s: relative error %.3g", c->name, r.tensor, r.error);
}

/* What one step of the rule makes of one element; m is its momentum. */
static void expected_update(const struct ls_case *u, double lr, double local, double *w, double g, double *m)
{
    const struct ls_attr *a = &u->attr;
    g += a->hyper.weight_decay * *w;
    if (u->op == &ls_op_lars) {
        *m = a->hyper.momentum * *m + local * lr * g;
        *w -= *m;
        return;
    }
    *m = a->hyper.momentum * *m + g;
    *w -= lr * (a->nesterov ? g + a->hyper.momentum * *m : u->states[0] ? *m : g);
}

static double norm(const float *values, int64_t n)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)values[i] * values[i];
    return sqrt(squares);
}

static void formula_test(void **state)
{
    const struct ls_case *u = *state;
    struct ls_session s;
    open_updates(&s, u, ls_backend_find("ref"));
    int weight = ls_graph_find(&s.g, "op.weight"), momentum = ls_graph_find(&s.g, "op.weight.momentum");
    int64_t n = tensor_count(&s, weight);
    float *w = session_read(&s, weight), *m = u->states[0] ? session_read(&s, momentum) : NULL;
    session_run(&s);
    float *g = session_read(&s, s.g.tensors[weight].grad), *after = session_read(&s, weight);
    double local = u->attr.hyper.trust * norm(w, n) / (norm(g, n) + u->attr.hyper.weight_decay * norm(w, n) + 1e-9);
    for (int64_t i = 0; i < n; i++) {
        double value = w[i], speed = m ? (double)m[i] : 0;
        expected_update(u, s.run.lr, local, &value, g[i], &speed);
        assert_true(fabs(value - after[i]) < 1e-6);
    }
    ls_free(w);
    ls_free(m);
    ls_free(g);
    ls_free(after);
    session_close(&s);
}

/* Running statistics take momentum's share of stat, which carries the replica's weight and the unbiased
 * variance. */
static void bn_running_test(void **state)
{
    (void)state;
    struct ls_session s;
    open_updates(&s, find_case(update_cases[0]), ls_backend_find("ref"));
    int mean = ls_graph_find(&s.g, "op.running_mean"), variance = ls_graph_find(&s.g, "op.running_var");
    float *mean_before = session_read(&s, mean), *variance_before = session_read(&s, variance);
    session_run(&s);
    float *mean_after = session_read(&s, mean), *variance_after = session_read(&s, variance);
    for (int64_t c = 0; c < 21; c++) {
        double sum = 0, squares = 0, share = 0.1;
        for (int64_t i = 0; i < 75; i++)
            sum += s.images[(i / 25 * 21 + c) * 25 + i % 25];
        for (int64_t i = 0; i < 75; i++)
            squares += pow(s.images[(i / 25 * 21 + c) * 25 + i % 25] - sum / 75, 2);
        double weight = s.run.stat_weight;
        assert_true(fabs((1 - share) * mean_before[c] + share * weight * sum / 75 - mean_after[c]) < 1e-6);
        assert_true(fabs((1 - share) * variance_before[c] + share * weight * squares / 74 - variance_after[c]) < 1e-6);
    }
    ls_free(mean_before);
    ls_free(variance_before);
    ls_free(mean_after);
    ls_free(variance_after);
    session_close(&s);
}

/* Entries stay where they are, apart and aligned, however many follow. */
static void store_test(void **state)
{
    (void)state;
    struct ls_store *store = ls_store_new(ls_backend_find("ref"));
    struct ls_store_entry *e, *first = NULL;
    size_t bytes = 0;
    char name[32];
    assert_non_null(store);
    assert_null(ls_store_find(store, "t0"));
    for (int i = 0; i < 60; i++) {
        size_t size = i % 7 == 6 ? (size_t)40 << 20 : (size_t)(100 + i);
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(ls_store_add(store, name, size, &e), LS_OK);
        assert_true((uintptr_t)e->memory % LS_ALIGN == 0 && e->bytes == size && e->layout_bytes == 0);
        assert_true(((char *)e->memory)[0] == 0 && ((char *)e->memory)[size - 1] == 0);
        memset(e->memory, 1, 100);
        first = first ? first : e;
        bytes += (size + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    }
    assert_ptr_equal(ls_store_find(store, "t0"), first);
    assert_ptr_equal(ls_store_find(store, "t59"), e);
    assert_null(ls_store_find(store, "t60"));
    assert_true(ls_store_bytes(store) == bytes);
    ls_store_free(store);
    ls_store_free(NULL);
}

int main(void)
{
    enum { CASES = sizeof update_cases / sizeof *update_cases };
    struct CMUnitTest tests[2 * CASES + 2];
    struct ls_arena names = {0};
    int n = 0;
    for (int i = 0; i < CASES; i++) {
        const struct ls_case *u = ls_case_find(update_cases[i]);
        void *state = (void *)(uintptr_t)u;
        tests[n++] = (struct CMUnitTest){.name = u->name, .test_func = formula_test, .initial_state = state};
        tests[n++] = (struct CMUnitTest){.name = ls_arena_format(&names, "%s %s", tested_name(), u->name),
                                         .test_func = tested_test,
                                         .initial_state = state};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bn_running_test);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(store_test);
    int failed = cmocka_run_group_tests_name("updates", tests, NULL, NULL);
    ls_arena_release(&names);
    return failed;
}
