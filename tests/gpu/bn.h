/* What the tests of batch normalisation's device kernels share. */
#ifndef LS_TESTS_GPU_BN_H
#define LS_TESTS_GPU_BN_H

#include "backend/cuda/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string>
#include <vector>

typedef std::vector<double> values;

static int failures;

static inline void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

/* --- values and device memory ---------------------------------------------------------------------------------- */

static uint64_t seed = 1;

static inline double uniform(void) /* -1 .. 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(seed >> 32) / 2147483648.0;
}

static inline double rounded(enum ls_dtype t, double v)
{
    if (t == LS_BF16)
        return __bfloat162float(__float2bfloat16_rn((float)v));
    if (t == LS_F16)
        return __half2float(__float2half_rn((float)v));
    return (float)v;
}

static inline size_t size_of(enum ls_dtype t)
{
    return t == LS_F32 ? 4 : t == LS_U8 ? 1 : 2;
}

struct buffer {
    enum ls_dtype t;
    size_t count;
    void *at;

    buffer(enum ls_dtype type, size_t n) : t(type), count(n)
    {
        must(cudaMalloc(&at, n * size_of(t) + 256), "memory");
        must(cudaMemset(at, 0xff, n * size_of(t)), "memset"); /* not a number */
    }
    buffer(const buffer &) = delete;
    ~buffer()
    {
        cudaFree(at);
    }
    float *f() const
    {
        return (float *)at;
    }
    void put(const values &v)
    {
        std::vector<uint8_t> raw(count * size_of(t));
        for (size_t i = 0; i < count; i++)
            if (t == LS_F32)
                ((float *)raw.data())[i] = (float)v[i];
            else if (t == LS_BF16)
                ((__nv_bfloat16 *)raw.data())[i] = __float2bfloat16_rn((float)v[i]);
            else
                ((__half *)raw.data())[i] = __float2half_rn((float)v[i]);
        must(cudaMemcpy(at, raw.data(), raw.size(), cudaMemcpyHostToDevice), "copy");
    }
    values get() const
    {
        std::vector<uint8_t> raw(count * size_of(t));
        values v(count);
        must(cudaMemcpy(raw.data(), at, raw.size(), cudaMemcpyDeviceToHost), "copy");
        for (size_t i = 0; i < count; i++)
            v[i] = t == LS_F32    ? ((float *)raw.data())[i]
                   : t == LS_BF16 ? (double)__bfloat162float(((__nv_bfloat16 *)raw.data())[i])
                   : t == LS_F16  ? (double)__half2float(((__half *)raw.data())[i])
                                  : (double)raw[i];
        return v;
    }
};

/* A pass over `valid` samples, whose statistics count with that weight. */
static inline void put_run(const buffer &run, int64_t valid, float weight)
{
    struct ls_cuda_run host = {};
    host.valid = valid;
    host.stat_weight = weight;
    must(cudaMemcpy(run.at, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
}

static inline values random_values(enum ls_dtype t, size_t n, double centre, double spread)
{
    values v(n);
    for (double &x : v)
        x = rounded(t, centre + spread * (uniform() + uniform()));
    return v;
}

/* A sparse map's pixels, every stride-th of every stride-th row of m, among zeros. */
static inline values spread(const struct ls_cuda_map &m, int stride, const values &sparse)
{
    values whole((size_t)(m.n * m.h * m.w * m.c));
    size_t from = 0;
    for (int64_t n = 0; n < m.n; n++)
        for (int64_t y = 0; y < m.h; y += stride)
            for (int64_t x = 0; x < m.w; x += stride)
                for (int64_t c = 0; c < m.c; c++)
                    whole[(size_t)(((n * m.h + y) * m.w + x) * m.c + c)] = sparse[from++];
    return whole;
}

static inline size_t sparse_count(const struct ls_cuda_map &m, int stride)
{
    return (size_t)(m.n * ((m.h + stride - 1) / stride) * ((m.w + stride - 1) / stride) * m.c);
}

static inline std::vector<uint8_t> bytes_of(const buffer &b)
{
    std::vector<uint8_t> raw(b.count * size_of(b.t));
    must(cudaMemcpy(raw.data(), b.at, raw.size(), cudaMemcpyDeviceToHost), "copy");
    return raw;
}

/* --- comparing -------------------------------------------------------------------------------------------------- */

static inline double worst_of(const values &got, const values &want)
{
    double largest = 1e-30, worst = 0;
    for (double w : want)
        largest = std::max(largest, std::fabs(w));
    for (size_t i = 0; i < want.size(); i++) {
        double e = std::fabs(got[i] - want[i]) / (std::fabs(want[i]) + 0.05 * largest);
        worst = e <= worst ? worst : e; /* what is not a number is kept */
        if (e != e)
            return INFINITY;
    }
    return worst;
}

static inline double tolerance(enum ls_dtype t)
{
    return t == LS_F32 ? 2e-5 : t == LS_F16 ? 2e-3 : 1.2e-2;
}

static inline void report(const std::string &name, double error, double allowed)
{
    bool good = error <= allowed;
    failures += !good;
    printf("%s %s %.2g\n", good ? "ok" : "FAIL", name.c_str(), error);
}

static inline const char *type_name(enum ls_dtype t)
{
    return t == LS_F32 ? "f32" : t == LS_BF16 ? "bf16" : "f16";
}

static inline bool clips(enum ls_act a)
{
    return a <= LS_ACT_RELU6;
}

static inline double act_of(enum ls_act a, double z)
{
    if (a == LS_ACT_GELU)
        return z * std::erfc(-z / std::sqrt(2)) / 2;
    if (a == LS_ACT_SILU)
        return z / (1 + std::exp(-z));
    if (a == LS_ACT_HARDSWISH)
        return z * std::min(std::max(z / 6 + 0.5, 0.0), 1.0);
    return a == LS_ACT_NONE ? z : a == LS_ACT_RELU6 ? std::min(std::max(z, 0.0), 6.0) : std::max(z, 0.0);
}

/* Of the activations that do not clip. */
static inline double slope_of(enum ls_act a, double z)
{
    const double s = 1 / (1 + std::exp(-z));
    if (a == LS_ACT_GELU)
        return std::erfc(-z / std::sqrt(2)) / 2 + z * std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    if (a == LS_ACT_SILU)
        return s * (1 + z * (1 - s));
    return z <= -3 ? 0 : z >= 3 ? 1 : z / 3 + 0.5;
}

static inline bool passes(enum ls_act a, double z)
{
    return a == LS_ACT_NONE || (z > 0 && (a == LS_ACT_RELU || z < 6));
}

/* --- times ------------------------------------------------------------------------------------------------------- */

/* Microseconds of one call: a graph of ten, the median of 20 replays. */
template <typename F> static inline double time_of(F call)
{
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    must(cudaStreamCreate(&s), "stream");
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), "capture");
    for (int i = 0; i < 10; i++)
        call(s);
    must(cudaStreamEndCapture(s, &graph), "capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    std::vector<float> ms;
    for (int i = 0; i < 23; i++) {
        float one = 0;
        cudaEventRecord(from, s);
        cudaGraphLaunch(exec, s);
        cudaEventRecord(to, s);
        must(cudaEventSynchronize(to), "replay");
        cudaEventElapsedTime(&one, from, to);
        if (i >= 3)
            ms.push_back(one);
    }
    std::sort(ms.begin(), ms.end());
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaStreamDestroy(s);
    return (double)ms[ms.size() / 2] * 1000 / 10;
}

/* `bytes`: what a call moves, each pass counted. */
template <typename F> static inline void bench(const char *what, double bytes, F call)
{
    double us = time_of(call);
    printf("  %-34s %8.1f us %8.0f GB/s\n", what, us, bytes / us / 1000);
}

/* The program, run with `bench` or without. */
static inline int test_main(int argc, char **argv, void (*bench_all)(void), void (*check_all)(void))
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        printf("FAIL no GPU here\n");
        return 1;
    }
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        bench_all();
        return 0;
    }
    check_all();
    printf("%d failures\n", failures);
    return failures ? 1 : 0;
}

#endif
