#define _GNU_SOURCE
#include "cmd/bench/largest.h"
#include "base/system/clock.h"
#include "base/system/free_memory.h"
#include "base/log.h"
#include "cmd/json.h"
#include "exec/dtype.h"
#include "exec/engine.h"
#include "exec/shards/shards.h"
#include "report/gpu.h"
#include "train/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1024.0 * 1024.0)
#define USED 0.9             /* share of the available memory that a bench may take */
#define PROGRAM (64 * MIB)   /* the program and its libraries, measured: 24 to 50 MiB */
#define THREAD (8 * MIB)     /* a thread's stack and buffers of matrix products */
#define RESERVED (136 * MIB) /* address space that a thread reserves: a heap and a stack */
#define SLOTS 2              /* batches that bench holds in memory; a loader holds as many again */
#define GROWTH 16            /* the next batch is at most so many times as large */
#define PAUSE 2.0            /* seconds between lines of progress */

struct search {
    struct ls_options o; /* of the combination */
    struct ls_task task;
    int64_t workers, least, most; /* batches, of all workers */
    int64_t unit;                 /* the batch is a multiple of it: the number of workers if --weak */
    double available;             /* bytes, for all workers together */
    double address_space;         /* bytes of one worker; 0: no limit */
    bool quiet;
    double said; /* when progress was last reported, ls_now */
};

/* --- what is available ---------------------------------------------------------------------------------- */

/* What is left of `ulimit -v`, less what threads reserve. */
static double address_space(const struct search *s)
{
    double threads = s->o.threads > 0 ? (double)s->o.threads : ls_engine_cores();
    double left = ls_free_address_space();
    return left > 1 + threads * RESERVED ? left - threads * RESERVED : left > 0 ? 1 : 0;
}

/* The free memory of the card that this process computes on; 0: not known. */
static double card_memory(const struct ls_backend *b)
{
    struct ls_backend_card cards[64];
    struct ls_gpu gpu;
    struct ls_gpu_state now;
    char why[256];
    int n = b->cards ? b->cards(cards, 64, why, sizeof why) : 0;
    for (int i = 0; i < n; i++) {
        if (!cards[i].mine)
            continue;
        double used = 0;
        if (ls_gpu_watch(&gpu, cards[i].bus)) {
            for (int k = 0; k < 100 && !(ls_gpu_last(&gpu, &now) && now.memory > 0); k++)
                nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* until the first sample */
            used = ls_gpu_last(&gpu, &now) && now.memory > 0 ? now.memory : 0;
        }
        ls_gpu_stop(&gpu);
        return (double)cards[i].memory - used;
    }
    return 0;
}

static enum ls_status find_available(struct search *s)
{
    const struct ls_backend *backend;
    LS_TRY(ls_dtype_settle(&s->o, NULL, NULL));
    LS_TRY(ls_backend_open(s->o.backend, &backend));
    bool card = backend->queue->own_memory;
    /* each worker has a card of its own */
    s->available = USED * (card ? (double)s->workers * card_memory(backend) : ls_free_memory());
    s->address_space = card ? 0 : address_space(s);
    if (s->available <= 0)
        return ls_fail(LS_FAILED, "--batch max: the available memory is not known here; give a number");
    return LS_OK;
}

/* --- what a batch needs --------------------------------------------------------------------------------- */

/* Bytes of one worker, beside the program: activations, parameters, gradients and input. */
static double bytes_of(const struct search *s, const struct ls_engine *e, const struct ls_model_size *size,
                       double parameters)
{
    double parts = (double)((s->o.replicas + s->workers - 1) / s->workers);
    double grads = sizeof(float) * (double)e->n_grads;
    double image = (double)(size->channels * size->height * size->width) * sizeof(float) + 2 * sizeof(int64_t);
    double slots = SLOTS * (ls_options_given(&s->o, "data") ? 2 : 1) * parts * (double)s->o.accumulate;
    double several = s->workers > 1 ? 2 * grads + 64 * MIB : 0; /* what travels, and its buffers */
    return (double)e->arena_bytes + parameters + grads * parts + several +
           (e->backend->queue->own_memory ? 0 : slots * (double)size->batch * image);
}

/* Bytes of parameters and state on the worker that holds most. */
static enum ls_status parameters_of(const struct search *s, const struct ls_engine *e, double *bytes)
{
    struct ls_shards_bytes shards = {0};
    if (s->workers > 1 && strcmp(s->o.shard, "none") != 0)
        LS_TRY(ls_shards_predict(e, &s->o, (int)s->workers, &shards));
    *bytes = (double)(e->store_bytes - shards.all + shards.most - shards.all_parameters + shards.most_parameters +
                      shards.ring);
    return LS_OK;
}

/* Predicts the memory of all workers. */
static enum ls_status predict(struct search *s, int64_t batch, double *one, double *all)
{
    struct ls_engine e = {0};
    struct ls_model_size size = s->task.size;
    s->o.batch = batch;
    LS_TRY(ls_engine_pass_batch(&s->o, &size.batch));
    LS_TRY(ls_engine_open(&e, &s->o, NULL, &size, NULL, LS_ENGINE_TRAIN | LS_ENGINE_PREDICT));
    double parameters = 0;
    enum ls_status st = parameters_of(s, &e, &parameters);
    *one =
        bytes_of(s, &e, &size, parameters) + (e.backend->queue->own_memory ? 512 * MIB : PROGRAM + THREAD * e.threads);
    *all = (double)s->workers * *one;
    ls_engine_close(&e);
    return st;
}

/* A batch and the bytes that it needs; 0: it cannot be planned. */
struct point {
    int64_t batch;
    double bytes;
};

/* The bytes that all workers together may use. */
static double limit_of(const struct search *s)
{
    double space = (double)s->workers * s->address_space;
    return space > 0 && space < s->available ? space : s->available;
}

/* A size that cannot be planned does not fit. */
static bool fits(struct search *s, int64_t batch, struct point *p)
{
    double one, all;
    bool muted = ls_log_mute(true);
    enum ls_status st = predict(s, batch, &one, &all);
    ls_log_mute(muted);
    *p = (struct point){batch, st == LS_OK ? all : 0};
    return st == LS_OK && all <= limit_of(s);
}

static int64_t precision(int64_t batch, int64_t unit)
{
    int64_t step = batch / 256;
    return step > unit ? step : unit;
}

/* The next batch to plan, between low, which fits, and high. Memory grows nearly in proportion to the batch, so the
 * line through two points leads close to the answer; where it does not, every fourth size bisects. */
static int64_t aim(const struct search *s, const struct point *a, const struct point *b, int64_t low, int64_t high,
                   int turn)
{
    int64_t step = precision(low, s->unit), next = low + (high - low) / 2;
    double slope = a->bytes > 0 && a->batch != b->batch ? (b->bytes - a->bytes) / (double)(b->batch - a->batch) : 0;
    if (b->bytes > 0 && slope > 0 && turn % 4 != 3) {
        double exact = (double)b->batch + (limit_of(s) - b->bytes) / slope;
        next = exact >= (double)high ? high - step : exact <= (double)low ? low + step : (int64_t)exact;
    }
    next = next < GROWTH * low ? next : GROWTH * low;
    next = low + (next - low) / s->unit * s->unit;
    return next > low ? next : low + s->unit;
}

static void say_progress(struct search *s, const struct point *p)
{
    double now = ls_now();
    if (s->quiet || now - s->said < PAUSE)
        return;
    s->said = now;
    if (p->bytes > 0)
        ls_progress("--batch max: planned a step of %lld samples: it needs %.1f of %.1f GiB", (long long)p->batch,
                    p->bytes / MIB / 1024, limit_of(s) / MIB / 1024);
    else
        ls_progress("--batch max: a step of %lld samples cannot be planned", (long long)p->batch);
}

static enum ls_status find(struct search *s, struct point *best)
{
    struct point before = {0}, last;
    int64_t high = s->most + s->unit;
    double one, all;
    LS_TRY(predict(s, s->least, &one, &all)); /* what is wrong with the model is wrong with every batch */
    if (all > limit_of(s))
        return ls_fail(LS_FAILED, "--batch max: the smallest batch, %lld, needs %.0f MiB, and %.0f MiB may be used",
                       (long long)s->least, all / MIB, limit_of(s) / MIB);
    last = *best = (struct point){s->least, all};
    for (int turn = 0; high - best->batch > precision(best->batch, s->unit); turn++) {
        struct point now;
        bool good = fits(s, aim(s, &before, &last, best->batch, high, turn), &now);
        say_progress(s, &now);
        if (good)
            *best = now;
        else
            high = now.batch;
        before = last;
        last = now;
    }
    return LS_OK;
}

/* --- the combination ------------------------------------------------------------------------------------ */

static enum ls_status set_options(struct search *s, const struct ls_bench_largest *l)
{
    s->o = *l->o; /* the strings of l->o are not used after this */
    s->o.tune = LS_OFF;
    s->quiet = s->o.quiet;
    s->o.quiet = true;
    for (int i = 0; i < l->axes->n; i++) {
        const struct ls_option *option = l->axes->list[i].option;
        const char *item = ls_bench_axes_item(l->axes, i, l->combination);
        if (!(option->word && strcmp(item, option->word) == 0))
            LS_TRY(ls_option_set(&s->o, option, option->name, item));
    }
    if (ls_mesh_is_auto(s->o.parallel))
        return ls_fail(LS_USAGE, "--batch max with --parallel auto: a layout is chosen by the batch; name one");
    s->o.threads = l->threads;
    s->workers = l->workers;
    if (!ls_options_given(&s->o, "replicas"))
        s->o.replicas = l->workers;
    if (s->o.threads == 0 && s->workers > 1) {
        s->o.threads = ls_engine_cores() / s->workers;
        s->o.threads = s->o.threads > 0 ? s->o.threads : 1;
    }
    return LS_OK;
}

static enum ls_status set_limits(struct search *s)
{
    bool from_data = ls_options_given(&s->o, "data");
    LS_TRY(from_data ? ls_task_open(&s->task, &s->o, true, false, NULL) : ls_task_size(&s->task, &s->o));
    s->unit = s->o.weak ? s->workers : 1;
    s->least = s->o.replicas * s->o.accumulate;
    s->most = (int64_t)ls_option_find("batch")->high;
    if (from_data && ls_dataset_info(s->task.train)->count < s->most)
        s->most = ls_dataset_info(s->task.train)->count;
    if (s->most < s->least)
        s->most = s->least;
    return find_available(s);
}

enum ls_status ls_bench_largest_print(const void *of)
{
    struct search s = {0};
    struct point best = {0};
    LS_TRY(set_options(&s, of));
    LS_TRY(set_limits(&s));
    s.said = ls_now();
    LS_TRY(find(&s, &best));
    json_t *out =
        json_pack("{s:[{s:I, s:f}]}", "results", "batch", (json_int_t)best.batch, "predicted_bytes", best.bytes);
    int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0;
    json_decref(out);
    return bad ? LS_FAILED : LS_OK;
}
