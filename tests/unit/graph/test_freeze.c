/* Frozen parameters: what backward leaves out, and which layers compute as in evaluation. */
#include "tested.h"
#include "base/log.h"
#include "graph/build.h"

#include <string.h>

/* Two branches that are added: "a" and "b", each a convolution and a BN, behind a common stem. */
static void build(struct ls_graph *g)
{
    struct ls_build b;
    struct ls_model_size size = {.batch = 2, .channels = 3, .height = 8, .width = 8, .classes = 4};
    assert_int_equal(ls_build_begin(&b, g, &size, true, LS_F32), LS_OK);
    int x = ls_relu(&b, "relu", ls_bn(&b, "stem.bn", ls_conv(&b, "stem.conv", g->input, 6, 3, 1, 1, 1, false)));
    x = ls_maxpool(&b, "pool", x, 2, 2, 0);
    int left = ls_bn(&b, "a.bn", ls_conv(&b, "a.conv", x, 5, 3, 1, 1, 1, true));
    int right = ls_bn(&b, "b.bn", ls_conv(&b, "b.conv", x, 5, 3, 1, 1, 1, true));
    x = ls_relu(&b, "relu2", ls_add(&b, "add", left, right));
    x = ls_dense(&b, "fc", ls_flatten(&b, "flatten", ls_adaptive_avgpool(&b, "mean", x, 1, 1)), 4);
    assert_int_equal(ls_build_finish(&b, x, &ls_op_softmax_xent, 0), LS_OK);
}

/* Freezes, fuses and differentiates. */
static void make(struct ls_graph *g, const char *pattern)
{
    build(g);
    assert_int_equal(ls_graph_freeze(g, pattern), LS_OK);
    assert_int_equal(ls_graph_fuse(g, false), LS_OK);
    assert_int_equal(ls_graph_backward(g), LS_OK);
}

static bool has_gradient(const struct ls_graph *g, const char *param)
{
    int t = ls_graph_find(g, param);
    assert_true(t != LS_NONE);
    return g->tensors[t].grad != LS_NONE;
}

/* Whether the BN of that name takes the statistics of the batch. */
static bool trains(const struct ls_graph *g, const char *bn)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &ls_op_bn && g->nodes[n].phase == LS_FORWARD && strcmp(g->nodes[n].name, bn) == 0)
            return g->nodes[n].attr.training;
    fail_msg("no BN %s", bn);
    return false;
}

static void stops_at_the_lowest_trained_layer(void **state)
{
    (void)state;
    struct ls_graph g;
    make(&g, "^(stem|a|b)");
    assert_false(has_gradient(&g, "a.conv.weight"));
    assert_false(has_gradient(&g, "stem.bn.bias"));
    assert_true(has_gradient(&g, "fc.weight"));
    assert_false(trains(&g, "stem.bn"));
    assert_false(trains(&g, "a.bn"));
    int backward = 0;
    for (int n = 0; n < g.n_nodes; n++)
        backward += g.nodes[n].phase == LS_BACKWARD;
    assert_int_equal(backward, 2); /* of the loss, and of the weights of fc */
    ls_graph_release(&g);
}

static void joins_a_frozen_branch_with_a_trained_one(void **state)
{
    (void)state;
    struct ls_graph g;
    for (int other = 0; other < 2; other++) {
        make(&g, other ? "^(stem|b)" : "^(stem|a)");
        assert_false(trains(&g, other ? "b.bn" : "a.bn"));
        assert_true(trains(&g, other ? "a.bn" : "b.bn"));
        assert_true(has_gradient(&g, other ? "a.conv.weight" : "b.conv.weight"));
        assert_false(has_gradient(&g, other ? "b.conv.weight" : "a.conv.weight"));
        assert_false(has_gradient(&g, "stem.conv.weight"));
        ls_graph_release(&g);
    }
}

static void passes_gradients_through_frozen_layers(void **state)
{
    (void)state;
    struct ls_graph g;
    make(&g, "^(a|b)\\.");
    assert_true(has_gradient(&g, "stem.conv.weight"));
    assert_false(has_gradient(&g, "a.conv.weight"));
    assert_false(has_gradient(&g, "a.conv.bias"));
    assert_true(trains(&g, "a.bn"));
    assert_true(trains(&g, "stem.bn"));
    ls_graph_release(&g);
}

static void refuses_expressions_that_match_none_or_all(void **state)
{
    (void)state;
    static const char *const wrong[] = {"nothing", ".", "(", "[", "running_mean", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ls_graph g;
        build(&g);
        assert_int_equal(ls_graph_freeze(&g, wrong[i]), LS_USAGE);
        ls_graph_release(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_at_the_lowest_trained_layer),
        cmocka_unit_test(joins_a_frozen_branch_with_a_trained_one),
        cmocka_unit_test(passes_gradients_through_frozen_layers),
        cmocka_unit_test(refuses_expressions_that_match_none_or_all),
    };
    ls_log_quiet(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
