/* Activations, sums, dropout, and the optimizer update. Each reads every operand once and writes the result once. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

/* Below this many elements a parallel region costs more than it saves. */
enum { ALONE = 16384 };

/* Stored tensors are a whole number of blocks long, because their memory is rounded up to LS_ALIGN. The loops
 * therefore go by blocks. */
INLINE int64_t blocks_of(int64_t count)
{
    return (count + B - 1) / B;
}

static void act_forward(enum ls_act act, const void *x, void *y, int64_t count)
{
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t i = 0; i < blocks_of(count); i++)
        store((E *)y + i * B, activate(act, load((const E *)x + i * B)));
}

static void act_backward(enum ls_act act, const void *dy, const void *y, void *dx, int64_t count)
{
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t i = 0; i < blocks_of(count); i++)
        store((E *)dx + i * B, pass_back(act, load((const E *)y + i * B), load((const E *)dy + i * B)));
}

static void add(enum ls_act act, const void *a, const void *b, void *y, int64_t count)
{
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t i = 0; i < blocks_of(count); i++)
        store((E *)y + i * B, activate(act, load((const E *)a + i * B) + load((const E *)b + i * B)));
}

static void scale(float factor, const void *x, void *y, int64_t count)
{
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t i = 0; i < blocks_of(count); i++)
        store((E *)y + i * B, load((const E *)x + i * B) * factor);
}

static void from_f32(const float *x, void *y, int64_t count)
{
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t i = 0; i < blocks_of(count); i++)
        store((E *)y + i * B, vloadf(x + i * B));
}

typedef uint64_t vw __attribute__((vector_size(B * 8)));

/* factor[i % 4][i / 4] is what ls_random_keep returns for element 4 * call + i: the numbers of B calls of ls_philox. */
static void keep_factors(uint64_t seed, uint64_t stream, uint64_t call, float p, float factor[4][B])
{
    vu c[4], k0 = (uint32_t)seed - (vu){0}, k1 = (uint32_t)(seed >> 32) - (vu){0};
    for (uint64_t l = 0; l < B; l++) {
        c[0][l] = (uint32_t)(call + l);
        c[1][l] = (uint32_t)((call + l) >> 32);
    }
    c[2] = (uint32_t)stream - (vu){0};
    c[3] = (uint32_t)(stream >> 32) - (vu){0};
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        vw p0 = __builtin_convertvector(c[0], vw) * 0xD2511F53u, p1 = __builtin_convertvector(c[2], vw) * 0xCD9E8D57u;
        c[0] = __builtin_convertvector(p1 >> 32, vu) ^ c[1] ^ k0;
        c[2] = __builtin_convertvector(p0 >> 32, vu) ^ c[3] ^ k1;
        c[1] = __builtin_convertvector(p1, vu);
        c[3] = __builtin_convertvector(p0, vu);
    }
    for (int k = 0; k < 4; k++) {
        vf uniform = __builtin_convertvector((vi)(c[k] >> 8), vf) * 0x1p-24f;
        vstoref(factor[k], vpick(uniform >= p, vset(1.0f / (1.0f - p)), vset(0.0f)));
    }
}

enum { FACTORS = 4 * B };

/* One block of a sample, whose elements have logical numbers from `first` on: channel by channel. */
static void dropout_block(int64_t first, int64_t channels, int64_t area, float p, uint64_t seed, uint64_t stream,
                          const E *x, E *y)
{
    float factor[4][B];
    int64_t end = first + channels * area, lane = 0, pixel = 0;
    for (int64_t at = first / FACTORS * FACTORS; at < end; at += FACTORS) {
        keep_factors(seed, stream, (uint64_t)at / 4, p, factor);
        for (int64_t i = at < first ? first - at : 0; i < FACTORS && at + i < end; i++) {
            put(y + pixel * B + lane, get(x + pixel * B + lane) * factor[i % 4][i / 4]);
            if (++pixel == area)
                pixel = 0, lane++;
        }
    }
    for (pixel = 0; pixel < area && channels < B; pixel++)
        memset(y + pixel * B + channels, 0, (size_t)(B - channels) * sizeof *y);
}

/* The random number of an element depends on its logical number, not on its position in memory. */
static void dropout(const struct ls_shape *s, bool blocked, float p, uint64_t seed, uint64_t stream, const void *x,
                    void *y)
{
    if (!blocked) {
        int64_t count = ls_shape_count(s);
#pragma omp parallel for schedule(static) if (count > ALONE)
        for (int64_t at = 0; at < count; at += FACTORS) {
            float factor[4][B];
            keep_factors(seed, stream, (uint64_t)at / 4, p, factor);
            for (int64_t i = 0; i < FACTORS && at + i < count; i++)
                put((E *)y + at + i, get((const E *)x + at + i) * factor[i % 4][i / 4]);
        }
        return;
    }
    int64_t channels = s->dim[1], area = s->dim[2] * s->dim[3], blocks = (channels + B - 1) / B;
#pragma omp parallel for schedule(static)
    for (int64_t plane = 0; plane < s->dim[0] * blocks; plane++) {
        int64_t n = plane / blocks, first = plane % blocks * B, real = channels - first < B ? channels - first : B;
        dropout_block((n * channels + first) * area, real, area, p, seed, stream, (const E *)x + plane * area * B,
                      (E *)y + plane * area * B);
    }
}

/* Updates one parameter, or a vector of parameters. T is float or vf. */
#define SGD_STEP(T, W, G, M)                                       \
    do {                                                           \
        T grad_ = (G) + s->decay * (W);                            \
        if (s->m) {                                                \
            (M) = s->momentum * (M) + grad_;                       \
            grad_ = s->nesterov ? grad_ + s->momentum * (M) : (M); \
        }                                                          \
        (W) -= s->lr * grad_;                                      \
    } while (0)

static void sgd(const struct ls_sgd *s)
{
    int64_t whole = s->count / B;
#pragma omp parallel for schedule(static) if (s->count > ALONE)
    for (int64_t i = 0; i < whole; i++) {
        vf w = vloadf(s->w + i * B), g = vloadf(s->g + i * B), m = s->m ? vloadf(s->m + i * B) : g;
        SGD_STEP(vf, w, g, m);
        vstoref(s->w + i * B, w);
        if (s->m)
            vstoref(s->m + i * B, m);
    }
    for (int64_t i = whole * B; i < s->count; i++) {
        float unused = 0, *m = s->m ? s->m + i : &unused;
        SGD_STEP(float, s->w[i], s->g[i], *m);
    }
}

enum { PARTS = 16 };

static double sum_lanes(vd v)
{
    double sum = 0;
    for (int l = 0; l < B; l++)
        sum += v[l];
    return sum;
}

/* The bits do not depend on where the first row lies in its block. */
static double norm2_rows(const float *x, int64_t cols, int64_t block, int64_t first, int64_t rows)
{
    double part[PARTS], sum = 0;
    int64_t groups = (rows + B - 1) / B;
#pragma omp parallel for schedule(static) if (rows * cols > ALONE)
    for (int p = 0; p < PARTS; p++) {
        part[p] = 0;
        for (int64_t group = groups * p / PARTS; group < groups * (p + 1) / PARTS; group++) {
            int64_t row = first + group * B;
            const float *at = x + row / block * block * cols + row % block;
            vd total = {0};
            for (int64_t i = 0; i < cols; i++) {
                vf v = vloadf(at + i * block);
                total += __builtin_convertvector(v * v, vd);
            }
            part[p] += sum_lanes(total);
        }
    }
    for (int p = 0; p < PARTS; p++)
        sum += part[p];
    return sum;
}

static double norm2(const float *x, int64_t count)
{
    double part[PARTS], sum = 0;
    int64_t whole = count / B;
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int p = 0; p < PARTS; p++) {
        vd total = {0};
        for (int64_t i = whole * p / PARTS; i < whole * (p + 1) / PARTS; i++) {
            vf v = vloadf(x + i * B);
            total += __builtin_convertvector(v * v, vd);
        }
        part[p] = sum_lanes(total);
    }
    for (int p = 0; p < PARTS; p++)
        sum += part[p];
    for (int64_t i = whole * B; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

void LS_KERNEL_NAME(fill_elementwise)(struct ls_kernels *k)
{
    k->act = act_forward;
    k->act_bwd = act_backward;
    k->add = add;
    k->scale = scale;
    k->from_f32 = from_f32;
    k->dropout = dropout;
    k->sgd = sgd;
    k->norm2 = norm2;
    k->norm2_rows = norm2_rows;
}
