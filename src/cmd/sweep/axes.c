#include "cmd/sweep/sweep.h"
#include "base/files/file.h"
#include "base/log.h"
#include "model/model.h"
#include "optim/schedule.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

enum ls_status ls_sweep_takes(const struct ls_option *option, const char *where)
{
    static const char *const by_hand[] = {"master-ip", "master-port", "num-nodes", "rank", "rendezvous",
                                          "token",     "hostfile",    "npernode",  NULL};
    if (!(option->commands & LS_CMD_SWEEP))
        return ls_fail(LS_USAGE, "%s: sweep takes no --%s; `lockstep sweep --help` lists its options", where,
                       option->name);
    if (is_one_of(option->name, by_hand))
        return ls_fail(LS_USAGE,
                       "%s: a sweep starts its trials on this machine; for several processes each, use workers", where);
    if (strcmp(option->name, "resume") == 0)
        return ls_fail(LS_USAGE, "%s: to go on with a sweep, type the same command again, or: lockstep sweep DIR",
                       where);
    return LS_OK;
}

/* --- values ------------------------------------------------------------------------------------------- */

static enum ls_status check_model(const char *where, const char *name)
{
    bool is_file = strchr(name, '/') || (strlen(name) > 4 && strcmp(name + strlen(name) - 4, ".yml") == 0) ||
                   (strlen(name) > 5 && strcmp(name + strlen(name) - 5, ".yaml") == 0);
    if (is_file && !ls_file_exists(name))
        return ls_fail(LS_BAD_INPUT, "%s: %s: no such model file", where, name);
    if (!is_file && !ls_model_find(name))
        return ls_fail(LS_USAGE, "%s: '%s' is not a model; `lockstep models` lists them", where, name);
    return LS_OK;
}

/* What the option table leaves to train: names of models, and the arguments of schedules and warm-ups. */
static enum ls_status check_meaning(const struct ls_option *option, const char *where, const char *text)
{
    struct ls_schedule schedule;
    if (strcmp(option->name, "model") == 0)
        return check_model(where, text);
    if (strcmp(option->name, "schedule") == 0)
        return ls_schedule_parse(text, "none", &schedule);
    if (strcmp(option->name, "warmup") == 0)
        return ls_schedule_parse("constant", text, &schedule);
    return LS_OK;
}

enum ls_status ls_sweep_check_value(struct ls_sweep *s, const struct ls_option *option, const char *where,
                                    const char *text, const char **value)
{
    struct ls_options scratch, plain;
    char room[32];
    LS_TRY(ls_options_default(&scratch));
    enum ls_status st = ls_option_set(&scratch, option, where, text);
    if (st == LS_OK)
        st = check_meaning(option, where, text);
    if (st == LS_OK)
        st = ls_options_absolute(&scratch, &s->strings, &plain);
    if (st == LS_OK) {
        *value = ls_arena_strdup(&s->strings, ls_option_get(&plain, option, room));
        st = *value ? LS_OK : LS_FAILED;
    }
    ls_options_release(&scratch);
    return st;
}

const struct ls_axis *ls_sweep_axis(const struct ls_sweep *s, const struct ls_option *option)
{
    for (int i = 0; i < s->n_axes; i++)
        if (s->axes[i].option == option)
            return &s->axes[i];
    return NULL;
}

static enum ls_status can_vary(const struct ls_option *option, const char *where)
{
    static const char *const never[] = {"run", "written-in", "parallel", NULL};
    LS_TRY(ls_sweep_takes(option, where));
    if (option->view || !(option->commands & LS_CMD_TRAIN) || is_one_of(option->name, never))
        return ls_fail(LS_USAGE, "%s: one value is the same for all trials; a list is not possible here", where);
    return LS_OK;
}

enum ls_status ls_sweep_add_axis(struct ls_sweep *s, const char *where, const struct ls_axis *axis)
{
    LS_TRY(can_vary(axis->option, where));
    for (int i = 0; i < axis->n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(axis->values[i], axis->values[k]) == 0)
                return ls_fail(LS_USAGE, "%s: %s stands in the list twice", where, axis->values[i]);
    if (s->n_axes == LS_SWEEP_AXES)
        return ls_fail(LS_USAGE, "%s: more than %d options are varied", where, LS_SWEEP_AXES);
    s->axes[s->n_axes++] = *axis;
    return LS_OK;
}

/* --- the sweep's own options --------------------------------------------------------------------------- */

/* Reads "NAME", and of "NAME:..." sets *rest to what follows the colon; NULL: nothing. */
static bool take_metric(const char *text, enum ls_goal_metric *metric, const char **rest)
{
    static const char *const names[] = {"loss", "top1", "top5"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(text, names[i], n) == 0 && (!text[n] || text[n] == ':')) {
            *metric = (enum ls_goal_metric)i;
            *rest = text[n] ? text + n + 1 : NULL;
            return true;
        }
    }
    return false;
}

static enum ls_status parse_target(struct ls_sweep *s, const char *text)
{
    const char *rest = NULL;
    char *end = NULL;
    bool good = take_metric(text, &s->goals.target, &rest) && rest && *rest;
    s->goals.target_value = good ? strtod(rest, &end) : 0;
    if (!good || *end || !isfinite(s->goals.target_value))
        return ls_fail(LS_USAGE, "--target: '%s' is not of the form top1:X, top5:X or loss:X, such as top1:0.9", text);
    if (s->goals.target != LS_GOAL_LOSS && (s->goals.target_value <= 0 || s->goals.target_value > 1))
        return ls_fail(LS_USAGE, "--target: '%s': an accuracy is more than 0 and at most 1, such as 0.9", text);
    s->goals.has_target = true;
    return LS_OK;
}

static bool take_whole(const char **text, int64_t low, int64_t *value)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)**text))
        return false;
    long long n = strtoll(*text, &end, 10);
    if (errno || n < low || n > 1000000000 || (*end && *end != ':'))
        return false;
    *value = n;
    *text = *end ? end + 1 : end;
    return true;
}

static enum ls_status parse_asha(struct ls_sweep *s, const char *text)
{
    const char *rest = "";
    bool good = true;
    s->has_asha = true;
    s->grace = 1;
    s->factor = 3;
    s->goals.rung = LS_GOAL_LOSS;
    if (strcmp(text, "auto") != 0 && strcmp(text, "true") != 0)
        good = take_metric(text, &s->goals.rung, &rest);
    if (good && rest && *rest)
        good = take_whole(&rest, 1, &s->grace);
    if (good && rest && *rest)
        good = take_whole(&rest, 2, &s->factor) && !*rest;
    if (!good)
        return ls_fail(LS_USAGE,
                       "--asha: '%s' is not of the form METRIC:GRACE:FACTOR, such as loss:1:3; METRIC is loss, top1 or "
                       "top5, GRACE 1 epoch or more, FACTOR 2 or more",
                       text);
    if (s->o.steps > 0 || ls_sweep_axis(s, ls_option_find("steps")) || ls_sweep_axis(s, ls_option_find("epochs")))
        return ls_fail(LS_USAGE,
                       "--asha counts epochs, the same number for all trials: give one --epochs and no --steps");
    return ls_asha_rungs(s);
}

const char *ls_rank_by_option(enum ls_rank_by by)
{
    static const char *const names[] = {"time-to-target", "final-loss", "loss-area", "top1"};
    return names[by];
}

/* To train, --parallel is a layout; a sweep passes none on. */
static enum ls_status parse_parallel(struct ls_sweep *s)
{
    char *end;
    const char *text = ls_options_changed(&s->o, "parallel") ? s->o.parallel : "1";
    long n = strtol(text, &end, 10);
    if (n < 1 || n > 4096 || *end)
        return ls_fail(LS_USAGE,
                       "--parallel %s: one value is the same for all trials: how many run side by side, from 1 to 4096",
                       s->o.parallel);
    s->side_by_side = (int)n;
    return LS_OK;
}

enum ls_status ls_sweep_settle(struct ls_sweep *s)
{
    LS_TRY(parse_parallel(s));
    if (s->o.target)
        LS_TRY(parse_target(s, s->o.target));
    if (s->o.asha)
        LS_TRY(parse_asha(s, s->o.asha));
    s->rank_by = s->o.target ? LS_RANK_BY_TIME : LS_RANK_BY_LOSS;
    for (int i = LS_RANK_BY_TIME; s->o.rank_by && i <= LS_RANK_BY_TOP1; i++)
        if (strcmp(s->o.rank_by, ls_rank_by_option((enum ls_rank_by)i)) == 0)
            s->rank_by = (enum ls_rank_by)i;
    if (s->rank_by == LS_RANK_BY_TIME && !s->goals.has_target)
        return ls_fail(LS_USAGE, "--rank-by time-to-target: needs a --target, such as top1:0.9");
    return LS_OK;
}

const char *ls_rank_by_name(enum ls_rank_by by)
{
    static const char *const names[] = {"time to target", "final loss", "loss area", "top1"};
    return names[by];
}
