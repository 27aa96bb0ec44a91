/* Choosing the algorithm of a convolution or dense layer: what is measured, and how plans spell it. */
#include "backend/cuda/conv/measure.h"
#include "backend/core/tuning.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ALGORITHMS = 40, MOST_BUILT = 32 };

/* Times on a GPU vary little: a gain of 13 % is clear. */
static const double margin = 1.13, noise = 0.01;

enum ls_status tune_open(struct ls_program *p)
{
    char machine[160];
    struct tuner *t = p->tuner = ls_alloc(1, sizeof *p->tuner);
    if (!t)
        return LS_FAILED;
    CUDA_TRY(cudaEventCreate(&t->start));
    CUDA_TRY(cudaEventCreate(&t->end));
    CUDA_TRY(cudaMalloc((void **)&t->sum, sizeof *t->sum));
    snprintf(machine, sizeof machine, "%s, cuDNN %d, cuBLASLt %d and own 6%s", p->device->name, (int)cudnnGetVersion(),
             (int)cublasLtGetVersion(), p->core.options.fast ? ", fast" : "");
    return ls_tuning_open(p, machine);
}

enum ls_status tune_close(struct ls_program *p)
{
    struct tuner *t = p->tuner;
    enum ls_status st = ls_tuning_close(p);
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
             "x%" PRId64 " groups %" PRId64 " kernel %dx%d stride %dx%d pad %d,%d,%d,%d dilation %dx%d%s %s%s",
             pass[l->pass], ls_dtype_name(c->t), l->tf32 ? " tf32" : "", c->x.n, c->x.h, c->x.w, c->x.c, c->y.n, c->y.h,
             c->y.w, c->y.c, c->groups, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_t, c->pad_l,
             l->pad_b, l->pad_r, c->dilation_h, c->dilation_w, l->bias ? " bias" : "", ls_act_name(c->act),
             linear_in_chunks(l) ? " in chunks" : "");
}

/* --- choosing ------------------------------------------------------------------------------------------------- */

/* Names are unique, so that a plan names one algorithm. */
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
    int n = 0, used = linear_in_chunks(l) ? 2 : 3; /* CHUNK-1: cuDNN chooses anew for other numbers of rows */
    for (int k = 0; k < used; k++) {
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
    bool leaves = linear_in_chunks(l) && l->pass == BWD_DATA;
    if (!linear_is_depthwise(l) && !leaves) { /* slow, but it always works */
        algorithms[n] = (struct conv_algorithm){.library = &ls_cuda_native, .last_resort = true};
        snprintf(algorithms[n++].name, sizeof algorithms->name, "own direct");
    }
    return n;
}

/* Can it run, and is it right where that is in doubt? A plan only needs its scratch. */
static enum ls_status try_one(struct ls_program *p, const struct linear *l, struct conv_algorithm *algorithm,
                              bool *good)
{
    *good = true;
    if (p->core.options.plan_only)
        return LS_OK;
    if (is_doubtful(l) && algorithm->library == &ls_cuda_cudnn)
        LS_TRY(agrees_with_native(p, l, algorithm, good));
    if (*good)
        LS_TRY(measure_digest(p, l, algorithm, &algorithm->digest, good));
    return *good && linear_in_chunks(l) ? parts_agree(p, l, algorithm, good) : LS_OK;
}

struct algorithm_list {
    struct ls_program *p;
    const struct linear *l;
    struct conv_algorithm *algorithms;
    int n;
    int runnable[MOST_ALGORITHMS]; /* indices of those that can run */
    double fastest;                /* ms */
};

static enum ls_status time_algorithm(void *context, int candidate, double *ms)
{
    struct algorithm_list *a = context;
    struct conv_algorithm *algorithm = &a->algorithms[a->runnable[candidate]];
    struct measure_effort effort = {*ms == 0 ? MEASURE_FIRST : MEASURE_AGAIN, a->fastest};
    LS_TRY(measure_algorithm(a->p, a->l, effort, algorithm));
    *ms = algorithm->ms;
    a->fastest = fmin(*ms, a->fastest);
    return LS_OK;
}

static const char *algorithm_name(void *context, int candidate)
{
    const struct algorithm_list *a = context;
    return a->algorithms[candidate].name;
}

static bool build(void *context, int candidate)
{
    const struct algorithm_list *a = context;
    struct conv_algorithm *algorithm = &a->algorithms[candidate];
    return algorithm->library->build(a->p->device, a->l, algorithm);
}

/* What takes long to build is built side by side. */
static void build_ahead(const struct algorithm_list *a)
{
    for (int i = 0, n = 1; i < a->n; i += n) {
        const struct conv_library *library = a->algorithms[i].library;
        for (n = 1; i + n < a->n && a->algorithms[i + n].library == library; n++)
            ;
        if (library->build_ahead)
            library->build_ahead(a->p->device, a->l, &a->algorithms[i], n);
    }
}

/* By measuring, or where nothing is to be measured, the first that can run. */
static enum ls_status choose(void *context, struct ls_tuning_answer *answer)
{
    struct algorithm_list *a = context;
    struct ls_kernel_selection selection = {.margin = margin, .noise = noise, .time = time_algorithm, .context = a};
    uint64_t groups[MOST_ALGORITHMS];
    bool tune = a->p->core.options.tune;
    double ms = 0;
    int built = 0, winner = 0;
    if (tune)
        build_ahead(a);
    for (int i = 0; i < a->n && (selection.n == 0 || (tune && built < MOST_BUILT)); i++) {
        bool good;
        if ((a->algorithms[i].last_resort && selection.n > 0) || !build(a, i))
            continue;
        built++;
        LS_TRY(try_one(a->p, a->l, &a->algorithms[i], &good));
        if (!good)
            continue;
        groups[selection.n] = a->algorithms[i].digest;
        a->runnable[selection.n++] = i;
    }
    selection.groups = groups;
    if (selection.n > 0 && tune)
        LS_TRY(ls_kernel_select(&selection, &winner, &ms));
    answer->best = selection.n > 0 && winner >= 0 ? a->runnable[winner] : -1;
    if (answer->best < 0)
        return LS_OK;
    answer->ms = round(ms * 1e4) / 1e4; /* as plans spell it, because it decides what runs aside (CUDA-5) */
    answer->digest = a->algorithms[answer->best].digest;
    return LS_OK;
}

enum ls_status tune_pick(struct ls_program *p, const char *layer, const struct linear *l,
                         struct conv_algorithm *algorithm)
{
    struct conv_algorithm algorithms[MOST_ALGORITHMS] = {0};
    struct algorithm_list a = {.p = p, .l = l, .algorithms = algorithms, .fastest = HUGE_VAL};
    struct ls_tuning_answer answer = {.best = -1};
    char question[320];
    a.n = list_algorithms(p, l, algorithms);
    question_text(l, question, sizeof question);
    enum ls_status st = ls_tuning_ask(p,
                                      &(struct ls_tuning_question){.layer = layer,
                                                                   .where = p->device->name,
                                                                   .text = question,
                                                                   .n = a.n,
                                                                   .measure = p->core.options.tune,
                                                                   .context = &a,
                                                                   .name = algorithm_name,
                                                                   .ready = build,
                                                                   .choose = choose},
                                      &answer);
    if (st == LS_OK && answer.best < 0)
        st = ls_fail(LS_FAILED, "layer %s: neither cuDNN nor cuBLASLt nor Lockstep has a kernel for this (%s)", layer,
                     question);
    for (int i = 0; i < a.n; i++)
        if (i != answer.best || st != LS_OK)
            conv_algorithm_release(&algorithms[i]);
    if (st == LS_OK) {
        *algorithm = algorithms[answer.best];
        algorithm->ms = answer.ms;
    }
    return st;
}

/* --- a layer and its neighbour, computed apart or together --------------------------------------------------------- */

struct pair {
    struct ls_program *p;
    const struct tune_rivals *rivals;
    size_t bytes;   /* of operands, before the workspace */
    int rival;      /* that is being measured */
    double fastest; /* ms */
};

static enum ls_status run_rival(void *context, char *workspace)
{
    const struct pair *pair = context;
    return pair->rivals->run(pair->rivals->context, pair->rival, workspace);
}

static enum ls_status time_rival(void *context, int candidate, double *ms)
{
    struct pair *pair = context;
    pair->rival = candidate;
    struct work work = {run_rival, pair, pair->p->tuner->region + pair->bytes, pair->rivals->workspace};
    struct measure_effort effort = {*ms == 0 ? MEASURE_FIRST : MEASURE_AGAIN, pair->fastest};
    LS_TRY(measure_work(pair->p, &work, effort, ms));
    pair->fastest = fmin(*ms, pair->fastest);
    return LS_OK;
}

static const char *rival_name(void *context, int candidate)
{
    const struct pair *pair = context;
    return pair->rivals->names[candidate];
}

static enum ls_status choose_rival(void *context, struct ls_tuning_answer *answer)
{
    struct pair *pair = context;
    const struct tune_rivals *r = pair->rivals;
    struct ls_kernel_selection selection = {
        .n = r->n, .margin = margin, .noise = noise, .time = time_rival, .context = pair};
    answer->best = 0;
    if (!pair->p->core.options.tune)
        return LS_OK;
    LS_TRY(r->place(r->context, NULL, &pair->bytes));
    LS_TRY(measure_reserve(pair->p, pair->bytes + measure_workspace(r->workspace)));
    measure_fill(pair->p, pair->bytes);
    LS_TRY(r->place(r->context, pair->p->tuner->region, &pair->bytes));
    LS_TRY(ls_kernel_select(&selection, &answer->best, &answer->ms));
    answer->best = answer->best < 0 ? 0 : answer->best;
    return LS_OK;
}

enum ls_status tune_between(struct ls_program *p, const char *layer, const struct linear *l, const char *with,
                            const struct tune_rivals *rivals, int *best)
{
    struct pair pair = {p, rivals, 0, 0, HUGE_VAL};
    struct ls_tuning_answer answer;
    char question[320];
    question_text(l, question, sizeof question);
    size_t length = strlen(question);
    snprintf(question + length, sizeof question - length, "%s", with);
    LS_TRY(ls_tuning_ask(p,
                         &(struct ls_tuning_question){.layer = layer,
                                                      .where = p->device->name,
                                                      .text = question,
                                                      .n = rivals->n,
                                                      .measure = p->core.options.tune,
                                                      .context = &pair,
                                                      .name = rival_name,
                                                      .choose = choose_rival},
                         &answer));
    *best = answer.best;
    return LS_OK;
}

enum ls_status tune_begin_run(struct ls_program *p, void *scratch, int64_t samples, struct ls_cuda_run *run)
{
    const struct ls_cuda_run values = {.valid = samples, .stat_weight = 1, .grad_scale = 1};
    CUDA_TRY(cudaMemsetAsync(scratch, 0, LS_CUDA_BN_ZEROS, p->device->compute));
    ls_cuda_set_run(p->device->compute, run, &values);
    return LS_OK;
}
