/* What joins maps. */
#include "backend/selftest/list.h"

static int inputs(struct ls_case_maker *m, const struct ls_case *c, const struct ls_attr *a, int *in)
{
    (void)a;
    in[1] = ls_case_second(m, c, in[0]);
    return 2;
}

static const struct ls_case cases[] = {
    {.name = "add", .op = &ls_op_add, IMAGE(2, 16, 5, 5)},
    {.name = "add relu", .op = &ls_op_add, IMAGE(2, 16, 5, 5), .attr = {.act = LS_ACT_RELU}},
    {.name = "add relu6 odd", .op = &ls_op_add, IMAGE(2, 7, 3, 5), .attr = {.act = LS_ACT_RELU6}},
    {.name = "concat", .op = &ls_op_concat, IMAGE(2, 16, 4, 4), .other = 32},
    {.name = "concat odd", .op = &ls_op_concat, IMAGE(2, 5, 4, 3), .other = 3},
    {.name = "concat unaligned", .op = &ls_op_concat, IMAGE(2, 24, 4, 4), .other = 40},
    {.name = "add of 10 channels", .op = &ls_op_add, IMAGE(3, 10, 3, 3), .attr = {.act = LS_ACT_RELU}},
    {.name = "concat of 20 and 6", .op = &ls_op_concat, IMAGE(2, 20, 3, 5), .other = 6},
    {.name = "concat of 3 and 16", .op = &ls_op_concat, IMAGE(3, 3, 4, 4), .other = 16},
    {.name = "concat of rows", .op = &ls_op_concat, IMAGE(3, 6, 1, 1), .other = 33, .flat = true},
    {.name = "concat of even rows", .op = &ls_op_concat, IMAGE(2, 16, 1, 1), .other = 32, .flat = true},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "add large", .op = &ls_op_add, .large = true, IMAGE(16, 64, 56, 56), .attr = {.act = LS_ACT_RELU}},
    {.name = "concat large", .op = &ls_op_concat, .large = true, IMAGE(8, 64, 28, 28), .other = 20},
    {.name = NULL},
};

const struct ls_case_family ls_cases_join = {.cases = cases, .inputs = inputs};
