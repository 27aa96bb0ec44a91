/* LAMB: the step of AdamW, whose length for each weight tensor is proportional to the norm of that tensor.
 *
 *   exp_avg    = beta1 * exp_avg + (1 - beta1) * g
 *   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   u          = (exp_avg / (1 - beta1^t)) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps) + weight_decay * w
 *   w          = w - lr * |w| / |u| * u, with 1 for the ratio where |w| or |u| is 0
 *
 * t is the number of the run's step, from 1. As timm has it with always_adapt; gradients are clipped by --clip-norm alone. */
#include "base/log.h"
#include "graph/ops.h"
#include "optim/optim.h"

static enum ls_status check(const struct ls_options *o)
{
    const char *foreign = o->nesterov ? "nesterov" : ls_options_changed(o, "momentum") ? "momentum" : NULL;
    if (foreign)
        return ls_fail(LS_USAGE, "--optimizer lamb: --%s is an option of sgd; leave it out, or set --beta1 (now %g)",
                       foreign, o->beta1);
    return LS_OK;
}

/* Biases and BN's scale and shift start at 0 or 1, so the ratio of norms means nothing for them: it is 1, which is adamw. */
static enum ls_status emit(struct ls_graph *g, const struct ls_options *o, int param)
{
    static const char *const states[] = {"exp_avg", "exp_avg_sq", NULL};
    return g->tensors[param].no_decay ? ls_optim_adamw.emit(g, o, param)
                                      : ls_optim_node(g, o, &ls_op_lamb, param, states);
}

static void describe(const struct ls_options *o, char *text, size_t room)
{
    ls_optim_adamw.describe(o, text, room);
}

const struct ls_optim_kind ls_optim_lamb = {.name = "lamb",
                                            .summary = "adamw with layer-wise adaptive rates for large batches",
                                            .check = check,
                                            .emit = emit,
                                            .describe = describe};
