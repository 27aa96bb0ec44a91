#include "cmd/bench/axes.h"
#include "base/log.h"

#include <string.h>

enum { MOST = 10000 /* combinations */ };

bool ls_bench_has_lists(const struct ls_options *o)
{
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_list(o, &ls_option_table[i]))
            return true;
    return false;
}

static bool has_item(const struct ls_bench_axis *axis, const char *item)
{
    for (int i = 0; i < axis->n; i++)
        if (strcmp(axis->items[i], item) == 0)
            return true;
    return false;
}

static enum ls_status read_list(struct ls_bench_axes *a, const struct ls_option *option, const char *list)
{
    struct ls_bench_axis *axis = &a->list[a->n];
    size_t most = 1;
    for (const char *c = list; (c = strchr(c, ',')); c++)
        most++;
    char *text = ls_arena_strdup(&a->strings, list), *save = NULL;
    *axis = (struct ls_bench_axis){.option = option, .items = ls_arena_take(&a->strings, most * sizeof *axis->items)};
    if (!text || !axis->items)
        return LS_FAILED;
    for (char *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        if (has_item(axis, item))
            ls_warn("--%s: %s stands twice in the list; it is measured once", option->name, item);
        else
            axis->items[axis->n++] = item;
    }
    a->n++;
    a->total *= axis->n;
    return LS_OK;
}

enum ls_status ls_bench_axes_read(const struct ls_options *o, struct ls_bench_axes *a)
{
    *a = (struct ls_bench_axes){.total = 1};
    for (int i = 0; i < ls_option_count; i++) {
        const char *list = ls_option_list(o, &ls_option_table[i]);
        if (list)
            LS_TRY(read_list(a, &ls_option_table[i], list));
        if (a->total > MOST)
            return ls_fail(LS_USAGE,
                           "the lists have more than %d combinations; measure some of them, and the others in "
                           "another table",
                           MOST);
    }
    return LS_OK;
}

const char *ls_bench_axes_item(const struct ls_bench_axes *a, int axis, int64_t combination)
{
    for (int i = a->n - 1; i > axis; i--)
        combination /= a->list[i].n;
    return a->list[axis].items[combination % a->list[axis].n];
}

const char *ls_bench_axes_value(const struct ls_bench_axes *a, const char *name, int64_t combination)
{
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->list[i].option->name, name) == 0)
            return ls_bench_axes_item(a, i, combination);
    return NULL;
}

void ls_bench_axes_release(struct ls_bench_axes *a)
{
    ls_arena_release(&a->strings);
    *a = (struct ls_bench_axes){0};
}
