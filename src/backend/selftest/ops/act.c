/* Activation functions. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "relu", .op = &ls_op_act, IMAGE(2, 16, 5, 5), .attr = {.act = LS_ACT_RELU}},
    {.name = "relu6", .op = &ls_op_act, IMAGE(2, 5, 3, 7), .attr = {.act = LS_ACT_RELU6}},
    {.name = "relu flat", .op = &ls_op_act, IMAGE(3, 21, 1, 1), .attr = {.act = LS_ACT_RELU}, .flat = true},
    {.name = "relu of 3 channels", .op = &ls_op_act, IMAGE(2, 3, 7, 5), .attr = {.act = LS_ACT_RELU}},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "relu6 large", .op = &ls_op_act, .large = true, IMAGE(16, 64, 56, 56), .attr = {.act = LS_ACT_RELU6}},
    {.name = NULL},
};

const struct ls_case_family ls_cases_act = {.cases = cases};
