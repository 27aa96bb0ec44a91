#include "backend/cuda/conv/tune.h"
#include "backend/core/tune_cache.h"
#include "backend/core/kernel_selection.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ALGORITHMS = 40, MOST_BUILT = 32 };

struct tuner {
    struct ls_tune_cache cache;
    char *region; /* device; for operands while measuring; owned */
    size_t region_bytes;
    cudaEvent_t start, end;
    uint64_t *sum; /* device; of a result's digest; owned */
};

/* Cards measure well: a tenth and more is a clear gain. */
static const double margin = 1.13, noise = 0.01;

enum ls_status tune_open(struct ls_program *p)
{
    struct tuner *t = p->tuner = ls_alloc(1, sizeof *p->tuner);
    if (!t)
        return LS_FAILED;
    snprintf(t->cache.machine, sizeof t->cache.machine, "%s, cuDNN %d, cuBLASLt %d and own 3%s", p->device->name,
             (int)cudnnGetVersion(), (int)cublasLtGetVersion(), p->options.fast ? ", fast" : "");
    CUDA_TRY(cudaEventCreate(&t->start));
    CUDA_TRY(cudaEventCreate(&t->end));
    CUDA_TRY(cudaMalloc((void **)&t->sum, sizeof *t->sum));
    t->cache.plan = p->options.plan;
    t->cache.plan_name = p->options.plan_name;
    t->cache.binding = p->options.plan_binding;
    t->cache.quiet = p->options.quiet;
    return ls_tune_cache_open(&t->cache, p->options.cache);
}

enum ls_status tune_close(struct ls_program *p)
{
    struct tuner *t = p->tuner;
    enum ls_status st = ls_tune_cache_close(&t->cache, p->options.cache, &p->choices);
    cudaFree(t->region);
    cudaFree(t->sum);
    cudaEventDestroy(t->start);
    cudaEventDestroy(t->end);
    ls_free(t);
    p->tuner = NULL;
    return st;
}

static void question_text(const struct linear *l, char *text, size_t room)
{
    static const char *const pass[] = {"fwd", "bwd_data", "bwd_weights"};
    const struct ls_cuda_conv *c = &l->conv;
    snprintf(text, room,
             "linear %s %s%s x %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 " y %" PRId64 "x%" PRId64 "x%" PRId64
             "x%" PRId64 " groups %" PRId64 " kernel %dx%d stride %dx%d pad %d,%d,%d,%d dilation %dx%d%s %s",
             pass[l->pass], ls_dtype_name(c->t), l->tf32 ? " tf32" : "", c->x.n, c->x.h, c->x.w, c->x.c, c->y.n, c->y.h,
             c->y.w, c->y.c, c->groups, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_t, c->pad_l,
             l->pad_b, l->pad_r, c->dilation_h, c->dilation_w, l->bias ? " bias" : "", ls_act_name(c->act));
}

/* --- measuring ----------------------------------------------------------------------------------------------- */

static void fill(struct ls_program *p)
{
    int64_t count = (int64_t)(p->tuner->region_bytes / ls_dtype_size(p->g->act_dtype));
    ls_cuda_fill(p->device->compute, p->g->act_dtype, p->tuner->region, count / LS_CUDA_LANE * LS_CUDA_LANE);
}

/* Room for all operands, filled with ordinary numbers: products of zeros run faster. */
static enum ls_status make_room(struct ls_program *p, size_t bytes)
{
    struct tuner *t = p->tuner;
    if (bytes <= t->region_bytes)
        return LS_OK;
    CUDA_TRY(cudaStreamSynchronize(p->device->compute));
    cudaFree(t->region);
    t->region = NULL;
    t->region_bytes = 0;
    CUDA_TRY(cudaMalloc((void **)&t->region, bytes));
    t->region_bytes = bytes;
    fill(p);
    return LS_OK;
}

/* As in a step (C6), every one of the runs of a graph has its own scratch, if that is small. */
enum { MANY = 16 };

static size_t turns_of(size_t workspace)
{
    size_t used = 0;
    for (int i = 0; i < (is_small_scratch(workspace) ? MANY : 1); i++)
        tune_lay_out(&used, workspace);
    return used;
}

static enum ls_status point(struct ls_program *p, const struct linear *l, size_t workspace, struct operands *o)
{
    size_t used = 0, element = ls_dtype_size(l->conv.t), weights = (size_t)weights_count(l);
    size_t x = tune_lay_out(&used, (size_t)map_count(&l->conv.x) * element);
    size_t y = tune_lay_out(&used, (size_t)map_count(&l->conv.y) * element);
    size_t w = tune_lay_out(&used, weights * (l->pass == BWD_WEIGHTS ? sizeof(float) : element));
    size_t bias = tune_lay_out(&used, (size_t)l->conv.y.c * sizeof(float));
    size_t work = tune_lay_out(&used, turns_of(workspace));
    LS_TRY(make_room(p, used));
    char *r = p->tuner->region;
    *o = (struct operands){r + x, r + w, r + y, l->bias ? r + bias : NULL, l->bias ? r + bias : NULL, r + work};
    return LS_OK;
}

/* What is measured. */
struct work {
    enum ls_status (*run)(void *context, char *workspace);
    void *context;
    char *workspace;
    size_t bytes;
};

/* So many runs, one after the other, as a graph; NULL where they cannot be one, which no step could use then. */
static enum ls_status repeat(struct ls_program *p, const struct work *w, int runs, cudaGraphExec_t *exec)
{
    enum ls_status st = LS_OK;
    cudaGraph_t graph = NULL;
    bool small = w->bytes > 0 && is_small_scratch(w->bytes);
    size_t all = turns_of(w->bytes), turn = small ? all / MANY : 0;
    *exec = NULL;
    CUDA_TRY(cudaStreamBeginCapture(p->device->compute, cudaStreamCaptureModeThreadLocal));
    if (small)
        cudaMemsetAsync(w->workspace, 0, all, p->device->compute);
    for (int i = 0; i < runs && st == LS_OK; i++)
        st = w->run(w->context, w->workspace + (size_t)i * turn);
    cudaError_t ended = cudaStreamEndCapture(p->device->compute, &graph);
    if (ended == cudaSuccess && st == LS_OK) {
        st = small ? drop_clears(graph, w->workspace, all, NULL) : LS_OK;
        if (st == LS_OK)
            st = cuda_check(cudaGraphInstantiate(exec, graph, 0), "cudaGraphInstantiate");
    } else if (ended != cudaSuccess) {
        st = LS_OK;
    }
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    return st;
}

static enum ls_status time_once(struct ls_program *p, cudaGraphExec_t exec, float *ms)
{
    struct tuner *t = p->tuner;
    CUDA_TRY(cudaEventRecord(t->start, p->device->compute));
    CUDA_TRY(cudaGraphLaunch(exec, p->device->compute));
    CUDA_TRY(cudaEventRecord(t->end, p->device->compute));
    CUDA_TRY(cudaEventSynchronize(t->end));
    CUDA_TRY(cudaEventElapsedTime(ms, t->start, t->end));
    return LS_OK;
}

/* The best of a few rounds, in ms. In a graph, as in a step: launched by the host, one after the other, most kernels of
 * less than 10 us would seem to take the same time, which is the host's. */
static enum ls_status time_of(struct ls_program *p, const struct work *w, double *best)
{
    enum { ROUNDS = 4, FEW = 3 };
    static const float SHORT = 0.05F; /* ms */
    cudaGraphExec_t exec = NULL;
    *best = HUGE_VAL;
    LS_TRY(w->run(w->context, w->workspace));
    LS_TRY(cuda_check(cudaGetLastError(), "measuring a kernel"));
    LS_TRY(repeat(p, w, FEW, &exec));
    enum ls_status st = LS_OK;
    for (int runs = FEW, round = 0; exec && round < ROUNDS && st == LS_OK; round++) {
        float ms = 0;
        st = time_once(p, exec, &ms);
        if (st == LS_OK && round == 0 && ms < FEW * SHORT) { /* the launch counts: let it be one of many */
            cudaGraphExecDestroy(exec);
            st = repeat(p, w, runs = MANY, &exec);
        } else if (st == LS_OK && ms / (float)runs < *best) {
            *best = (double)ms / runs;
        }
    }
    if (exec)
        cudaGraphExecDestroy(exec);
    return st;
}

struct trial {
    struct ls_program *p;
    const struct linear *l;
    const struct conv_algorithm *algorithm;
    struct operands o;
};

static enum ls_status run_trial(void *context, char *workspace)
{
    struct trial *t = context;
    t->o.workspace = workspace;
    return t->algorithm->library->run(t->p->device, t->l, t->algorithm, &t->o);
}

/* Engines may find out late that they cannot do it; others are left then. What is wrong with the card is an error. */
static enum ls_status run_once(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                               const struct operands *o, bool *good)
{
    ls_log_mute(1);
    *good = algorithm->library->run(p->device, l, algorithm, o) == LS_OK;
    ls_log_mute(0);
    if (!*good)
        cudaGetLastError();
    return cuda_check(cudaStreamSynchronize(p->device->compute), algorithm->name);
}

/* algorithm->ms HUGE_VAL: it cannot be run. */
static enum ls_status measure(struct ls_program *p, const struct linear *l, struct conv_algorithm *algorithm)
{
    struct trial t = {.p = p, .l = l, .algorithm = algorithm};
    bool good;
    LS_TRY(point(p, l, algorithm->workspace, &t.o));
    LS_TRY(run_once(p, l, algorithm, &t.o, &good));
    algorithm->ms = HUGE_VAL;
    if (!good)
        return LS_OK;
    return time_of(p, &(struct work){run_trial, &t, t.o.workspace, algorithm->workspace}, &algorithm->ms);
}

/* --- results --------------------------------------------------------------------------------------------------- */

/* What a algorithm writes, as stored. */
struct result {
    const void *data;
    int64_t count;
    enum ls_dtype t;
};

static struct result result_of(const struct linear *l, const struct operands *o)
{
    switch (l->pass) {
    case FORWARD:
        return (struct result){o->y, map_count(&l->conv.y), l->conv.t};
    case BWD_DATA:
        return (struct result){o->x, map_count(&l->conv.x), l->conv.t};
    default:
        return (struct result){o->w, weights_count(l), LS_F32};
    }
}

/* Of the result for a fixed input. Ways that add in the same order have the same. */
static enum ls_status digest(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                             uint64_t *value, bool *good)
{
    struct operands o;
    uint64_t *sum = p->tuner->sum;
    LS_TRY(point(p, l, algorithm->workspace, &o));
    struct result r = result_of(l, &o);
    fill(p);
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, p->device->compute));
    LS_TRY(run_once(p, l, algorithm, &o, good));
    ls_cuda_digest(p->device->compute, r.data, r.count * (int64_t)ls_dtype_size(r.t), sum);
    CUDA_TRY(cudaStreamSynchronize(p->device->compute));
    CUDA_TRY(cudaMemcpy(value, sum, sizeof *sum, cudaMemcpyDeviceToHost));
    return LS_OK;
}

/* --- distrust --------------------------------------------------------------------------------------------------- */

/* With more padding on one side than on the other, engines of cuDNN 9.1x were seen to give wrong gradients. */
static bool doubtful(const struct linear *l)
{
    return l->conv.pad_t != l->pad_b || l->conv.pad_l != l->pad_r;
}

/* Does the algorithm give what the plain kernel gives? */
static enum ls_status agrees(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                             bool *good)
{
    struct operands o;
    LS_TRY(point(p, l, algorithm->workspace, &o));
    struct result r = result_of(l, &o);
    size_t bytes = (size_t)r.count * ls_dtype_size(r.t);
    struct linear plain = *l; /* of all channels as stored: there are numbers in the padding, too */
    plain.conv.channels = l->conv.x.c;
    plain.conv.out = l->conv.y.c;
    char *ours = ls_alloc(bytes, 1), *theirs = ls_alloc(bytes, 1);
    enum ls_status st = ours && theirs ? LS_OK : LS_FAILED;
    if (st == LS_OK) {
        fill(p); /* what was measured before left numbers of other types there */
        /* cuDNN has no depthwise ones, so this is the plain kernel. */
        st = ls_cuda_native.run(p->device, &plain, NULL, &o);
        if (st == LS_OK)
            st = cuda_check(cudaStreamSynchronize(p->device->compute), "a plain convolution");
    }
    if (st == LS_OK)
        st = cuda_check(cudaMemcpy(ours, r.data, bytes, cudaMemcpyDeviceToHost), "a plain convolution");
    if (st == LS_OK)
        st = run_once(p, l, algorithm, &o, good);
    if (st == LS_OK && *good)
        st = cuda_check(cudaMemcpy(theirs, r.data, bytes, cudaMemcpyDeviceToHost), algorithm->name);
    double off = 0, size = 0;
    for (int64_t i = 0; i < r.count && st == LS_OK && *good; i++) {
        double a = (double)layout_value(r.t, ours, i), b = (double)layout_value(r.t, theirs, i);
        off += (a - b) * (a - b);
        size += a * a;
    }
    /* A share of 3 % in the root: rounding is far below, a wrong kernel far above. */
    *good = *good && off <= 1e-3 * size;
    ls_free(ours);
    ls_free(theirs);
    return st;
}

/* --- choosing ------------------------------------------------------------------------------------------------- */

/* A name must say which algorithm it is, or a later start would take another of that name. */
static bool is_listed(const struct conv_algorithm *algorithms, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(algorithms[i].name, name) == 0)
            return true;
    return false;
}

static int list_algorithms(struct ls_program *p, const struct linear *l, struct conv_algorithm *algorithms)
{
    const struct conv_library *const libraries[] = {&ls_cuda_native, &ls_cuda_cublas, &ls_cuda_cudnn};
    int n = 0;
    for (int k = 0; k < 3; k++) {
        int more = libraries[k]->list(p->device, l, algorithms + n, MOST_ALGORITHMS - 1 - n), from = n;
        for (int i = from; i < from + more; i++) {
            algorithms[i].library = libraries[k];
            if (is_listed(algorithms, n, algorithms[i].name)) {
                conv_algorithm_release(&algorithms[i]);
            } else if (i > n) {
                algorithms[n] = algorithms[i];
                algorithms[i] = (struct conv_algorithm){0};
            }
            n += algorithms[n].library != NULL;
        }
    }
    if (!linear_is_depthwise(l)) { /* slow, but right */
        algorithms[n] = (struct conv_algorithm){.library = &ls_cuda_native, .last_resort = true};
        snprintf(algorithms[n++].name, sizeof algorithms->name, "own direct");
    }
    return n;
}

/* The remembered one, built; -1: none is, or it cannot be had. */
static enum ls_status recall(struct ls_program *p, const char *layer, const struct linear *l, const char *question,
                             struct conv_algorithm *algorithms, int n, int *best)
{
    struct ls_tune_cache *cache = &p->tuner->cache;
    struct ls_tune_choice *known = ls_tune_cache_find(cache, question);
    for (int i = 0; known && i < n; i++)
        if (strcmp(known->name, algorithms[i].name) == 0 &&
            algorithms[i].library->build(p->device, l, &algorithms[i])) {
            algorithms[i].ms = known->ms;
            ls_tune_cache_use(cache, known);
            *best = i;
            return LS_OK;
        }
    *best = -1;
    return ls_tune_cache_miss(cache, layer, question, known);
}

/* Is it right, where that is in doubt, and can it run? */
static enum ls_status try_one(struct ls_program *p, const struct linear *l, struct conv_algorithm *algorithm,
                              bool *good)
{
    *good = true;
    if (doubtful(l) && algorithm->library == &ls_cuda_cudnn)
        LS_TRY(agrees(p, l, algorithm, good));
    return *good ? digest(p, l, algorithm, &algorithm->digest, good) : LS_OK;
}

struct field {
    struct ls_program *p;
    const struct linear *l;
    struct conv_algorithm *algorithms;
    int list[MOST_ALGORITHMS]; /* of those that can run */
};

static enum ls_status time_algorithm(void *context, int candidate, double *ms)
{
    struct field *f = context;
    struct conv_algorithm *algorithm = &f->algorithms[f->list[candidate]];
    LS_TRY(measure(f->p, f->l, algorithm));
    *ms = algorithm->ms;
    return LS_OK;
}

/* By selection, or where nothing is to be measured, the first. */
static enum ls_status choose(struct ls_program *p, const struct linear *l, struct conv_algorithm *algorithms, int n,
                             int *best)
{
    struct field f = {.p = p, .l = l, .algorithms = algorithms};
    struct ls_kernel_selection selection = {.margin = margin, .noise = noise, .time = time_algorithm, .context = &f};
    uint64_t groups[MOST_ALGORITHMS];
    double ms = 0;
    int built = 0, winner = 0;
    for (int i = 0; i < n && (selection.n == 0 || (p->options.tune && built < MOST_BUILT)); i++) {
        bool good;
        if ((algorithms[i].last_resort && selection.n > 0) ||
            !algorithms[i].library->build(p->device, l, &algorithms[i]))
            continue;
        built++;
        LS_TRY(try_one(p, l, &algorithms[i], &good));
        if (!good)
            continue;
        groups[selection.n] = algorithms[i].digest;
        f.list[selection.n++] = i;
    }
    selection.groups = groups;
    if (selection.n > 0 && p->options.tune)
        LS_TRY(ls_kernel_select(&selection, &winner, &ms));
    *best = selection.n > 0 && winner >= 0 ? f.list[winner] : -1;
    if (*best >= 0)
        algorithms[*best].ms = round(ms * 1e4) / 1e4; /* as the plan has it: it decides what runs aside (C5) */
    return LS_OK;
}

enum ls_status tune_pick(struct ls_program *p, const char *layer, const struct linear *l,
                         struct conv_algorithm *algorithm)
{
    enum ls_status st = LS_OK;
    struct ls_tune_cache *cache = &p->tuner->cache;
    struct conv_algorithm algorithms[MOST_ALGORITHMS] = {0};
    char question[320];
    int n = list_algorithms(p, l, algorithms), best = -1;
    question_text(l, question, sizeof question);
    LS_TRY_GOTO(release_others, recall(p, layer, l, question, algorithms, n, &best));
    if (best < 0) {
        if (p->options.tune)
            ls_tune_cache_progress(cache, layer, p->device->name);
        LS_TRY_GOTO(release_others, choose(p, l, algorithms, n, &best));
        if (best >= 0)
            LS_TRY_GOTO(release_others, ls_tune_cache_add(cache, question, algorithms[best].name, algorithms[best].ms,
                                                          algorithms[best].digest, p->options.tune));
    }
    if (best < 0)
        st = ls_fail(LS_FAILED, "layer %s: neither cuDNN nor cuBLASLt nor Lockstep has a kernel for this (%s)", layer,
                     question);
release_others:
    for (int i = 0; i < n; i++)
        if (i != best || st != LS_OK)
            conv_algorithm_release(&algorithms[i]);
    if (st == LS_OK)
        *algorithm = algorithms[best];
    return st;
}

/* --- two ways to do a layer and its neighbour -------------------------------------------------------------------- */

struct pair {
    struct ls_program *p;
    const struct tune_rivals *rivals;
    size_t bytes; /* of operands, before the workspace */
};

static enum ls_status time_rival(void *context, int candidate, double *ms)
{
    const struct pair *pair = context;
    const struct tune_rivals *r = pair->rivals;
    return time_of(
        pair->p, &(struct work){r->run[candidate], r->context, pair->p->tuner->region + pair->bytes, r->workspace}, ms);
}

enum ls_status tune_between(struct ls_program *p, const char *layer, const struct linear *l, const char *with,
                            const struct tune_rivals *rivals, int *best)
{
    struct ls_tune_cache *cache = &p->tuner->cache;
    struct pair pair = {p, rivals, 0};
    struct ls_kernel_selection selection = {
        .n = 2, .margin = margin, .noise = noise, .time = time_rival, .context = &pair};
    char question[320];
    double ms = 0;
    question_text(l, question, sizeof question);
    size_t length = strlen(question);
    snprintf(question + length, sizeof question - length, "%s", with);
    struct ls_tune_choice *known = ls_tune_cache_find(cache, question);
    for (int i = 0; known && i < 2; i++)
        if (strcmp(known->name, rivals->names[i]) == 0) {
            ls_tune_cache_use(cache, known);
            *best = i;
            return LS_OK;
        }
    LS_TRY(ls_tune_cache_miss(cache, layer, question, known));
    *best = 0;
    if (p->options.tune) {
        ls_tune_cache_progress(cache, layer, p->device->name);
        LS_TRY(rivals->place(rivals->context, NULL, &pair.bytes));
        LS_TRY(make_room(p, pair.bytes + turns_of(rivals->workspace)));
        fill(p);
        LS_TRY(rivals->place(rivals->context, p->tuner->region, &pair.bytes));
        LS_TRY(ls_kernel_select(&selection, best, &ms));
        *best = *best < 0 ? 0 : *best;
    }
    return ls_tune_cache_add(cache, question, rivals->names[*best], ms, 0, p->options.tune);
}
