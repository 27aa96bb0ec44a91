/* The output of bench for one configuration. */
#include "base/log.h"
#include "base/text/utf8.h"
#include "cmd/bench/results/results.h"
#include "cmd/bench/session.h"
#include "report/stats.h"
#include "report/formats/table.h"

#include <stdio.h>

/* Returns the peak memory use: of the device if the backend has one, else of the process. */
static size_t peak_bytes(const struct ls_bench_session *b)
{
    size_t now, most;
    b->engine.backend->queue->taken(&now, &most);
    return most;
}

static void add_row(struct ls_table *t, const char *what, int digits, const struct ls_stats *s)
{
    ls_table_row(t);
    ls_table_cell(t, "%s", what);
    ls_table_cell(t, "%.*f", digits, s->median);
    ls_table_cell(t, "%.*f", digits, s->mean);
    ls_table_cell(t, "%.*f", digits, s->deviation);
    ls_table_cell(t, "%.1f%%", 100 * s->variation);
    ls_table_cell(t, "%.*f", digits, s->min);
    ls_table_cell(t, "%.*f", digits, s->max);
}

/* The share of the time of the measured steps that they waited for input. */
static double input_share(const struct ls_bench_session *b)
{
    return b->measured_seconds > 0 ? b->input_seconds / b->measured_seconds : 0;
}

static void print_input(const struct ls_bench_session *b)
{
    int threads = b->loader ? ls_loader_pace(b->loader).threads : 0;
    printf("waiting for input: %.1f%% of the time, %d loader thread%s\n", 100 * input_share(b), threads,
           threads == 1 ? "" : "s");
}

static void print_stages(const struct ls_bench_session *b)
{
    printf("pipeline: %d stages, idle %.1f%% of the time, %.1f%% with stages of equal work; MiB at most:",
           b->engine.pipeline->stages, 100 * b->bubble, 100 * b->least_bubble);
    for (int stage = 0; stage < b->engine.pipeline->stages; stage++)
        printf(" %.1f", (double)b->peaks[stage] / 1048576);
    printf("\n");
}

static enum ls_status print_table(const struct ls_bench_session *b, const struct ls_stats *ms,
                                  const struct ls_stats *speed)
{
    static const char *const headings[] = {"", "median", "mean", "sd", "CV", "min", "max"};
    int tensors;
    int64_t parameters = ls_graph_parameters(ls_engine_whole(&b->engine), &tensors);
    struct ls_table t;
    char shown[LS_PRINTABLE_SIZE];
    printf("%s, %lld parameters in %d tensors, batch %lld, input %lldx%lldx%lld, %s, backend %s, %d thread%s\n",
           ls_utf8_printable(b->o->model, shown, sizeof shown), (long long)parameters, tensors, (long long)b->o->batch,
           (long long)b->task.size.channels, (long long)b->task.size.height, (long long)b->task.size.width, b->o->dtype,
           b->engine.backend->name, b->engine.threads, b->engine.threads == 1 ? "" : "s");
    if (b->layout.report)
        printf("%s", b->layout.report);
    printf("%lld repetitions of %lld steps; first step after %.2f s; %.0f MiB of activations, %.0f MiB peak\n",
           (long long)b->o->repeat, (long long)b->steps, b->start_seconds, (double)b->engine.arena_bytes / 1048576,
           (double)peak_bytes(b) / 1048576);
    ls_table_init(&t, "lrrrrrr", headings);
    add_row(&t, "step ms", 2, ms);
    add_row(&t, "samples/s", 1, speed);
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    if (b->o->with_input)
        print_input(b);
    if (b->engine.pipeline)
        print_stages(b);
    return st;
}

/* The result as a row of a table. */
static json_t *make_row(const struct ls_bench_session *b, const struct ls_stats *ms)
{
    struct ls_backend_about about;
    char machine[512], input[64];
    int workers = b->comm ? ls_comm_size(b->comm) : 1, nodes = 1;
    for (int r = 0; b->comm && r < workers; r++)
        nodes = ls_comm_node(b->comm, r) >= nodes ? ls_comm_node(b->comm, r) + 1 : nodes;
    snprintf(input, sizeof input, "%lldx%lldx%lld", (long long)b->task.size.channels, (long long)b->task.size.height,
             (long long)b->task.size.width);
    b->engine.backend->about(&about);
    ls_bench_machine(*about.bus ? about.isa : "", machine, sizeof machine);
    json_t *row = ls_bench_row(b->o), *speeds = json_object_get(row, "repetitions");
    ls_bench_row_place(row, workers, nodes);
    json_object_set_new(row, "input", json_string(input));
    json_object_set_new(row, "threads", json_integer(b->engine.threads));
    json_object_set_new(row, "backend", json_string(b->engine.backend->name));
    json_object_set_new(row, "machine", json_string(machine));
    json_object_set_new(row, "step_ms", json_real(ms->median));
    json_object_set_new(row, "peak_bytes", json_integer((json_int_t)peak_bytes(b)));
    if (b->o->with_input)
        json_object_set_new(row, "input_wait", json_real(input_share(b)));
    for (int64_t i = 0; i < b->o->repeat; i++)
        json_array_append_new(speeds, json_real(b->speed[i]));
    return row;
}

/* The keys that the JSON output of one configuration has besides. */
static json_t *make_keys(const struct ls_bench_session *b, const struct ls_stats *ms, const struct ls_stats *speed)
{
    int tensors;
    int64_t parameters = ls_graph_parameters(ls_engine_whole(&b->engine), &tensors);
    json_t *all = json_array(), *speeds = json_array();
    for (int64_t i = 0; i < b->steps * b->o->repeat; i++)
        json_array_append_new(all, json_real(b->step_ms[i]));
    for (int64_t i = 0; i < b->o->repeat; i++)
        json_array_append_new(speeds, json_real(b->speed[i]));
    return json_pack(
        "{s:s, s:s, s:I, s:[I,I,I], s:I, s:i, s:I, s:I, s:i, s:s, s:s, s:o, s:f, s:f, s:o, s:f, s:f, s:I, s:I, s:I, s:i, s:f, s:s, s:f}",
        "kind", "bench", "model", b->o->model, "batch", (json_int_t)b->o->batch, "input",
        (json_int_t)b->task.size.channels, (json_int_t)b->task.size.height, (json_int_t)b->task.size.width, "classes",
        (json_int_t)b->task.size.classes, "workers", b->comm ? ls_comm_size(b->comm) : 1, "replicas",
        (json_int_t)b->o->replicas, "accumulate", (json_int_t)b->o->accumulate, "threads", b->engine.threads, "dtype",
        b->o->dtype, "backend", b->engine.backend->name, "step_ms", all, "step_ms_median", ms->median, "step_ms_cv",
        ms->variation, "samples_per_s_repeats", speeds, "samples_per_s", speed->median, "samples_per_s_cv",
        speed->variation, "peak_bytes", (json_int_t)peak_bytes(b), "arena_bytes", (json_int_t)b->engine.arena_bytes,
        "parameters", (json_int_t)parameters, "tensors", tensors, "start_seconds", b->start_seconds, "parallel",
        b->o->parallel, "step_cpu_ms", 1000 * b->cpu_seconds / (double)(b->steps * b->o->repeat));
}

static enum ls_status write_result(const struct ls_bench_session *b, const struct ls_stats *ms,
                                   const struct ls_stats *speed)
{
    struct ls_bench_table t = {.o = b->o, .rows = json_array(), .old = make_keys(b, ms, speed)};
    json_t *row = make_row(b, ms);
    t.about = ls_bench_about(b->o, json_string_value(json_object_get(row, "machine")));
    json_array_append_new(t.rows, row);
    enum ls_status st =
        t.old ? ls_bench_rows_compare(t.rows) : ls_fail(LS_FAILED, "the result cannot be written as JSON");
    if (st == LS_OK)
        st = ls_bench_write(&t);
    ls_bench_table_release(&t);
    return st;
}

enum ls_status ls_bench_report(const struct ls_bench_session *b)
{
    struct ls_stats ms, speed;
    if (b->comm && ls_comm_rank(b->comm) > 0)
        return LS_OK;
    LS_TRY(ls_stats_of(b->step_ms, (int)(b->steps * b->o->repeat), &ms));
    LS_TRY(ls_stats_of(b->speed, (int)b->o->repeat, &speed));
    return ls_bench_writes_table(b->o) ? write_result(b, &ms, &speed) : print_table(b, &ms, &speed);
}
