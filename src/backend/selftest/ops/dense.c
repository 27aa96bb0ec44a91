/* Dense layers. */
#include "backend/selftest/list.h"

static int inputs(struct ls_case_maker *m, const struct ls_case *c, const struct ls_attr *a, int *in)
{
    int n = 1;
    struct ls_shape x = ls_case_shape(m, in[0]);
    (void)c;
    in[n++] = ls_case_param(m, "weight", ls_shape_make(2, a->out, ls_shape_count(&x) / x.dim[0], 0, 0));
    if (a->bias)
        in[n++] = ls_case_param(m, "bias", ls_shape_make(1, a->out, 0, 0, 0));
    return n;
}

static const struct ls_case cases[] = {
    {.name = "dense", .op = &ls_op_dense, IMAGE(4, 30, 1, 1), .attr = {.out = 10, .bias = true}, .flat = true},
    {.name = "dense no bias", .op = &ls_op_dense, IMAGE(3, 64, 1, 1), .attr = {.out = 48}, .flat = true},
    {.name = "dense relu",
     .op = &ls_op_dense,
     IMAGE(4, 24, 1, 1),
     .attr = {.out = 33, .bias = true, .act = LS_ACT_RELU},
     .flat = true},
    {.name = "dense relu6",
     .op = &ls_op_dense,
     IMAGE(4, 24, 1, 1),
     .attr = {.out = 16, .bias = true, .act = LS_ACT_RELU6},
     .flat = true},
    {.name = "dense on maps", .op = &ls_op_dense, IMAGE(2, 16, 3, 3), .attr = {.out = 20, .bias = true}},
    {.name = "dense on odd maps relu",
     .op = &ls_op_dense,
     IMAGE(3, 5, 4, 3),
     .attr = {.out = 17, .bias = true, .act = LS_ACT_RELU}},
    {.name = "dense on the image",
     .op = &ls_op_dense,
     IMAGE(3, 1, 8, 8),
     .attr = {.out = 12, .bias = true},
     .first = true},
    {.name = "dense short batch",
     .op = &ls_op_dense,
     IMAGE(5, 20, 1, 1),
     .attr = {.out = 10, .bias = true},
     .flat = true,
     .valid = 2},
    {.name = "dense of 6 to 3", .op = &ls_op_dense, IMAGE(3, 6, 1, 1), .attr = {.out = 3, .bias = true}, .flat = true},
    {.name = "dense on maps of 20 channels",
     .op = &ls_op_dense,
     IMAGE(4, 20, 3, 2),
     .attr = {.out = 10, .bias = true, .act = LS_ACT_RELU}},

    /* Large layers (graph/split.h): inputs and rows that are no multiples of a vector, of blocks or of chunks. */
    {.name = "dense in chunks",
     .op = &ls_op_dense,
     .large = true,
     IMAGE(7, 2048, 1, 1),
     .attr = {.out = 2000, .bias = true, .act = LS_ACT_RELU},
     .flat = true},
    {.name = "dense in chunks of odd size",
     .op = &ls_op_dense,
     .large = true,
     IMAGE(3, 2003, 1, 1),
     .attr = {.out = 2001},
     .flat = true},
    {.name = "dense in chunks on maps",
     .op = &ls_op_dense,
     .large = true,
     IMAGE(4, 20, 10, 11),
     .attr = {.out = 1900, .bias = true}},
    {.name = "dense in chunks on the image",
     .op = &ls_op_dense,
     .large = true,
     IMAGE(2, 3, 30, 30),
     .attr = {.out = 1500, .bias = true},
     .first = true},

    /* Many blocks of a GPU, and sums over many of them. Products are kept small, because ref is slow. */
    {.name = "dense large",
     .op = &ls_op_dense,
     .large = true,
     IMAGE(64, 2048, 1, 1),
     .attr = {.out = 1000, .bias = true},
     .flat = true},
    {.name = "dense on maps large",
     .op = &ls_op_dense,
     .large = true,
     IMAGE(16, 256, 6, 6),
     .attr = {.out = 512, .bias = true}},
    {.name = NULL},
};

const struct ls_case_family ls_cases_dense = {.cases = cases, .inputs = inputs};
