/* Local response normalisation. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "lrn 5", .op = &ls_op_lrn, IMAGE(2, 16, 4, 4), .attr = {.size = 5, .alpha = 0.1f, .beta = 0.75f, .k = 2}},
    {.name = "lrn 3", .op = &ls_op_lrn, IMAGE(2, 7, 3, 5), .attr = {.size = 3, .alpha = 0.3f, .beta = 0.75f, .k = 1}},
    {.name = "lrn even window",
     .op = &ls_op_lrn,
     IMAGE(2, 9, 3, 3),
     .attr = {.size = 4, .alpha = 0.3f, .beta = 0.5f, .k = 1}},
    {.name = "lrn alexnet",
     .op = &ls_op_lrn,
     IMAGE(2, 96, 4, 4),
     .attr = {.size = 5, .alpha = 1e-4f, .beta = 0.75f, .k = 2}},
    {.name = "lrn of 10 channels",
     .op = &ls_op_lrn,
     IMAGE(2, 10, 5, 3),
     .attr = {.size = 5, .alpha = 0.2f, .beta = 0.75f, .k = 1}},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "lrn large",
     .op = &ls_op_lrn,
     .large = true,
     IMAGE(16, 96, 27, 27),
     .attr = {.size = 5, .alpha = 1e-2f, .beta = 0.75f, .k = 2}},
    {.name = NULL},
};

const struct ls_case_family ls_cases_lrn = {.cases = cases};
