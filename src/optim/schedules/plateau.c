/* plateau[:PATIENCE[:FACTOR[:MIN]]]: the rate is multiplied by FACTOR when more than PATIENCE evaluations in a row brought no
 * lower loss, down to MIN: PyTorch's ReduceLROnPlateau with its defaults, stepped with the loss of each evaluation after the
 * warm-up. */
#include "optim/schedule.h"

#include <float.h>
#include <math.h>

/* PyTorch's threshold and eps: a loss is lower if it is so by this share; a rate changes if it does so by more than this. */
#define THRESHOLD 1e-4
#define LEAST_CHANGE 1e-8

static bool take_patience(const char **text, int64_t *patience)
{
    *patience = 0;
    return ls_take_count(text, patience) || ls_take_char(text, '0');
}

static bool parse(const char *text, struct ls_schedule *s)
{
    s->patience = 10;
    if (!*text)
        return true;
    if (!ls_take_char(&text, ':') || !take_patience(&text, &s->patience))
        return false;
    if (!*text)
        return true;
    return ls_take_char(&text, ':') && ls_take_number(&text, 0, 1, &s->factor) && s->factor > 0 && s->factor < 1 &&
           ls_take_factor(text, &s->min);
}

static double lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    (void)step;
    (void)epoch;
    return s->memory.rate > 0 ? s->memory.rate : s->global;
}

static void observe(struct ls_schedule *s, double loss)
{
    struct ls_schedule_memory *m = &s->memory;
    double rate = m->rate > 0 ? m->rate : s->global;
    double best = m->any ? m->best : DBL_MAX;
    bool better = loss < best * (1 - THRESHOLD); /* NaN is not */
    m->any = true;
    m->rate = rate;
    m->best = better ? loss : best;
    m->bad = better ? 0 : m->bad + 1;
    if (m->bad <= s->patience)
        return;
    double lower = fmax(rate * s->factor, s->min);
    m->bad = 0;
    m->rate = rate - lower > LEAST_CHANGE ? lower : rate;
}

const struct ls_schedule_kind ls_schedule_plateau = {.name = "plateau", .parse = parse, .lr = lr, .observe = observe};
