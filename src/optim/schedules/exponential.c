/* exponential:G[:N]: the rate is multiplied by G every epoch, at once; or every N steps, in equal parts each step. */
#include "optim/schedule.h"

#include <math.h>

static bool parse(const char *text, struct ls_schedule *s)
{
    if (!ls_take_char(&text, ':') || !ls_take_number(&text, 0, 1e6, &s->factor))
        return false;
    return !*text || (ls_take_char(&text, ':') && ls_take_count(&text, &s->every) && !*text);
}

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    return s->global * pow(s->factor, s->every > 0 ? (double)step / (double)s->every : (double)epoch);
}

const struct ls_schedule_kind ls_schedule_exponential = {.name = "exponential", .parse = parse, .lr = lr};
