/* iterations:N: the rate rises in equal parts, one each step. */
#include "optim/schedule.h"

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    (void)epoch;
    return s->global * (double)(step + 1) / ((double)s->warmup_length + 1);
}

const struct ls_warmup_kind ls_warmup_iterations = {.name = "iterations", .in_steps = true, .lr = lr};
