/* What cuDNN's fused engines gain on a GPU for ResNet-50's convolutions, batch 256, f16: a convolution with the sums of
 * the batch normalisation behind it; a gradient by data with relu's mask and the backward sums of the one before it. In
 * us, beside the fastest plain engine, Lockstep's kernel of sums, and Lockstep's kernels that do both (0: none). It
 * ends within a minute; lines that begin with | are the tables.
 *
 * Found with cuDNN 9.19 on an H200: none is offered in bf16. Forward they take 6 to 36 % less than the two apart (3x3, 64
 * to 64, 56x56: 133 us, not 159), and from 13 % less to 8 % more than Lockstep's products with statistics; backward from
 * 16 % less to 8 % more, and from 17 % less to 12 % more. Each of the 28 gave other bits in a second run, though cuDNN
 * calls none nondeterministic, so Lockstep cannot use them. */
#include "bn.h"

#include <chrono>
#include <cudnn.h>
#include <unistd.h>

typedef cudnnBackendDescriptor_t object;
enum { BATCH = 256, OFFERED = 48, MOST_TRIED = 12, MOST_WORKSPACE = 1 << 30 };

struct layer {
    int side, c, k, kernel, stride; /* side: of the input; c, k: channels in and out */
};
static const layer layers[] = {
    {56, 64, 64, 3, 1},   {28, 128, 128, 3, 1},  {14, 256, 256, 3, 1},  {7, 512, 512, 3, 1},  {56, 128, 128, 3, 2},
    {28, 256, 256, 3, 2}, {14, 512, 512, 3, 2},  {56, 256, 64, 1, 1},   {56, 64, 256, 1, 1},  {28, 512, 128, 1, 1},
    {28, 128, 512, 1, 1}, {14, 1024, 256, 1, 1}, {14, 256, 1024, 1, 1}, {7, 2048, 512, 1, 1},
};

static cudnnHandle_t cudnn;

static void must(cudnnStatus_t status)
{
    must(status ? cudaErrorUnknown : cudaSuccess, cudnnGetErrorString(status));
}

/* The types of attributes: a descriptor where nothing else is said. */
template <typename T> constexpr cudnnBackendAttributeType_t type_of = CUDNN_TYPE_BACKEND_DESCRIPTOR;
template <> constexpr auto type_of<bool> = CUDNN_TYPE_BOOLEAN;
template <> constexpr auto type_of<float> = CUDNN_TYPE_FLOAT;
template <> constexpr auto type_of<int64_t> = CUDNN_TYPE_INT64;
template <> constexpr auto type_of<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <> constexpr auto type_of<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <> constexpr auto type_of<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <> constexpr auto type_of<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <> constexpr auto type_of<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <> constexpr auto type_of<cudnnGenStatsMode_t> = CUDNN_TYPE_GENSTATS_MODE;
template <> constexpr auto type_of<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
#define A(name) CUDNN_ATTR_##name

/* Names, each with a value or an array. */
template <typename T, typename... Rest>
static void set(object d, cudnnBackendAttributeName_t name, const T &value, const Rest &...rest)
{
    typedef std::remove_all_extents_t<T> one;
    must(cudnnBackendSetAttribute(d, name, type_of<one>, sizeof value / sizeof(one), &value));
    if constexpr (sizeof...(rest) > 0)
        set(d, rest...);
}

/* Descriptors live as long as the program. */
template <typename... Pairs> static object make(cudnnBackendDescriptorType_t type, const Pairs &...pairs)
{
    object d = NULL;
    must(cudnnBackendCreateDescriptor(type, &d));
    if constexpr (sizeof...(pairs) > 0)
        set(d, pairs...);
    return d;
}

static object finished(object d)
{
    must(cudnnBackendFinalize(d));
    return d;
}

/* How many there are. */
template <typename T> static int64_t get(object d, cudnnBackendAttributeName_t name, int64_t most, T *to)
{
    int64_t n = 0;
    return cudnnBackendGetAttribute(d, name, type_of<T>, most, &n, to) ? 0 : n;
}

/* A layer with its data: x = relu(bn(raw)), y = w * x. n: channels of the map with the sums, which is y or dx. */
struct maps {
    const layer &l;
    const bool back;
    const size_t c = (size_t)l.c, k = (size_t)l.k, n = back ? c : k, rows_in = (size_t)(BATCH * l.side * l.side),
                 rows_out = rows_in / (size_t)(l.stride * l.stride), in = rows_in * c, out = rows_out * k,
                 weights = c * k * (size_t)(l.kernel * l.kernel);
    buffer raw{LS_F16, in}, x{LS_F16, in}, dx{LS_F16, in}, own_dx{LS_F16, in}, w{LS_F16, weights}, y{LS_F16, out},
        mean{LS_F32, c}, rstd{LS_F32, c}, gamma{LS_F32, c}, beta{LS_F32, c}, first{LS_F32, n}, second{LS_F32, n},
        own_first{LS_F32, n}, own_second{LS_F32, n}, stat{LS_F32, 2 * n}, eq_dy{LS_F32, n}, eq_x{LS_F32, n},
        eq_shift{LS_F32, n}, scratch{LS_U8, 8 << 20}, workspace{LS_U8, MOST_WORKSPACE},
        run_data{LS_U8, sizeof(struct ls_cuda_run)};
    struct ls_cuda_run *run = (struct ls_cuda_run *)run_data.at;
    struct ls_cuda_bn bn = {.t = LS_F16, .act = LS_ACT_RELU, .eps = 1e-5f, .scratch = scratch.f()};

    maps(const layer &of, bool backward) : l(of), back(backward)
    {
        const struct ls_cuda_run all = {.grad_scale = 1, .stat_weight = 1, .valid = BATCH};
        ls_cuda_set_run(0, run, &all);
        must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
        for (const buffer *b : {&raw, &w, &y})
            ls_cuda_fill(0, LS_F16, b->at, (int64_t)b->count);
        for (buffer *b : {&mean, &rstd, &gamma, &beta})
            b->put(random_values(LS_F32, c, 1, 0.1));
        bn.x = bn.y = {BATCH, l.side, l.side, l.c};
        ls_cuda_bn_apply(0, &bn, raw.at, NULL, gamma.f(), beta.f(), mean.f(), rstd.f(), x.at, NULL, NULL);
        if (!back)
            bn.x = bn.y = {BATCH, l.side / l.stride, l.side / l.stride, l.k};
    }
};

/* A graph of operations, and the engines that are offered for it. */
struct question {
    const cudnnDataType_t type, f32 = CUDNN_DATA_FLOAT;
    std::vector<object> operations, offered;
    std::vector<int64_t> ids; /* of what is stored, at pointers */
    std::vector<void *> pointers;
    int64_t tensors = 0;
    object graph, pack;
    std::pair<double, object> best = {INFINITY, NULL}; /* us, and the plan */

    question(const maps &m, bool sums, cudnnDataType_t t) : type(t)
    {
        const layer &l = m.l;
        object w = tensor(m.w.at, type, l.c, l.k, l.kernel), y = tensor(m.y.at, type, l.k, BATCH, l.side / l.stride);
        object x = m.back && sums ? tensor(NULL, f32, l.c, BATCH, l.side)
                                  : tensor(m.back ? m.dx.at : m.x.at, type, l.c, BATCH, l.side);
        convolution(l, m.back, x, w, y);
        if (sums && m.back)
            masked_sums(m, x);
        else if (sums)
            operations.push_back(finished(make(
                CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, A(OPERATION_GENSTATS_MODE), CUDNN_GENSTATS_SUM_SQSUM,
                A(OPERATION_GENSTATS_MATH_PREC), f32, A(OPERATION_GENSTATS_XDESC), y, A(OPERATION_GENSTATS_SUMDESC),
                tensor(m.first.at, f32, l.k), A(OPERATION_GENSTATS_SQSUMDESC), tensor(m.second.at, f32, l.k))));
        graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, A(OPERATIONGRAPH_HANDLE), cudnn);
        must(cudnnBackendSetAttribute(graph, A(OPERATIONGRAPH_OPS), CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      (int64_t)operations.size(), operations.data()));
        finished(graph);
        const int64_t n = (int64_t)ids.size();
        pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        must(cudnnBackendSetAttribute(pack, A(VARIANT_PACK_DATA_POINTERS), CUDNN_TYPE_VOID_PTR, n, pointers.data()));
        must(cudnnBackendSetAttribute(pack, A(VARIANT_PACK_UNIQUE_IDS), CUDNN_TYPE_INT64, n, ids.data()));
        must(cudnnBackendSetAttribute(pack, A(VARIANT_PACK_WORKSPACE), CUDNN_TYPE_VOID_PTR, 1, &m.workspace.at));
        finished(pack);
        ask(CUDNN_HEUR_MODE_A);
        ask(CUDNN_HEUR_MODE_FALLBACK);
    }
    object tensor(void *data, cudnnDataType_t t, int64_t c, int64_t n = 1, int64_t side = 1)
    {
        const int64_t dim[4] = {n, c, side, side}, stride[4] = {c * side * side, 1, side * c, c}, id = ++tensors;
        if (data) {
            ids.push_back(id);
            pointers.push_back(data);
        }
        return finished(make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, A(TENSOR_DATA_TYPE), t, A(TENSOR_DIMENSIONS), dim,
                             A(TENSOR_STRIDES), stride, A(TENSOR_UNIQUE_ID), id, A(TENSOR_BYTE_ALIGNMENT), (int64_t)16,
                             A(TENSOR_IS_VIRTUAL), !data));
    }
    void convolution(const layer &l, bool back, object x, object w, object y)
    {
        const int64_t dilation[2] = {1, 1}, stride[2] = {l.stride, l.stride}, around[2] = {l.kernel / 2, l.kernel / 2};
        object how = finished(make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, A(CONVOLUTION_COMP_TYPE), f32,
                                   A(CONVOLUTION_CONV_MODE), CUDNN_CROSS_CORRELATION, A(CONVOLUTION_SPATIAL_DIMS),
                                   (int64_t)2, A(CONVOLUTION_DILATIONS), dilation, A(CONVOLUTION_FILTER_STRIDES),
                                   stride, A(CONVOLUTION_PRE_PADDINGS), around, A(CONVOLUTION_POST_PADDINGS), around));
#define OF(name) (back ? A(OPERATION_CONVOLUTION_BWD_DATA_##name) : A(OPERATION_CONVOLUTION_FORWARD_##name))
        operations.push_back(
            finished(make(back ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                               : CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          back ? A(OPERATION_CONVOLUTION_BWD_DATA_DX) : A(OPERATION_CONVOLUTION_FORWARD_X), x, OF(W), w,
                          back ? A(OPERATION_CONVOLUTION_BWD_DATA_DY) : A(OPERATION_CONVOLUTION_FORWARD_Y), y,
                          OF(CONV_DESC), how, OF(ALPHA), 1.0f, OF(BETA), 0.0f)));
    }
    /* Of two operands; of RELU_BWD a is what was clipped, b the gradient. The result is not stored where data is NULL. */
    object pointwise(cudnnPointwiseMode_t mode, object a, object b, void *data, const layer &l)
    {
        const bool slope = mode == CUDNN_POINTWISE_RELU_BWD;
        object result = tensor(data, data ? type : f32, l.c, BATCH, l.side);
        operations.push_back(finished(make(
            CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, A(OPERATION_POINTWISE_PW_DESCRIPTOR),
            finished(make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, A(POINTWISE_MODE), mode, A(POINTWISE_MATH_PREC), f32)),
            A(OPERATION_POINTWISE_XDESC), a, slope ? A(OPERATION_POINTWISE_DYDESC) : A(OPERATION_POINTWISE_BDESC), b,
            slope ? A(OPERATION_POINTWISE_DXDESC) : A(OPERATION_POINTWISE_YDESC), result)));
        return result;
    }
    /* The gradient passes where (raw - mean) * rstd * gamma + beta > 0. dx = eq_dy * passed + eq_x * raw + eq_shift. */
    void masked_sums(const maps &m, object gradient)
    {
        const auto row = [&](const buffer &b) { return tensor(b.at, f32, m.l.c); };
        object map = tensor(m.raw.at, type, m.l.c, BATCH, m.l.side), mean = row(m.mean), rstd = row(m.rstd),
               gamma = row(m.gamma), z = pointwise(CUDNN_POINTWISE_SUB, map, mean, NULL, m.l);
        z = pointwise(CUDNN_POINTWISE_MUL, z, rstd, NULL, m.l);
        z = pointwise(CUDNN_POINTWISE_MUL, z, gamma, NULL, m.l);
        z = pointwise(CUDNN_POINTWISE_ADD, z, row(m.beta), NULL, m.l);
        object dz = pointwise(CUDNN_POINTWISE_RELU_BWD, z, gradient, m.dx.at, m.l);
#define SUMS(name) A(OPERATION_BN_BWD_WEIGHTS_##name)
        operations.push_back(finished(make(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, SUMS(MATH_PREC), f32,
                                           SUMS(MEAN_DESC), mean, SUMS(INVSTD_DESC), rstd, SUMS(BN_SCALE_DESC), gamma,
                                           SUMS(X_DESC), map, SUMS(DY_DESC), dz, SUMS(DBN_SCALE_DESC), row(m.first),
                                           SUMS(DBN_BIAS_DESC), row(m.second), SUMS(EQ_DY_SCALE_DESC), row(m.eq_dy),
                                           SUMS(EQ_X_SCALE_DESC), row(m.eq_x), SUMS(EQ_BIAS), row(m.eq_shift))));
    }
    /* What cuDNN offers, perhaps nothing, and does not call nondeterministic. */
    void ask(cudnnBackendHeurMode_t mode)
    {
        object configs[OFFERED], h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, A(ENGINEHEUR_OPERATION_GRAPH), graph,
                                          A(ENGINEHEUR_MODE), mode);
        for (object &c : configs)
            c = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        const int64_t n = cudnnBackendFinalize(h) ? 0 : get(h, A(ENGINEHEUR_RESULTS), OFFERED, configs);
        for (int64_t i = 0; i < n && i < OFFERED && offered.size() < MOST_TRIED; i++) {
            cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
            object engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
            get(configs[i], A(ENGINECFG_ENGINE), 1, &engine);
            const auto end = notes + get(engine, A(ENGINE_NUMERICAL_NOTE), CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
            if (!std::count(notes, end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
                offered.push_back(configs[i]);
        }
    }
    bool run(object plan, cudaStream_t s) const
    {
        cudnnSetStream(cudnn, s);
        return plan && !cudnnBackendExecute(cudnn, plan, pack) && (s || !cudaDeviceSynchronize());
    }
    void measure()
    {
        for (object config : offered) {
            object plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, A(EXECUTION_PLAN_HANDLE), cudnn,
                               A(EXECUTION_PLAN_ENGINE_CONFIG), config);
            int64_t space = 0;
            bool good = !cudnnBackendFinalize(plan) && get(plan, A(EXECUTION_PLAN_WORKSPACE_SIZE), 1, &space) == 1 &&
                        space <= MOST_WORKSPACE && run(plan, 0);
            const auto from = std::chrono::steady_clock::now();
            good = good && run(plan, 0);
            const std::chrono::duration<double, std::micro> once = std::chrono::steady_clock::now() - from;
            if (!good || once.count() > 3 * best.first + 100) /* far too slow */
                continue;
            const double us = time_of([&](cudaStream_t s) { good = good && run(plan, s); });
            cudnnSetStream(cudnn, 0); /* that stream has ended */
            if (good)
                best = std::min(best, {us, plan});
        }
    }
};

/* The last million values. */
static values end_of(const buffer &map)
{
    buffer end(map.t, std::min(map.count, (size_t)1 << 20));
    must(cudaMemcpy(end.at, (__half *)map.at + map.count - end.count, end.count * 2, cudaMemcpyDeviceToDevice), "copy");
    return end.get();
}

static void check(const char *what, const values &got, const values &want)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++) {
        off += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    report(what, std::sqrt(off / size), 1e-2);
}

static void measure(const layer &l, bool back)
{
    const maps m(l, back);
    question plain(m, false, CUDNN_DATA_HALF), fused(m, true, CUDNN_DATA_HALF), bf16(m, true, CUDNN_DATA_BFLOAT16);
    const buffer &map = back ? m.dx : m.y;
    float *own_first = m.own_first.f(), *own_second = m.own_second.f(), *stat = m.stat.f();
    struct ls_cuda_bn_grad g = {.dy = m.dx.at, .x = m.raw.at, .dgamma = own_first, .dbeta = own_second};
    g.gamma = m.gamma.f();
    g.beta = m.beta.f();
    g.mean = m.mean.f();
    g.rstd = m.rstd.f();
    const auto sums = [&](cudaStream_t s) {
        back ? ls_cuda_bn_bwd_sums(s, &m.bn, m.run, &g)
             : ls_cuda_bn_stats(s, &m.bn, m.run, m.y.at, own_first, own_second, stat);
    };
    plain.measure();
    const double own = time_of(sums);
    g.dresidual = m.own_dx.at; /* behind the mask */
    sums(0);
    const values want = end_of(back ? m.own_dx : m.y);
    fused.measure();
    std::vector<std::vector<uint8_t>> bytes[2];
    for (auto &all : bytes) {
        for (const buffer *b : {&map, &m.first, &m.second})
            must(cudaMemset(b->at, 0xff, b->count * size_of(b->t)), "memset");
        fused.run(fused.best.second, 0);
        for (const buffer *b : {&map, &m.first, &m.second})
            all.push_back(bytes_of(*b));
    }
    const char *again = bytes[0] == bytes[1] ? "the same" : bytes[0][0] == bytes[1][0] ? "other sums" : "other map";
    values first = m.first.get(), second = m.second.get();
    for (size_t i = 0; i < m.n && !back; i++) { /* sums of y and its squares */
        first[i] /= (double)m.rows_out;
        second[i] = 1 / std::sqrt(second[i] / (double)m.rows_out - first[i] * first[i] + m.bn.eps);
    }
    check("map", end_of(map), want);
    check(back ? "dgamma" : "mean", first, m.own_first.get());
    check(back ? "dbeta" : "rstd", second, m.own_second.get());
    double both = 0;
    g.dy = NULL;
    const ls_cuda_product p = {(int64_t)m.rows_in, back ? l.k : l.c, back ? l.c : l.k, back, LS_CUDA_PRODUCT_WGMMA};
    if (l.kernel == 1 && ls_cuda_product_can(&p, &m.bn, false))
        both = time_of([&](cudaStream_t s) {
            back ? ls_cuda_product_sums(s, &p, &m.bn, m.run, m.y.at, m.w.at, &g)
                 : ls_cuda_product_stats(s, &p, &m.bn, m.run, m.x.at, m.w.at, m.y.at, own_first, own_second, stat);
        });
    const ls_cuda_taps taps = {{BATCH, l.side, l.side, back ? l.k : l.c}, back ? l.c : l.k, back};
    if (l.kernel == 3 && l.stride == 1 && ls_cuda_taps_can(&taps, &m.bn, false))
        both = time_of([&](cudaStream_t s) {
            back
                ? ls_cuda_taps_sums(s, &taps, &m.bn, m.run, m.y.at, m.w.at, &g)
                : ls_cuda_taps_stats(s, &taps, &m.bn, m.run, m.x.at, m.w.at, NULL, m.y.at, own_first, own_second, stat);
        });
    printf("| %dx%d/%d, %d to %d, side %d | %.1f | %.1f | %.1f | %.1f | %s | %.1f | %zu |\n", l.kernel, l.kernel,
           l.stride, l.c, l.k, l.side, plain.best.first, own, plain.best.first + own, fused.best.first, again, both,
           bf16.offered.size());
    fflush(stdout);
}

int main(void)
{
    alarm(58);
    must(cudnnCreate(&cudnn));
    for (bool back : {false, true}) {
        printf("| %s, cuDNN %zu | plain | own sums | apart | cuDNN with sums | again | own with sums | bf16 engines |\n"
               "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |\n",
               back ? "gradient" : "convolution", cudnnGetVersion());
        for (const layer &l : layers)
            measure(l, back);
    }
    return failures ? 1 : 0;
}
