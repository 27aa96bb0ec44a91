#define _GNU_SOURCE
#include "cmd/bench/rounds.h"
#include "base/log.h"
#include "cmd/bench/child.h"
#include "cmd/bench/largest.h"
#include "cmd/bench/progress.h"
#include "cmd/bench/results/results.h"
#include "exec/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXTRA = 24 /* words that a child gets besides those of the axes */ };
#define CHEAP 30.0 /* seconds that the starts of all processes may take in any case */

/* One combination. */
struct config {
    json_t *row;          /* owned; NULL: not measured yet */
    int64_t batch;        /* of all workers */
    double predicted;     /* bytes of all workers, where --batch max was predicted */
    bool ended;           /* failed: it is not measured again */
    double seconds;       /* of its first process */
    double steps_seconds; /* of these, the measured steps */
};

struct rounds {
    const struct ls_options *o;
    const struct ls_bench_axes *axes;
    const struct ls_bench_ranks *ranks; /* NULL: the child starts the workers */
    struct config *configs;             /* owned; axes->total */
    int64_t threads;                    /* of a worker, where --threads does not say; 0: the child decides */
    int signals;                        /* a signalfd */
    json_t *said;                       /* owned; see child.h */
    char machine[512];                  /* of the first row */
    struct ls_bench_progress progress;
};

/* --- a combination -------------------------------------------------------------------------------------- */

static int64_t whole(const struct rounds *r, int64_t at, const char *name, int64_t otherwise)
{
    const char *item = ls_bench_axes_value(r->axes, name, at);
    return item ? strtoll(item, NULL, 10) : otherwise;
}

static int64_t workers_of(const struct rounds *r, int64_t at)
{
    return whole(r, at, "workers", r->o->workers);
}

static int64_t threads_of(const struct rounds *r, int64_t at)
{
    int64_t n = whole(r, at, "threads", r->o->threads);
    return n > 0 ? n : r->threads;
}

static bool wants_largest(const struct rounds *r, int64_t at)
{
    const char *item = ls_bench_axes_value(r->axes, "batch", at);
    return item && strcmp(item, ls_option_find("batch")->word) == 0;
}

/* All numbers of workers are compared with the same number of threads. */
static int64_t common_threads(const struct rounds *r)
{
    int64_t most = 1;
    bool several = ls_bench_axes_value(r->axes, "workers", 0) != NULL;
    for (int64_t i = 0; several && i < r->axes->total; i++)
        most = workers_of(r, i) > most ? workers_of(r, i) : most;
    int64_t each = ls_engine_cores() / most;
    return !several ? 0 : each > 0 ? each : 1;
}

/* "batch 64, threads 2": the items of a combination. */
static void label_of(const struct rounds *r, int64_t at, char *text, size_t room)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < r->axes->n && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s %s", i ? ", " : "", r->axes->list[i].option->name,
                                 ls_bench_axes_item(r->axes, i, at));
}

static json_t *json_of(const struct ls_option *option, const char *item)
{
    if (option->type == LS_OPTION_WHOLE)
        return json_integer(strtoll(item, NULL, 10));
    return option->type == LS_OPTION_REAL ? json_real(strtod(item, NULL)) : json_string(item);
}

/* The row of a combination that was not measured. */
static json_t *empty_row(const struct rounds *r, int64_t at)
{
    char key[64];
    json_t *row = ls_bench_row(r->o);
    for (int i = 0; i < r->axes->n; i++)
        json_object_set_new(row, ls_bench_key(r->axes->list[i].option, key),
                            json_of(r->axes->list[i].option, ls_bench_axes_item(r->axes, i, at)));
    ls_bench_row_place(row, (int)workers_of(r, at), 1);
    if (r->configs[at].batch > 0)
        json_object_set_new(row, "batch", json_integer(r->configs[at].batch));
    if (threads_of(r, at) > 0)
        json_object_set_new(row, "threads", json_integer(threads_of(r, at)));
    return row;
}

static void fail(struct rounds *r, int64_t at, enum ls_status status, const char *reason)
{
    struct config *c = &r->configs[at];
    c->ended = true;
    c->row = c->row ? c->row : empty_row(r, at);
    json_object_set_new(c->row, "error", json_string(reason));
    if (!json_object_get(c->row, "error")) /* not UTF-8 */
        json_object_set_new(c->row, "error", json_string("failed"));
    json_object_set_new(c->row, "exit_code", json_integer(status));
}

/* --- processes ------------------------------------------------------------------------------------------ */

static void tick(void *context)
{
    ls_bench_progress_draw(context);
}

static struct ls_bench_child child_of(struct rounds *r, const char *const *words, int n)
{
    return (struct ls_bench_child){.o = r->o,
                                   .words = words,
                                   .n_words = n,
                                   .signals = r->signals,
                                   .tick = tick,
                                   .context = &r->progress,
                                   .said = r->said};
}

/* Writes the options of a combination. Later words override those of the command line. Returns their number. */
static int make_words(const struct rounds *r, int64_t at, int64_t repeat, struct ls_arena *strings, const char **words)
{
    static const char *const plain[] = {"--scale",      "none", "--json",    "--format",     "json",
                                        "--output",     "-",    "--no-weak", "--no-profile", "--no-verbose",
                                        "--no-progress"};
    int n = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        words[n++] = plain[i];
    for (int i = 0; i < r->axes->n; i++) {
        words[n++] = ls_arena_format(strings, "--%s", r->axes->list[i].option->name);
        words[n++] = ls_bench_axes_item(r->axes, i, at);
    }
    words[n++] = "--repeat";
    words[n++] = ls_arena_format(strings, "%lld", (long long)repeat);
    words[n++] = "--batch";
    words[n++] = ls_arena_format(strings, "%lld", (long long)r->configs[at].batch);
    if (threads_of(r, at) > 0) {
        words[n++] = "--threads";
        words[n++] = ls_arena_format(strings, "%lld", (long long)threads_of(r, at));
    }
    for (int i = 0; i < n; i++)
        if (!words[i])
            return -1;
    return n;
}

/* Adds the repetitions of a child's output to the row. */
static void take_row(struct rounds *r, int64_t at, struct ls_bench_child *child)
{
    struct config *c = &r->configs[at];
    json_t *row = json_array_get(json_object_get(child->output, "results"), 0);
    const json_t *steps = json_object_get(child->output, "step_ms");
    if (c->row) {
        json_array_extend(json_object_get(c->row, "repetitions"), json_object_get(row, "repetitions"));
    } else {
        c->row = json_incref(row);
        c->seconds = child->seconds;
        for (size_t i = 0; i < json_array_size(steps); i++)
            c->steps_seconds += 1e-3 * json_number_value(json_array_get(steps, i));
        json_object_set_new(row, "scaling", json_string(r->o->weak ? "weak" : "strong"));
        if (wants_largest(r, at)) {
            json_object_set_new(row, "largest", json_true());
            json_object_set_new(row, "predicted_bytes", json_real(c->predicted));
        }
        if (!*r->machine)
            snprintf(r->machine, sizeof r->machine, "%s", json_string_value(json_object_get(row, "machine")));
    }
    json_decref(child->output);
}

static enum ls_status run(struct rounds *r, int64_t at, int64_t repeat)
{
    const char *words[2 * LS_BENCH_AXES + EXTRA];
    struct ls_arena strings = {0};
    int n = make_words(r, at, repeat, &strings, words);
    struct ls_bench_child child = child_of(r, words, n);
    enum ls_status st = n <= 0     ? LS_FAILED
                        : r->ranks ? ls_bench_ranks_run(r->ranks, &child, (int)workers_of(r, at))
                                   : ls_bench_child_run(&child);
    if (st == LS_OK && child.status == LS_OK)
        take_row(r, at, &child);
    else if (st == LS_OK)
        fail(r, at, child.status, child.reason);
    ls_arena_release(&strings);
    return st;
}

/* Sets the batch of a combination; `max` is found in a child. */
static enum ls_status choose_batch(struct rounds *r, int64_t at)
{
    struct config *c = &r->configs[at];
    if (!wants_largest(r, at)) {
        c->batch = whole(r, at, "batch", r->o->batch) * (r->o->weak ? workers_of(r, at) : 1);
        return LS_OK;
    }
    struct ls_bench_largest of = {
        .o = r->o, .axes = r->axes, .combination = at, .threads = threads_of(r, at), .workers = workers_of(r, at)};
    struct ls_bench_child child = child_of(r, NULL, 0);
    child.work = ls_bench_largest_print;
    child.of = &of;
    LS_TRY(ls_bench_child_run(&child));
    if (child.status != LS_OK) {
        fail(r, at, child.status, child.reason);
        return LS_OK;
    }
    const json_t *found = json_array_get(json_object_get(child.output, "results"), 0);
    c->batch = json_integer_value(json_object_get(found, "batch"));
    c->predicted = json_number_value(json_object_get(found, "predicted_bytes"));
    json_decref(child.output);
    return LS_OK;
}

/* The largest batch is planned. Kernels that are measured later, or another process, may take more memory than was planned. */
static bool may_be_smaller(const struct rounds *r, int64_t at)
{
    const struct config *c = &r->configs[at];
    bool measured = json_array_size(json_object_get(c->row, "repetitions")) > 0;
    return c->ended && !measured && c->batch > workers_of(r, at) && wants_largest(r, at) &&
           json_integer_value(json_object_get(c->row, "exit_code")) == LS_FAILED;
}

static enum ls_status run_smaller(struct rounds *r, int64_t at, int64_t repeat)
{
    struct config *c = &r->configs[at];
    int64_t unit = r->o->weak ? workers_of(r, at) : 1, less = c->batch / 10 / unit * unit;
    ls_progress("--batch max: a step of %lld samples failed (%s); a smaller one is tried", (long long)c->batch,
                json_string_value(json_object_get(c->row, "error")));
    json_decref(c->row);
    c->row = NULL;
    c->ended = false;
    c->batch -= less > 0 ? less : c->batch > unit ? unit : 0;
    return run(r, at, repeat);
}

/* --- rounds --------------------------------------------------------------------------------------------- */

static enum ls_status measure_once(struct rounds *r, int64_t at, int64_t repeat)
{
    struct config *c = &r->configs[at];
    char label[160];
    if (c->ended)
        return LS_OK;
    label_of(r, at, label, sizeof label);
    ls_bench_progress_begin(&r->progress, at, label);
    if (c->batch == 0)
        LS_TRY(choose_batch(r, at));
    if (!c->ended)
        LS_TRY(run(r, at, repeat));
    for (int tries = 0; tries < 3 && may_be_smaller(r, at); tries++)
        LS_TRY(run_smaller(r, at, repeat));
    ls_bench_progress_end(&r->progress, at, repeat, c->ended);
    return LS_OK;
}

static bool can_interleave(const struct rounds *r)
{
    double starts = 0, steps = 0;
    for (int64_t i = 0; i < r->axes->total; i++) {
        const struct config *c = &r->configs[i];
        starts += c->ended ? 0 : c->seconds - c->steps_seconds;
        steps += c->ended ? 0 : c->steps_seconds;
    }
    return starts <= steps || starts * (double)(r->o->repeat - 1) <= CHEAP;
}

static enum ls_status measure_all(struct rounds *r)
{
    int64_t more = r->o->repeat - 1;
    for (int64_t i = 0; i < r->axes->total; i++)
        LS_TRY(measure_once(r, i, 1));
    bool in_turn = can_interleave(r);
    for (int64_t k = 0; k < (in_turn ? more : more > 0); k++)
        for (int64_t i = 0; i < r->axes->total; i++)
            LS_TRY(measure_once(r, i, in_turn ? 1 : more));
    return LS_OK;
}

/* A row that was measured, of the same model if there is one. */
static const json_t *measured_like(const struct rounds *r, const json_t *row)
{
    const json_t *found = NULL;
    for (int64_t i = 0; i < r->axes->total; i++) {
        const json_t *other = r->configs[i].row;
        if (json_array_size(json_object_get(other, "repetitions")) == 0)
            continue;
        if (json_equal(json_object_get(other, "model"), json_object_get(row, "model")))
            return other;
        found = found ? found : other;
    }
    return found;
}

/* A row that failed gets the values that the child would have chosen from a row that was measured. */
static void fill_row(const struct rounds *r, json_t *row)
{
    static const char *const keys[] = {"input", "threads", "backend"};
    const json_t *like = measured_like(r, row);
    for (size_t i = 0; like && i < sizeof keys / sizeof *keys; i++)
        if (!ls_bench_axes_value(r->axes, keys[i], 0))
            json_object_set(row, keys[i], json_object_get(like, keys[i]));
}

/* Hands the rows over. */
static json_t *take_rows(struct rounds *r)
{
    json_t *rows = json_array();
    if (!*r->machine)
        ls_bench_machine("", r->machine, sizeof r->machine);
    for (int64_t i = 0; i < r->axes->total; i++) {
        if (!r->configs[i].row)
            fail(r, i, LS_INTERRUPTED, "not measured: interrupted");
    }
    for (int64_t i = 0; i < r->axes->total; i++) {
        if (json_array_size(json_object_get(r->configs[i].row, "repetitions")) == 0)
            fill_row(r, r->configs[i].row);
        if (!json_object_get(r->configs[i].row, "machine"))
            json_object_set_new(r->configs[i].row, "machine", json_string(r->machine));
        json_array_append_new(rows, r->configs[i].row);
    }
    return rows;
}

enum ls_status ls_bench_rounds(const struct ls_options *o, const struct ls_bench_axes *axes,
                               const struct ls_bench_ranks *ranks, json_t **rows)
{
    struct rounds r = {.o = o, .axes = axes, .ranks = ranks, .said = json_object()};
    sigset_t before;
    r.configs = ls_alloc((size_t)axes->total, sizeof *r.configs);
    if (!r.configs)
        return LS_FAILED;
    r.threads = common_threads(&r);
    r.signals = ls_bench_child_signals(&before);
    enum ls_status st = ls_bench_progress_open(&r.progress, o, axes->total);
    if (st == LS_OK)
        st = measure_all(&r);
    ls_bench_progress_close(&r.progress);
    close(r.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    *rows = take_rows(&r);
    json_decref(r.said);
    ls_free(r.configs);
    return st;
}
