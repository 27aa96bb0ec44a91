/* Measures peaks. Bandwidth: copies and sums over memory that no cache holds. Operations: dense layers through the
 * backend, a small one, and one that is as large as takes a fiftieth of a second, but large enough for kernels that
 * only large layers have. */
#define _GNU_SOURCE
#include "cmd/bench/profile/peaks.h"
#include "exec/node_times.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "cmd/bench/results/results.h"
#include "graph/ops.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define ENOUGH 0.2 /* seconds of one measurement, after at least two rounds */
#define LONG 0.02  /* seconds of the large product */
#define TOO_LONG 2 /* seconds that the large product is not worth */
enum { ROUNDS = 5, FIRST = 512, LARGE = 2048, LARGEST = 4096 };

/* --- memory of the host ------------------------------------------------------------------------------------------- */

/* Every thread works on its own part, which it also touches first. */
static void part_of(size_t bytes, size_t *from, size_t *size)
{
    size_t n = (size_t)omp_get_num_threads(), i = (size_t)omp_get_thread_num(), page = 4096;
    *from = bytes / page * i / n * page;
    *size = bytes / page * (i + 1) / n * page - *from;
}

static void touch(char *memory, size_t bytes, int threads)
{
#pragma omp parallel num_threads(threads)
    {
        size_t at, size;
        part_of(bytes, &at, &size);
        memset(memory + at, 1, size);
    }
}

static double copy_rate(char *to, const char *from, size_t bytes, int threads)
{
    double start = ls_now();
#pragma omp parallel num_threads(threads)
    {
        size_t at, size;
        part_of(bytes, &at, &size);
        memcpy(to + at, from + at, size);
    }
    return 2 * (double)bytes / (ls_now() - start);
}

static double sum_rate(const char *from, size_t bytes, int threads, uint64_t *sum)
{
    double start = ls_now();
    uint64_t all = 0;
#pragma omp parallel num_threads(threads) reduction(+ : all)
    {
        size_t at, size;
        part_of(bytes, &at, &size);
        const uint64_t *words = (const uint64_t *)(const void *)(from + at);
        for (size_t i = 0; i < size / sizeof *words; i++)
            all += words[i];
    }
    *sum += all;
    return (double)bytes / (ls_now() - start);
}

static enum ls_status measure_host(int threads, double *rate)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = cache > 0 ? 2 * (size_t)cache : 0; /* of each of two regions */
    bytes = bytes < 64 * MIB ? 64 * MIB : bytes > 256 * MIB ? 256 * MIB : bytes;
    void *a = NULL, *b = NULL;
    uint64_t sum = 0;
    double best = 0, start;
    enum ls_status st = ls_region_map(bytes, &a);
    if (st == LS_OK)
        st = ls_region_map(bytes, &b);
    if (st != LS_OK)
        goto unmap;
    touch(a, bytes, threads);
    touch(b, bytes, threads);
    start = ls_now();
    for (int i = 0; i < 4 * ROUNDS && (i < 2 || ls_now() - start < ENOUGH); i++) {
        double copied = copy_rate(a, b, bytes, threads), summed = sum_rate(b, bytes, threads, &sum);
        best = copied > best ? copied : best;
        best = summed > best ? summed : best;
    }
    *rate = sum > 0 ? best : 0;
unmap:
    if (a)
        ls_region_unmap(a, bytes);
    if (b)
        ls_region_unmap(b, bytes);
    return st;
}

/* --- memory of a device --------------------------------------------------------------------------------------------- */

static enum ls_status wait_for(struct ls_engine *e, const float *memory)
{
    float values[16];
    const struct ls_backend_queue *q = e->backend->queue;
    LS_TRY(q->fetch(e->train.program, 0, values, memory, 16));
    return q->arrived(e->train.program, 0);
}

static enum ls_status copy_on_device(struct ls_engine *e, float *to, const float *from, size_t bytes, double *rate)
{
    enum { COPIES = 16 };
    *rate = 0;
    for (int round = 0; round < ROUNDS; round++) {
        LS_TRY(wait_for(e, to));
        double start = ls_now();
        for (int i = 0; i < COPIES; i++)
            LS_TRY(e->backend->queue->copy(e->train.program, to, from, bytes / sizeof *to));
        LS_TRY(wait_for(e, to));
        double now = 2.0 * COPIES * (double)bytes / (ls_now() - start);
        *rate = now > *rate ? now : *rate;
    }
    return LS_OK;
}

/* The model may have left little memory: then less is copied. */
static enum ls_status measure_device(struct ls_engine *e, double *rate)
{
    enum ls_status st = LS_FAILED;
    for (size_t bytes = 1024 * MIB; bytes >= 128 * MIB && st != LS_OK; bytes /= 2) {
        void *a = NULL, *b = NULL;
        st = ls_backend_take(e->backend, bytes, &a);
        if (st == LS_OK)
            st = ls_backend_take(e->backend, bytes, &b);
        if (st == LS_OK)
            st = copy_on_device(e, a, b, bytes, rate);
        ls_backend_give(e->backend, a, bytes);
        ls_backend_give(e->backend, b, bytes);
    }
    return st;
}

/* --- operations ------------------------------------------------------------------------------------------------------- */

static void fill(float *values, size_t n)
{
    uint32_t x = 12345;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        values[i] = (float)(x >> 8) * 0x1p-23f - 1;
    }
}

static enum ls_status time_dense(const struct ls_engine *e, const float *images, const int32_t *labels, double *best)
{
    const struct ls_net *net = &e->eval;
    struct ls_run run = {.valid = e->size.batch, .grad_scale = 1};
    double *seconds = ls_alloc((size_t)net->graph.n_nodes, sizeof *seconds);
    if (!seconds)
        return LS_FAILED;
    enum ls_status st = e->backend->input(net->program, net->graph.input, images);
    if (st == LS_OK)
        st = e->backend->input(net->program, net->graph.label, labels);
    double start = ls_now();
    *best = INFINITY;
    for (int i = 0; i < ROUNDS && (i == 0 || ls_now() - start < ENOUGH) && st == LS_OK; i++) {
        double took = 0;
        st = ls_time_nodes(e->backend, net, &run, seconds);
        for (int n = 0; n < net->graph.n_nodes; n++)
            took += strcmp(net->graph.nodes[n].op->name, "dense") == 0 ? seconds[n] : 0;
        *best = took < *best ? took : *best;
    }
    ls_free(seconds);
    return st;
}

/* Operations of a layer of n by n weights over 2 n samples. */
static double products(int64_t n)
{
    return 4.0 * (double)n * (double)n * (double)n;
}

static enum ls_status measure_product(const struct ls_options *options, int64_t n, double *seconds)
{
    char yaml[] = "layers:\n  - {name: product, op: dense, out: classes}\n", name[] = "product.yaml", loss[] = "xent";
    struct ls_options o = *options;
    struct ls_model_size size = {.batch = 2 * n, .channels = n, .height = 1, .width = 1, .classes = n};
    struct ls_engine e = {0};
    o.model = name;
    o.model_yaml = yaml;
    o.loss = loss;
    o.plan = NULL;
    o.quiet = true;
    float *images = ls_alloc((size_t)(2 * n * n), sizeof *images);
    int32_t *labels = ls_alloc((size_t)(2 * n), sizeof *labels);
    enum ls_status st = images && labels ? LS_OK : LS_FAILED;
    if (st == LS_OK) {
        fill(images, (size_t)(2 * n * n));
        st = ls_engine_open(&e, &o, NULL, &size, NULL, LS_ENGINE_EVAL);
    }
    if (st == LS_OK) {
        st = time_dense(&e, images, labels, seconds);
        ls_engine_close(&e);
    }
    ls_free(images);
    ls_free(labels);
    return st;
}

/* The width of the large layer, by the rate of the small one; 0: it would take too long. */
static int64_t large_width(double rate)
{
    int64_t n = LARGEST;
    while (n > LARGE && products(n) > LONG * rate)
        n -= 256;
    return products(n) <= TOO_LONG * rate ? n : 0;
}

static enum ls_status measure_operations(const struct ls_options *o, double *rate)
{
    double seconds = 0;
    LS_TRY(measure_product(o, FIRST, &seconds));
    *rate = seconds > 0 ? products(FIRST) / seconds : 0;
    int64_t n = large_width(*rate);
    if (n > 0) {
        LS_TRY(measure_product(o, n, &seconds));
        *rate = seconds > 0 ? fmax(*rate, products(n) / seconds) : *rate;
    }
    return LS_OK;
}

/* --- both --------------------------------------------------------------------------------------------------------------- */

static void make_key(const struct ls_options *o, const struct ls_engine *e, char *key, size_t room)
{
    struct ls_backend_about about;
    char machine[256];
    bool card = e->backend->queue->own_memory;
    e->backend->about(&about);
    ls_bench_machine(*about.bus ? about.isa : "", machine, sizeof machine);
    snprintf(key, room, "%s, %s, %s %s, %d threads, %s, dense %d", machine, e->backend->name, about.library, about.isa,
             card ? 0 : e->threads, o->dtype, LARGE);
}

/* A dense layer of the step may be faster than what was measured while the machine was busy. Then the machine can do that. */
void ls_bench_peaks_raise(const struct ls_options *o, const struct ls_engine *e, double operations,
                          struct ls_bench_peaks *p)
{
    char key[768];
    if (!(p->operations > 0) || operations <= p->operations)
        return;
    p->operations = operations;
    make_key(o, e, key, sizeof key);
    ls_bench_peaks_keep(key, p);
}

enum ls_status ls_bench_peaks(const struct ls_options *o, struct ls_engine *e, struct ls_bench_peaks *p)
{
    char key[768];
    time_t now = time(NULL);
    struct tm day;
    make_key(o, e, key, sizeof key);
    if (ls_bench_peaks_recall(key, p))
        return LS_OK;
    if (!o->quiet && !o->json)
        ls_progress("measuring the peaks of this machine ...");
    *p = (struct ls_bench_peaks){0};
    if (localtime_r(&now, &day))
        strftime(p->date, sizeof p->date, "%Y-%m-%d", &day);
    bool muted = ls_log_mute(true);
    enum ls_status st =
        e->backend->queue->own_memory ? measure_device(e, &p->bytes) : measure_host(e->threads, &p->bytes);
    struct ls_options best = *o;
    best.tune = e->backend->measures ? LS_ON : LS_OFF; /* whatever the run does: the peak is that of the best kernel */
    if (st == LS_OK)
        st = measure_operations(&best, &p->operations);
    ls_log_mute(muted);
    omp_set_num_threads(e->threads);
    if (st != LS_OK || !(p->bytes > 0 && p->operations > 0)) {
        ls_warn("the peaks of this machine could not be measured (%s); the profile has no roofline", ls_log_last());
        *p = (struct ls_bench_peaks){0};
        return LS_OK;
    }
    ls_bench_peaks_keep(key, p);
    return LS_OK;
}
