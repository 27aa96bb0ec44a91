/* The lists that bench was given, and their product: every combination of one item of each list. */
#ifndef LS_CMD_BENCH_AXES_H
#define LS_CMD_BENCH_AXES_H

#include "base/memory.h"
#include "config/options.h"
#include "config/table.h"
#include <stdint.h>

enum { LS_BENCH_AXES = 32 };

struct ls_bench_axis {
    const struct ls_option *option;
    const char **items; /* owned by the arena */
    int n;
};

struct ls_bench_axes {
    struct ls_arena strings;
    struct ls_bench_axis list[LS_BENCH_AXES]; /* in the order of the option table */
    int n;
    int64_t total; /* number of combinations */
};

/* Whether any option was given a list. */
bool ls_bench_has_lists(const struct ls_options *o);
/* Reads the lists. An item that stands twice in a list counts once, with a warning. */
enum ls_status ls_bench_axes_read(const struct ls_options *o, struct ls_bench_axes *a);
/* Returns the item of an axis in a combination, 0 .. total-1. The last axis changes first. */
const char *ls_bench_axes_item(const struct ls_bench_axes *a, int axis, int64_t combination);
/* The item of that option in a combination, or NULL if the option has one value. */
const char *ls_bench_axes_value(const struct ls_bench_axes *a, const char *name, int64_t combination);
/* Safe on a zeroed struct. */
void ls_bench_axes_release(struct ls_bench_axes *a);

#endif
