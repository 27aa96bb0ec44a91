/* constant: the rate stays. */
#include "optim/schedule.h"

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    (void)step;
    (void)epoch;
    return s->global;
}

const struct ls_schedule_kind ls_schedule_constant = {.name = "constant", .lr = lr};
