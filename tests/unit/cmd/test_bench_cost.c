/* What nodes must read, write and multiply (cmd/bench/profile/cost.h), against figures by hand. */
#include "cmd/bench/profile/cost.h"
#include "cmd/bench/profile/peaks.h"
#include "graph/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, SIDE = 6, CHANNELS = 4, OUT = 8, CLASSES = 10 };

/* conv 3x3, 4 to 8 channels in 2 groups, 6x6 pixels; dense to 10 classes; forward and backward. */
static void make(struct ls_graph *g, enum ls_dtype dtype)
{
    struct ls_build b;
    struct ls_model_size size = {BATCH, CHANNELS, SIDE, SIDE, CLASSES};
    assert_int_equal(ls_build_begin(&b, g, &size, true, dtype), LS_OK);
    int first = ls_conv(&b, "first", g->input, CHANNELS, 1, 1, 0, 1, true);
    int conv = ls_conv(&b, "conv", first, OUT, 3, 1, 1, 2, true);
    int both = ls_build_layer(&b, &ls_op_add, "twice", &(struct ls_attr){0}, (const int[]){conv, conv}, 2);
    int logits = ls_dense(&b, "fc", both, CLASSES);
    assert_int_equal(ls_build_finish(&b, logits, &ls_op_softmax_xent, 0), LS_OK);
    assert_int_equal(ls_graph_backward(g), LS_OK);
}

static const struct ls_node *find(const struct ls_graph *g, const char *layer, const char *op)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (strcmp(g->nodes[n].name, layer) == 0 && strcmp(g->nodes[n].op->name, op) == 0)
            return &g->nodes[n];
    fail_msg("no node %s %s", layer, op);
    return NULL;
}

static void test_operations(void **state)
{
    (void)state;
    struct ls_graph g;
    const double conv = 2.0 * BATCH * SIDE * SIDE * OUT * (CHANNELS / 2) * 9;
    const double dense = 2.0 * BATCH * CLASSES * (OUT * SIDE * SIDE);
    make(&g, LS_F32);
    const char *const directions[] = {"", "_bwd_data", "_bwd_weights"};
    for (int i = 0; i < 3; i++) {
        char op[32];
        snprintf(op, sizeof op, "conv%s", directions[i]);
        assert_true(ls_bench_node_operations(&g, find(&g, "conv", op)) == conv);
        snprintf(op, sizeof op, "dense%s", directions[i]);
        assert_true(ls_bench_node_operations(&g, find(&g, "fc", op)) == dense);
    }
    assert_true(ls_bench_node_operations(&g, find(&g, "twice", "add")) == 0);
    ls_graph_release(&g);
}

static void test_bytes(void **state)
{
    (void)state;
    static const enum ls_dtype types[] = {LS_F32, LS_BF16};
    for (int i = 0; i < 2; i++) {
        struct ls_graph g;
        double size = (double)ls_dtype_size(types[i]), map = BATCH * SIDE * SIDE;
        make(&g, types[i]);
        /* in, out and weights in the type of activations; the bias counts like weights */
        assert_true(ls_bench_node_bytes(&g, find(&g, "conv", "conv")) ==
                    size * (map * CHANNELS + map * OUT + OUT * (CHANNELS / 2) * 9 + OUT));
        /* the same tensor twice is read once */
        assert_true(ls_bench_node_bytes(&g, find(&g, "twice", "add")) == size * 2 * map * OUT);
        /* gradients of weights are f32 */
        assert_true(ls_bench_node_bytes(&g, find(&g, "conv", "conv_bwd_weights")) ==
                    size * (map * CHANNELS + map * OUT) + 4.0 * (OUT * (CHANNELS / 2) * 9 + OUT));
        ls_graph_release(&g);
    }
}

static void test_roof(void **state)
{
    (void)state;
    struct ls_bench_peaks p = {.bytes = 100, .operations = 1000}, unknown = {0};
    assert_true(ls_bench_roof(&p, 200, 100) == 2);
    assert_true(ls_bench_roof(&p, 200, 3000) == 3);
    assert_true(ls_bench_roof(&unknown, 200, 3000) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_roof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
