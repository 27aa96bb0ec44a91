/* Factors of channels. */
#include "backend/selftest/list.h"

static int inputs(struct ls_case_maker *m, const struct ls_case *c, const struct ls_attr *a, int *in)
{
    (void)a;
    in[1] = ls_case_pooled(m, ls_case_second(m, c, in[0]));
    return 2;
}

static const struct ls_case cases[] = {
    {.name = "mul", .op = &ls_op_mul, IMAGE(2, 16, 5, 5)},
    {.name = "mul odd", .op = &ls_op_mul, IMAGE(3, 7, 3, 5)},
    {.name = "mul of 20 channels", .op = &ls_op_mul, IMAGE(2, 20, 4, 3)},
    {.name = "mul of one pixel", .op = &ls_op_mul, IMAGE(3, 10, 1, 1)},
    {.name = "mul inference", .op = &ls_op_mul, IMAGE(2, 24, 3, 3), .inference = true},

    /* Many blocks of a GPU, and sums over many of them. */
    {.name = "mul large", .op = &ls_op_mul, .large = true, IMAGE(16, 32, 56, 56)},
    {.name = "mul many channels", .op = &ls_op_mul, .large = true, IMAGE(8, 300, 7, 7)},
    {.name = NULL},
};

const struct ls_case_family ls_cases_mul = {.cases = cases, .inputs = inputs};
