/* Updates of the optimizers. */
#include "backend/selftest/list.h"

static const struct ls_case cases[] = {
    {.name = "sgd plain", .op = &ls_op_sgd, IMAGE(3, 21, 5, 5)},
    {.name = "sgd decay", .op = &ls_op_sgd, IMAGE(3, 21, 5, 5), .attr = {.hyper = {.weight_decay = 0.01f}}},
    {.name = "sgd momentum",
     .op = &ls_op_sgd,
     IMAGE(3, 21, 5, 5),
     .attr = {.hyper = {.momentum = 0.9f, .weight_decay = 0.01f}},
     .states = {"momentum"}},
    {.name = "sgd nesterov",
     .op = &ls_op_sgd,
     IMAGE(3, 21, 5, 5),
     .attr = {.hyper = {.momentum = 0.9f, .weight_decay = 0.01f}, .nesterov = true},
     .states = {"momentum"}},
    {.name = "sgd nesterov of a dense layer",
     .op = &ls_op_sgd,
     IMAGE(4, 37, 1, 1),
     .attr = {.out = 10, .hyper = {.momentum = 0.9f, .weight_decay = 0.01f}, .nesterov = true},
     .states = {"momentum"}},
    {.name = "lars",
     .op = &ls_op_lars,
     IMAGE(3, 21, 5, 5),
     .attr = {.hyper = {.momentum = 0.9f, .weight_decay = 0.01f, .trust = 0.02f}},
     .states = {"momentum"}},
    {.name = "lars of a dense layer",
     .op = &ls_op_lars,
     IMAGE(4, 37, 1, 1),
     .attr = {.out = 10, .hyper = {.momentum = 0.9f, .weight_decay = 0.01f, .trust = 0.02f}},
     .states = {"momentum"}},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "sgd large",
     .op = &ls_op_sgd,
     .large = true,
     IMAGE(8, 2048, 1, 1),
     .attr = {.out = 1000, .hyper = {.momentum = 0.9f, .weight_decay = 0.01f}, .nesterov = true},
     .states = {"momentum"}},
    {.name = "lars large",
     .op = &ls_op_lars,
     .large = true,
     IMAGE(8, 2048, 1, 1),
     .attr = {.out = 1000, .hyper = {.momentum = 0.9f, .weight_decay = 0.01f, .trust = 0.02f}},
     .states = {"momentum"}},
    {.name = NULL},
};

const struct ls_case_family ls_cases_update = {.cases = cases};
