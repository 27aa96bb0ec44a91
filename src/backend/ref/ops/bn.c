#include "backend/ref/ref.h"

#include <math.h>
#include <string.h>

enum { X, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, RESIDUAL };         /* of bn */
enum { Y, MEAN, RSTD, STAT, INDEX };                                  /* out of bn */
enum { DY, DY2, B_X, B_GAMMA, B_BETA, B_MEAN, B_RSTD, B_Y, B_INDEX }; /* of bn_bwd */
enum { DX, DGAMMA, DBETA, DRESIDUAL };                                /* out of bn_bwd */

/* Mean and biased variance of channel c over the first `valid` samples. */
static void moments(const struct ls_ref_view *x, int64_t valid, int64_t c, double *mean, double *variance)
{
    int64_t area = x->h * x->w, count = valid * area;
    double sum = 0, squares = 0;
    *mean = *variance = 0;
    if (!count)
        return;
    for (int64_t n = 0; n < valid; n++)
        for (int64_t i = 0; i < area; i++)
            sum += (double)ls_ref_at(x, n, c, 0, 0)[i];
    *mean = sum / (double)count;
    for (int64_t n = 0; n < valid; n++)
        for (int64_t i = 0; i < area; i++) {
            double d = (double)ls_ref_at(x, n, c, 0, 0)[i] - *mean;
            squares += d * d;
        }
    *variance = squares / (double)count;
}

static double normalised(float x, float mean, float rstd, float gamma, float beta)
{
    return (double)gamma * (((double)x - mean) * rstd) + beta;
}

/* The statistics to normalise with: the batch's, kept for backward, or the running ones. */
static void statistics(const struct ls_ref_call *call, const struct ls_ref_view *x, int64_t c, float *mean, float *rstd)
{
    const struct ls_attr *a = &call->n->attr;
    if (!a->training) {
        *mean = ls_ref_in(call, RUNNING_MEAN).v[c];
        *rstd = (float)(1 / sqrt((double)ls_ref_in(call, RUNNING_VAR).v[c] + a->eps));
        return;
    }
    double batch_mean, variance, weight = call->run->stat_weight;
    int64_t count = call->run->valid * x->h * x->w;
    moments(x, call->run->valid, c, &batch_mean, &variance);
    ls_ref_out(call, MEAN).v[c] = *mean = (float)batch_mean;
    ls_ref_out(call, RSTD).v[c] = *rstd = (float)(1 / sqrt(variance + a->eps));
    float *stat = ls_ref_out(call, STAT).v;
    stat[c] = (float)(weight * batch_mean);
    stat[x->c + c] = (float)(weight * variance * (double)count / (double)(count > 1 ? count - 1 : 1));
}

static void bn(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    struct ls_ref_view x = ls_ref_in(call, X), residual = ls_ref_in(call, RESIDUAL), y = ls_ref_out(call, Y);
    const float *gamma = ls_ref_in(call, GAMMA).v, *beta = ls_ref_in(call, BETA).v;
    struct ls_ref_view z = x; /* before the pooling */
    z.v = a->pool ? call->scratch : y.v;
    for (int64_t c = 0; c < x.c; c++) {
        float mean, rstd;
        statistics(call, &x, c, &mean, &rstd);
        for (int64_t n = 0; n < x.n; n++)
            for (int64_t i = 0; i < x.h * x.w; i++) {
                int64_t at = ls_ref_index(&x, n, c, 0, i);
                double value = normalised(x.v[at], mean, rstd, gamma[c], beta[c]);
                z.v[at] = ls_ref_act_of(a->act, value + (residual.v ? (double)residual.v[at] : 0));
            }
    }
    if (a->pool)
        ls_ref_pool_max(a, LS_ACT_NONE, &z, &y, ls_ref_out_data(call, INDEX));
}

/* dz: the gradient of what the activation got, passed back through the pooling and the activation. */
static struct ls_ref_view gradient_before_act(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    struct ls_ref_view x = ls_ref_in(call, B_X), dz = x;
    const float *y = ls_ref_in(call, B_Y).v;
    dz.v = call->scratch;
    memset(dz.v, 0, (size_t)ls_ref_count(&dz) * sizeof *dz.v);
    for (int slot = DY; slot <= DY2; slot++) {
        struct ls_ref_view dy = ls_ref_in(call, slot);
        if (dy.v && a->pool)
            ls_ref_unpool_max(a, a->act, &dy, ls_ref_in_data(call, B_INDEX), y, &dz);
        for (int64_t i = 0; dy.v && !a->pool && i < ls_ref_count(&dz); i++)
            if (!y || ls_ref_act_passes(a->act, y[i]))
                dz.v[i] += dy.v[i];
    }
    if (y || a->act == LS_ACT_NONE)
        return dz;
    const float *gamma = ls_ref_in(call, B_GAMMA).v, *beta = ls_ref_in(call, B_BETA).v;
    const float *mean = ls_ref_in(call, B_MEAN).v, *rstd = ls_ref_in(call, B_RSTD).v;
    for (int64_t i = 0; i < ls_ref_count(&dz); i++) {
        int64_t c = i / (x.h * x.w) % x.c;
        double z = normalised(x.v[i], mean[c], rstd[c], gamma[c], beta[c]);
        if (!ls_act_clips(a->act))
            dz.v[i] = (float)((double)dz.v[i] * ls_ref_act_slope(a->act, z));
        else if (!ls_ref_act_passes(a->act, ls_ref_act_of(a->act, z)))
            dz.v[i] = 0;
    }
    return dz;
}

static void bn_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, B_X), dz = gradient_before_act(call);
    struct ls_ref_view dx = ls_ref_out(call, DX), dresidual = ls_ref_out(call, DRESIDUAL);
    int64_t valid = call->run->valid, area = x.h * x.w;
    double count = (double)(valid * area);
    for (int64_t c = 0; c < x.c; c++) {
        double mean = ls_ref_in(call, B_MEAN).v[c], rstd = ls_ref_in(call, B_RSTD).v[c];
        double gamma = ls_ref_in(call, B_GAMMA).v[c], dgamma = 0, dbeta = 0;
        for (int64_t n = 0; n < valid; n++)
            for (int64_t i = 0; i < area; i++) {
                int64_t at = ls_ref_index(&x, n, c, 0, i);
                dgamma += dz.v[at] * ((x.v[at] - mean) * rstd);
                dbeta += (double)dz.v[at];
            }
        for (int64_t n = 0; n < x.n; n++)
            for (int64_t i = 0; i < area; i++) {
                int64_t at = ls_ref_index(&x, n, c, 0, i);
                double centred = (x.v[at] - mean) * rstd;
                double d = gamma * rstd * (dz.v[at] - (dbeta + centred * dgamma) / count);
                dx.v[at] = n < valid ? (float)d : 0;
                if (dresidual.v)
                    dresidual.v[at] = n < valid ? dz.v[at] : 0;
            }
        ls_ref_out(call, DGAMMA).v[c] = (float)dgamma;
        ls_ref_out(call, DBETA).v[c] = (float)dbeta;
    }
}

static void bn_running(const struct ls_ref_call *call)
{
    struct ls_ref_view stat = ls_ref_in(call, 0);
    double share = call->n->attr.momentum;
    for (int row = 0; row < 2; row++)
        for (int64_t c = 0; c < stat.c; c++) {
            float *running = &ls_ref_in(call, 1 + row).v[c];
            *running = (float)((1 - share) * *running + share * stat.v[row * stat.c + c]);
        }
}

const struct ls_ref_op ls_ref_ops_bn[] = {
    {"bn", bn},
    {"bn_bwd", bn_bwd},
    {"bn_running", bn_running},
    {0},
};
