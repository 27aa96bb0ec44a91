/* stepping:E: the rate rises in equal parts, one each epoch. */
#include "optim/schedule.h"

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    (void)step;
    return s->global * (double)(epoch + 1) / ((double)s->warmup_length + 1);
}

const struct ls_warmup_kind ls_warmup_stepping = {.name = "stepping", .lr = lr};
