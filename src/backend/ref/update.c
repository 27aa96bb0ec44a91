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

int ls_ref_squares(const struct ls_graph *g, int node, void *const *data, double sums[LS_SPLIT_CHUNKS])
{
    const struct ls_node *n = &g->nodes[node];
    struct ls_split_range r;
    if (ls_clip_limit(n) <= 0)
        return 0;
    int64_t count = ls_shape_count(&g->tensors[n->in[1]].shape), rows = g->tensors[n->in[1]].shape.dim[0];
    if (ls_split_layer_of(g, n->in[0], &r) == LS_NONE)
        r = (struct ls_split_range){.chunk = rows, .end = 1};
    for (int c = 0; c < r.end - r.first; c++) {
        int64_t first = c * r.chunk, some = rows - first < r.chunk ? rows - first : r.chunk;
        sums[c] = squares_of((const float *)data[n->in[1]] + count / rows * first, count / rows * some);
    }
    return r.end - r.first;
}

void ls_ref_clip(const struct ls_graph *g, int first, void *const *data, float factor)
{
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
