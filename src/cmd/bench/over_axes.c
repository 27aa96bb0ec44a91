/* bench over lists: checks what was asked for, measures it, and writes the table. */
#include "base/log.h"
#include "cmd/bench/axes.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/rounds.h"

#include <stdio.h>
#include <string.h>

bool ls_bench_over_axes_wanted(const struct ls_options *o)
{
    return ls_bench_has_lists(o) || ls_bench_scale_wanted(o);
}

/* Under a launcher: rank 0 reports the error for all. */
static enum ls_status refuse_lists(const struct ls_launch *launch)
{
    if (launch->rank > 0)
        return LS_USAGE;
    return ls_fail(LS_USAGE,
                   "bench measures lists with processes that it starts itself, but %s has started this one; give one "
                   "value of each option and -o FILE.json, and merge the files: lockstep bench --merge FILE.json ...",
                   launch->how);
}

static enum ls_status check(const struct ls_options *o)
{
    if (ls_bench_collective_wanted(o))
        return ls_fail(LS_USAGE, "%s measures steps and --collective sums; leave one out",
                       ls_bench_scale_wanted(o) ? "--scale" : "a list");
    if (o->loader && ls_bench_scale_wanted(o))
        return ls_fail(LS_USAGE, "--loader measures the input of one process alone; leave --scale out");
    if (o->profile)
        return ls_fail(LS_USAGE, "--profile shows one configuration; give one value of each option, and no --scale");
    return ls_bench_check_output(o);
}

static size_t measured(const json_t *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        n += json_array_size(json_object_get(json_array_get(rows, i), "repetitions")) > 0;
    return n;
}

/* Without other lists, the output of --scale is as it was before there were any. */
static enum ls_status write_table(struct ls_bench_table *t, bool only_scale)
{
    const char *machine = json_string_value(json_object_get(json_array_get(t->rows, 0), "machine"));
    LS_TRY(ls_bench_rows_compare(t->rows));
    t->about = ls_bench_about(t->o, machine ? machine : "");
    if (t->over)
        json_object_set_new(t->about, "transport", json_string(t->over));
    if (t->over && !ls_bench_writes_table(t->o))
        printf("%s\n", t->over);
    if (only_scale && !ls_bench_writes_table(t->o))
        return ls_bench_scale_print(t->o, t->rows);
    if (only_scale)
        t->old = ls_bench_scale_keys(t->o, t->rows);
    return ls_bench_write(t);
}

/* Reports the rows that failed. If no row was measured, the status is that of the first one. */
static enum ls_status report_failures(const json_t *rows)
{
    const json_t *first = NULL;
    size_t failed = 0, n = json_array_size(rows);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        if (json_object_get(row, "error")) {
            first = first ? first : row;
            failed++;
        }
    }
    if (!first)
        return LS_OK;
    const char *reason = json_string_value(json_object_get(first, "error"));
    enum ls_status status = (enum ls_status)json_integer_value(json_object_get(first, "exit_code"));
    if (n == 1)
        return ls_fail(status, "%s", reason);
    return ls_fail(failed == n ? status : LS_FAILED, "%zu of %zu configurations failed, the first of them: %s", failed,
                   n, reason);
}

static enum ls_status measure(const struct ls_options *o, bool only_scale, const struct ls_bench_ranks *ranks)
{
    struct ls_bench_axes axes;
    struct ls_bench_table t = {.o = o, .over = ranks ? ranks->over : NULL};
    enum ls_status st = ls_bench_axes_read(o, &axes);
    if (st == LS_OK)
        st = ls_bench_rounds(o, &axes, ranks, &t.rows);
    if ((st == LS_OK || st == LS_INTERRUPTED || st == LS_PEER_LOST) && measured(t.rows) > 0) {
        enum ls_status wrote = write_table(&t, only_scale);
        st = st == LS_OK ? wrote : st;
    }
    if (st == LS_OK)
        st = report_failures(t.rows);
    ls_bench_table_release(&t);
    ls_bench_axes_release(&axes);
    return st;
}

enum ls_status ls_bench_over_axes(struct ls_options *o, bool *done)
{
    struct ls_launch launch;
    bool scale = ls_bench_scale_wanted(o), lists = ls_bench_has_lists(o);
    LS_TRY(ls_launch_detect(o, &launch));
    *done = launch.kind == LS_LAUNCH_ALONE;
    bool parent = launch.workers > 0;
    enum ls_status st = !*done && lists ? refuse_lists(&launch) : LS_OK;
    ls_launch_release(&launch);
    LS_TRY(st);
    if (*done && (o->npernode > 0 || o->hostfile))
        return ls_fail(LS_USAGE, "bench starts the processes of a list itself; give --workers instead of --%s",
                       o->hostfile ? "hostfile" : "npernode");
    if (!*done && parent) /* its workers measure, together with those of other nodes */
        return LS_OK;
    if (!*done)
        o->workers = 1; /* the launcher's are measured */
    if (scale)
        LS_TRY(ls_bench_scale_begin(o));
    if (!*done) {
        o->workers = 1; /* scale_begin has set the first of its list */
        return LS_OK;
    }
    LS_TRY(check(o));
    return measure(o, scale && !lists, NULL);
}

/* --- the ranks of a launch ------------------------------------------------------------------------------ */

/* Why this launch cannot measure other numbers of workers than its own; NULL: it can. */
static const char *find_obstacle(const struct ls_options *o, int left)
{
    if (left == 0)
        return "each of these numbers is larger";
    if (o->profile)
        return "--profile shows one configuration";
    return strcmp(o->collective, "mpi") == 0 ? "--collective mpi sums in the MPI of the whole launch" : NULL;
}

static void print_one_group(const struct ls_options *o, const struct ls_world *world, const char *reason)
{
    char why[512];
    snprintf(why, sizeof why, "the %d processes of %s are measured as one group, because %s", ls_comm_size(world->comm),
             world->launch.how, reason);
    ls_bench_scale_commands(o, &world->launch, why);
}

/* Rank 0 decides whether the ranks can measure, and prints why not. */
static enum ls_status prepare(struct ls_options *o, const struct ls_world *world, struct ls_bench_ranks *ranks,
                              bool *can)
{
    int left, lost = 0, removed = ls_bench_scale_limit(o, ls_comm_size(world->comm), &left);
    bool root = ls_comm_rank(world->comm) == 0;
    const char *obstacle = find_obstacle(o, left);
    char why[256];
    *can = !obstacle;
    LS_TRY(ls_comm_broadcast(world->comm, 0, can, sizeof *can));
    if (root && obstacle)
        print_one_group(o, world, obstacle);
    if (!*can)
        return LS_OK;
    LS_TRY(ls_bench_ranks_open(ranks, world, &lost));
    *can = *ranks->address;
    if (root && !*can) {
        snprintf(why, sizeof why, "rank %d (host %s) reaches no address of rank 0 (host %s) by TCP", lost,
                 ls_comm_host(world->comm, lost), ls_comm_host(world->comm, 0));
        print_one_group(o, world, why);
    } else if (root && removed > 0) {
        snprintf(why, sizeof why, "%s has %d processes, so larger numbers are not measured", world->launch.how,
                 ls_comm_size(world->comm));
        ls_bench_scale_commands(o, &world->launch, why);
    }
    return LS_OK;
}

enum ls_status ls_bench_over_ranks(struct ls_options *o, const struct ls_world *world, bool *done)
{
    struct ls_bench_ranks ranks;
    *done = false;
    LS_TRY(prepare(o, world, &ranks, done));
    if (!*done)
        return LS_OK;
    if (ls_comm_rank(world->comm) > 0)
        return ls_bench_ranks_serve(&ranks, o);
    enum ls_status st = ls_bench_check_output(o);
    if (st == LS_OK && ls_bench_writes_table(o))
        ls_progress("%s", ranks.over);
    if (st == LS_OK)
        st = measure(o, true, &ranks);
    ls_bench_ranks_end(&ranks, st);
    return st;
}
