/* The update kernels of lamb: averages and squares of each block, the ratio of each tensor, the step. optim/lamb.c has the
 * formula. */
#include "backend/cuda/kernels/update.cuh"

using namespace ls_device;

/* Factors of one step that all elements of a tensor share. */
struct factors {
    float old_m, new_m, old_v, new_v; /* weights of the old averages and of the gradient */
    float unbias_m, unbias_v, eps, decay, unscale;
};

static __device__ factors factors_of(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                                     const struct ls_hyper &h)
{
    double t = (double)run->step + 1;
    factors f;
    f.old_m = (float)h.beta1;
    f.new_m = (float)(1 - h.beta1);
    f.old_v = (float)h.beta2;
    f.new_v = (float)(1 - h.beta2);
    f.unbias_m = (float)(1 / (1 - pow(h.beta1, t)));
    f.unbias_v = (float)(1 / sqrt(1 - pow(h.beta2, t)));
    f.eps = (float)h.eps;
    f.decay = (float)h.weight_decay;
    f.unscale = scale ? 1 / scale->scale : 1;
    return f;
}

static __device__ __forceinline__ float step_of(const factors &f, float w, float m, float v)
{
    return m * f.unbias_m / (sqrtf(v) * f.unbias_v + f.eps) + f.decay * w;
}

/* Updates the averages of the block's chunk. The squares of its weights and of its steps. */
template <typename G> static __device__ __forceinline__ float2 average_chunk(const struct ls_cuda_update &u, factors f)
{
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        float w[4], m[4], v[4], g[4];
        if (at >= u.count / 4)
            break;
        widen_quad<float>(load_quad<float>(u.param, at), w);
        widen_quad<float>(load_quad<float>(u.state[0], at), m);
        widen_quad<float>(load_quad<float>(u.state[1], at), v);
        widen_quad<G>(load_quad_once<G>(u.grad, at), g);
        for (int i = 0; i < 4; i++) {
            float slope = g[i] * f.unscale;
            m[i] = f.old_m * m[i] + f.new_m * slope;
            v[i] = f.old_v * v[i] + f.new_v * slope * slope;
            float step = step_of(f, w[i], m[i], v[i]);
            sum.x += w[i] * w[i];
            sum.y += step * step;
        }
        store_quad(u.state[0], at, narrow_quad<float>(m));
        store_quad(u.state[1], at, narrow_quad<float>(v));
    }
    return sum;
}

static __global__ void __launch_bounds__(THREADS)
    average_kernel(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                   const struct ls_cuda_update *updates, int n, int rule, float2 *squares)
{
    __shared__ factors shared;
    if (scale && scale->overflow)
        return;
    const struct ls_cuda_update u = tensor_at(updates, tensor_of_block(updates, n));
    if (u.rule != rule)
        return;
    if (threadIdx.x == 0)
        shared = factors_of(run, scale, u.hyper);
    __syncthreads();
    float2 sum;
    if (u.grad_t == LS_F32)
        sum = average_chunk<float>(u, shared);
    else if (u.grad_t == LS_BF16)
        sum = average_chunk<__nv_bfloat16>(u, shared);
    else
        sum = average_chunk<__half>(u, shared);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        squares[blockIdx.x] = sum;
}

/* One block per tensor: |w| / |step|, or 1 when one of them is 0. */
static __global__ void __launch_bounds__(THREADS)
    ratio_kernel(const struct ls_cuda_scale *scale, const struct ls_cuda_update *updates, int rule,
                 const float2 *squares, float *ratio)
{
    __shared__ double sums[2][THREADS];
    if (scale && scale->overflow)
        return;
    const struct ls_cuda_update u = tensor_at(updates, (int)blockIdx.x);
    if (u.rule != rule || u.count == 0)
        return;
    int64_t count = (u.count + CHUNK - 1) / CHUNK;
    double w = 0, step = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        float2 part = squares[u.first_block + i];
        w += part.x;
        step += part.y;
    }
    sums[0][threadIdx.x] = w;
    sums[1][threadIdx.x] = step;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
            sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0)
        ratio[blockIdx.x] = sums[0][0] > 0 && sums[1][0] > 0 ? (float)(sqrt(sums[0][0]) / sqrt(sums[1][0])) : 1;
}

static __global__ void __launch_bounds__(THREADS)
    step_kernel(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale, const struct ls_cuda_update *updates,
                int n, int rule, const float *ratio)
{
    __shared__ factors shared;
    if (scale && scale->overflow)
        return;
    int tensor = tensor_of_block(updates, n);
    const struct ls_cuda_update u = tensor_at(updates, tensor);
    if (u.rule != rule)
        return;
    if (threadIdx.x == 0)
        shared = factors_of(run, scale, u.hyper);
    __syncthreads();
    const float rate = (float)((double)tensor_lr(u.hyper, run->lr) * ratio[tensor]);
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        float w[4], m[4], v[4];
        if (at >= u.count / 4)
            return;
        widen_quad<float>(load_quad_once<float>(u.param, at), w);
        widen_quad<float>(load_quad_once<float>(u.state[0], at), m);
        widen_quad<float>(load_quad_once<float>(u.state[1], at), v);
        for (int i = 0; i < 4; i++)
            w[i] -= rate * step_of(shared, w[i], m[i], v[i]);
        store_quad_once(u.param, at, narrow_quad<float>(w));
        store_half(u, at, w);
    }
}

void ls_cuda_lamb(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                  const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, int rule,
                  float *scratch)
{
    int blocks = blocks_of(host, n);
    float2 *squares = reinterpret_cast<float2 *>(scratch);
    float *ratio = reinterpret_cast<float *>(squares + blocks);
    if (!blocks)
        return;
    average_kernel<<<blocks, THREADS, 0, s>>>(run, scale, updates, n, rule, squares);
    ratio_kernel<<<n, THREADS, 0, s>>>(scale, updates, rule, squares, ratio);
    step_kernel<<<blocks, THREADS, 0, s>>>(run, scale, updates, n, rule, ratio);
}
