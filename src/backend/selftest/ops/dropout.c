/* Dropout. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "dropout", .op = &ls_op_dropout, IMAGE(2, 16, 4, 4), .attr = {.p = 0.5f, .layer = 2}},
    {.name = "dropout odd flat",
     .op = &ls_op_dropout,
     IMAGE(3, 37, 1, 1),
     .attr = {.p = 0.3f, .layer = 1},
     .flat = true},
    {.name = "dropout odd maps", .op = &ls_op_dropout, IMAGE(3, 5, 3, 3), .attr = {.p = 0.2f, .layer = 1}},
    {.name = "dropout inference", .op = &ls_op_dropout, IMAGE(2, 16, 4, 4), .attr = {.p = 0.5f}, .inference = true},
    {.name = "dropout of 10 channels", .op = &ls_op_dropout, IMAGE(2, 10, 5, 7), .attr = {.p = 0.5f, .layer = 4}},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "dropout large",
     .op = &ls_op_dropout,
     .large = true,
     IMAGE(16, 64, 56, 56),
     .attr = {.p = 0.2f, .layer = 7}},
    {.name = NULL},
};

const struct ls_case_family ls_cases_dropout = {.cases = cases};
