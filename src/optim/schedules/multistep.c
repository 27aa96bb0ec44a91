/* multistep:A,B,...[:F]: the rate is multiplied by F at the epochs A, B, ... */
#include "optim/schedule.h"

#include <math.h>

static bool take_milestones(const char **text, struct ls_schedule *s)
{
    do {
        int n = s->n_milestones;
        if (n == LS_SCHEDULE_MILESTONES || !ls_take_count(text, &s->milestones[n]))
            return false;
        if (n > 0 && s->milestones[n] <= s->milestones[n - 1])
            return false;
        s->n_milestones++;
    } while (ls_take_char(text, ','));
    return true;
}

static bool parse(const char *text, struct ls_schedule *s)
{
    return ls_take_char(&text, ':') && take_milestones(&text, s) && ls_take_factor(text, &s->factor);
}

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    int passed = 0;
    (void)step;
    while (passed < s->n_milestones && s->milestones[passed] <= epoch)
        passed++;
    return s->global * pow(s->factor, (double)passed);
}

const struct ls_schedule_kind ls_schedule_multistep = {.name = "multistep", .parse = parse, .lr = lr};
