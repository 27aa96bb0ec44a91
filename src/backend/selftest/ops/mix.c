/* Mixup and cutmix of images. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "mixup",
     .op = &ls_op_mix,
     IMAGE(4, 3, 8, 8),
     .attr = {.mix = {0.4f, 0, 8, 8}},
     .first = true,
     .inference = true},
    {.name = "mixup short batch",
     .op = &ls_op_mix,
     IMAGE(5, 3, 5, 7),
     .attr = {.mix = {1, 0, 5, 7}},
     .valid = 3,
     .first = true,
     .inference = true},
    {.name = "cutmix",
     .op = &ls_op_mix,
     IMAGE(4, 3, 16, 12),
     .attr = {.mix = {0, 1, 16, 12}},
     .first = true,
     .inference = true},
    {.name = "cutmix or mixup",
     .op = &ls_op_mix,
     IMAGE(3, 1, 9, 9),
     .attr = {.mix = {0.2f, 1, 9, 9}},
     .first = true,
     .inference = true},
    {.name = NULL},
};

const struct ls_case_family ls_cases_mix = {.cases = cases};
