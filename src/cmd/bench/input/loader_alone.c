/* bench --loader: the speed of the input alone. Nothing computes; batches are dropped as soon as they are full. */
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "cmd/bench/bench.h"
#include "exec/engine.h"
#include "report/formats/table.h"
#include "report/stats.h"
#include "train/task.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SECONDS 1.0 /* of a repetition without --steps */
enum { RING = 4 };

struct alone {
    const struct ls_options *o;
    struct ls_task task;
    struct ls_loader *loader; /* owned */
    int threads;
    int64_t batches;    /* of one repetition */
    double *speed;      /* owned; images/s of each repetition */
    double *core_speed; /* owned; images per second of CPU time */
    char augment[LS_AUGMENT_TEXT], input[64];
};

/* Returns the CPU time of this process: that of the loader threads, as all else sleeps. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What measures something else. */
static const char *other_wish(const struct ls_options *o)
{
    return o->with_input                   ? "--with-input"
           : o->profile                    ? "--profile"
           : o->weak                       ? "--weak"
           : o->workers > 1                ? "--workers"
           : ls_bench_scale_wanted(o)      ? "--scale"
           : ls_bench_collective_wanted(o) ? "--collective"
                                           : NULL;
}

static enum ls_status open_loader(struct alone *a)
{
    const struct ls_options *o = a->o;
    const struct ls_model_size *size = &a->task.size;
    a->threads = o->loader_threads > 0 ? (int)o->loader_threads : ls_engine_cores();
    snprintf(a->input, sizeof a->input, "%lldx%lldx%lld", (long long)size->channels, (long long)size->height,
             (long long)size->width);
    ls_augment_text(&a->task.augment, a->augment);
    struct ls_loader_options options = {
        .set = a->task.train,
        .augment = a->task.augment,
        .form = strcmp(o->backend, "cuda") == 0 ? LS_FORM_PIXELS : LS_FORM_PLANES,
        .seed = o->seed,
        .shuffle = o->shuffle,
        .threads = a->threads,
        .ring = RING,
        .batch = o->batch,
        .parts = 1,
    };
    return ls_loader_new(&options, &a->loader);
}

/* Takes batches until `batches` of them, or `seconds`, are over. */
static enum ls_status take(struct alone *a, int64_t batches, double seconds, int64_t *taken, int64_t *images)
{
    double start = ls_now();
    *taken = *images = 0;
    while (batches > 0 ? *taken < batches : *taken == 0 || ls_now() - start < seconds) {
        const struct ls_slot *slot;
        LS_TRY(ls_loader_next(a->loader, &slot));
        *images += slot->valid;
        ++*taken;
    }
    return LS_OK;
}

static enum ls_status measure(struct alone *a)
{
    int64_t warm = a->o->warmup_steps + RING, taken, images;
    LS_TRY(take(a, warm, 0, &taken, &images));
    a->batches = a->o->steps;
    for (int64_t i = 0; i < a->o->repeat; i++) {
        double start = ls_now(), cpu = cpu_seconds();
        LS_TRY(take(a, a->batches, SECONDS, &taken, &images));
        a->batches = taken;
        a->speed[i] = (double)images / (ls_now() - start);
        a->core_speed[i] = (double)images / (cpu_seconds() - cpu);
    }
    return LS_OK;
}

/* --- output ------------------------------------------------------------------------------------------- */

static void add_row(struct ls_table *t, const char *what, const struct ls_stats *s, double divisor)
{
    ls_table_row(t);
    ls_table_cell(t, "%s", what);
    ls_table_cell(t, "%.1f", s->median / divisor);
    ls_table_cell(t, "%.1f", s->mean / divisor);
    ls_table_cell(t, "%.1f", s->deviation / divisor);
    ls_table_cell(t, "%.1f%%", 100 * s->variation);
    ls_table_cell(t, "%.1f", s->min / divisor);
    ls_table_cell(t, "%.1f", s->max / divisor);
}

static enum ls_status print_table(const struct alone *a, const struct ls_stats *speed, const struct ls_stats *core)
{
    static const char *const headings[] = {"", "median", "mean", "sd", "CV", "min", "max"};
    struct ls_table t;
    printf("loader alone: %s, augment %s, input %s, batch %lld, %d loader thread%s\n", a->o->data, a->augment, a->input,
           (long long)a->o->batch, a->threads, a->threads == 1 ? "" : "s");
    printf("%lld repetitions of %lld batches\n", (long long)a->o->repeat, (long long)a->batches);
    ls_table_init(&t, "lrrrrrr", headings);
    add_row(&t, "images/s", speed, 1);
    add_row(&t, "of one thread", speed, a->threads);
    add_row(&t, "of one core", core, 1);
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

/* A row without the options that the loader does not depend on. */
static json_t *make_row(const struct alone *a, const struct ls_stats *core)
{
    static const char *const kept[] = {"input", "batch", "loader_threads", "workers", NULL};
    char machine[512], key[64];
    json_t *row = ls_bench_row(a->o), *speeds = json_object_get(row, "repetitions");
    for (int i = 0; i < ls_option_count; i++) {
        bool keep = false;
        if (!ls_option_table[i].axis)
            continue;
        ls_bench_key(&ls_option_table[i], key);
        for (const char *const *k = kept; *k; k++)
            keep = keep || strcmp(key, *k) == 0;
        if (!keep)
            json_object_del(row, key);
    }
    ls_bench_machine("", machine, sizeof machine);
    json_object_set_new(row, "machine", json_string(machine));
    json_object_set_new(row, "input", json_string(a->input));
    json_object_set_new(row, "loader_threads", json_integer(a->threads));
    json_object_set_new(row, "data", json_string(a->o->data));
    json_object_set_new(row, "augment", json_string(a->augment));
    json_object_set_new(row, "per_core", json_real(core->median));
    for (int64_t i = 0; i < a->o->repeat; i++)
        json_array_append_new(speeds, json_real(a->speed[i]));
    return row;
}

static enum ls_status write_result(const struct alone *a, const struct ls_stats *speed, const struct ls_stats *core)
{
    json_t *row = make_row(a, core);
    struct ls_bench_table t = {.o = a->o, .rows = json_array()};
    t.old = json_pack("{s:s, s:s, s:i, s:f, s:f, s:f}", "kind", "loader", "augment", a->augment, "loader_threads",
                      a->threads, "images_per_s", speed->median, "images_per_s_of_thread", speed->median / a->threads,
                      "images_per_s_of_core", core->median);
    t.about = ls_bench_about(a->o, json_string_value(json_object_get(row, "machine")));
    json_array_append_new(t.rows, row);
    enum ls_status st = ls_bench_rows_compare(t.rows);
    if (st == LS_OK)
        st = ls_bench_write(&t);
    ls_bench_table_release(&t);
    return st;
}

static enum ls_status report(const struct alone *a)
{
    struct ls_stats speed, core;
    LS_TRY(ls_stats_of(a->speed, (int)a->o->repeat, &speed));
    LS_TRY(ls_stats_of(a->core_speed, (int)a->o->repeat, &core));
    return ls_bench_writes_table(a->o) ? write_result(a, &speed, &core) : print_table(a, &speed, &core);
}

enum ls_status ls_bench_loader(const struct ls_options *o)
{
    struct alone a = {.o = o};
    enum ls_status st;
    const char *other = other_wish(o);
    if (other)
        return ls_fail(LS_USAGE, "--loader measures the input of one process alone; leave %s out", other);
    LS_TRY(ls_bench_check_output(o));
    a.speed = ls_alloc((size_t)o->repeat, sizeof *a.speed);
    a.core_speed = ls_alloc((size_t)o->repeat, sizeof *a.core_speed);
    LS_TRY_GOTO(out, a.speed && a.core_speed ? LS_OK : LS_FAILED);
    LS_TRY_GOTO(out, ls_task_open(&a.task, o, true, false, NULL));
    LS_TRY_GOTO(out, open_loader(&a));
    LS_TRY_GOTO(out, measure(&a));
    LS_TRY_GOTO(out, report(&a));
out:
    ls_loader_free(a.loader);
    ls_task_close(&a.task);
    ls_free(a.speed);
    ls_free(a.core_speed);
    return st;
}
