/* Activation functions. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "relu", .op = &ls_op_act, IMAGE(2, 16, 5, 5), .attr = {.act = LS_ACT_RELU}},
    {.name = "relu6", .op = &ls_op_act, IMAGE(2, 5, 3, 7), .attr = {.act = LS_ACT_RELU6}},
    {.name = "relu flat", .op = &ls_op_act, IMAGE(3, 21, 1, 1), .attr = {.act = LS_ACT_RELU}, .flat = true},
    {.name = "relu of 3 channels", .op = &ls_op_act, IMAGE(2, 3, 7, 5), .attr = {.act = LS_ACT_RELU}},
    {.name = "silu", .op = &ls_op_act, IMAGE(2, 16, 5, 5), .attr = {.act = LS_ACT_SILU}},
    {.name = "silu odd", .op = &ls_op_act, IMAGE(3, 5, 3, 7), .attr = {.act = LS_ACT_SILU}},
    {.name = "hardswish", .op = &ls_op_act, IMAGE(2, 20, 5, 5), .attr = {.act = LS_ACT_HARDSWISH}},
    {.name = "hardswish flat", .op = &ls_op_act, IMAGE(3, 21, 1, 1), .attr = {.act = LS_ACT_HARDSWISH}, .flat = true},
    {.name = "sigmoid", .op = &ls_op_act, IMAGE(2, 16, 4, 4), .attr = {.act = LS_ACT_SIGMOID}},
    {.name = "sigmoid odd", .op = &ls_op_act, IMAGE(3, 10, 3, 3), .attr = {.act = LS_ACT_SIGMOID}, .head = true},
    {.name = "sigmoid flat", .op = &ls_op_act, IMAGE(3, 21, 1, 1), .attr = {.act = LS_ACT_SIGMOID}, .flat = true},
    {.name = "hardsigmoid", .op = &ls_op_act, IMAGE(2, 16, 4, 4), .attr = {.act = LS_ACT_HARDSIGMOID}},
    {.name = "hardsigmoid odd", .op = &ls_op_act, IMAGE(3, 3, 1, 1), .attr = {.act = LS_ACT_HARDSIGMOID}},
    {.name = "gelu", .op = &ls_op_act, IMAGE(2, 16, 5, 5), .attr = {.act = LS_ACT_GELU}},
    {.name = "gelu odd", .op = &ls_op_act, IMAGE(2, 7, 3, 5), .attr = {.act = LS_ACT_GELU}},
    {.name = "sigmoid inference",
     .op = &ls_op_act,
     IMAGE(2, 10, 3, 3),
     .attr = {.act = LS_ACT_SIGMOID},
     .inference = true},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "relu6 large", .op = &ls_op_act, .large = true, IMAGE(16, 64, 56, 56), .attr = {.act = LS_ACT_RELU6}},
    {.name = "silu large", .op = &ls_op_act, .large = true, IMAGE(16, 64, 56, 56), .attr = {.act = LS_ACT_SILU}},
    {.name = NULL},
};

const struct ls_case_family ls_cases_act = {.cases = cases};
