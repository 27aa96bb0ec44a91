#include "optim/schedule.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define X(name, form) extern const struct ls_schedule_kind ls_schedule_##name;
#include "config/lists/schedules.def"
static const struct ls_schedule_kind *const schedules[] = {
#define X(name, form) &ls_schedule_##name,
#include "config/lists/schedules.def"
    NULL,
};
static const char schedule_forms[] =
#define X(name, form) ", " form
#include "config/lists/schedules.def"
    ;

#define X(name, form) extern const struct ls_warmup_kind ls_warmup_##name;
#include "config/lists/warmups.def"
static const struct ls_warmup_kind *const warmups[] = {
#define X(name, form) &ls_warmup_##name,
#include "config/lists/warmups.def"
    NULL,
};
static const char warmup_forms[] = "none"
#define X(name, form) ", " form
#include "config/lists/warmups.def"
    ;
/* clang-format on */

/* --- parsing ------------------------------------------------------------------------------------------ */

bool ls_take_char(const char **text, char c)
{
    if (**text != c)
        return false;
    (*text)++;
    return true;
}

bool ls_take_count(const char **text, int64_t *value)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    long long v = strtoll(*text, &end, 10);
    if (errno || v < 1 || v > 1000000000)
        return false;
    *value = v;
    *text = end;
    return true;
}

bool ls_take_number(const char **text, double low, double high, double *value)
{
    char *end;
    if (!strchr("0123456789.", **text) || !**text)
        return false;
    double v = strtod(*text, &end);
    if (end == *text || !(v >= low && v <= high))
        return false;
    *value = v;
    *text = end;
    return true;
}

bool ls_take_factor(const char *text, double *factor)
{
    return !*text || (ls_take_char(&text, ':') && ls_take_number(&text, 0, 1e6, factor) && !*text);
}

/* Is the text `name`, or `name:...`? */
static bool names(const char *text, const char *name)
{
    size_t length = strcspn(text, ":");
    return strlen(name) == length && strncmp(text, name, length) == 0;
}

static const struct ls_schedule_kind *find_schedule(const char *text)
{
    const struct ls_schedule_kind *const *kind = schedules;
    while (*kind && !names(text, (*kind)->name))
        kind++;
    return *kind;
}

bool ls_schedule_whole_run(const char *schedule)
{
    const struct ls_schedule_kind *kind = find_schedule(schedule);
    return kind && kind->whole_run;
}

bool ls_schedule_follows_evaluations(const char *schedule)
{
    const struct ls_schedule_kind *kind = find_schedule(schedule);
    return kind && kind->observe;
}

static bool parse_schedule(const char *text, struct ls_schedule *s)
{
    s->factor = 0.1;
    s->kind = find_schedule(text);
    if (!s->kind)
        return false;
    text += strlen(s->kind->name);
    return s->kind->parse ? s->kind->parse(text, s) : !*text;
}

static bool parse_warmup(const char *text, struct ls_schedule *s)
{
    if (strcmp(text, "none") == 0)
        return true;
    for (const struct ls_warmup_kind *const *kind = warmups; *kind; kind++)
        if (names(text, (*kind)->name))
            s->warmup = *kind;
    if (!s->warmup)
        return false;
    text += strlen(s->warmup->name);
    if (!ls_take_char(&text, ':') || !ls_take_count(&text, &s->warmup_length))
        return false;
    if (!*text || !s->warmup->has_base)
        return !*text;
    return ls_take_char(&text, ':') && ls_take_number(&text, 1e-30, 1e38, &s->warmup_base) && !*text;
}

enum ls_status ls_schedule_parse(const char *schedule, const char *warmup, struct ls_schedule *s)
{
    struct ls_schedule parsed = {0};
    if (!parse_schedule(schedule, &parsed))
        return ls_fail(LS_USAGE, "--schedule %s: expected one of %s (whole epochs from 1, rising)", schedule,
                       schedule_forms + 2);
    if (!parse_warmup(warmup, &parsed))
        return ls_fail(LS_USAGE, "--warmup %s: expected one of %s (whole numbers from 1, a rate above 0)", warmup,
                       warmup_forms);
    *s = parsed;
    return LS_OK;
}

/* --- the rate ----------------------------------------------------------------------------------------- */

void ls_schedule_scale(struct ls_schedule *s, double lr, bool per_256, int64_t batch, int64_t replicas,
                       int64_t steps_per_epoch, int64_t total_steps)
{
    s->global = per_256 ? lr * (double)batch / 256.0 : lr;
    s->base = s->warmup_base > 0 ? s->warmup_base : s->global / (double)replicas;
    s->steps_per_epoch = steps_per_epoch;
    s->total_steps = total_steps;
}

static bool begins_at_base(const struct ls_schedule *s)
{
    return s->warmup && s->warmup->has_base;
}

enum ls_status ls_schedule_check(const struct ls_schedule *s)
{
    if (begins_at_base(s) && s->base > s->global)
        return ls_fail(
            LS_USAGE,
            "--warmup %s:%lld:%g: the rate would fall from %g to the full rate %g; give a lower base, or none",
            s->warmup->name, (long long)s->warmup_length, s->warmup_base, s->base, s->global);
    if (s->min > s->global)
        return ls_fail(LS_USAGE, "--schedule %s: the least rate %g is above the full rate %g; give a lower one",
                       s->kind->name, s->min, s->global);
    return LS_OK;
}

bool ls_schedule_is_flat(const struct ls_schedule *s)
{
    return begins_at_base(s) && s->base >= s->global;
}

int64_t ls_schedule_warmup_steps(const struct ls_schedule *s)
{
    if (!s->warmup)
        return 0;
    return s->warmup->in_steps ? s->warmup_length : s->warmup_length * s->steps_per_epoch;
}

double ls_schedule_lr(const struct ls_schedule *s, uint64_t step)
{
    int64_t at = (int64_t)step, epoch = at / s->steps_per_epoch;
    return at < ls_schedule_warmup_steps(s) ? s->warmup->lr(s, at, epoch) : s->kind->lr(s, at, epoch);
}

bool ls_schedule_only_warms(const struct ls_schedule *s)
{
    return ls_schedule_warmup_steps(s) > s->total_steps;
}

bool ls_schedule_observes(const struct ls_schedule *s)
{
    return s->kind->observe != NULL;
}

void ls_schedule_observe(struct ls_schedule *s, uint64_t steps, double loss)
{
    if (s->kind->observe && (int64_t)steps > ls_schedule_warmup_steps(s))
        s->kind->observe(s, loss);
}
