/* Losses. One block handles one sample, with as many threads as the classes keep busy. The kernels read a row
 * several times, mostly from the caches. All arithmetic is in f32. */
#include "backend/cuda/kernels/mix.cuh"

using namespace ls_device;

#define MAX_THREADS 256

struct row {
    int64_t sample, octets, classes;
    int32_t label; /* < 0: no sample */
};

static __device__ __forceinline__ struct row row_of(const struct ls_cuda_run *run, int64_t c, int64_t classes)
{
    struct row r = {blockIdx.x, c / 8, classes, run->labels[blockIdx.x]};
    return r;
}

/* The sum over the block, returned in all threads. Barriers separate the uses of `room`. */
static __device__ float block_sum(float v)
{
    __shared__ float room[MAX_THREADS / 32];
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = room[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++)
        sum += room[i];
    return sum;
}

static __device__ float block_max(float v)
{
    __shared__ float room[MAX_THREADS / 32];
    for (int lane = 16; lane; lane /= 2)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, lane));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = v;
    __syncthreads();
    float top = room[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++)
        top = fmaxf(top, room[i]);
    return top;
}

template <typename T> static __device__ __forceinline__ float score_at(const struct row &r, const void *scores)
{
    return r.label < 0 ? 0 : to_float(((const T *)scores)[r.sample * r.octets * 8 + r.label]);
}

/* Whether class k ranks above the label, whose score is `own`. */
static __device__ __forceinline__ bool above(const struct row &r, int64_t k, float score, float own)
{
    return !(score <= own) || (score == own && k < r.label); /* NaN never counts as a hit */
}

/* Writes the number of classes above the label. `mine` is this thread's count. */
static __device__ void write_rank(const struct row &r, int32_t mine, int32_t *rank)
{
    float sum = block_sum((float)mine); /* exact: there are far fewer than 2^24 classes */
    if (threadIdx.x == 0)
        rank[r.sample] = r.label < 0 ? -1 : (int32_t)sum;
}

template <typename T>
static __device__ __forceinline__ void row_load(const struct row &r, const void *from, int64_t octet, float (&v)[8])
{
    widen<T>(load_shared<T>(from, r.sample * r.octets + octet), v);
}

template <typename T>
static __device__ __forceinline__ void row_store(const struct row &r, void *to, int64_t octet, const float (&v)[8])
{
    store<T>(to, r.sample * r.octets + octet, narrow<T>(v));
}

static int threads_for(int64_t c)
{
    int64_t threads = ceil_div(c / 8, 32) * 32;
    return threads < MAX_THREADS ? (int)threads : MAX_THREADS;
}

/* The label of the sample's partner, and the weight of its own label; 1 without mixup and cutmix. */
static __device__ float mix_labels(const struct row &r, const struct ls_mix_rule &rule, const struct ls_cuda_run *run,
                                   int32_t *other)
{
    *other = r.label;
    if (!(rule.mixup > 0 || rule.cutmix > 0))
        return 1;
    *other = run->labels[ls_mix_partner(r.sample, run->valid)];
    return block_mix(rule, run).weight;
}

/* --- softmax with cross-entropy ------------------------------------------------------------------------------ */

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
    softmax_kernel(const struct ls_cuda_run *run, int64_t c, int64_t classes, float smoothing, struct ls_mix_rule rule,
                   const void *logits, float *loss, int32_t *rank, float *prob)
{
    struct row r = row_of(run, c, classes);
    int32_t other;
    float weight = mix_labels(r, rule, run, &other);
    float own = score_at<T>(r, logits), top = -INFINITY, sum = 0, distance = 0, v[8];
    int32_t higher = 0;
    for (int64_t octet = threadIdx.x; octet < r.octets; octet += blockDim.x) {
        row_load<T>(r, logits, octet, v);
        for (int i = 0; i < 8; i++)
            if (octet * 8 + i < classes)
                top = fmaxf(top, v[i]);
    }
    top = block_max(top);
    for (int64_t octet = threadIdx.x; octet < r.octets; octet += blockDim.x) {
        row_load<T>(r, logits, octet, v);
        for (int i = 0; i < 8; i++)
            if (octet * 8 + i < classes) {
                sum += expf(v[i] - top);
                distance += v[i] - top;
                higher += above(r, octet * 8 + i, v[i], own);
            }
    }
    sum = block_sum(sum);
    distance = block_sum(distance);
    write_rank(r, higher, rank);
    if (threadIdx.x == 0) {
        /* The log-probability of class k is v[k] - top - log(sum). */
        if (weight < 1 && r.label >= 0)
            own = weight * own + (1 - weight) * to_float(((const T *)logits)[r.sample * r.octets * 8 + other]);
        float log_sum = logf(sum), log_p = own - top - log_sum, mean = distance / (float)classes - log_sum;
        loss[r.sample] = r.label < 0 ? 0 : -((1 - smoothing) * log_p + smoothing * mean);
    }
    if (!prob)
        return;
    for (int64_t octet = threadIdx.x; octet < r.octets; octet += blockDim.x) {
        row_load<T>(r, logits, octet, v);
        for (int i = 0; i < 8; i++)
            v[i] = octet * 8 + i < classes ? expf(v[i] - top) / sum : 0;
        row_store<float>(r, prob, octet, v);
    }
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
    softmax_bwd_kernel(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale, int64_t c, int64_t classes,
                       float smoothing, struct ls_mix_rule rule, const float *prob, void *dlogits)
{
    struct row r = row_of(run, c, classes);
    int32_t other;
    float weight = mix_labels(r, rule, run, &other), hard = (1 - smoothing) * weight,
          soft = (1 - smoothing) * (1 - weight);
    float factor = run->grad_scale * (scale ? scale->scale : 1), floor = smoothing / (float)classes, v[8];
    for (int64_t octet = threadIdx.x; octet < r.octets; octet += blockDim.x) {
        widen<float>(load<float>(prob, r.sample * r.octets + octet), v); /* dlogits of f32 may alias prob */
        for (int i = 0; i < 8; i++) {
            int64_t k = octet * 8 + i;
            float q = k == r.label ? hard + floor : floor;
            q += weight < 1 && k == other ? soft : 0;
            v[i] = r.label < 0 || k >= classes ? 0 : (v[i] - q) * factor;
        }
        row_store<T>(r, dlogits, octet, v);
    }
}

void ls_cuda_softmax_xent(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, int64_t n, int64_t c,
                          int64_t classes, float smoothing, const struct ls_mix_rule *mix, const void *logits,
                          float *loss, int32_t *rank, float *prob)
{
    LS_CUDA_BY_TYPE(t, softmax_kernel<T><<<(unsigned)n, threads_for(c), 0, s>>>(run, c, classes, smoothing, *mix,
                                                                                logits, loss, rank, prob));
}

void ls_cuda_softmax_xent_bwd(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run,
                              const struct ls_cuda_scale *scale, int64_t n, int64_t c, int64_t classes, float smoothing,
                              const struct ls_mix_rule *mix, const float *prob, void *dlogits)
{
    LS_CUDA_BY_TYPE(t, softmax_bwd_kernel<T>
                    <<<(unsigned)n, threads_for(c), 0, s>>>(run, scale, c, classes, smoothing, *mix, prob, dlogits));
}

/* --- half the squared distance from the one-hot vector ------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
    l2_kernel(const struct ls_cuda_run *run, int64_t c, int64_t classes, const void *x, float *loss, int32_t *rank)
{
    struct row r = row_of(run, c, classes);
    float own = score_at<T>(r, x), sum = 0, v[8];
    int32_t higher = 0;
    for (int64_t octet = threadIdx.x; octet < r.octets; octet += blockDim.x) {
        row_load<T>(r, x, octet, v);
        for (int i = 0; i < 8; i++) {
            int64_t k = octet * 8 + i;
            float d = v[i] - (k == r.label ? 1.0f : 0.0f);
            if (k < classes) {
                sum += d * d;
                higher += above(r, k, v[i], own);
            }
        }
    }
    sum = block_sum(sum);
    write_rank(r, higher, rank);
    if (threadIdx.x == 0)
        loss[r.sample] = r.label < 0 ? 0 : 0.5f * sum;
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
    l2_bwd_kernel(const struct ls_cuda_run *run, const struct ls_cuda_scale *scale, int64_t c, int64_t classes,
                  const void *x, void *dx)
{
    struct row r = row_of(run, c, classes);
    float factor = run->grad_scale * (scale ? scale->scale : 1), v[8];
    for (int64_t octet = threadIdx.x; octet < r.octets; octet += blockDim.x) {
        row_load<T>(r, x, octet, v);
        for (int i = 0; i < 8; i++) {
            int64_t k = octet * 8 + i;
            float d = v[i] - (k == r.label ? 1.0f : 0.0f);
            v[i] = r.label < 0 || k >= classes ? 0 : d * factor;
        }
        row_store<T>(r, dx, octet, v);
    }
}

void ls_cuda_l2_loss(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run, int64_t n, int64_t c,
                     int64_t classes, const void *x, float *loss, int32_t *rank)
{
    LS_CUDA_BY_TYPE(t, l2_kernel<T><<<(unsigned)n, threads_for(c), 0, s>>>(run, c, classes, x, loss, rank));
}

void ls_cuda_l2_loss_bwd(ls_cuda_stream s, enum ls_dtype t, const struct ls_cuda_run *run,
                         const struct ls_cuda_scale *scale, int64_t n, int64_t c, int64_t classes, const void *x,
                         void *dx)
{
    LS_CUDA_BY_TYPE(t, l2_bwd_kernel<T><<<(unsigned)n, threads_for(c), 0, s>>>(run, scale, c, classes, x, dx));
}
