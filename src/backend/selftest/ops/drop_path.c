/* Stochastic depth. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "drop_path", .op = &ls_op_drop_path, IMAGE(8, 16, 4, 4), .attr = {.p = 0.5f, .layer = 2}},
    {.name = "drop_path odd", .op = &ls_op_drop_path, IMAGE(7, 5, 3, 3), .attr = {.p = 0.3f, .layer = 1}},
    {.name = "drop_path flat",
     .op = &ls_op_drop_path,
     IMAGE(9, 37, 1, 1),
     .attr = {.p = 0.2f, .layer = 1},
     .flat = true},
    {.name = "drop_path inference", .op = &ls_op_drop_path, IMAGE(4, 16, 4, 4), .attr = {.p = 0.5f}, .inference = true},
    {.name = NULL},
};

const struct ls_case_family ls_cases_drop_path = {.cases = cases};
