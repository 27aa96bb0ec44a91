/* lockstep bench: measures the time of a training step. Batches come from memory, so that only the step is measured. */
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/memory.h"
#include "base/random.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/results.h"
#include "cmd/cmd.h"
#include "launch/workers.h"
#include "cmd/world.h"
#include "report/stats.h"
#include "report/table.h"
#include "exec/identity.h"
#include "exec/step.h"
#include "train/task.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 2 /* for each pass of a step */

struct bench {
    const struct ls_options *o;
    struct ls_comm *comm; /* NULL: alone */
    struct ls_task task;
    struct ls_engine engine;
    struct ls_stepper stepper;
    struct ls_slot *slots; /* owned */
    int n_slots, at;
    void *region; /* owned; images and labels of the slots */
    size_t region_bytes;
    uint64_t step;
    int64_t steps;          /* of one repetition */
    double *step_ms;        /* owned; steps * repeat */
    double *speed;          /* owned; samples/s of each repetition */
    struct ls_trace *trace; /* owned; of the measured steps; NULL: they are not recorded */
    double start_seconds;   /* from the start of the process to the first step */
};

/* --- batches in memory -------------------------------------------------------------------------------- */

static enum ls_status next_slot(void *context, const struct ls_slot **slot)
{
    struct bench *b = context;
    *slot = &b->slots[b->at];
    b->at = (b->at + 1) % b->n_slots;
    return LS_OK;
}

static int64_t image_values(const struct ls_model_size *s)
{
    return s->channels * s->height * s->width;
}

static size_t pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* Returns the bytes of the images of a slot, in the form that the program takes. */
static size_t image_bytes(const struct bench *b)
{
    size_t values = (size_t)(b->task.size.batch * image_values(&b->task.size));
    enum ls_form form = b->stepper.train.form;
    return form == LS_FORM_PLANES ? values * sizeof(float) : form == LS_FORM_PIXELS ? values : 0;
}

static size_t crop_bytes(const struct bench *b)
{
    return b->stepper.train.form == LS_FORM_PLANES ? 0 : (size_t)b->task.size.batch * sizeof(struct ls_crop);
}

static size_t label_bytes(const struct bench *b)
{
    return (size_t)b->task.size.batch * sizeof(int32_t);
}

static enum ls_status make_slots(struct bench *b)
{
    size_t images = pages(image_bytes(b)), crops = pages(crop_bytes(b)), labels = pages(label_bytes(b));
    enum ls_form form = b->stepper.train.form;
    b->n_slots = SLOTS * b->stepper.replicas.n_slices;
    b->slots = ls_alloc((size_t)b->n_slots, sizeof *b->slots);
    if (!b->slots)
        return LS_FAILED;
    b->region_bytes = (size_t)b->n_slots * (images + crops + labels);
    LS_TRY(ls_region_map(b->region_bytes, &b->region));
    b->engine.backend->queue->pin(b->region, b->region_bytes);
    char *at = b->region;
    for (int i = 0; i < b->n_slots; i++, at += images + crops + labels) {
        struct ls_slot *slot = &b->slots[i];
        int64_t slices = b->engine.tree->replicas * b->engine.passes;
        int slice = b->stepper.replicas.order[i % b->stepper.replicas.n_slices];
        slot->valid = b->o->batch / slices + (slice < b->o->batch % slices);
        slot->form = form;
        slot->images = form == LS_FORM_PLANES ? (float *)(void *)at : NULL;
        slot->pixels = form == LS_FORM_PIXELS ? (uint8_t *)at : NULL;
        slot->crops = form == LS_FORM_PLANES ? NULL : (struct ls_crop *)(void *)(at + images);
        slot->labels = (int32_t *)(void *)(at + images + crops);
    }
    return LS_OK;
}

/* A table that maps bytes to about -2 to 2. */
static enum ls_status open_synthetic(struct bench *b)
{
    const struct ls_model_size *size = &b->task.size;
    struct ls_pixels pixels = {.from_channels = (int32_t)size->channels,
                               .from_height = (int32_t)size->height,
                               .from_width = (int32_t)size->width,
                               .channels = (int32_t)size->channels,
                               .height = (int32_t)size->height,
                               .width = (int32_t)size->width};
    for (int c = 0; c < 4; c++)
        for (int v = 0; v < 256; v++)
            pixels.table[c][v] = ((float)v - 127.5f) / 64;
    return ls_device_dataset_open_bytes(&b->stepper.train, &b->engine, &b->engine.train, &pixels);
}

static void fill_bytes(struct bench *b, struct ls_slot *slot, uint64_t stream)
{
    int64_t bytes = b->task.size.batch * image_values(&b->task.size);
    for (int64_t i = 0; i < bytes; i += 16) {
        uint32_t r[4];
        ls_philox(b->o->seed, stream, (uint64_t)i / 16, r);
        memcpy(slot->pixels + i, r, bytes - i < 16 ? (size_t)(bytes - i) : 16);
    }
    for (int64_t k = 0; k < b->task.size.batch; k++)
        slot->crops[k] = (struct ls_crop){.image = k, .flip = (int32_t)(k & 1)};
}

static void fill_synthetic(struct bench *b)
{
    const struct ls_model_size *size = &b->task.size;
    for (int i = 0; i < b->n_slots; i++) {
        struct ls_slot *slot = &b->slots[i];
        uint64_t stream = ls_random_stream(LS_RANDOM_SYNTHETIC, (uint64_t)i, 0, 0);
        uint64_t classes = ls_random_stream(LS_RANDOM_SYNTHETIC, (uint64_t)i, 1, 0);
        if (slot->form == LS_FORM_PLANES)
            ls_random_fill_normal(b->o->seed, stream, 1.0f, size->batch * image_values(size), slot->images);
        else
            fill_bytes(b, slot, stream);
        for (int64_t k = 0; k < size->batch; k++)
            slot->labels[k] = (int32_t)ls_random_below(b->o->seed, classes, (uint64_t)k, (uint64_t)size->classes);
    }
}

static void copy_slot(const struct bench *b, const struct ls_slot *from, struct ls_slot *to)
{
    if (from->images)
        memcpy(to->images, from->images, image_bytes(b));
    if (from->pixels)
        memcpy(to->pixels, from->pixels, image_bytes(b));
    if (from->crops)
        memcpy(to->crops, from->crops, crop_bytes(b));
    memcpy(to->labels, from->labels, label_bytes(b));
}

static enum ls_status fill_from_data(struct bench *b)
{
    const struct ls_model_size *size = &b->task.size;
    int most;
    struct ls_loader_options options = {
        .set = b->task.train,
        .augment = b->task.augment,
        .form = b->stepper.train.form,
        .seed = b->o->seed,
        .shuffle = b->o->shuffle,
        .threads = ls_task_loader_threads(b->o, &b->engine, &most),
        .ring = 2,
        .batch = size->batch,
        .parts = 1,
    };
    struct ls_loader *loader = NULL;
    long long count = ls_dataset_info(b->task.train)->count;
    enum ls_status st = ls_loader_new(&options, &loader);
    for (int i = 0; st == LS_OK && i < b->n_slots;) {
        const struct ls_slot *slot;
        st = ls_loader_next(loader, &slot);
        if (st == LS_OK && (!slot || count < size->batch))
            st = ls_fail(LS_USAGE, "--batch %lld: %s has only %lld samples", (long long)b->o->batch, b->o->data, count);
        if (st == LS_OK && slot->valid == size->batch) /* the last batch of an epoch may be smaller */
            copy_slot(b, slot, &b->slots[i++]);
    }
    ls_loader_free(loader);
    return st;
}

/* --- measuring ---------------------------------------------------------------------------------------- */

static double process_age(void)
{
    struct timespec now;
    char *text, *field;
    size_t size;
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file)
        return 0;
    char line[1024];
    size = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[size] = 0;
    /* field 22; the first field after the name in brackets is field 3 */
    text = strrchr(line, ')');
    for (int i = 0; text && i < 20; i++)
        text = strchr(text + 1, ' ');
    if (text)
        ticks = strtoull(text, &field, 10);
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* Workers of parameter servers, which do not wait for each other in a step, synchronise. */
static enum ls_status come_together(struct bench *b)
{
    return b->stepper.sync.ops->servers ? ls_step_collect(&b->stepper) : LS_OK;
}

static enum ls_status one_step(struct bench *b, struct ls_report *r)
{
    /* A small rate keeps all values normal numbers; random labels cannot be learned. */
    double lr = ls_options_given(b->o, "lr") ? b->o->lr : 0.001;
    *r = (struct ls_report){0};
    LS_TRY(ls_step(&b->stepper, b->step, b->o->batch, lr, r));
    b->step = b->stepper.outcome.next_step;
    return LS_OK;
}

/* The first step is not counted: it touches pages and starts threads. Without --steps a repetition lasts about a second. */
static enum ls_status warm_up(struct bench *b)
{
    struct ls_report r = {0};
    b->start_seconds = process_age();
    while (b->step < (uint64_t)b->o->warmup_steps || b->step < 1)
        LS_TRY(one_step(b, &r));
    LS_TRY(ls_step_flush(&b->stepper, &r));
    LS_TRY(come_together(b));
    double seconds = r.seconds;
    b->steps = b->o->steps;
    if (b->steps == 0)
        b->steps = seconds > 0.34 ? 3 : seconds < 0.005 ? 200 : (int64_t)(1.0 / seconds);
    if (b->comm)
        LS_TRY(ls_comm_broadcast(b->comm, 0, &b->steps, sizeof b->steps));
    b->step_ms = ls_alloc((size_t)(b->steps * b->o->repeat), sizeof *b->step_ms);
    b->speed = ls_alloc((size_t)b->o->repeat, sizeof *b->speed);
    return b->step_ms && b->speed ? LS_OK : LS_FAILED;
}

/* With a queue only the time of all steps is known: they are complete when the last one is. */
static enum ls_status end_repetition(struct bench *b, double start, double *step_ms, int64_t *samples)
{
    struct ls_report r = {0};
    LS_TRY(ls_step_flush(&b->stepper, &r));
    *samples += r.samples;
    double mean = 1000 * (ls_now() - start) / (double)b->steps;
    for (int64_t k = 0; k < b->steps && b->engine.backend->queue->delay; k++)
        step_ms[k] = mean;
    return LS_OK;
}

static enum ls_status measure(struct bench *b)
{
    uint64_t first = b->step;
    for (int64_t i = 0; i < b->o->repeat; i++) {
        double start = ls_now();
        int64_t samples = 0;
        while (b->step < first + (uint64_t)((i + 1) * b->steps)) {
            struct ls_report r;
            uint64_t at = b->step;
            LS_TRY(one_step(b, &r));
            for (uint64_t k = at; k < b->step; k++) /* several where this process was cut off */
                b->step_ms[k - first] = 1000 * r.seconds / (double)(b->step - at);
            samples += r.samples;
        }
        LS_TRY(end_repetition(b, start, b->step_ms + i * b->steps, &samples));
        b->speed[i] = (double)samples / (ls_now() - start);
    }
    return come_together(b);
}

/* Returns the peak memory use: of the device if the backend has one, else of the process. */
static size_t peak_bytes(const struct bench *b)
{
    size_t now, most;
    b->engine.backend->queue->taken(&now, &most);
    return most;
}

/* --- output ------------------------------------------------------------------------------------------- */

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

static enum ls_status print_table(const struct bench *b, const struct ls_stats *ms, const struct ls_stats *speed)
{
    static const char *const headings[] = {"", "median", "mean", "sd", "CV", "min", "max"};
    int tensors;
    int64_t parameters = ls_graph_parameters(&b->engine.train.graph, &tensors);
    struct ls_table t;
    char shown[LS_PRINTABLE_SIZE];
    printf("%s, %lld parameters in %d tensors, batch %lld, input %lldx%lldx%lld, %s, backend %s, %d thread%s\n",
           ls_utf8_printable(b->o->model, shown, sizeof shown), (long long)parameters, tensors, (long long)b->o->batch,
           (long long)b->task.size.channels, (long long)b->task.size.height, (long long)b->task.size.width, b->o->dtype,
           b->engine.backend->name, b->engine.threads, b->engine.threads == 1 ? "" : "s");
    printf("%lld repetitions of %lld steps; first step after %.2f s; %.0f MiB of activations, %.0f MiB peak\n",
           (long long)b->o->repeat, (long long)b->steps, b->start_seconds, (double)b->engine.arena_bytes / 1048576,
           (double)peak_bytes(b) / 1048576);
    ls_table_init(&t, "lrrrrrr", headings);
    add_row(&t, "step ms", 2, ms);
    add_row(&t, "samples/s", 1, speed);
    enum ls_status st = ls_table_print(&t, stdout);
    ls_table_release(&t);
    return st;
}

/* The result as a row of a table. */
static json_t *make_row(const struct bench *b, const struct ls_stats *ms)
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
    for (int64_t i = 0; i < b->o->repeat; i++)
        json_array_append_new(speeds, json_real(b->speed[i]));
    return row;
}

/* The keys that the JSON output of one configuration has besides. */
static json_t *make_keys(const struct bench *b, const struct ls_stats *ms, const struct ls_stats *speed)
{
    int tensors;
    int64_t parameters = ls_graph_parameters(&b->engine.train.graph, &tensors);
    json_t *all = json_array(), *speeds = json_array();
    for (int64_t i = 0; i < b->steps * b->o->repeat; i++)
        json_array_append_new(all, json_real(b->step_ms[i]));
    for (int64_t i = 0; i < b->o->repeat; i++)
        json_array_append_new(speeds, json_real(b->speed[i]));
    return json_pack(
        "{s:s, s:s, s:I, s:[I,I,I], s:I, s:i, s:I, s:I, s:i, s:s, s:s, s:o, s:f, s:f, s:o, s:f, s:f, s:I, s:I, s:I, s:i, s:f}",
        "kind", "bench", "model", b->o->model, "batch", (json_int_t)b->o->batch, "input",
        (json_int_t)b->task.size.channels, (json_int_t)b->task.size.height, (json_int_t)b->task.size.width, "classes",
        (json_int_t)b->task.size.classes, "workers", b->comm ? ls_comm_size(b->comm) : 1, "replicas",
        (json_int_t)b->o->replicas, "accumulate", (json_int_t)b->o->accumulate, "threads", b->engine.threads, "dtype",
        b->o->dtype, "backend", b->engine.backend->name, "step_ms", all, "step_ms_median", ms->median, "step_ms_cv",
        ms->variation, "samples_per_s_repeats", speeds, "samples_per_s", speed->median, "samples_per_s_cv",
        speed->variation, "peak_bytes", (json_int_t)peak_bytes(b), "arena_bytes", (json_int_t)b->engine.arena_bytes,
        "parameters", (json_int_t)parameters, "tensors", tensors, "start_seconds", b->start_seconds);
}

static enum ls_status write_result(const struct bench *b, const struct ls_stats *ms, const struct ls_stats *speed)
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

static enum ls_status report(const struct bench *b)
{
    struct ls_stats ms, speed;
    if (b->comm && ls_comm_rank(b->comm) > 0)
        return LS_OK;
    LS_TRY(ls_stats_of(b->step_ms, (int)(b->steps * b->o->repeat), &ms));
    LS_TRY(ls_stats_of(b->speed, (int)b->o->repeat, &speed));
    return ls_bench_writes_table(b->o) ? write_result(b, &ms, &speed) : print_table(b, &ms, &speed);
}

/* --- the command -------------------------------------------------------------------------------------- */

static void release(struct bench *b)
{
    ls_step_drop(&b->stepper); /* after a failure the last step may still be reading its input */
    if (b->region)
        b->engine.backend->queue->unpin(b->region);
    ls_region_unmap(b->region, b->region_bytes);
    ls_free(b->slots);
    ls_free(b->step_ms);
    ls_free(b->speed);
    ls_stepper_release(&b->stepper);
    ls_trace_free(b->trace);
    ls_engine_close(&b->engine);
    ls_task_close(&b->task);
}

static enum ls_status setup(struct bench *b)
{
    bool from_data = ls_options_given(b->o, "data");
    LS_TRY(from_data ? ls_task_open(&b->task, b->o, true, false, NULL) : ls_task_size(&b->task, b->o));
    LS_TRY(ls_engine_pass_batch(b->o, &b->task.size.batch));
    char *recorded = ls_identity_recorded_plan(b->o->config_run);
    enum ls_status st = ls_engine_open(&b->engine, b->o, b->comm, &b->task.size, recorded, LS_ENGINE_TRAIN);
    ls_free(recorded);
    LS_TRY(st);
    LS_TRY(ls_stepper_init(&b->stepper, &b->engine, (struct ls_feed){.next = next_slot, .context = b}, b->o));
    LS_TRY(from_data ? ls_device_dataset_open(&b->stepper.train, &b->engine, &b->engine.train, b->task.train,
                                              &b->task.augment)
                     : open_synthetic(b));
    LS_TRY(make_slots(b));
    if (from_data)
        return fill_from_data(b);
    fill_synthetic(b);
    return LS_OK;
}

enum ls_status ls_cmd_bench(struct ls_options *o)
{
    enum ls_status st;
    if (o->merge)
        return ls_bench_merge(o);
    if (ls_bench_over_axes_wanted(o)) {
        bool done;
        st = ls_bench_over_axes(o, &done);
        if (done || st != LS_OK)
            return st;
    }
    if (ls_workers_took_over(o, &st))
        return st;
    if (ls_bench_collective_wanted(o))
        return ls_bench_collective(o);
    struct ls_world world;
    LS_TRY(ls_world_open(&world, o));
    if (o->weak && world.comm)
        o->batch *= ls_comm_size(world.comm);
    bool root = !world.comm || ls_comm_rank(world.comm) == 0;
    if (root && ls_bench_scale_wanted(o))
        ls_bench_scale_commands(o, &world.launch);
    struct bench b = {.o = o, .comm = world.comm};
    LS_TRY_GOTO(out, root ? ls_bench_check_output(o) : LS_OK);
    LS_TRY_GOTO(out, setup(&b));
    LS_TRY_GOTO(out, warm_up(&b));
    LS_TRY_GOTO(out, ls_bench_shares_begin(o, &b.stepper, b.step + 1, (uint64_t)(b.steps * o->repeat), &b.trace));
    LS_TRY_GOTO(out, measure(&b));
    LS_TRY_GOTO(out, report(&b));
    LS_TRY_GOTO(out, ls_bench_shares(o, &b.stepper, b.trace));
    ls_peers_close(&b.engine, true);
    if (o->profile && (!b.comm || ls_comm_rank(b.comm) == 0))
        LS_TRY_GOTO(out, ls_bench_profile(o, &b.engine, &b.stepper.run));
out:
    release(&b);
    ls_world_close(&world, st);
    return st;
}
