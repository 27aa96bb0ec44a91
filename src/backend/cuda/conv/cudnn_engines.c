/* Convolutions by cuDNN's graph API: a small graph of operations is described, cuDNN names engines for it with their
 * settings, and each becomes a algorithm. Two graphs are tried for a layer:
 *     FORWARD      the convolution with bias and activation, or without, and those follow as a kernel
 *     BWD_WEIGHTS  with an f32 gradient, or a 16-bit one, which is then converted */
#include "backend/cuda/conv/conv_algorithm.h"
#include "base/log.h"
#include "base/system/thread.h"

#include <stdio.h>
#include <string.h>

enum { X = 1, W, Y, BIAS, CONV_OUT, BIAS_OUT }; /* tensors by number */
enum { MOST_DESCRIPTORS = 16, MOST_CONFIGS = 12 };
static const size_t most_workspace = (size_t)1 << 30;

/* The descriptors of a graph, shared by the algorithms that came out of it. */
struct dnn_graph {
    cudnnBackendDescriptor_t made[MOST_DESCRIPTORS];
    int n, users;
    cudnnBackendDescriptor_t graph; /* the last of made */
    bool ok;
};

static void graph_leave(struct dnn_graph *g)
{
    if (!g || --g->users > 0)
        return;
    while (g->n > 0)
        cudnnBackendDestroyDescriptor(g->made[--g->n]);
    ls_free(g);
}

/* --- descriptors ---------------------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t make(struct dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (!g->ok || g->n == MOST_DESCRIPTORS || cudnnBackendCreateDescriptor(type, &d) != CUDNN_STATUS_SUCCESS) {
        g->ok = false;
        return NULL;
    }
    g->made[g->n++] = d;
    return d;
}

static void set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    g->ok = g->ok && cudnnBackendSetAttribute(d, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

static void set_descriptor(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value)
{
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static cudnnBackendDescriptor_t finished(struct dnn_graph *g, cudnnBackendDescriptor_t d)
{
    g->ok = g->ok && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS;
    return d;
}

static cudnnDataType_t dnn_type(enum ls_dtype t)
{
    return t == LS_BF16 ? CUDNN_DATA_BFLOAT16 : t == LS_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

/* dim: n, c, h, w; stored n, h, w, c. */
static cudnnBackendDescriptor_t tensor(struct dnn_graph *g, int64_t id, cudnnDataType_t type, const int64_t dim[4],
                                       bool between)
{
    int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]}, alignment = 16;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between);
    return finished(g, d);
}

static cudnnBackendDescriptor_t convolution(struct dnn_graph *g, const struct linear *l)
{
    const struct ls_cuda_conv *c = &l->conv;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t dims = 2, dilation[2] = {c->dilation_h, c->dilation_w}, stride[2] = {c->stride_h, c->stride_w};
    int64_t before[2] = {c->pad_t, c->pad_l}, behind[2] = {l->pad_b, l->pad_r};
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, behind);
    return finished(g, d);
}

/* b NULL: of one operand. */
static cudnnBackendDescriptor_t pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, double upper,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t y)
{
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (upper > 0)
        set(g, what, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &upper);
    finished(g, what);
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return finished(g, d);
}

/* --- graphs ----------------------------------------------------------------------------------------------------- */

static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
} conv_ops[] = {
    [FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [BWD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [BWD_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* after: without what can follow as a kernel. */
static struct dnn_graph *graph_new(struct device *dev, const struct linear *l, bool after)
{
    const struct ls_cuda_conv *c = &l->conv;
    cudnnDataType_t t = dnn_type(c->t), float_t = CUDNN_DATA_FLOAT;
    int64_t x_dim[4] = {c->x.n, c->x.c, c->x.h, c->x.w}, y_dim[4] = {c->y.n, c->y.c, c->y.h, c->y.w};
    int64_t w_dim[4] = {c->y.c, padded(c->channels / c->groups), c->kernel_h, c->kernel_w};
    int64_t bias_dim[4] = {1, c->y.c, 1, 1};
    bool bias = !after && l->pass == FORWARD && l->bias, act = !after && l->pass == FORWARD && c->act != LS_ACT_NONE;
    struct dnn_graph *g = ls_alloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->ok = true;
    g->users = 1;
    cudnnBackendDescriptor_t x = tensor(g, X, t, x_dim, false), ops[3];
    cudnnBackendDescriptor_t w = tensor(g, W, l->pass == BWD_WEIGHTS && !after ? float_t : t, w_dim, false);
    cudnnBackendDescriptor_t y = tensor(g, Y, t, y_dim, false);
    cudnnBackendDescriptor_t out = bias || act ? tensor(g, CONV_OUT, float_t, y_dim, true) : y;
    int n = 0;
    float one = 1, zero = 0;
    ops[n] = make(g, conv_ops[l->pass].type);
    set_descriptor(g, ops[n], conv_ops[l->pass].x, x);
    set_descriptor(g, ops[n], conv_ops[l->pass].w, w);
    set_descriptor(g, ops[n], conv_ops[l->pass].y, out);
    set_descriptor(g, ops[n], conv_ops[l->pass].conv, convolution(g, l));
    set(g, ops[n], conv_ops[l->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, ops[n], conv_ops[l->pass].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finished(g, ops[n++]);
    if (bias) {
        cudnnBackendDescriptor_t b = tensor(g, BIAS, float_t, bias_dim, false);
        cudnnBackendDescriptor_t sum = act ? tensor(g, BIAS_OUT, float_t, y_dim, true) : y;
        ops[n++] = pointwise(g, CUDNN_POINTWISE_ADD, 0, out, b, sum);
        out = sum;
    }
    if (act)
        ops[n++] = pointwise(g, CUDNN_POINTWISE_RELU_FWD, c->act == LS_ACT_RELU6 ? 6 : 0, out, NULL, y);
    g->graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &dev->cudnn);
    finished(g, g->graph);
    if (!g->ok) {
        graph_leave(g);
        return NULL;
    }
    return g;
}

/* --- engines ---------------------------------------------------------------------------------------------------- */

/* What an engine may not do unless asked to: sums in no fixed order, f32 cut to 10 bits, half-precise sums. */
static bool forbidden(const struct linear *l, cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS)
        return true;
    for (int64_t i = 0; i < n; i++)
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            if (!l->fast)
                return true;
            break;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
            if (l->conv.t == LS_F32 && !l->tf32)
                return true;
            break;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            return true;
        default:
            break;
        }
    return false;
}

/* "dnn 34 2=4,13=1": the engine and its settings. */
static void config_name(cudnnBackendDescriptor_t config, int64_t engine, char *name, size_t room)
{
    enum { MOST_KNOBS = 16 };
    cudnnBackendDescriptor_t knobs[MOST_KNOBS] = {0};
    int64_t n = 0;
    size_t used = (size_t)snprintf(name, room, "dnn %d", (int)engine);
    for (int i = 0; i < MOST_KNOBS; i++)
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]);
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_KNOBS,
                                 &n, knobs) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int64_t i = 0; i < n && i < MOST_KNOBS && used < room; i++) {
        cudnnBackendKnobType_t type = 0;
        int64_t value = 0, got;
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got, &type);
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value);
        used += (size_t)snprintf(name + used, room - used, "%c%d=%d", i ? ',' : ' ', (int)type, (int)value);
    }
    for (int i = 0; i < MOST_KNOBS; i++)
        if (knobs[i])
            cudnnBackendDestroyDescriptor(knobs[i]);
}

struct chosen {
    cudnnBackendDescriptor_t config, plan;
    bool compiles; /* cuDNN compiles this engine's kernel when the plan is built, which takes some 0.3 s */
    bool built, good;
};

static bool compiles(cudnnBackendDescriptor_t engine)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return true;
    return false;
}

/* Is this configuration to be tried? Then `algorithm` has it. */
static bool take_config(const struct linear *l, struct dnn_graph *g, bool after, cudnnBackendDescriptor_t config,
                        struct conv_algorithm *algorithm)
{
    cudnnBackendDescriptor_t engine = NULL;
    int64_t got = 0, number = -1;
    bool good = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == CUDNN_STATUS_SUCCESS &&
                cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                                         &engine) == CUDNN_STATUS_SUCCESS &&
                cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got, &number) ==
                    CUDNN_STATUS_SUCCESS &&
                !forbidden(l, engine);
    struct chosen *c = good ? ls_alloc(1, sizeof *c) : NULL;
    if (c) {
        c->config = config;
        c->compiles = compiles(engine);
        config_name(config, number, algorithm->name, sizeof algorithm->name - 1);
        if (after)
            snprintf(algorithm->name + strlen(algorithm->name), 2, "+");
        algorithm->state = c;
        algorithm->shared = g;
        algorithm->after = after;
        g->users++;
    }
    if (engine)
        cudnnBackendDestroyDescriptor(engine);
    return c != NULL;
}

static int list_graph(struct device *d, const struct linear *l, bool after, cudnnBackendHeurMode_t mode,
                      struct conv_algorithm *list, int room)
{
    enum { ASKED = 48 };
    cudnnBackendDescriptor_t heuristic = NULL, configs[ASKED] = {0};
    int64_t n = 0;
    int found = 0;
    struct dnn_graph *g = graph_new(d, l, after);
    if (!g)
        return 0;
    for (int i = 0; i < ASKED; i++)
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &g->graph) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) !=
            CUDNN_STATUS_SUCCESS ||
        cudnnBackendFinalize(heuristic) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ASKED, &n,
                                 configs) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int i = 0; i < ASKED; i++) {
        if (i < n && found < room && found < MOST_CONFIGS && take_config(l, g, after, configs[i], &list[found]))
            found++;
        else if (configs[i])
            cudnnBackendDestroyDescriptor(configs[i]);
    }
    if (heuristic)
        cudnnBackendDestroyDescriptor(heuristic);
    graph_leave(g);
    return found;
}

static int list(struct device *d, const struct linear *l, struct conv_algorithm *list, int room)
{
    const struct ls_cuda_conv *c = &l->conv;
    int n = 0;
    if (c->groups > 1 && (c->channels / c->groups % LS_CUDA_LANE || c->out / c->groups % LS_CUDA_LANE))
        return 0;
    bool choice =
        (l->pass == FORWARD && (l->bias || c->act != LS_ACT_NONE)) || (l->pass == BWD_WEIGHTS && c->t != LS_F32);
    n += list_graph(d, l, false, CUDNN_HEUR_MODE_A, list, room);
    if (choice)
        n += list_graph(d, l, true, CUDNN_HEUR_MODE_A, list + n, room - n);
    if (n == 0)
        n += list_graph(d, l, choice, CUDNN_HEUR_MODE_FALLBACK, list, room);
    return n;
}

/* A gradient that is converted after. */
static size_t narrow_bytes(const struct linear *l)
{
    return ((size_t)weights_count(l) * ls_dtype_size(l->conv.t) + 255) / 256 * 256;
}

static bool build_plan(cudnnHandle_t handle, const struct linear *l, struct conv_algorithm *algorithm)
{
    struct chosen *c = algorithm->state;
    int64_t workspace = 0, got;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &c->plan) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(c->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) !=
            CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(c->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &c->config) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendFinalize(c->plan) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(c->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                                 &workspace) != CUDNN_STATUS_SUCCESS)
        return false;
    algorithm->workspace = ((size_t)workspace + 255) / 256 * 256;
    if (l->pass == BWD_WEIGHTS && algorithm->after)
        algorithm->workspace += narrow_bytes(l);
    return algorithm->workspace <= most_workspace;
}

static bool build(struct device *d, const struct linear *l, struct conv_algorithm *algorithm)
{
    struct chosen *c = algorithm->state;
    if (!c->built)
        c->good = build_plan(d->cudnn, l, algorithm);
    c->built = true;
    return c->good;
}

/* --- plans that are built side by side -------------------------------------------------------------------------------- */

struct ahead {
    struct device *d;
    const struct linear *l;
    struct conv_algorithm *algorithms;
    int n;
    atomic_int next, threads; /* a thread has a handle of its own: cuDNN's are for one thread at a time */
};

static void *build_some(void *context)
{
    struct ahead *a = context;
    cudnnHandle_t *handle = &a->d->builders[atomic_fetch_add(&a->threads, 1)];
    if (cudaSetDevice(a->d->number) != cudaSuccess || (!*handle && cudnnCreate(handle) != CUDNN_STATUS_SUCCESS))
        return NULL;
    for (int i; (i = atomic_fetch_add(&a->next, 1)) < a->n;) {
        struct chosen *c = a->algorithms[i].state;
        if (!c->compiles || c->built)
            continue;
        c->good = build_plan(*handle, a->l, &a->algorithms[i]);
        c->built = true;
    }
    return NULL;
}

static void build_ahead(struct device *d, const struct linear *l, struct conv_algorithm *algorithms, int n)
{
    pthread_t threads[DEVICE_BUILDERS];
    int wanted = 0, started = 0;
    struct ahead a = {.d = d, .l = l, .algorithms = algorithms, .n = n};
    for (int i = 0; i < n; i++)
        wanted += ((struct chosen *)algorithms[i].state)->compiles;
    if (wanted < 2)
        return;
    while (started < wanted && started < DEVICE_BUILDERS && ls_thread_create(&threads[started], build_some, &a) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

static enum ls_status run(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                          const struct operands *o)
{
    const struct ls_cuda_conv *c = &l->conv;
    const struct chosen *chosen = algorithm->state;
    bool narrow = l->pass == BWD_WEIGHTS && algorithm->after, bias = l->pass == FORWARD && l->bias && !algorithm->after;
    size_t gradient = narrow ? narrow_bytes(l) : 0;
    int64_t ids[] = {X, W, Y, BIAS}, n = bias ? 4 : 3;
    void *workspace = o->workspace + gradient; /* the 16-bit gradient lies before it */
    void *pointers[] = {o->x, narrow ? o->workspace : o->w, o->y, (void *)(uintptr_t)o->bias};
    cudnnBackendDescriptor_t pack = NULL;
    LS_TRY(cudnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "variant pack"));
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    cudnnStatus_t st = cudnnBackendFinalize(pack);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendExecute(d->cudnn, chosen->plan, pack);
    cudnnBackendDestroyDescriptor(pack);
    LS_TRY(cudnn_check(st, algorithm->name));
    if (narrow)
        ls_cuda_convert(d->compute, c->t, o->workspace, LS_F32, o->w, weights_count(l));
    if (l->pass == FORWARD && algorithm->after)
        ls_cuda_bias(d->compute, c->t, c->act, o->y, o->bias, o->y, c->y.n * c->y.h * c->y.w, c->y.c);
    return LS_OK;
}

static void release(struct conv_algorithm *algorithm)
{
    struct chosen *c = algorithm->state;
    if (c && c->plan)
        cudnnBackendDestroyDescriptor(c->plan);
    if (c && c->config)
        cudnnBackendDestroyDescriptor(c->config);
    ls_free(c);
    graph_leave(algorithm->shared);
}

const struct conv_library ls_cuda_cudnn = {
    .list = list, .build = build, .build_ahead = build_ahead, .run = run, .release = release};
