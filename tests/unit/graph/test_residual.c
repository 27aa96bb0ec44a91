/* --zero-init-residual: torchvision's zero_init_residual sets the scale of the last BN of each block to 0, and no other. */
#include "graph/graph.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void expect_zeros(const char *model, const char *last, int blocks)
{
    struct ls_graph g;
    struct ls_model_request request = {.model = model,
                                       .size = {.batch = 2, .channels = 3, .height = 64, .width = 64, .classes = 10},
                                       .training = true,
                                       .loss = "xent",
                                       .dropout = -1};
    ls_graph_init(&g);
    assert_int_equal(ls_model_build(&request, &g), LS_OK);
    assert_int_equal(ls_graph_zero_residuals(&g), blocks);
    int zeros = 0;
    for (int t = 0; t < g.n_tensors; t++) {
        const struct ls_tensor *tensor = &g.tensors[t];
        bool scale = tensor->role == LS_ROLE_PARAM && tensor->no_decay && strstr(tensor->name, ".weight");
        if (!scale || tensor->init.value != 0.0f)
            continue;
        assert_non_null(strstr(tensor->name, last));
        zeros++;
    }
    assert_int_equal(zeros, blocks);
    ls_graph_release(&g);
}

static void test_zeros(void **state)
{
    (void)state;
    expect_zeros("resnet18", ".bn2.weight", 8);
    expect_zeros("resnet34", ".bn2.weight", 16);
    expect_zeros("resnet50", ".bn3.weight", 16);
    expect_zeros("mobilenet_v2", ".conv.3.weight", 10);
    expect_zeros("lenet", "none", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zeros)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
