/* Losses. */
#include "backend/core/mix.h"
#include "backend/ref/ref.h"

#include <math.h>

static const int32_t *labels(const struct ls_ref_call *call)
{
    return ls_ref_in_data(call, 1);
}

/* Classes that scored above the label; equal scores of lower index count as above. -1: no sample. */
static int32_t rank_of(const float *score, int64_t classes, int32_t label)
{
    int32_t rank = 0;
    if (label < 0)
        return -1;
    for (int64_t k = 0; k < classes; k++)
        rank += !(score[k] <= score[label]) || (score[k] == score[label] && k < label); /* NaN is no hit */
    return rank;
}

/* What class k of sample n should have. */
static double target(const struct ls_ref_call *call, int64_t classes, int64_t k, int64_t n, const struct ls_mix *mix)
{
    double smoothing = call->n->attr.smoothing, weight = mix->weight;
    int32_t own = labels(call)[n], other = labels(call)[ls_mix_partner(n, call->run->valid)];
    return (1 - smoothing) * (weight * (k == own) + (1 - weight) * (k == other)) + smoothing / (double)classes;
}

static void softmax_xent(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), loss = ls_ref_out(call, 0), prob = ls_ref_out(call, 2);
    int32_t *rank = ls_ref_out_data(call, 1);
    struct ls_mix mix = ls_mix_of_run(&call->n->attr.mix, call->run);
    for (int64_t n = 0; n < x.n; n++) {
        const float *score = x.v + n * x.c;
        int32_t label = labels(call)[n];
        double top = score[0], sum = 0, cross = 0;
        for (int64_t k = 1; k < x.c; k++)
            top = fmax(top, (double)score[k]);
        for (int64_t k = 0; k < x.c; k++)
            sum += exp(score[k] - top);
        for (int64_t k = 0; k < x.c; k++) {
            double log_p = score[k] - top - log(sum);
            prob.v[n * x.c + k] = (float)exp(log_p);
            cross -= target(call, x.c, k, n, &mix) * log_p;
        }
        loss.v[n] = label < 0 ? 0 : (float)cross;
        rank[n] = rank_of(score, x.c, label);
    }
}

static void softmax_xent_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view prob = ls_ref_in(call, 0), dx = ls_ref_out(call, 0);
    struct ls_mix mix = ls_mix_of_run(&call->n->attr.mix, call->run);
    for (int64_t n = 0; n < prob.n; n++)
        for (int64_t k = 0; k < prob.c; k++) {
            int32_t label = labels(call)[n];
            double d = (prob.v[n * prob.c + k] - target(call, prob.c, k, n, &mix)) * call->run->grad_scale;
            dx.v[n * prob.c + k] = label < 0 ? 0 : (float)d;
        }
}

static void l2_loss(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), loss = ls_ref_out(call, 0);
    int32_t *rank = ls_ref_out_data(call, 1);
    for (int64_t n = 0; n < x.n; n++) {
        int32_t label = labels(call)[n];
        double sum = 0;
        for (int64_t k = 0; k < x.c; k++) {
            double d = (double)x.v[n * x.c + k] - (k == label);
            sum += d * d;
        }
        loss.v[n] = label < 0 ? 0 : (float)(0.5 * sum);
        rank[n] = rank_of(x.v + n * x.c, x.c, label);
    }
}

static void l2_loss_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), dx = ls_ref_out(call, 0);
    for (int64_t n = 0; n < x.n; n++)
        for (int64_t k = 0; k < x.c; k++) {
            int32_t label = labels(call)[n];
            double d = ((double)x.v[n * x.c + k] - (k == label)) * call->run->grad_scale;
            dx.v[n * x.c + k] = label < 0 ? 0 : (float)d;
        }
}

const struct ls_ref_op ls_ref_ops_loss[] = {
    {"softmax_xent", softmax_xent},
    {"softmax_xent_bwd", softmax_xent_bwd},
    {"l2_loss", l2_loss},
    {"l2_loss_bwd", l2_loss_bwd},
    {0},
};
