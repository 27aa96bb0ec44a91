/* polynomial[:POWER[:MIN]]: from the full rate, at the end of the warm-up, to MIN at the end of the run, by a power of the
 * share of steps that are left: PyTorch's PolynomialLR, one step of it a step. */
#include "optim/schedule.h"

#include <math.h>

static bool parse(const char *text, struct ls_schedule *s)
{
    s->power = 1;
    if (!*text)
        return true;
    return ls_take_char(&text, ':') && ls_take_number(&text, 1e-6, 1e6, &s->power) && ls_take_factor(text, &s->min);
}

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    int64_t warm = ls_schedule_warmup_steps(s);
    double length = (double)(s->total_steps - warm);
    double left = length > 0 ? fmax(0.0, 1 - (double)(step - warm) / length) : 0.0;
    (void)epoch;
    return s->min + (s->global - s->min) * pow(left, s->power);
}

const struct ls_schedule_kind ls_schedule_polynomial = {
    .name = "polynomial", .whole_run = true, .parse = parse, .lr = lr};
