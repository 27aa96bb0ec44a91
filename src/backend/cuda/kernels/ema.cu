/* The average of a value over steps (graph/ops/ema.c). */
#include "backend/cuda/kernels/update.cuh"

using namespace ls_device;

/* A step that an overflow leaves out leaves the average as it is. */
static __global__ void __launch_bounds__(THREADS)
    ema_kernel(const struct ls_cuda_scale *scale, const struct ls_cuda_update *updates, int n, int rule)
{
    if (scale && scale->overflow)
        return;
    const struct ls_cuda_update u = tensor_at(updates, tensor_of_block(updates, n));
    if (u.rule != rule)
        return;
    const float old = (float)u.hyper.ema, fresh = (float)(1 - u.hyper.ema);
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        float value[4], average[4];
        if (at >= u.count / 4)
            return;
        widen_quad<float>(load_quad<float>(u.param, at), value);
        widen_quad<float>(load_quad_once<float>(u.state[0], at), average);
        for (int i = 0; i < 4; i++)
            average[i] = old * average[i] + fresh * value[i];
        store_quad_once(u.state[0], at, narrow_quad<float>(average));
    }
}

void ls_cuda_ema(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                 const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, int rule,
                 float *scratch)
{
    int blocks = blocks_of(host, n);
    (void)run;
    (void)scratch;
    if (blocks)
        ema_kernel<<<blocks, THREADS, 0, s>>>(scale, updates, n, rule);
}
