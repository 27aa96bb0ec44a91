/* Losses. */
#include "backend/selftest/list.h"

static int inputs(struct ls_case_maker *m, const struct ls_case *c, const struct ls_attr *a, int *in)
{
    (void)c;
    (void)a;
    in[1] = ls_case_label(m);
    return 2;
}

static const struct ls_case cases[] = {
    {.name = "softmax_xent", .op = &ls_op_softmax_xent, IMAGE(4, 10, 1, 1), .flat = true},
    {.name = "softmax_xent smoothed",
     .op = &ls_op_softmax_xent,
     IMAGE(4, 37, 1, 1),
     .attr = {.smoothing = 0.1f},
     .flat = true},
    {.name = "softmax_xent short batch",
     .op = &ls_op_softmax_xent,
     IMAGE(5, 10, 1, 1),
     .attr = {.smoothing = 0.1f},
     .flat = true,
     .valid = 3},
    {.name = "softmax_xent mixup",
     .op = &ls_op_softmax_xent,
     IMAGE(5, 10, 1, 1),
     .attr = {.smoothing = 0.1f, .mix = {1, 0, 8, 8}},
     .flat = true},
    {.name = "softmax_xent cutmix short batch",
     .op = &ls_op_softmax_xent,
     IMAGE(5, 10, 1, 1),
     .attr = {.mix = {0, 1, 16, 12}},
     .flat = true,
     .valid = 3},
    {.name = "softmax_xent inference", .op = &ls_op_softmax_xent, IMAGE(4, 10, 1, 1), .flat = true, .inference = true},
    {.name = "l2_loss", .op = &ls_op_l2_loss, IMAGE(4, 10, 1, 1), .flat = true},
    {.name = "l2_loss short batch", .op = &ls_op_l2_loss, IMAGE(5, 10, 1, 1), .flat = true, .valid = 3},
    {.name = "softmax_xent 1000 classes",
     .op = &ls_op_softmax_xent,
     IMAGE(3, 1000, 1, 1),
     .attr = {.smoothing = 0.1f},
     .flat = true},
    {.name = "l2_loss of 37", .op = &ls_op_l2_loss, IMAGE(3, 37, 1, 1), .flat = true},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "softmax_xent large",
     .op = &ls_op_softmax_xent,
     .large = true,
     IMAGE(256, 1000, 1, 1),
     .attr = {.smoothing = 0.1f},
     .flat = true,
     .valid = 250},
    {.name = "l2_loss large", .op = &ls_op_l2_loss, .large = true, IMAGE(256, 1000, 1, 1), .flat = true},
    {.name = NULL},
};

const struct ls_case_family ls_cases_loss = {.cases = cases, .inputs = inputs, .loss = true};
