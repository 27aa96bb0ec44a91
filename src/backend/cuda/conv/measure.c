/* Times and results of algorithms, on operands that only the tuner uses. */
#include "backend/cuda/conv/measure.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

void measure_fill(struct ls_program *p, size_t bytes)
{
    int64_t count = (int64_t)(bytes / ls_dtype_size(p->core.g->act_dtype));
    ls_cuda_fill(p->device->compute, p->core.g->act_dtype, p->tuner->region, count / LS_CUDA_LANE * LS_CUDA_LANE);
}

/* Ordinary numbers: products of zeros run faster. */
enum ls_status measure_reserve(struct ls_program *p, size_t bytes)
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
    measure_fill(p, bytes);
    return LS_OK;
}

/* As in a step (CUDA-6), each run of a graph has its own scratch if that is small. */
enum { MANY = 16 };

size_t measure_workspace(size_t workspace)
{
    size_t used = 0;
    for (int i = 0; i < (is_small_scratch(workspace) ? MANY : 1); i++)
        tune_lay_out(&used, workspace);
    return used;
}

/* more: bytes behind all operands, at *behind. */
static enum ls_status point_with(struct ls_program *p, const struct linear *l, size_t workspace, size_t more,
                                 struct operands *o, char **behind)
{
    size_t used = 0, element = ls_dtype_size(l->conv.t), weights = (size_t)weights_count(l);
    size_t x = tune_lay_out(&used, (size_t)map_count(&l->conv.x) * element);
    size_t y = tune_lay_out(&used, (size_t)map_count(&l->conv.y) * element);
    size_t w = tune_lay_out(&used, weights * (l->pass == BWD_WEIGHTS ? sizeof(float) : element));
    size_t bias = tune_lay_out(&used, (size_t)l->conv.y.c * sizeof(float));
    size_t work = tune_lay_out(&used, measure_workspace(workspace)), last = tune_lay_out(&used, more);
    LS_TRY(measure_reserve(p, used));
    char *r = p->tuner->region;
    *behind = r + last;
    *o = (struct operands){r + x, r + w, r + y, l->bias ? r + bias : NULL, l->bias ? r + bias : NULL, r + work};
    return LS_OK;
}

static enum ls_status point(struct ls_program *p, const struct linear *l, size_t workspace, struct operands *o)
{
    char *behind;
    return point_with(p, l, workspace, 0, o, &behind);
}

/* Capture `runs` runs as a graph. NULL: they cannot be captured, so no step could use them. */
static enum ls_status repeat(struct ls_program *p, const struct work *w, int runs, cudaGraphExec_t *exec)
{
    enum ls_status st = LS_OK;
    cudaGraph_t graph = NULL;
    bool small = w->bytes > 0 && is_small_scratch(w->bytes);
    size_t all = measure_workspace(w->bytes), turn = small ? all / MANY : 0;
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

/* One run, launched by the host. */
static enum ls_status time_run(struct ls_program *p, const struct work *w, float *ms)
{
    CUDA_TRY(cudaEventRecord(p->tuner->start, p->device->compute));
    LS_TRY(w->run(w->context, w->workspace));
    CUDA_TRY(cudaEventRecord(p->tuner->end, p->device->compute));
    LS_TRY(cuda_check(cudaGetLastError(), "measuring a kernel"));
    CUDA_TRY(cudaEventSynchronize(p->tuner->end));
    CUDA_TRY(cudaEventElapsedTime(ms, p->tuner->start, p->tuner->end));
    return LS_OK;
}

/* Runs are measured in a graph, as they run in a step. Launched by the host, most kernels of less than 10 us seem to take
 * the same time, which is that of the launch. What takes much longer than the fastest so far is not measured further: it
 * cannot win. */
enum ls_status measure_work(struct ls_program *p, const struct work *w, struct measure_effort effort, double *best)
{
    enum { FEW = 3 };
    static const float SHORT = 0.05F, LONG = 1; /* ms */
    static const double hopeless = 2, slow = 1.3;
    float once = 0;
    cudaGraphExec_t exec = NULL;
    *best = HUGE_VAL;
    LS_TRY(time_run(p, w, &once));
    if (once > LONG && once > hopeless * effort.fastest) /* it may have loaded code */
        LS_TRY(time_run(p, w, &once));
    if (once > LONG && once > hopeless * effort.fastest) {
        *best = once;
        return LS_OK;
    }
    LS_TRY(repeat(p, w, FEW, &exec));
    enum ls_status st = LS_OK;
    for (int runs = FEW, round = 0; exec && round < effort.rounds && st == LS_OK; round++) {
        float ms = 0;
        st = time_once(p, exec, &ms);
        if (st == LS_OK && round == 0 && ms < FEW * SHORT) { /* the launch takes a large part: measure more runs */
            cudaGraphExecDestroy(exec);
            st = repeat(p, w, runs = MANY, &exec);
            effort.rounds = MEASURE_FIRST; /* they are short, and noise is a large part of them */
            continue;
        }
        if (st == LS_OK && ms / (float)runs < *best)
            *best = (double)ms / runs;
        if (*best > slow * effort.fastest)
            break;
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

/* An engine may fail only when it runs; then another one is taken. Failures of the GPU are errors. */
static enum ls_status run_once(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                               const struct operands *o, bool *good)
{
    bool muted = ls_log_mute(true);
    *good = algorithm->library->run(p->device, l, algorithm, o) == LS_OK;
    ls_log_mute(muted);
    if (!*good)
        cudaGetLastError();
    return cuda_check(cudaStreamSynchronize(p->device->compute), algorithm->name);
}

enum ls_status measure_algorithm(struct ls_program *p, const struct linear *l, struct measure_effort effort,
                                 struct conv_algorithm *algorithm)
{
    struct trial t = {.p = p, .l = l, .algorithm = algorithm};
    bool good;
    LS_TRY(point(p, l, algorithm->workspace, &t.o));
    LS_TRY(run_once(p, l, algorithm, &t.o, &good));
    algorithm->ms = HUGE_VAL;
    if (!good)
        return LS_OK;
    return measure_work(p, &(struct work){run_trial, &t, t.o.workspace, algorithm->workspace}, effort, &algorithm->ms);
}

/* --- results --------------------------------------------------------------------------------------------------- */

/* What an algorithm writes, as stored. */
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

static enum ls_status digest_of(struct ls_program *p, const void *data, size_t bytes, uint64_t *value)
{
    uint64_t *sum = p->tuner->sum;
    CUDA_TRY(cudaMemsetAsync(sum, 0, sizeof *sum, p->device->compute));
    ls_cuda_digest(p->device->compute, data, (int64_t)bytes, sum);
    CUDA_TRY(cudaStreamSynchronize(p->device->compute));
    return cuda_check(cudaMemcpy(value, sum, sizeof *value, cudaMemcpyDeviceToHost), "a digest");
}

/* Of the result for a fixed input. Ways that add in the same order have the same. */
enum ls_status measure_digest(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                              uint64_t *value, bool *good)
{
    struct operands o;
    LS_TRY(point(p, l, algorithm->workspace, &o));
    struct result r = result_of(l, &o);
    measure_fill(p, (size_t)(o.workspace - p->tuner->region));
    LS_TRY(run_once(p, l, algorithm, &o, good));
    return digest_of(p, r.data, (size_t)r.count * ls_dtype_size(r.t), value);
}

/* --- parts of a layer in chunks ----------------------------------------------------------------------------------- */

/* A whole layer whose result is there, and room to compute parts of it. */
struct in_parts {
    struct ls_program *p;
    const struct linear *l;
    const struct conv_algorithm *algorithm;
    struct operands o;
    char *matrix;    /* y of a part, or its gradient */
    char *result;    /* what is compared: of the part */
    char *workspace; /* of the part */
    size_t size;     /* of an activation */
};

/* Columns of y, one after the other in `to`. */
static enum ls_status take_columns(const struct in_parts *c, int64_t first, int64_t columns, char *to)
{
    const struct ls_cuda_map *y = &c->l->conv.y;
    size_t from = (size_t)y->c * c->size, width = (size_t)columns * c->size;
    return cuda_check(cudaMemcpy2DAsync(to, width, (char *)c->o.y + (size_t)first * c->size, from, width, (size_t)y->n,
                                        cudaMemcpyDeviceToDevice, c->p->device->compute),
                      "columns");
}

/* The operands of some rows. */
static enum ls_status point_part(const struct in_parts *c, const struct linear *part, int64_t first, struct operands *o)
{
    const struct linear *l = c->l;
    size_t weight = l->pass == BWD_WEIGHTS ? sizeof(float) : c->size;
    *o = (struct operands){.x = c->o.x,
                           .w = (char *)c->o.w + (size_t)(first * l->conv.x.c) * weight,
                           .y = c->matrix,
                           .workspace = c->workspace};
    if (l->bias)
        o->bias = (const char *)c->o.bias + (size_t)first * sizeof(float);
    if (l->bias)
        o->half_bias = (const char *)c->o.half_bias + (size_t)first * c->size;
    if (l->pass == FORWARD)
        return LS_OK;
    if (l->pass == BWD_WEIGHTS)
        o->w = c->result;
    if (l->pass == BWD_DATA)
        o->x = c->result;
    return take_columns(c, first, part->conv.y.c, c->matrix);
}

/* Where the part's result lies, and the whole layer's for the same rows. */
static enum ls_status find_results(const struct in_parts *c, const struct linear *part, int64_t first,
                                   const struct operands *o, const char **whole, const char **mine, size_t *bytes)
{
    const struct ls_cuda_conv *conv = &part->conv;
    size_t leaf = (size_t)map_count(&conv->x) * sizeof(float);
    switch (part->pass) {
    case FORWARD:
        *whole = c->result;
        *mine = o->y;
        *bytes = (size_t)map_count(&conv->y) * c->size;
        return take_columns(c, first, conv->y.c, c->result);
    case BWD_DATA: /* the products of chunks, which are then added in the same way (CHUNK-2) */
        *whole = c->o.workspace + (size_t)part->range.first * leaf;
        *mine = c->workspace;
        *bytes = (size_t)(part->range.end - part->range.first) * leaf;
        return LS_OK;
    default:
        *whole = (const char *)c->o.w + (size_t)(first * conv->x.c) * sizeof(float);
        *mine = o->w;
        *bytes = (size_t)(conv->y.c * conv->x.c) * sizeof(float);
        return LS_OK;
    }
}

static enum ls_status part_agrees(const struct in_parts *c, int place, int workers, bool *good)
{
    struct linear part = linear_part(c->l, place, workers);
    int64_t first = linear_first_row(c->l, place, workers);
    struct conv_algorithm a;
    struct operands o;
    const char *whole = NULL, *mine = NULL;
    uint64_t digests[2] = {0, 1};
    size_t bytes = 0;
    enum ls_status st = LS_OK;
    if ((*good = conv_algorithm_fit(&part, c->algorithm, &a))) {
        a.library = c->algorithm->library;
        st = point_part(c, &part, first, &o);
        if (st == LS_OK)
            st = run_once(c->p, &part, &a, &o, good);
        if (st == LS_OK)
            st = find_results(c, &part, first, &o, &whole, &mine, &bytes);
        if (st == LS_OK)
            st = digest_of(c->p, whole, bytes, &digests[0]);
        if (st == LS_OK)
            st = digest_of(c->p, mine, bytes, &digests[1]);
    }
    conv_algorithm_release(&a);
    *good = *good && digests[0] == digests[1];
    return st;
}

/* relu as part of the product, and behind it. Changes the whole layer's result. */
static enum ls_status act_agrees(const struct in_parts *c, bool *good)
{
    struct linear with = *c->l;
    struct operands o = c->o;
    struct conv_algorithm a;
    uint64_t digests[2] = {0, 1};
    const struct ls_cuda_conv *conv = &with.conv;
    size_t bytes = (size_t)map_count(&conv->y) * c->size;
    enum ls_status st = LS_OK;
    with.conv.act = LS_ACT_RELU;
    o.y = c->matrix;
    o.workspace = c->workspace;
    if ((*good = conv_algorithm_fit(&with, c->algorithm, &a))) {
        ls_cuda_act(c->p->device->compute, conv->t, LS_ACT_RELU, c->o.y, c->o.y, map_count(&conv->y));
        st = run_once(c->p, &with, &a, &o, good);
        if (st == LS_OK)
            st = digest_of(c->p, c->o.y, bytes, &digests[0]);
        if (st == LS_OK)
            st = digest_of(c->p, o.y, bytes, &digests[1]);
    }
    conv_algorithm_release(&a);
    *good = *good && digests[0] == digests[1];
    return st;
}

/* Parts of the first and the last worker, for each number of workers. */
enum ls_status parts_agree(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                           bool *good)
{
    struct in_parts c = {.p = p, .l = l, .algorithm = algorithm, .size = ls_dtype_size(l->conv.t)};
    size_t used = 0, leaves = 0, weights = 0;
    if (!algorithm->library->fit) /* it computes each row by itself */
        return LS_OK;
    if (l->pass == BWD_DATA)
        leaves = (size_t)(l->range.chunks * map_count(&l->conv.x)) * sizeof(float);
    if (l->pass == BWD_WEIGHTS)
        weights = (size_t)weights_count(l) * sizeof(float);
    size_t y = (size_t)map_count(&l->conv.y) * c.size, result = leaves + weights > y ? leaves + weights : y;
    size_t matrix = tune_lay_out(&used, y), compared = tune_lay_out(&used, result);
    size_t workspace = tune_lay_out(&used, algorithm->workspace);
    char *behind;
    LS_TRY(point_with(p, l, algorithm->workspace, used, &c.o, &behind));
    c.matrix = behind + matrix;
    c.result = behind + compared;
    c.workspace = behind + workspace;
    measure_fill(p, (size_t)(c.o.workspace - p->tuner->region));
    LS_TRY(run_once(p, l, algorithm, &c.o, good));
    for (int workers = 2; workers <= l->range.chunks && *good; workers++) {
        LS_TRY(part_agrees(&c, 0, workers, good));
        if (*good)
            LS_TRY(part_agrees(&c, workers - 1, workers, good));
    }
    return *good && l->pass == FORWARD ? act_agrees(&c, good) : LS_OK;
}

/* --- checking --------------------------------------------------------------------------------------------------- */

bool is_doubtful(const struct linear *l)
{
    return l->conv.pad_t != l->pad_b || l->conv.pad_l != l->pad_r;
}

enum ls_status agrees_with_native(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                                  bool *good)
{
    struct operands o;
    LS_TRY(point(p, l, algorithm->workspace, &o));
    struct result r = result_of(l, &o);
    size_t bytes = (size_t)r.count * ls_dtype_size(r.t);
    struct linear plain = *l; /* all channels as stored, as the padding holds numbers here, too */
    plain.conv.channels = l->conv.x.c;
    plain.conv.out = l->conv.y.c;
    char *ours = ls_alloc(bytes, 1), *theirs = ls_alloc(bytes, 1);
    enum ls_status st = ours && theirs ? LS_OK : LS_FAILED;
    if (st == LS_OK) {
        /* earlier measurements left values of other types */
        measure_fill(p, (size_t)(o.workspace - p->tuner->region));
        /* The plain kernel: cuDNN computes no depthwise convolutions here. */
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
    /* 3 % in the root mean square: rounding is far below, a wrong kernel far above. */
    *good = *good && off <= 1e-3 * size;
    ls_free(ours);
    ls_free(theirs);
    return st;
}
