/* cosine[:MIN]: half a cosine from the full rate, at the end of the warm-up, to MIN at the end of the run. */
#include "optim/schedule.h"

#include <math.h>

static bool parse(const char *text, struct ls_schedule *s)
{
    return ls_take_factor(text, &s->min);
}

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    int64_t warm = ls_schedule_warmup_steps(s);
    double length = (double)(s->total_steps - warm);
    double share = length > 0 ? fmin(1.0, (double)(step - warm) / length) : 1.0;
    (void)epoch;
    return s->min + (s->global - s->min) * (1 + cos(acos(-1.0) * share)) / 2;
}

const struct ls_schedule_kind ls_schedule_cosine = {.name = "cosine", .whole_run = true, .parse = parse, .lr = lr};
