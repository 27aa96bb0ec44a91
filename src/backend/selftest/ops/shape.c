/* Maps into rows, and back. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "flatten", .op = &ls_op_flatten, IMAGE(2, 16, 3, 3)},
    {.name = "flatten odd", .op = &ls_op_flatten, IMAGE(3, 5, 2, 3)},
    {.name = "flatten 20 channels", .op = &ls_op_flatten, IMAGE(2, 20, 3, 3)},
    {.name = NULL},
};

const struct ls_case_family ls_cases_shape = {.cases = cases};
