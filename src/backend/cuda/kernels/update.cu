/* Update kernels of sgd and lars, loss scaling, running statistics, and checksums. Each launch covers a whole list
 * of tensors. */
#include "backend/cuda/kernels/given.h"
#include "backend/cuda/kernels/update.cuh"

#include <limits.h>

using namespace ls_device;

int ls_cuda_update_number(struct ls_cuda_update *host, int n)
{
    int64_t blocks = 0;
    for (int i = 0; i < n; i++) {
        host[i].first_block = (int32_t)blocks;
        blocks += chunks(host + i);
        if (blocks > INT_MAX)
            return -1;
    }
    return (int)blocks;
}

/* A kernel launch copies its arguments, so no host memory has to stay valid for it. */
static __global__ void set_update(struct ls_cuda_update *to, struct ls_cuda_update update)
{
    *to = update;
}

void ls_cuda_set_update(ls_cuda_stream s, struct ls_cuda_update *to, const struct ls_cuda_update *update)
{
    set_update<<<1, 1, 0, s>>>(to, *update);
}

static bool any_lars(const struct ls_cuda_update *host, int n)
{
    for (int i = 0; i < n; i++)
        if (host[i].norms)
            return true;
    return false;
}

/* --- sgd and lars -------------------------------------------------------------------------------------------- */

/* m = momentum * m + before * g; w -= after * m. sgd applies the learning rate in `after`, lars in `before`. All
 * accesses are streaming, except the store of the 16-bit copy, which the next pass reads. */
struct rates {
    float before, after, unscale;
};

template <typename G> static __device__ __forceinline__ void update_chunk(const struct ls_cuda_update &u, rates r)
{
    const float share = (float)u.hyper.momentum, decay = (float)u.hyper.weight_decay;
    float *momentum = u.state[0];
    quad<float> w4[QUADS], m4[QUADS];
    quad<G> g4[QUADS];
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        bool in = at < u.count / 4;
        w4[k] = in ? load_quad_once<float>(u.param, at) : zero_quad<float>();
        m4[k] = in && momentum ? load_quad_once<float>(momentum, at) : zero_quad<float>();
        g4[k] = in ? load_quad_once<G>(u.grad, at) : zero_quad<G>();
    }
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        float w[4], m[4], g[4];
        widen_quad<float>(w4[k], w);
        widen_quad<float>(m4[k], m);
        widen_quad<G>(g4[k], g);
        if (at >= u.count / 4)
            return;
        for (int i = 0; i < 4; i++) {
            float slope = r.before * (g[i] * r.unscale + decay * w[i]);
            m[i] = momentum ? share * m[i] + slope : slope;
            w[i] -= r.after * (u.nesterov && momentum ? slope + share * m[i] : m[i]);
        }
        store_quad_once(u.param, at, narrow_quad<float>(w));
        if (momentum)
            store_quad_once(momentum, at, narrow_quad<float>(m));
        store_half(u, at, w);
    }
}

static __global__ void __launch_bounds__(THREADS)
    update_kernel(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                  const struct ls_cuda_update *updates, int n, int rule, const float *local)
{
    float unscale = 1;
    if (scale) {
        if (scale->overflow)
            return;
        unscale = 1 / scale->scale;
    }
    int tensor = tensor_of_block(updates, n);
    struct ls_cuda_update u = tensor_at(updates, tensor);
    if (u.rule != rule)
        return;
    float lr = tensor_lr(u.hyper, run->lr);
    rates r = {1, lr, unscale};
    if (u.norms)
        r = {lr * local[tensor], 1, unscale};
    if (u.norms)
        u.nesterov = 0;
    if (u.grad_t == LS_F32)
        update_chunk<float>(u, r);
    else if (u.grad_t == LS_BF16)
        update_chunk<__nv_bfloat16>(u, r);
    else
        update_chunk<__half>(u, r);
}

/* --- the norms of lars --------------------------------------------------------------------------------------- */

template <typename G> static __device__ __forceinline__ float2 chunk_squares(const struct ls_cuda_update &u)
{
    quad<float> w4[QUADS];
    quad<G> g4[QUADS];
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        bool in = at < u.count / 4;
        w4[k] = in ? load_quad<float>(u.param, at) : zero_quad<float>();
        g4[k] = in ? load_quad<G>(u.grad, at) : zero_quad<G>();
    }
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        float w[4], g[4];
        widen_quad<float>(w4[k], w);
        widen_quad<G>(g4[k], g);
        for (int i = 0; i < 4; i++) {
            sum.x += w[i] * w[i];
            sum.y += g[i] * g[i];
        }
    }
    return sum;
}

/* squares[block] = (|w|^2, |g|^2) of the block's chunk. */
static __global__ void __launch_bounds__(THREADS)
    squares_kernel(const struct ls_cuda_update *updates, int n, float2 *squares)
{
    struct ls_cuda_update u = tensor_at(updates, tensor_of_block(updates, n));
    if (!u.norms)
        return;
    float2 sum;
    if (u.grad_t == LS_F32)
        sum = chunk_squares<float>(u);
    else if (u.grad_t == LS_BF16)
        sum = chunk_squares<__nv_bfloat16>(u);
    else
        sum = chunk_squares<__half>(u);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        squares[blockIdx.x] = sum;
}

/* One block per tensor: local = trust * |w| / (|g| + decay * |w| + 1e-9), or 1 when |w| or |g| is 0. */
static __global__ void __launch_bounds__(THREADS)
    local_kernel(const struct ls_cuda_scale *scale, const struct ls_cuda_update *updates, const float2 *squares,
                 float *local)
{
    __shared__ double sums[2][THREADS];
    const struct ls_cuda_update u = tensor_at(updates, (int)blockIdx.x);
    if (!u.norms)
        return;
    int64_t count = (u.count + CHUNK - 1) / CHUNK;
    double w = 0, g = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        float2 part = squares[u.first_block + i];
        w += part.x;
        g += part.y;
    }
    sums[0][threadIdx.x] = w;
    sums[1][threadIdx.x] = g;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
            sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        const float trust = (float)u.hyper.trust, decay = (float)u.hyper.weight_decay;
        double length = sqrt(sums[0][0]), slope = sqrt(sums[1][0]);
        if (scale)
            slope /= scale->scale;
        local[blockIdx.x] = length > 0 && slope > 0 ? (float)(trust * length / (slope + decay * length + 1e-9)) : 1;
    }
}

size_t ls_cuda_update_scratch(const struct ls_cuda_update *host, int n)
{
    if (!any_lars(host, n))
        return 0;
    int64_t blocks = 0;
    for (int i = 0; i < n; i++)
        blocks += chunks(host + i);
    return (size_t)blocks * sizeof(float2) + (size_t)n * sizeof(float);
}

void ls_cuda_sgd(ls_cuda_stream s, const struct ls_cuda_run *run, const struct ls_cuda_scale *scale,
                 const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n, int rule,
                 float *scratch)
{
    int blocks = blocks_of(host, n);
    float *local = NULL;
    if (!blocks)
        return;
    if (any_lars(host, n)) {
        float2 *squares = reinterpret_cast<float2 *>(scratch);
        local = reinterpret_cast<float *>(squares + blocks);
        squares_kernel<<<blocks, THREADS, 0, s>>>(updates, n, squares);
        local_kernel<<<n, THREADS, 0, s>>>(scale, updates, squares, local);
    }
    update_kernel<<<blocks, THREADS, 0, s>>>(run, scale, updates, n, rule, local);
}

/* --- running statistics --------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS) running_kernel(const struct ls_cuda_running *list)
{
    const struct ls_cuda_running r = list[blockIdx.x];
    for (int i = (int)threadIdx.x; i < r.c; i += THREADS) {
        r.mean[i] = (1 - r.momentum) * r.mean[i] + r.momentum * r.stat[i];
        r.var[i] = (1 - r.momentum) * r.var[i] + r.momentum * r.stat[r.c + i];
    }
}

void ls_cuda_bn_running(ls_cuda_stream s, const struct ls_cuda_running *list, int n)
{
    running_kernel<<<(unsigned)n, THREADS, 0, s>>>(list);
}

/* --- loss scaling -------------------------------------------------------------------------------------------- */

/* Whether this thread has a gradient that is not finite. */
template <typename G> static __device__ __forceinline__ bool chunk_bad(const struct ls_cuda_update &u)
{
    quad<G> g4[QUADS];
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        int64_t at = quad_at(u, k);
        g4[k] = at < u.count / 4 ? load_quad<G>(u.grad, at) : zero_quad<G>();
    }
    bool bad = false;
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        float g[4];
        widen_quad<G>(g4[k], g);
        for (int i = 0; i < 4; i++)
            bad |= !isfinite(g[i]);
    }
    return bad;
}

static __global__ void __launch_bounds__(THREADS)
    check_kernel(struct ls_cuda_scale *scale, const struct ls_cuda_update *updates, int n)
{
    struct ls_cuda_update u = tensor_at(updates, tensor_of_block(updates, n));
    bool bad;
    if (u.grad_t == LS_F32)
        bad = chunk_bad<float>(u);
    else if (u.grad_t == LS_BF16)
        bad = chunk_bad<__nv_bfloat16>(u);
    else
        bad = chunk_bad<__half>(u);
    if (__any_sync(~0u, bad) && threadIdx.x % 32 == 0)
        atomicOr(&scale->overflow, 1);
}

static __global__ void begin_kernel(struct ls_cuda_scale *scale)
{
    scale->overflow = 0;
}

static __global__ void overflow_kernel(struct ls_cuda_scale *scale)
{
    scale->overflow = 1;
}

static __global__ void end_kernel(struct ls_cuda_scale *scale, int growth)
{
    scale->skipped += scale->overflow;
    if (growth == 0)
        return;
    if (scale->overflow) {
        scale->scale = fmaxf(scale->scale * 0.5f, 1.0f);
        scale->good = 0;
    } else if (++scale->good >= growth) {
        scale->scale = fminf(scale->scale * 2, 0x1p24f);
        scale->good = 0;
    }
}

void ls_cuda_scale_begin(ls_cuda_stream s, struct ls_cuda_scale *scale)
{
    begin_kernel<<<1, 1, 0, s>>>(scale);
}

void ls_cuda_scale_overflow(ls_cuda_stream s, struct ls_cuda_scale *scale)
{
    overflow_kernel<<<1, 1, 0, s>>>(scale);
}

void ls_cuda_scale_check(ls_cuda_stream s, struct ls_cuda_scale *scale, const struct ls_cuda_update *updates,
                         const struct ls_cuda_update *host, int n)
{
    int blocks = blocks_of(host, n);
    if (blocks)
        check_kernel<<<blocks, THREADS, 0, s>>>(scale, updates, n);
}

void ls_cuda_scale_end(ls_cuda_stream s, struct ls_cuda_scale *scale, int growth)
{
    end_kernel<<<1, 1, 0, s>>>(scale, growth);
}

/* --- checksum ------------------------------------------------------------------------------------------------- */

/* A bijective mix: every bit of x affects all bits of the result. */
static __device__ __forceinline__ uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* State k of a tensor enters the hash with an offset that depends on k. Parameters and state 0 have the offset 0. */
static __global__ void __launch_bounds__(THREADS)
    checksum_kernel(const struct ls_cuda_update *updates, int n, int optimizer, unsigned long long *sum)
{
    struct ls_cuda_update u = tensor_at(updates, tensor_of_block(updates, n));
    uint64_t place = (uint64_t)block_number(updates) * CHUNK + threadIdx.x * 4, mine = 0;
#pragma unroll
    for (int t = 0; t < LS_MAX_STATES; t++) {
        const float *values = optimizer ? u.state[t] : t == 0 ? u.param : NULL;
        for (int k = 0; values && k < QUADS; k++) {
            int64_t at = quad_at(u, k);
            float w[4];
            if (at >= u.count / 4)
                break;
            widen_quad<float>(load_quad_once<float>(values, at), w);
            for (int i = 0; i < 4; i++)
                mine += mixed(((place + k * THREADS * 4 + i) << 32 | __float_as_uint(w[i])) + t * 0x9e3779b97f4a7c15u);
        }
    }
    for (int lane = 16; lane; lane /= 2)
        mine += __shfl_xor_sync(~0u, mine, lane);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, (unsigned long long)mine);
}

void ls_cuda_checksum(ls_cuda_stream s, const struct ls_cuda_update *updates, const struct ls_cuda_update *host, int n,
                      int optimizer, uint64_t *sum)
{
    int blocks = blocks_of(host, n);
    if (blocks)
        checksum_kernel<<<blocks, THREADS, 0, s>>>(updates, n, optimizer, (unsigned long long *)sum);
}
