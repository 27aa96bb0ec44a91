#include "optim/schedule.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char schedule_forms[] =
    "constant, every:EPOCHS[:FACTOR], multistep:EPOCH,EPOCH...[:FACTOR], exponential:FACTOR or cosine[:MIN]";
static const char warmup_forms[] = "none, stepping:EPOCHS, gradual:EPOCHS or iterations:STEPS";

/* --- parsing: each reader takes what it reads off the front of *text ---------------------------------- */

/* "word" or "word:": what follows the colon is left in *text. */
static bool take_word(const char **text, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*text, word, length) != 0 || ((*text)[length] && (*text)[length] != ':'))
        return false;
    *text += length;
    return true;
}

static bool take_char(const char **text, char c)
{
    if (**text != c)
        return false;
    (*text)++;
    return true;
}

static bool take_count(const char **text, int64_t *value)
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

static bool take_number(const char **text, double low, double high, double *value)
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

static bool take_milestones(const char **text, struct ls_schedule *s)
{
    do {
        int n = s->n_milestones;
        if (n == LS_SCHEDULE_MILESTONES || !take_count(text, &s->milestones[n]))
            return false;
        if (n > 0 && s->milestones[n] <= s->milestones[n - 1])
            return false;
        s->n_milestones++;
    } while (take_char(text, ','));
    return true;
}

static bool parse_schedule(const char *text, struct ls_schedule *s)
{
    bool good = true;
    s->factor = 0.1;
    if (take_word(&text, "constant")) {
        s->kind = LS_SCHEDULE_CONSTANT;
    } else if (take_word(&text, "every")) {
        s->kind = LS_SCHEDULE_EVERY;
        good = take_char(&text, ':') && take_count(&text, &s->every);
        if (good && take_char(&text, ':'))
            good = take_number(&text, 0, 1e6, &s->factor);
    } else if (take_word(&text, "multistep")) {
        s->kind = LS_SCHEDULE_MULTISTEP;
        good = take_char(&text, ':') && take_milestones(&text, s);
        if (good && take_char(&text, ':'))
            good = take_number(&text, 0, 1e6, &s->factor);
    } else if (take_word(&text, "exponential")) {
        s->kind = LS_SCHEDULE_EXPONENTIAL;
        good = take_char(&text, ':') && take_number(&text, 0, 1e6, &s->factor);
    } else if (take_word(&text, "cosine")) {
        s->kind = LS_SCHEDULE_COSINE;
        if (take_char(&text, ':'))
            good = take_number(&text, 0, 1e6, &s->min);
    } else {
        return false;
    }
    return good && !*text;
}

static bool parse_warmup(const char *text, struct ls_schedule *s)
{
    if (take_word(&text, "none"))
        return !*text;
    if (take_word(&text, "stepping"))
        s->warmup = LS_WARMUP_STEPPING;
    else if (take_word(&text, "gradual"))
        s->warmup = LS_WARMUP_GRADUAL;
    else if (take_word(&text, "iterations"))
        s->warmup = LS_WARMUP_ITERATIONS;
    else
        return false;
    return take_char(&text, ':') && take_count(&text, &s->warmup_length) && !*text;
}

enum ls_status ls_schedule_parse(const char *schedule, const char *warmup, struct ls_schedule *s)
{
    struct ls_schedule parsed = {0};
    if (!parse_schedule(schedule, &parsed))
        return ls_fail(LS_USAGE, "--schedule %s: expected %s (whole epochs from 1, rising)", schedule, schedule_forms);
    if (!parse_warmup(warmup, &parsed))
        return ls_fail(LS_USAGE, "--warmup %s: expected %s (whole numbers from 1)", warmup, warmup_forms);
    *s = parsed;
    return LS_OK;
}

/* --- the rate ----------------------------------------------------------------------------------------- */

void ls_schedule_scale(struct ls_schedule *s, double lr, bool per_256, int64_t batch, int64_t replicas,
                       int64_t steps_per_epoch, int64_t total_steps)
{
    s->global = per_256 ? lr * (double)batch / 256.0 : lr;
    s->base = s->global / (double)replicas;
    s->steps_per_epoch = steps_per_epoch;
    s->total_steps = total_steps;
}

static int64_t warmup_steps(const struct ls_schedule *s)
{
    if (s->warmup == LS_WARMUP_NONE)
        return 0;
    return s->warmup == LS_WARMUP_ITERATIONS ? s->warmup_length : s->warmup_length * s->steps_per_epoch;
}

static double warmup_lr(const struct ls_schedule *s, int64_t step, int64_t epoch)
{
    double length = (double)s->warmup_length;
    switch (s->warmup) {
    case LS_WARMUP_STEPPING:
        return s->global * (double)(epoch + 1) / (length + 1);
    case LS_WARMUP_GRADUAL:
        return s->base + (s->global - s->base) / length * (double)epoch;
    case LS_WARMUP_ITERATIONS:
        return s->global * (double)(step + 1) / (length + 1);
    case LS_WARMUP_NONE:
        break;
    }
    return s->global;
}

static double cosine_lr(const struct ls_schedule *s, int64_t step, int64_t warm)
{
    double length = (double)(s->total_steps - warm);
    double share = length > 0 ? fmin(1.0, (double)(step - warm) / length) : 1.0;
    return s->min + (s->global - s->min) * (1 + cos(acos(-1.0) * share)) / 2;
}

double ls_schedule_lr(const struct ls_schedule *s, uint64_t step)
{
    int64_t at = (int64_t)step, epoch = at / s->steps_per_epoch, warm = warmup_steps(s), passed = 0;
    if (at < warm)
        return warmup_lr(s, at, epoch);
    switch (s->kind) {
    case LS_SCHEDULE_CONSTANT:
        break;
    case LS_SCHEDULE_EVERY:
        return s->global * pow(s->factor, (double)(epoch / s->every));
    case LS_SCHEDULE_MULTISTEP:
        while (passed < s->n_milestones && s->milestones[passed] <= epoch)
            passed++;
        return s->global * pow(s->factor, (double)passed);
    case LS_SCHEDULE_EXPONENTIAL:
        return s->global * pow(s->factor, (double)epoch);
    case LS_SCHEDULE_COSINE:
        return cosine_lr(s, at, warm);
    }
    return s->global;
}
