/* Multiplication by a constant. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "scale", .op = &ls_op_scale, IMAGE(2, 16, 5, 5), .attr = {.factor = 0.125f}},
    {.name = "scale odd", .op = &ls_op_scale, IMAGE(3, 7, 3, 5), .attr = {.factor = -3}},
    {.name = "scale flat", .op = &ls_op_scale, IMAGE(3, 21, 1, 1), .attr = {.factor = 0.3f}, .flat = true},
    {.name = "scale inference", .op = &ls_op_scale, IMAGE(2, 10, 3, 3), .attr = {.factor = 2}, .inference = true},
    {.name = NULL},
};

const struct ls_case_family ls_cases_scale = {.cases = cases};
