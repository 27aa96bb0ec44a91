/* What is kept from step to step: the optimizers' rules, BN's running statistics, and their store. */
#include "ops_build.h"
#include "backend/store.h"

struct update_case {
    const char *name;
    const struct ls_op *op;
    struct ls_attr attr;
    bool momentum;
};

static const struct update_case update_cases[] = {
    {.name = "sgd plain", &ls_op_sgd, {.weight_decay = 0}, false},
    {.name = "sgd decay", &ls_op_sgd, {.weight_decay = 0.01f}, false},
    {.name = "sgd momentum", &ls_op_sgd, {.sgd_momentum = 0.9f, .weight_decay = 0.01f}, true},
    {.name = "sgd nesterov", &ls_op_sgd, {.sgd_momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true}, true},
    {.name = "lars", &ls_op_lars, {.sgd_momentum = 0.9f, .weight_decay = 0.01f, .trust = 0.02f}, true},
};

/* A convolution and a bn with all their parameters updated. */
static void build_updates(struct ls_graph *g, const struct update_case *u)
{
    static const struct op_case bn = {
        .op = &ls_op_bn, .n = 3, .c = 21, .h = 5, .w = 5, .attr = {.eps = 1e-5f, .momentum = 0.1f}};
    int tensors;
    build(g, &bn, LS_F32);
    tensors = g->n_tensors;
    for (int t = 0; t < tensors; t++) {
        if (g->tensors[t].role != LS_ROLE_PARAM)
            continue;
        int in[] = {t, g->tensors[t].grad, LS_NONE};
        if (u->momentum)
            in[2] = parameter(g, LS_ROLE_STATE, g->tensors[t].name, "momentum", g->tensors[t].shape);
        int node = append(g, u->op, g->tensors[t].name, &u->attr, in, u->momentum ? 3 : 2);
        g->nodes[node].phase = LS_UPDATE;
    }
    int stat[] = {ls_graph_find(g, "op.stat"), ls_graph_find(g, "op.running_mean"), ls_graph_find(g, "op.running_var")};
    int node = append(g, &ls_op_bn_running, "op", &bn.attr, stat, 3);
    g->nodes[node].phase = LS_UPDATE;
}

static void open_updates(struct session *s, const struct update_case *u, const struct ls_backend *backend)
{
    memset(s, 0, sizeof *s);
    build_updates(&s->g, u);
    session_open(s, backend, 3, &apart);
}

/* What "pre" learns behind bn is rounding only: bn does not care for the scale of its input. */
static bool kept_and_meant(const struct ls_tensor *t)
{
    return (t->role == LS_ROLE_PARAM || t->role == LS_ROLE_STATE) && strncmp(t->name, "pre.", 4) != 0;
}

static void onednn_test(void **state)
{
    const struct update_case *u = *state;
    const struct ls_backend *onednn = ls_backend_find("onednn");
    struct session a, b;
    bool same = true;
    if (!onednn)
        skip();
    open_updates(&a, u, ls_backend_find("ref"));
    open_updates(&b, u, onednn);
    for (int step = 0; step < 2; step++) {
        session_run(&a);
        session_run(&b);
    }
    for (int t = 0; t < a.g.n_tensors; t++)
        if (kept_and_meant(&a.g.tensors[t]))
            same = same_values(&a, t, &b, t, 1e-5, u->name) && same;
    session_close(&a);
    session_close(&b);
    assert_true(same);
}

/* What one step of the rule makes of one element; m is its momentum. */
static void expected_update(const struct update_case *u, double lr, double local, double *w, double g, double *m)
{
    const struct ls_attr *a = &u->attr;
    g += a->weight_decay * *w;
    if (u->op == &ls_op_lars) {
        *m = a->sgd_momentum * *m + local * lr * g;
        *w -= *m;
        return;
    }
    *m = a->sgd_momentum * *m + g;
    *w -= lr * (a->nesterov ? g + a->sgd_momentum * *m : u->momentum ? *m : g);
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
    const struct update_case *u = *state;
    struct session s;
    open_updates(&s, u, ls_backend_find("ref"));
    int weight = ls_graph_find(&s.g, "op.weight"), momentum = ls_graph_find(&s.g, "op.weight.momentum");
    int64_t n = tensor_count(&s, weight);
    float *w = session_read(&s, weight), *m = u->momentum ? session_read(&s, momentum) : NULL;
    session_run(&s);
    float *g = session_read(&s, s.g.tensors[weight].grad), *after = session_read(&s, weight);
    double local = u->attr.trust * norm(w, n) / (norm(g, n) + u->attr.weight_decay * norm(w, n) + 1e-9);
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
    struct session s;
    open_updates(&s, &update_cases[0], ls_backend_find("ref"));
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
    struct ls_store *store = ls_store_new();
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
        const struct update_case *u = &update_cases[i];
        void *state = (void *)(uintptr_t)u;
        tests[n++] = (struct CMUnitTest){.name = u->name, .test_func = formula_test, .initial_state = state};
        tests[n++] = (struct CMUnitTest){
            .name = ls_arena_format(&names, "onednn %s", u->name), .test_func = onednn_test, .initial_state = state};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bn_running_test);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(store_test);
    int failed = cmocka_run_group_tests_name("updates", tests, NULL, NULL);
    ls_arena_release(&names);
    return failed;
}
