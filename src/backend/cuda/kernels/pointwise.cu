/* Elementwise kernels: activations, sums, conversions. Memory is accessed in words of 16 bytes. A thread has WORDS
 * of them in flight where there is enough work. A result may be the same memory as an operand. */
#include "backend/cuda/kernels/quad.cuh"

using namespace ls_device;

#define THREADS 256
#define WORDS 4

template <typename T> static constexpr int per_word = 16 / (int)sizeof(T);

template <typename T> static __device__ __forceinline__ void widen_word(uint4 word, float (&v)[per_word<T>])
{
    if constexpr (sizeof(T) == 4)
        widen_quad<T>(quad<T>{word}, v);
    else
        widen<T>(octet<T>{{word}}, v);
}

template <typename T> static __device__ __forceinline__ uint4 narrow_word(const float (&v)[per_word<T>])
{
    if constexpr (sizeof(T) == 4)
        return narrow_quad<T>(v).word;
    else
        return narrow<T>(v).word[0];
}

/* Whether a thread handles WORDS words. It handles fewer where WORDS would leave multiprocessors idle. */
static bool many(int64_t words)
{
    return words >= (int64_t)1 << 18;
}

static unsigned grid_for(int64_t words, int each)
{
    return (unsigned)ceil_div(words, THREADS * each);
}

/* --- one or two operands ------------------------------------------------------------------------------------- */

/* Functions of a and b. With one operand, b is 0. */
struct same {
    __device__ float operator()(float a, float) const
    {
        return a;
    }
};
struct clip {
    float top;
    __device__ float operator()(float a, float) const
    {
        return act_of<true>(a, top);
    }
};
struct pass_where {
    float top;
    __device__ float operator()(float dy, float y) const
    {
        return act_passes(y, top) ? dy : 0;
    }
};
struct times {
    float factor;
    __device__ float operator()(float a, float) const
    {
        return factor * a;
    }
};
struct plus {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};
struct plus_clip {
    float top;
    __device__ float operator()(float a, float b) const
    {
        return act_of<true>(a + b, top);
    }
};

template <typename T, int EACH, bool TWO, typename F>
static __global__ void __launch_bounds__(THREADS)
    map_kernel(F f, const uint4 *a, const uint4 *b, uint4 *y, int64_t words)
{
    int64_t first = (int64_t)blockIdx.x * (THREADS * EACH) + threadIdx.x;
    uint4 wa[EACH], wb[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t at = first + k * THREADS;
        wa[k] = at < words ? __ldcg(a + at) : make_uint4(0, 0, 0, 0);
        wb[k] = TWO && at < words ? __ldcg(b + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t at = first + k * THREADS;
        float va[per_word<T>], vb[per_word<T>];
        widen_word<T>(wa[k], va);
        widen_word<T>(wb[k], vb);
#pragma unroll
        for (int i = 0; i < per_word<T>; i++)
            va[i] = f(va[i], vb[i]);
        if (at < words)
            y[at] = narrow_word<T>(va);
    }
}

template <bool TWO, typename F>
static void map(ls_cuda_stream s, enum ls_dtype t, F f, const void *a, const void *b, void *y, int64_t count)
{
    const uint4 *wa = (const uint4 *)a, *wb = (const uint4 *)b;
    uint4 *wy = (uint4 *)y;
    int64_t words = count / (t == LS_F32 ? 4 : 8);
    if (!words)
        return;
    if (many(words))
        LS_CUDA_BY_TYPE(t, map_kernel<T, WORDS, TWO><<<grid_for(words, WORDS), THREADS, 0, s>>>(f, wa, wb, wy, words));
    else
        LS_CUDA_BY_TYPE(t, map_kernel<T, 1, TWO><<<grid_for(words, 1), THREADS, 0, s>>>(f, wa, wb, wy, words));
}

void ls_cuda_act(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *x, void *y, int64_t count)
{
    if (act == LS_ACT_NONE)
        map<false>(s, t, same{}, x, NULL, y, count);
    else
        map<false>(s, t, clip{act_top(act)}, x, NULL, y, count);
}

void ls_cuda_act_bwd(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *dy, const void *y, void *dx,
                     int64_t count)
{
    if (act == LS_ACT_NONE)
        map<false>(s, t, same{}, dy, NULL, dx, count);
    else
        map<true>(s, t, pass_where{act_top(act)}, dy, y, dx, count);
}

void ls_cuda_add(ls_cuda_stream s, enum ls_dtype t, enum ls_act act, const void *a, const void *b, void *y,
                 int64_t count)
{
    if (act == LS_ACT_NONE)
        map<true>(s, t, plus{}, a, b, y, count);
    else
        map<true>(s, t, plus_clip{act_top(act)}, a, b, y, count);
}

void ls_cuda_multiply(ls_cuda_stream s, enum ls_dtype t, float factor, const void *x, void *y, int64_t count)
{
    map<false>(s, t, times{factor}, x, NULL, y, count);
}

void ls_cuda_sum(ls_cuda_stream s, const float *from, float *to, int64_t count)
{
    map<true>(s, LS_F32, plus{}, to, from, to, count);
}

/* --- conversion ---------------------------------------------------------------------------------------------- */

template <typename FROM, typename TO, int EACH>
static __global__ void __launch_bounds__(THREADS) convert_kernel(const void *from, void *to, int64_t quads)
{
    int64_t first = (int64_t)blockIdx.x * (THREADS * EACH) + threadIdx.x;
    quad<FROM> q[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t at = first + k * THREADS;
        q[k] = at < quads ? load_quad<FROM>(from, at) : zero_quad<FROM>();
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t at = first + k * THREADS;
        float v[4];
        widen_quad<FROM>(q[k], v);
        if (at < quads)
            store_quad<TO>(to, at, narrow_quad<TO>(v));
    }
}

template <typename FROM>
static void convert(ls_cuda_stream s, const void *from, enum ls_dtype to_t, void *to, int64_t quads)
{
    if (many(quads))
        LS_CUDA_BY_TYPE(to_t,
                        convert_kernel<FROM, T, WORDS><<<grid_for(quads, WORDS), THREADS, 0, s>>>(from, to, quads));
    else
        LS_CUDA_BY_TYPE(to_t, convert_kernel<FROM, T, 1><<<grid_for(quads, 1), THREADS, 0, s>>>(from, to, quads));
}

void ls_cuda_convert(ls_cuda_stream s, enum ls_dtype from_t, const void *from, enum ls_dtype to_t, void *to,
                     int64_t count)
{
    if (count >= 4)
        LS_CUDA_BY_TYPE(from_t, convert<T>(s, from, to_t, to, count / 4));
}
