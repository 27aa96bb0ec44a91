/* BN behind a convolution is a scale and a shift of each output channel, so the convolution can do it:
 *   s = gamma / sqrt(var + eps),  w' = s w,  b' = (b - mean) s + beta. */
#include "export/onnx.h"
#include "graph/ops.h"

#include <math.h>

enum { GAMMA = 1, BETA, MEAN, VAR, PARTS = 4 };

void onnx_find_folds(struct onnx *x)
{
    const struct ls_graph *g = x->g;
    x->folded = ls_alloc((size_t)g->n_nodes, sizeof *x->folded);
    if (!x->folded) {
        x->status = LS_FAILED;
        return;
    }
    for (int n = 0; n < g->n_nodes; n++)
        x->folded[n] = LS_NONE;
    for (int n = 0; n < g->n_nodes && x->request->fold_bn; n++) {
        int between = g->nodes[n].in[0], conv = ls_graph_producer(g, between);
        if (g->nodes[n].op != &ls_op_bn || conv == LS_NONE || g->nodes[conv].op != &ls_op_conv ||
            ls_graph_readers(g, between) != 1 || between == g->logits)
            continue;
        x->folded[n] = conv;
        x->folded[conv] = n;
        x->n_folded++;
    }
}

/* Scales the weights of each output channel, and computes the bias. part[]: gamma, beta, mean and variance. */
static void scale(const struct ls_shape *shape, float eps, float *const part[PARTS], const float *old_bias,
                  float *weight, float *bias)
{
    int64_t channels = shape->dim[0], each = ls_shape_count(shape) / channels;
    for (int64_t c = 0; c < channels; c++) {
        double s = (double)part[0][c] / sqrt((double)part[3][c] + (double)eps);
        bias[c] = (float)(((old_bias ? (double)old_bias[c] : 0) - (double)part[2][c]) * s + (double)part[1][c]);
        for (int64_t i = c * each; i < (c + 1) * each; i++)
            weight[i] = (float)((double)weight[i] * s);
    }
}

void onnx_fold(struct onnx *x, int conv, int bn, const char **weight, const char **bias)
{
    const struct ls_node *n = &x->g->nodes[conv], *norm = &x->g->nodes[bn];
    const struct ls_shape *shape = &x->g->tensors[n->in[1]].shape;
    float *part[PARTS] = {0}, *old_bias = n->in[2] == LS_NONE ? NULL : onnx_values(x, n->in[2]);
    *weight = x->g->tensors[n->in[1]].name;
    *bias = old_bias ? x->g->tensors[n->in[2]].name : onnx_format(x, "%s:bias", n->name); /* a layer may be conv.bias */
    float *w = onnx_values(x, n->in[1]);
    for (int i = 0; i < PARTS; i++)
        part[i] = onnx_values(x, norm->in[GAMMA + i]);
    float *to_w = onnx_constant(x, *weight, shape->rank, shape->dim), *to_b = onnx_constant(x, *bias, 1, shape->dim);
    if (x->status == LS_OK) {
        scale(shape, norm->attr.eps, part, old_bias, w, to_b);
        for (int64_t i = 0; i < ls_shape_count(shape); i++)
            to_w[i] = w[i];
    }
    for (int i = 0; i < PARTS; i++)
        ls_free(part[i]);
    ls_free(old_bias);
    ls_free(w);
}
