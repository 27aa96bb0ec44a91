#define _GNU_SOURCE
#include "cmd/bench/largest.h"
#include "base/system/cgroup.h"
#include "base/log.h"
#include "base/system/machine.h"
#include "cmd/json.h"
#include "exec/engine.h"
#include "report/gpu.h"
#include "train/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)
#define USED 0.9             /* share of the available memory that a bench may take */
#define PROGRAM (64 * MIB)   /* the program and its libraries, measured: 24 to 50 MiB */
#define THREAD (8 * MIB)     /* a thread's stack and buffers of matrix products */
#define RESERVED (136 * MIB) /* address space that a thread reserves: a heap and a stack */
#define SLOTS 2              /* batches that bench holds in memory; a loader holds as many again */

struct search {
    struct ls_options o; /* of the combination */
    struct ls_task task;
    int64_t workers, least, most; /* batches, of all workers */
    int64_t unit;                 /* the batch is a multiple of it: the number of workers if --weak */
    double available;             /* bytes, for all workers together */
    double address_space;         /* bytes of one worker; 0: no limit */
};

/* --- what is available ---------------------------------------------------------------------------------- */

static double kilobytes(const char *key)
{
    char value[64];
    return ls_machine_value("/proc/meminfo", key, value, sizeof value) ? 1024 * strtod(value, NULL) : 0;
}

static double host_memory(void)
{
    uint64_t left;
    double bytes = kilobytes("MemAvailable");
    if (ls_cgroup_memory("", &left) && (bytes == 0 || (double)left < bytes))
        bytes = (double)left;
    return bytes;
}

/* The limit of `ulimit -v`, less what the process has mapped already. */
static double address_space(const struct search *s)
{
    struct rlimit limit;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    double threads = s->o.threads > 0 ? (double)s->o.threads : ls_engine_cores();
    double left = (double)limit.rlim_cur - (double)pages * (double)sysconf(_SC_PAGESIZE) - threads * RESERVED;
    return left > 1 ? left : 1;
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
    LS_TRY(ls_backend_open(s->o.backend, &backend));
    bool card = backend->queue->own_memory;
    /* each worker has a card of its own */
    s->available = USED * (card ? (double)s->workers * card_memory(backend) : host_memory());
    s->address_space = card ? 0 : address_space(s);
    if (s->available <= 0)
        return ls_fail(LS_FAILED, "--batch max: the available memory is not known here; give a number");
    return LS_OK;
}

/* --- what a batch needs --------------------------------------------------------------------------------- */

/* Bytes of one worker, beside the program: activations, parameters, gradients and input. */
static double bytes_of(const struct search *s, const struct ls_engine *e, const struct ls_model_size *size)
{
    double parts = (double)((s->o.replicas + s->workers - 1) / s->workers);
    double grads = sizeof(float) * (double)e->n_grads;
    double image = (double)(size->channels * size->height * size->width) * sizeof(float) + 2 * sizeof(int64_t);
    double slots = SLOTS * (ls_options_given(&s->o, "data") ? 2 : 1) * parts * (double)s->o.accumulate;
    double several = s->workers > 1 ? 2 * grads + 64 * MIB : 0; /* what travels, and its buffers */
    return (double)e->arena_bytes + (double)e->store_bytes + grads * parts + several +
           (e->backend->queue->own_memory ? 0 : slots * (double)size->batch * image);
}

/* Predicts the memory of all workers. */
static enum ls_status predict(struct search *s, int64_t batch, double *one, double *all)
{
    struct ls_engine e = {0};
    struct ls_model_size size = s->task.size;
    s->o.batch = batch;
    LS_TRY(ls_engine_pass_batch(&s->o, &size.batch));
    LS_TRY(ls_engine_open(&e, &s->o, NULL, &size, NULL, LS_ENGINE_TRAIN | LS_ENGINE_PREDICT));
    *one = bytes_of(s, &e, &size) + (e.backend->queue->own_memory ? 512 * MIB : PROGRAM + THREAD * e.threads);
    *all = (double)s->workers * *one;
    ls_engine_close(&e);
    return LS_OK;
}

/* A size that cannot be planned does not fit. */
static bool fits(struct search *s, int64_t batch, double *bytes)
{
    double one, all;
    bool muted = ls_log_mute(true);
    enum ls_status st = predict(s, batch, &one, &all);
    ls_log_mute(muted);
    if (st != LS_OK || all > s->available || (s->address_space > 0 && one > s->address_space))
        return false;
    *bytes = all;
    return true;
}

static int64_t precision(int64_t batch, int64_t unit)
{
    int64_t step = batch / 256;
    return step > unit ? step : unit;
}

/* Doubles the batch while it fits, then bisects. */
static enum ls_status find(struct search *s, int64_t *batch, double *bytes)
{
    double one, all;
    int64_t low = s->least, high = s->most + s->unit;
    LS_TRY(predict(s, low, &one, &all)); /* what is wrong with the model is wrong with every batch */
    if (!fits(s, low, bytes))
        return ls_fail(LS_FAILED, "--batch max: the smallest batch, %lld, needs %.0f MiB, and %.0f MiB may be used",
                       (long long)low, all / MIB, s->available / MIB);
    for (int64_t next = 2 * low; next < high; next *= 2) {
        if (!fits(s, next, bytes)) {
            high = next;
            break;
        }
        low = next;
    }
    while (high - low > precision(low, s->unit)) {
        int64_t middle = low + (high - low) / 2 / s->unit * s->unit;
        if (middle == low)
            break;
        if (fits(s, middle, bytes))
            low = middle;
        else
            high = middle;
    }
    *batch = low;
    return LS_OK;
}

/* --- the combination ------------------------------------------------------------------------------------ */

static enum ls_status set_options(struct search *s, const struct ls_bench_largest *l)
{
    s->o = *l->o; /* the strings of l->o are not used after this */
    s->o.tune = LS_OFF;
    s->o.quiet = true;
    for (int i = 0; i < l->axes->n; i++) {
        const struct ls_option *option = l->axes->list[i].option;
        const char *item = ls_bench_axes_item(l->axes, i, l->combination);
        if (!(option->word && strcmp(item, option->word) == 0))
            LS_TRY(ls_option_set(&s->o, option, option->name, item));
    }
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
    int64_t batch = 0;
    double bytes = 0;
    LS_TRY(set_options(&s, of));
    LS_TRY(set_limits(&s));
    LS_TRY(find(&s, &batch, &bytes));
    json_t *out = json_pack("{s:[{s:I, s:f}]}", "results", "batch", (json_int_t)batch, "predicted_bytes", bytes);
    int bad = !out || ls_json_print(out, JSON_REAL_PRECISION(9)) != 0;
    json_decref(out);
    return bad ? LS_FAILED : LS_OK;
}
