/* every:N[:F]: the rate is multiplied by F every N epochs. */
#include "optim/schedule.h"

#include <math.h>

static bool parse(const char *text, struct ls_schedule *s)
{
    return ls_take_char(&text, ':') && ls_take_count(&text, &s->every) && ls_take_factor(text, &s->factor);
}

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    (void)step;
    return s->global * pow(s->factor, (double)(epoch / s->every));
}

const struct ls_schedule_kind ls_schedule_every = {.name = "every", .parse = parse, .lr = lr};
