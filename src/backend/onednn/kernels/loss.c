/* Losses. Each sample has a row of scores. Rows are short, so one thread processes a whole row. */
#include "backend/onednn/kernels/kernels.h"
#include "backend/onednn/kernels/simd.h"
#include "backend/onednn/kernels/table.h"

enum { ALONE = 64 }; /* with fewer rows, one thread is faster */

/* The number of classes that rank above the label: a higher score, or an equal score and a lower number. */
INLINE int32_t rank_of(const E *row, int64_t classes, int32_t label)
{
    float own = get(row + label);
    int32_t above = 0;
    for (int64_t c = 0; c < classes; c++) {
        float s = get(row + c);
        above += !(s <= own) || (s == own && c < label); /* NaN never counts as a hit */
    }
    return above;
}

/* The label of the sample that this one is mixed with. */
INLINE int32_t other_label(const struct ls_loss *a, int64_t n)
{
    return a->label[ls_mix_partner(n, a->valid)];
}

static void softmax(const struct ls_loss *a)
{
#pragma omp parallel for schedule(static) if (a->n > ALONE)
    for (int64_t n = 0; n < a->n; n++) {
        const E *row = (const E *)a->scores + n * a->classes;
        float *prob = (float *)a->out + n * a->classes;
        float highest = get(row), sum = 0, total = 0;
        for (int64_t c = 1; c < a->classes; c++)
            highest = get(row + c) > highest ? get(row + c) : highest;
        for (int64_t c = 0; c < a->classes; c++) {
            sum += expf(get(row + c) - highest);
            total += get(row + c) - highest;
        }
        float log_sum = logf(sum);
        for (int64_t c = 0; a->out && c < a->classes; c++)
            prob[c] = expf(get(row + c) - highest - log_sum);
        int32_t label = a->label[n];
        a->rank[n] = label < 0 ? -1 : rank_of(row, a->classes, label);
        a->loss[n] = 0;
        if (label >= 0) {
            float hard = log_sum - (get(row + label) - highest);
            if (a->weight < 1.0f)
                hard = a->weight * hard + (1.0f - a->weight) * (log_sum - (get(row + other_label(a, n)) - highest));
            float soft = log_sum - total / (float)a->classes;
            a->loss[n] = (1.0f - a->smoothing) * hard + a->smoothing * soft;
        }
    }
}

static void softmax_bwd(const struct ls_loss *a)
{
    float share = a->smoothing / (float)a->classes;
#pragma omp parallel for schedule(static) if (a->n > ALONE)
    for (int64_t n = 0; n < a->n; n++) {
        const float *prob = (const float *)a->scores + n * a->classes;
        E *dx = (E *)a->out + n * a->classes;
        float own = 1.0f - a->smoothing, other = 0;
        if (a->weight < 1.0f) {
            other = own * (1.0f - a->weight);
            own *= a->weight;
        }
        int32_t partner = other_label(a, n);
        for (int64_t c = 0; c < a->classes; c++) {
            float target = share + (c == a->label[n] ? own : 0.0f);
            target += c == partner ? other : 0.0f;
            put(dx + c, a->label[n] < 0 ? 0.0f : a->scale * (prob[c] - target));
        }
    }
}

static void l2(const struct ls_loss *a)
{
    for (int64_t n = 0; n < a->n; n++) {
        const E *row = (const E *)a->scores + n * a->classes;
        int32_t label = a->label[n];
        float sum = 0;
        for (int64_t c = 0; c < a->classes; c++) {
            float d = get(row + c) - (c == label ? 1.0f : 0.0f);
            sum += d * d;
        }
        a->loss[n] = label < 0 ? 0.0f : 0.5f * sum;
        a->rank[n] = label < 0 ? -1 : rank_of(row, a->classes, label);
    }
}

static void l2_bwd(const struct ls_loss *a)
{
    for (int64_t n = 0; n < a->n; n++) {
        const E *row = (const E *)a->scores + n * a->classes;
        E *dx = (E *)a->out + n * a->classes;
        for (int64_t c = 0; c < a->classes; c++)
            put(dx + c, a->label[n] < 0 ? 0.0f : a->scale * (get(row + c) - (c == a->label[n] ? 1.0f : 0.0f)));
    }
}

void LS_KERNEL_NAME(fill_loss)(struct ls_kernels *k)
{
    k->softmax = softmax;
    k->softmax_bwd = softmax_bwd;
    k->l2 = l2;
    k->l2_bwd = l2_bwd;
}
