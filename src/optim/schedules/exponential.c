/* exponential:G: the rate is multiplied by G every epoch. */
#include "optim/schedule.h"

#include <math.h>

static bool parse(const char *text, struct ls_schedule *s)
{
    return *text && ls_take_factor(text, &s->factor);
}

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    (void)step;
    return s->global * pow(s->factor, (double)epoch);
}

const struct ls_schedule_kind ls_schedule_exponential = {.name = "exponential", .parse = parse, .lr = lr};
