#include "cmd/sweep/sweep.h"
#include "base/files/checksum.h"
#include "base/log.h"
#include "base/random.h"
#include "exec/engine.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- random draws --------------------------------------------------------------------------------------- */

/* Uniform in [0, 1), a function of --seed, the option's name and the number of the draw. */
static double fraction(const struct ls_sweep *s, const struct ls_option *option, int64_t draw)
{
    uint32_t bits[4];
    ls_philox(s->o.seed, ls_checksum_of(option->name, strlen(option->name)), (uint64_t)draw, bits);
    return ((double)(bits[0] >> 5) * 67108864.0 + (double)(bits[1] >> 6)) * 0x1p-53;
}

/* Six digits are enough to read, and to repeat the trial by hand. */
static const char *draw_number(struct ls_sweep *s, const struct ls_axis *a, double at)
{
    double x = a->kind == LS_AXIS_LOG ? a->low * pow(a->high / a->low, at) : a->low + (a->high - a->low) * at;
    char text[32];
    if (a->option->type == LS_OPTION_WHOLE)
        snprintf(text, sizeof text, "%.0f", fmin(fmax(round(x), ceil(a->low)), floor(a->high)));
    else
        snprintf(text, sizeof text, "%.6g", x);
    double shown = strtod(text, NULL);
    if (shown < a->low || shown > a->high)
        snprintf(text, sizeof text, "%.17g", x);
    const char *value = NULL;
    return ls_sweep_check_value(s, a->option, a->option->name, text, &value) == LS_OK ? value : NULL;
}

static const char *draw_value(struct ls_sweep *s, const struct ls_axis *a, int64_t draw)
{
    double at = fraction(s, a->option, draw);
    return a->kind == LS_AXIS_CHOICE ? a->values[(int)(at * a->n)] : draw_number(s, a, at);
}

/* --- the product ---------------------------------------------------------------------------------------- */

static bool is_seed(const struct ls_axis *a)
{
    return a->option == ls_option_find("seed");
}

/* --seeds N is an axis of N seeds. */
static enum ls_status add_seeds(struct ls_sweep *s)
{
    struct ls_axis axis = {.option = ls_option_find("seed")};
    if (s->o.seeds < 2)
        return LS_OK;
    if (ls_sweep_axis(s, axis.option))
        return ls_fail(LS_USAGE, "--seeds %" PRId64 ": --seed is a list already; leave out one of them", s->o.seeds);
    if (s->o.seed > UINT64_MAX - (uint64_t)s->o.seeds)
        return ls_fail(LS_USAGE, "--seed %" PRIu64 ": there are no %" PRId64 " seeds from there on", s->o.seed,
                       s->o.seeds);
    axis.values = ls_arena_take(&s->strings, sizeof *axis.values * (size_t)s->o.seeds);
    for (; axis.values && axis.n < s->o.seeds; axis.n++) {
        axis.values[axis.n] = ls_arena_format(&s->strings, "%" PRIu64, s->o.seed + (uint64_t)axis.n);
        if (!axis.values[axis.n])
            return LS_FAILED;
    }
    return axis.values ? ls_sweep_add_axis(s, "--seeds", &axis) : LS_FAILED;
}

/* Lists first, then what is drawn, then seeds: the trials of one combination follow each other. */
static int place_of(const struct ls_axis *a)
{
    return is_seed(a) ? 2 : a->kind != LS_AXIS_LIST;
}

static void sort_axes(struct ls_sweep *s)
{
    for (int i = 1; i < s->n_axes; i++)
        for (int k = i; k > 0 && place_of(&s->axes[k - 1]) > place_of(&s->axes[k]); k--) {
            struct ls_axis axis = s->axes[k];
            s->axes[k] = s->axes[k - 1];
            s->axes[k - 1] = axis;
        }
}

static enum ls_status count_trials(const struct ls_sweep *s, int64_t *draws, int64_t *n)
{
    bool random = false;
    *n = 1;
    for (int i = 0; i < s->n_axes; i++) {
        bool list = s->axes[i].kind == LS_AXIS_LIST;
        random = random || !list;
        *n *= list ? s->axes[i].n : 1;
        if (*n > LS_SWEEP_TRIALS)
            break;
    }
    if (random && s->o.trials < 1)
        return ls_fail(LS_USAGE, "random: how many draws? Add `trials: 20` to the sweep file, or --trials 20");
    if (!random && s->o.trials > 0)
        return ls_fail(LS_USAGE, "--trials counts random draws, and nothing is drawn: a sweep file needs `random`");
    *draws = random ? s->o.trials : 1;
    *n *= *draws;
    if (*n > LS_SWEEP_TRIALS)
        return ls_fail(LS_USAGE, "the sweep has more than %d trials; shorten a list", LS_SWEEP_TRIALS);
    if (*n < 2 && s->n_axes == 0)
        return ls_fail(LS_USAGE,
                       "sweep: nothing is varied; give lists, such as --lr 0.1,0.2 --batch 64,128, or --seeds 3");
    return LS_OK;
}

/* Number `index`, counted from 0: digits of a number whose last digit is the seed, whose digit before is the draw. */
static enum ls_status choose_values(struct ls_sweep *s, struct ls_trial *t, int64_t index, int64_t draws)
{
    t->values = ls_arena_take(&s->strings, sizeof *t->values * (size_t)(s->n_axes + 1));
    if (!t->values)
        return LS_FAILED;
    int a = s->n_axes - 1;
    if (a >= 0 && is_seed(&s->axes[a])) {
        t->values[a] = s->axes[a].values[index % s->axes[a].n];
        index /= s->axes[a--].n;
    }
    int64_t draw = index % draws;
    index /= draws;
    for (; a >= 0; a--) {
        bool list = s->axes[a].kind == LS_AXIS_LIST;
        t->values[a] = list ? s->axes[a].values[index % s->axes[a].n] : draw_value(s, &s->axes[a], draw);
        index /= list ? s->axes[a].n : 1;
        if (!t->values[a])
            return LS_FAILED;
    }
    return LS_OK;
}

/* Part of a file name: the last part of a path, without letters that a shell treats in its own way. */
static void append_clean(char *name, size_t room, const char *value)
{
    const char *slash = strrchr(value, '/');
    size_t used = strlen(name);
    for (const char *p = slash && slash[1] ? slash + 1 : value; *p && used + 1 < room; p++)
        name[used++] = isalnum((unsigned char)*p) || strchr("._+-", *p) ? *p : '_';
    name[used] = 0;
}

static enum ls_status name_trial(struct ls_sweep *s, struct ls_trial *t)
{
    char name[120];
    snprintf(name, sizeof name, "%04d", t->number);
    for (int a = 0; a < s->n_axes; a++) {
        append_clean(name, 100, "-");
        append_clean(name, 100, s->axes[a].option->name);
        append_clean(name, 100, t->values[a]);
    }
    t->name = ls_arena_strdup(&s->strings, name);
    return t->name ? LS_OK : LS_FAILED;
}

/* Without --threads the cores are divided between trials and workers. The number is part of the plan, because it is part
 * of what a trial computes (S1). */
static int64_t choose_threads(const struct ls_sweep *s, const struct ls_trial *t)
{
    char room[32];
    const char *threads = ls_trial_value(s, t, ls_option_find("threads"), room);
    int64_t given = strtoll(threads, NULL, 10);
    const char *workers = ls_trial_value(s, t, ls_option_find("workers"), room);
    int64_t share = ls_engine_cores() / s->side_by_side / strtoll(workers, NULL, 10);
    return given > 0 ? given : share > 0 ? share : 1;
}

void ls_sweep_forget_plan(struct ls_sweep *s)
{
    ls_free(s->trials);
    s->trials = NULL;
    s->n_trials = 0;
    s->n_axes -= s->o.seeds > 1; /* the seeds, which are last */
}

enum ls_status ls_sweep_plan(struct ls_sweep *s)
{
    int64_t draws = 1, n = 0;
    LS_TRY(add_seeds(s));
    sort_axes(s);
    LS_TRY(count_trials(s, &draws, &n));
    s->trials = ls_alloc((size_t)n, sizeof *s->trials);
    if (!s->trials)
        return LS_FAILED;
    for (; s->n_trials < n; s->n_trials++) {
        struct ls_trial *t = &s->trials[s->n_trials];
        t->number = s->n_trials + 1;
        t->is_waiting = true;
        ls_outcome_clear(&t->outcome);
        LS_TRY(choose_values(s, t, s->n_trials, draws));
        LS_TRY(name_trial(s, t));
        t->threads = choose_threads(s, t);
    }
    return LS_OK;
}

/* --- one trial ------------------------------------------------------------------------------------------- */

const char *ls_trial_value(const struct ls_sweep *s, const struct ls_trial *t, const struct ls_option *option,
                           char room[32])
{
    for (int a = 0; a < s->n_axes; a++)
        if (s->axes[a].option == option)
            return t->values[a];
    return ls_option_get(&s->o, option, room);
}

const char *ls_trial_describe(const struct ls_sweep *s, const struct ls_trial *t, char *text, size_t room)
{
    size_t used = 0;
    text[0] = 0;
    for (int a = 0; a < s->n_axes && used < room; a++)
        used +=
            (size_t)snprintf(text + used, room - used, "%s%s %s", a ? ", " : "", s->axes[a].option->name, t->values[a]);
    return text;
}

/* Whether the option is passed to train. */
static bool is_passed(const struct ls_sweep *s, const struct ls_option *option)
{
    static const char *const own[] = {"run", "resume", "written-in", "stop-after", "threads", "parallel", NULL};
    for (const char *const *name = own; *name; name++)
        if (strcmp(option->name, *name) == 0)
            return false;
    if (!(option->commands & LS_CMD_TRAIN) || option->view)
        return false;
    bool always = strcmp(option->name, "model") == 0 || strcmp(option->name, "data") == 0;
    return always || ls_option_given(s->o.given, option) || ls_sweep_axis(s, option);
}

/* Whether a user may leave out the option. The default of --replicas follows the workers. */
static bool is_usual(const struct ls_option *option, const char *value)
{
    static const char *const always[] = {"model", "data", "replicas", NULL};
    for (const char *const *name = always; *name; name++)
        if (strcmp(option->name, *name) == 0)
            return false;
    if (option->type == LS_OPTION_REAL) /* 1e-8 is 1e-08 */
        return strtod(value, NULL) == strtod(option->missing, NULL);
    return option->missing && strcmp(value, option->missing) == 0;
}

char **ls_trial_command(const struct ls_sweep *s, const struct ls_trial *t, bool run, struct ls_arena *arena)
{
    enum { EXTRA = 16 };
    char **words = ls_arena_take(arena, sizeof *words * (2 * (size_t)ls_option_count + EXTRA));
    char room[32];
    int n = 0;
    if (!words)
        return NULL;
    words[n++] = ls_arena_strdup(arena, "lockstep");
    words[n++] = ls_arena_strdup(arena, "train");
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        const char *value = is_passed(s, option) ? ls_trial_value(s, t, option, room) : NULL;
        if (value && !run && is_usual(option, value))
            continue;
        bool apart = value && !ls_option_is_switch(option) && !option->alone && strncmp(value, "--", 2) != 0;
        if (value)
            words[n++] = ls_arena_format(arena, "--%s%s%s", option->name, apart ? "" : "=", apart ? "" : value);
        if (apart)
            words[n++] = ls_arena_strdup(arena, value);
    }
    words[n++] = ls_arena_strdup(arena, "--threads");
    words[n++] = ls_arena_format(arena, "%" PRId64, t->threads);
    if (run) {
        words[n++] = ls_arena_format(arena, "--run=%s/trials/%s", s->folder, t->name);
        words[n++] = ls_arena_strdup(arena, "--resume=auto");
        words[n++] = ls_arena_format(arena, "--stop-after=%" PRId64, t->until);
        words[n++] = ls_arena_strdup(arena, "--no-progress");
    }
    for (int i = 0; i < n; i++)
        if (!words[i])
            return NULL;
    words[n] = NULL;
    return words;
}
