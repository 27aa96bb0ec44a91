/* Muon: momentum whose update of each convolution's filters is made orthogonal. The filters (O, I, H, W) are a matrix W of O
 * rows. All other parameters take the step of sgd.
 *
 *   momentum = share * momentum + g
 *   u        = momentum                         (Nesterov: g + share * momentum)
 *   X        = u / (|u| + 1e-7)                 (|u|: the root of the sum of squares)
 *   X        = 3.4445 X + (-4.7750 A + 2.0315 A A) X with A = X X^T, --muon-steps times (the shorter side of X is the first)
 *   W        = W * sqrt(O) / |W| - lr * X
 *
 * The iteration of Newton and Schulz brings all singular values of X near 1. As W keeps its norm, weight decay does not apply
 * to it. On a GPU the products are of bf16 numbers. */
#include "base/log.h"
#include "graph/ops.h"
#include "optim/optim.h"

#include <math.h>

static enum ls_status check(const struct ls_options *o)
{
    if (o->muon_steps != floor(o->muon_steps))
        return ls_fail(LS_USAGE, "--muon-steps %g: expected a whole number from 1 to 20", o->muon_steps);
    return LS_OK;
}

/* Depthwise filters (O, 1, H, W) are no matrix between channels: they take the step of sgd as well. */
static enum ls_status emit(struct ls_graph *g, const struct ls_options *o, int param)
{
    static const char *const states[] = {"momentum", NULL};
    const struct ls_shape *s = &g->tensors[param].shape;
    return s->rank == 4 && s->dim[1] > 1 ? ls_optim_node(g, o, &ls_op_muon, param, states)
                                         : ls_optim_sgd.emit(g, o, param);
}

static void describe(const struct ls_options *o, char *text, size_t room)
{
    snprintf(text, room, ", %g iterations, momentum %g%s", o->muon_steps, o->momentum,
             o->nesterov ? " (Nesterov)" : "");
}

const struct ls_optim_kind ls_optim_muon = {.name = "muon",
                                            .summary = "orthogonal updates of convolutions, sgd for the rest",
                                            .check = check,
                                            .emit = emit,
                                            .describe = describe};
