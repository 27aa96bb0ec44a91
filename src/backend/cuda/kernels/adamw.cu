/* The update kernel of adamw. optim/adamw.c has the formula. */
#include "backend/cuda/kernels/update.cuh"

using namespace ls_device;

/* Factors of one step that all elements of a tensor share. */
struct factors {
    float old_m, new_m, old_v, new_v; /* weights of the old averages and of the gradient */
    float keep, rate, unbias, eps, unscale;
};

static __device__ factors factors_of(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                                     const struct ls_hyper &h)
{
    double t = (double)run->step + 1, lr = tensor_lr(h, run->lr);
    factors f;
    f.old_m = (float)h.beta1;
    f.new_m = (float)(1 - h.beta1);
    f.old_v = (float)h.beta2;
    f.new_v = (float)(1 - h.beta2);
    f.keep = (float)(1 - lr * h.weight_decay);
    f.rate = (float)(lr / (1 - pow(h.beta1, t)));
    f.unbias = (float)(1 / sqrt(1 - pow(h.beta2, t)));
    f.eps = (float)h.eps;
    f.unscale = scale ? 1 / scale->scale : 1;
    return f;
}

/* All accesses are streaming, except the store of the 16-bit copy, which the next pass reads. */
template <typename G> static __device__ __forceinline__ void update_chunk(const struct ls_cuda_update &u, factors f)
{
    quad<float> w4[QUADS], m4[QUADS], v4[QUADS];
    quad<G> g4[QUADS];
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        bool in = at < u.count / 4;
        w4[k] = in ? load_quad_once<float>(u.param, at) : zero_quad<float>();
        m4[k] = in ? load_quad_once<float>(u.state[0], at) : zero_quad<float>();
        v4[k] = in ? load_quad_once<float>(u.state[1], at) : zero_quad<float>();
        g4[k] = in ? load_quad_once<G>(u.grad, at) : zero_quad<G>();
    }
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        float w[4], m[4], v[4], g[4];
        if (at >= u.count / 4)
            return;
        widen_quad<float>(w4[k], w);
        widen_quad<float>(m4[k], m);
        widen_quad<float>(v4[k], v);
        widen_quad<G>(g4[k], g);
        for (int i = 0; i < 4; i++) {
            float slope = g[i] * f.unscale;
            m[i] = f.old_m * m[i] + f.new_m * slope;
            v[i] = f.old_v * v[i] + f.new_v * slope * slope;
            w[i] = f.keep * w[i] - f.rate * m[i] / (sqrtf(v[i]) * f.unbias + f.eps);
        }
        store_quad_once(u.param, at, narrow_quad<float>(w));
        store_quad_once(u.state[0], at, narrow_quad<float>(m));
        store_quad_once(u.state[1], at, narrow_quad<float>(v));
        store_half(u, at, w);
    }
}

static __global__ void __launch_bounds__(THREADS)
    adamw_kernel(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale, const struct ls_cuda_update *updates,
                 int n, int rule)
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
    if (u.grad_t == LS_F32)
        update_chunk<float>(u, shared);
    else if (u.grad_t == LS_BF16)
        update_chunk<__nv_bfloat16>(u, shared);
    else
        update_chunk<__half>(u, shared);
}

void ls_cuda_adamw(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                   const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, int rule,
                   float *scratch)
{
    int blocks = blocks_of(host, n);
    (void)scratch;
    if (blocks)
        adamw_kernel<<<blocks, THREADS, 0, s>>>(run, scale, updates, n, rule);
}
