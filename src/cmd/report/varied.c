/* The options in which runs differ: the columns of a table of runs and the axes of a heat map. */
#include "cmd/report/inputs/subject.h"

#include <stdlib.h>
#include <string.h>

/* Options that only say where a run goes or how it is shown. */
static bool is_about_place(const char *name)
{
    static const char *const names[] = {"written-in", "run",        "resume",           "log-every",  "log-format",
                                        "plan",       "plan-cache", "eval-data",        "init",       "keep",
                                        "tune",       "deadline",   "checkpoint-every", "check-every"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Workers are no option of config.yaml; log.txt has the number of processes. */
static const char workers[] = "workers";

static const char *value_of(const struct ls_run_view *run, const char *name)
{
    const char *value = strcmp(name, workers) == 0 ? ls_run_fact(run, "processes") : ls_run_option(run, name);
    return value ? value : "";
}

const char *ls_varied_value(const struct ls_varied *axis, const struct ls_run_view *run)
{
    const char *value = value_of(run, axis->name);
    for (int i = 0; i < axis->n_values; i++) {
        size_t length = strlen(axis->values[i]);
        bool counted = axis->name == workers && value[length] == ' '; /* "2 with 1 thread each" */
        if (strncmp(axis->values[i], value, length) == 0 && (value[length] == 0 || counted))
            return axis->values[i];
    }
    return "";
}

static int by_value(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    char *end_x, *end_y;
    double nx = strtod(x, &end_x), ny = strtod(y, &end_y);
    if (end_x != x && end_y != y && nx != ny)
        return nx < ny ? -1 : 1;
    return strcmp(x, y);
}

/* Adds the option as an axis if two runs differ in it. */
static enum ls_status add_axis(struct ls_subject *s, const char *name)
{
    if (s->n_varied == LS_VARIED)
        return LS_OK;
    struct ls_varied axis = {.name = name, .values = ls_alloc((size_t)s->n_runs, sizeof *axis.values)};
    if (!axis.values)
        return LS_FAILED;
    for (int i = 0; i < s->n_runs; i++) {
        const char *value = value_of(&s->runs[i], name);
        if (name == workers)
            value = ls_arena_format(&s->strings, "%.*s", (int)strcspn(value, " "), value);
        if (!value) {
            ls_free(axis.values);
            return LS_FAILED;
        }
        bool known = !*value;
        for (int j = 0; j < axis.n_values && !known; j++)
            known = strcmp(axis.values[j], value) == 0;
        if (!known)
            axis.values[axis.n_values++] = value;
    }
    if (axis.n_values < 2) {
        ls_free(axis.values);
        return LS_OK;
    }
    qsort(axis.values, (size_t)axis.n_values, sizeof *axis.values, by_value);
    s->varied[s->n_varied++] = axis;
    return LS_OK;
}

enum ls_status ls_subject_varied(struct ls_subject *s)
{
    const struct ls_run_view *widest = NULL;
    for (int i = 0; i < s->n_runs; i++)
        if (!widest || s->runs[i].config.n > widest->config.n)
            widest = &s->runs[i];
    if (s->n_runs < 2)
        return LS_OK;
    LS_TRY(add_axis(s, workers));
    for (int i = 0; i < widest->config.n; i++)
        if (!is_about_place(widest->config.list[i].name))
            LS_TRY(add_axis(s, widest->config.list[i].name));
    return LS_OK;
}
