/* The updates of sgd and lars. Their hyperparameters are rounded to f32 first, as the other backends compute with them. */
#include "backend/core/clip.h"
#include "backend/ref/ref.h"

#include <math.h>

static void sgd(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    const double share = (float)a->hyper.momentum, decay = (float)a->hyper.weight_decay;
    const double lr = ls_hyper_lr(&a->hyper, call->run->lr);
    struct ls_ref_view w = ls_ref_update_in(call, 0), grad = ls_ref_update_in(call, 1), m = ls_ref_update_in(call, 2);
    for (int64_t i = 0; i < ls_ref_count(&w); i++) {
        double g = (double)grad.v[i] + decay * w.v[i], step = g;
        if (m.v) {
            double momentum = share * m.v[i] + g;
            m.v[i] = (float)momentum;
            step = a->nesterov ? g + share * momentum : momentum;
        }
        w.v[i] = (float)(w.v[i] - lr * step);
    }
}

static double norm(const struct ls_ref_view *t)
{
    double squares = 0;
    for (int64_t i = 0; i < ls_ref_count(t); i++)
        squares += (double)t->v[i] * t->v[i];
    return sqrt(squares);
}

static void lars(const struct ls_ref_call *call)
{
    const struct ls_hyper *hyper = &call->n->attr.hyper;
    const double share = (float)hyper->momentum, decay = (float)hyper->weight_decay, trust = (float)hyper->trust;
    const double lr = ls_hyper_lr(hyper, call->run->lr);
    struct ls_ref_view w = ls_ref_update_in(call, 0), grad = ls_ref_update_in(call, 1), m = ls_ref_update_in(call, 2);
    double length = norm(&w), slope = norm(&grad), local = 1;
    if (length > 0 && slope > 0)
        local = trust * length / (slope + decay * length + 1e-9);
    for (int64_t i = 0; i < ls_ref_count(&w); i++) {
        double g = grad.v[i] + decay * w.v[i];
        double momentum = share * m.v[i] + local * lr * g;
        m.v[i] = (float)momentum;
        w.v[i] = (float)(w.v[i] - momentum);
    }
}

static double squares_of(const float *values, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)values[i] * values[i];
    return squares;
}

void ls_ref_clip(const struct ls_graph *g, int first, void *const *data)
{
    double squares = 0;
    for (int n = first; n < g->n_nodes; n++) {
        int grad = g->nodes[n].in[1];
        if (ls_clip_limit(&g->nodes[n]) > 0)
            squares += squares_of(data[grad], ls_shape_count(&g->tensors[grad].shape));
    }
    float factor = ls_clip_factor(squares, ls_clip_limit(&g->nodes[first]));
    for (int n = first; n < g->n_nodes && factor < 1; n++) {
        int grad = g->nodes[n].in[1];
        float *values = ls_clip_limit(&g->nodes[n]) > 0 ? data[grad] : NULL;
        for (int64_t i = 0; values && i < ls_shape_count(&g->tensors[grad].shape); i++)
            values[i] *= factor;
    }
}

const struct ls_ref_op ls_ref_ops_updates[] = {
    {"sgd", sgd},
    {"lars", lars},
    {0},
};
