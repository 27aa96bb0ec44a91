/* gradual:E[:BASE]: the rate rises each epoch, from BASE, or the rate of one replica's batch, to the full rate. */
#include "optim/schedule.h"

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    (void)step;
    return s->base + (s->global - s->base) / (double)s->warmup_length * (double)epoch;
}

const struct ls_warmup_kind ls_warmup_gradual = {.name = "gradual", .has_base = true, .lr = lr};
