/* AdamW, as PyTorch defines it: Adam whose weight decay acts on the weights, not through the gradient.
 *
 *   w          = w * (1 - lr * weight_decay)
 *   exp_avg    = beta1 * exp_avg + (1 - beta1) * g
 *   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   w          = w - lr * (exp_avg / (1 - beta1^t)) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)
 *
 * t is the number of the run's step, from 1: a step that fp16 leaves out counts too. */
#include "base/log.h"
#include "graph/ops.h"
#include "optim/optim.h"

static enum ls_status check(const struct ls_options *o)
{
    const char *foreign = o->nesterov ? "nesterov" : ls_options_changed(o, "momentum") ? "momentum" : NULL;
    if (foreign)
        return ls_fail(LS_USAGE, "--optimizer adamw: --%s is an option of sgd; leave it out, or set --beta1 (now %g)",
                       foreign, o->beta1);
    return LS_OK;
}

static enum ls_status emit(struct ls_graph *g, const struct ls_options *o, int param)
{
    static const char *const states[] = {"exp_avg", "exp_avg_sq", NULL};
    return ls_optim_node(g, o, &ls_op_adamw, param, states);
}

static void describe(const struct ls_options *o, char *text, size_t room)
{
    snprintf(text, room, ", betas %g and %g, eps %g", o->beta1, o->beta2, o->eps);
}

const struct ls_optim_kind ls_optim_adamw = {
    .name = "adamw", .summary = "Adam with decoupled weight decay", .check = check, .emit = emit, .describe = describe};
