#include "exec/stragglers.h"
#include "base/log.h"
#include "base/random.h"
#include "base/system/clock.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_SECONDS 3600.0

/* A number at *at, which then points behind it. */
static bool take_number(const char **at, double most, double *value)
{
    char *end;
    if (!isdigit((unsigned char)**at) && **at != '.')
        return false;
    *value = strtod(*at, &end);
    bool fits = end != *at && *value >= 0 && *value <= most;
    *at = end;
    return fits;
}

static bool take_step(const char **at, uint64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *value = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0 && *value > 0 && (*value)-- > 0;
}

static bool take_sign(const char **at, char sign)
{
    bool there = **at == sign;
    *at += there;
    return there;
}

/* WHO*FACTOR[@FROM-TO] */
static bool take_straggler(const char **at, int size, struct ls_straggler *s)
{
    double rank = 0;
    bool drawn = take_sign(at, 'p');
    *s = (struct ls_straggler){.rank = -1, .to = UINT64_MAX};
    if (!take_number(at, drawn ? 1 : size - 1, drawn ? &s->share : &rank) || rank != floor(rank))
        return false;
    if (!drawn)
        s->rank = (int)rank;
    if (!take_sign(at, '*') || !take_number(at, 1e6, &s->factor))
        return false;
    if (!take_sign(at, '@'))
        return true;
    return take_step(at, &s->from) && take_sign(at, '-') && take_step(at, &s->to) && s->from <= s->to;
}

enum ls_status ls_stragglers_init(struct ls_stragglers *s, const struct ls_options *o, int rank, int size)
{
    const char *at = o->stragglers;
    *s = (struct ls_stragglers){.seed = o->seed, .rank = rank};
    if (!at)
        return LS_OK;
    bool fine = take_number(&at, MOST_SECONDS, &s->seconds);
    while (fine && s->n < LS_STRAGGLERS && take_sign(&at, ','))
        fine = take_straggler(&at, size, &s->list[s->n++]);
    if (fine && !*at)
        return LS_OK;
    return ls_fail(
        LS_USAGE,
        "--stragglers %s: expected SECONDS[,WHO*FACTOR[@FROM-TO]]..., at most %d of them, where WHO is a rank "
        "from 0 to %d or p and a probability, such as 0.02,1*4@1-100,p0.1*5; wrong before '%s'",
        o->stragglers, LS_STRAGGLERS, size - 1, at);
}

double ls_stragglers_seconds(const struct ls_stragglers *s, uint64_t step)
{
    uint32_t r[4];
    double factor = 1;
    for (int i = 0; i < s->n; i++) {
        const struct ls_straggler *one = &s->list[i];
        ls_philox(s->seed, ls_random_stream(LS_RANDOM_STRAGGLERS, (uint64_t)s->rank, (uint64_t)i + 1, 0), step, r);
        bool meant = one->rank < 0 ? (double)ls_uniform(r[0]) < one->share : one->rank == s->rank;
        if (meant && step >= one->from && step <= one->to && one->factor > factor)
            factor = one->factor;
    }
    ls_philox(s->seed, ls_random_stream(LS_RANDOM_STRAGGLERS, (uint64_t)s->rank, 0, 0), step, r);
    return s->seconds * factor * (0.9 + 0.2 * (double)ls_uniform(r[0]));
}

double ls_stragglers_sleep(const struct ls_stragglers *s, uint64_t step)
{
    if (s->seconds <= 0)
        return 0;
    double start = ls_now(), seconds = ls_stragglers_seconds(s, step);
    struct timespec pause = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&pause, NULL);
    return ls_now() - start;
}
