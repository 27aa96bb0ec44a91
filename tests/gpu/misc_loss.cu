/* Cases of the losses: few and many classes, equal scores, rows without a sample. */
#include "misc.h"

#include <algorithm>
#include <cmath>

struct batch {
    int64_t n, classes, c;
    values x;
    std::vector<int32_t> labels, rank;
};

static struct batch batch_of(int64_t n, int64_t classes)
{
    struct batch b = {n, classes, pad8(classes), {}, {}, {}};
    b.x = random_rows((size_t)n, classes, b.c, 6);
    for (float &v : b.x)
        v = roundf(v * 4) / 4; /* so that some scores are equal, in any type */
    for (int64_t i = 0; i < n; i++) {
        int32_t label = i % 5 == 3 ? -1 : (int32_t)((i * 7919) % classes), rank = 0;
        const float *row = &b.x[(size_t)(i * b.c)];
        for (int64_t k = 0; k < classes && label >= 0; k++)
            rank += row[k] > row[label] || (row[k] == row[label] && k < label);
        b.labels.push_back(label);
        b.rank.push_back(label < 0 ? -1 : rank);
    }
    return b;
}

static struct ls_cuda_run run_of(const device &labels)
{
    struct ls_cuda_run run = {};
    run.grad_scale = 0.125f;
    run.labels = labels.as<int32_t>();
    return run;
}

static void softmax(enum ls_dtype t, int64_t n, int64_t classes, float smoothing)
{
    struct batch b = batch_of(n, classes);
    size_t count = b.x.size();
    values loss((size_t)n), prob(count), dx(count);
    struct ls_cuda_scale scale = {64, 0, 0, 0};
    device x(t, b.x), labels(b.labels), dev_loss((size_t)n * 4), rank((size_t)n * 4), dev_prob(count * 4);
    object<struct ls_cuda_run> run(run_of(labels));
    object<struct ls_cuda_scale> dev_scale(scale);
    std::string name = std::string(misc_type(t)) + " " + std::to_string(classes) + " " + std::to_string(smoothing);
    for (int64_t i = 0; i < n; i++) {
        const float *row = &b.x[(size_t)(i * b.c)];
        double top = *std::max_element(row, row + classes), sum = 0, cross = 0;
        for (int64_t k = 0; k < classes; k++)
            sum += exp(row[k] - top);
        for (int64_t k = 0; k < classes; k++) {
            double log_p = row[k] - top - log(sum), q = (k == b.labels[(size_t)i]) * (1.0 - smoothing);
            prob[(size_t)(i * b.c + k)] = (float)exp(log_p);
            cross -= (q + (double)smoothing / (double)classes) * log_p;
        }
        loss[(size_t)i] = b.labels[(size_t)i] < 0 ? 0 : (float)cross;
    }
    ls_cuda_softmax_xent(0, t, run.ptr(), n, b.c, classes, smoothing, &no_mix, x.at, dev_loss.as<float>(),
                         rank.as<int32_t>(), dev_prob.as<float>());
    verdict("softmax_xent loss " + name, dev_loss.read(LS_F32, (size_t)n), loss, 2e-5);
    verdict_ints("softmax_xent rank " + name, rank.read_ints((size_t)n), b.rank);
    verdict("softmax_xent prob " + name, dev_prob.read(LS_F32, count), prob, 1e-5);
    device from(LS_F32, prob), dev_dx(count * 4);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < classes && b.labels[(size_t)i] >= 0; k++) {
            double q = (k == b.labels[(size_t)i]) * (1.0 - smoothing) + (double)smoothing / (double)classes;
            dx[(size_t)(i * b.c + k)] = (float)((prob[(size_t)(i * b.c + k)] - q) * 0.125 * 64);
        }
    void *to = t == LS_F32 ? from.at : dev_dx.at;
    ls_cuda_softmax_xent_bwd(0, t, run.ptr(), dev_scale.ptr(), n, b.c, classes, smoothing, &no_mix, from.as<float>(),
                             to);
    verdict("softmax_xent_bwd " + name, (t == LS_F32 ? from : dev_dx).read(t, count), dx, misc_tolerance(t));
}

static void l2(enum ls_dtype t, int64_t n, int64_t classes)
{
    struct batch b = batch_of(n, classes);
    size_t count = b.x.size();
    values loss((size_t)n), dx(count);
    device x(t, b.x), labels(b.labels), dev_loss((size_t)n * 4), rank((size_t)n * 4), dev_dx(count * 4);
    object<struct ls_cuda_run> run(run_of(labels));
    std::string name = std::string(misc_type(t)) + " " + std::to_string(classes);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < classes && b.labels[(size_t)i] >= 0; k++) {
            double d = (double)b.x[(size_t)(i * b.c + k)] - (k == b.labels[(size_t)i]);
            sum += d * d;
            dx[(size_t)(i * b.c + k)] = (float)(d * 0.125);
        }
        loss[(size_t)i] = (float)(0.5 * sum);
    }
    ls_cuda_l2_loss(0, t, run.ptr(), n, b.c, classes, x.at, dev_loss.as<float>(), rank.as<int32_t>());
    ls_cuda_l2_loss_bwd(0, t, run.ptr(), NULL, n, b.c, classes, x.at, dev_dx.at);
    verdict("l2_loss loss " + name, dev_loss.read(LS_F32, (size_t)n), loss, 2e-5);
    verdict_ints("l2_loss rank " + name, rank.read_ints((size_t)n), b.rank);
    verdict("l2_loss_bwd " + name, dev_dx.read(t, count), dx, misc_tolerance(t));
}

void misc_loss(void)
{
    for (enum ls_dtype t : misc_types) {
        softmax(t, 9, 10, 0);
        softmax(t, 9, 3, 0.1f);
        softmax(t, 16, 1000, 0.1f);
        softmax(t, 5, 21841, 0.1f);
        l2(t, 9, 10);
        l2(t, 7, 2500);
    }
}
