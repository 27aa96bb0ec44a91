/* The ops of a forward graph as ONNX nodes: one function and one line of the table each. */
#include "base/log.h"
#include "export/onnx.h"
#include "graph/ops.h"

#include <string.h>

enum { BN_SLOTS = 5 };

static const char *in(struct onnx *x, const struct ls_node *n, int slot)
{
    return onnx_name(x, n->in[slot]);
}

static const char *out(struct onnx *x, const struct ls_node *n)
{
    return onnx_name(x, n->out[0]);
}

/* Kernel, strides and padding. The order of the padding is the same: top, left, bottom, right. */
static void window(struct onnx *x, const struct ls_attr *a)
{
    onnx_ints(x, "kernel_shape", (int64_t[]){a->kernel_h, a->kernel_w}, 2);
    onnx_ints(x, "strides", (int64_t[]){a->stride_h, a->stride_w}, 2);
    onnx_ints(x, "pads", (int64_t[]){a->pad_t, a->pad_l, a->pad_b, a->pad_r}, 4);
}

static void conv(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    int bn = x->folded[node], count = 2;
    const char *names[3] = {in(x, n, 0)};
    if (bn != LS_NONE) {
        onnx_fold(x, node, bn, &names[1], &names[2]);
        count = 3;
    } else {
        names[1] = onnx_weight(x, n->in[1]);
        if (n->in[2] != LS_NONE)
            names[count++] = onnx_weight(x, n->in[2]);
    }
    size_t mark = onnx_begin(x, "Conv", n->name, names, count, out(x, bn == LS_NONE ? n : &x->g->nodes[bn]));
    window(x, &n->attr);
    onnx_ints(x, "dilations", (int64_t[]){n->attr.dilation_h, n->attr.dilation_w}, 2);
    onnx_int(x, "group", n->attr.groups);
    onnx_end(x, mark);
}

static void flatten_as(struct onnx *x, const char *name, const char *from, const char *to)
{
    size_t mark = onnx_begin(x, "Flatten", name, &from, 1, to);
    onnx_int(x, "axis", 1);
    onnx_end(x, mark);
}

static void flatten(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    flatten_as(x, n->name, in(x, n, 0), out(x, n));
}

static void dense(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    const char *names[3] = {in(x, n, 0), onnx_weight(x, n->in[1])};
    int count = 2;
    if (n->in[2] != LS_NONE)
        names[count++] = onnx_weight(x, n->in[2]);
    if (x->g->tensors[n->in[0]].shape.rank == 4) {
        const char *rows = onnx_format(x, "%s:rows", n->name);
        flatten_as(x, rows, names[0], rows);
        names[0] = rows;
    }
    size_t mark = onnx_begin(x, "Gemm", n->name, names, count, out(x, n));
    onnx_int(x, "transB", 1);
    onnx_end(x, mark);
}

static void bn(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    if (x->folded[node] != LS_NONE)
        return;
    const char *names[BN_SLOTS] = {in(x, n, 0)};
    for (int i = 1; i < BN_SLOTS; i++)
        names[i] = onnx_weight(x, n->in[i]);
    size_t mark = onnx_begin(x, "BatchNormalization", n->name, names, BN_SLOTS, out(x, n));
    onnx_float(x, "epsilon", n->attr.eps);
    onnx_end(x, mark);
}

/* --- activations: one function and one line of acts[] each --------------------------------------------- */

static void relu(struct onnx *x, const struct ls_node *n)
{
    onnx_plain(x, "Relu", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
}

static const char *number(struct onnx *x, const char *name, float value)
{
    float *v = onnx_constant(x, name, 0, (int64_t[]){0});
    if (v)
        *v = value;
    return name;
}

static void relu6(struct onnx *x, const struct ls_node *n)
{
    const char *names[] = {in(x, n, 0), number(x, onnx_format(x, "%s:low", n->name), 0),
                           number(x, onnx_format(x, "%s:high", n->name), 6)};
    onnx_plain(x, "Clip", n->name, names, 3, out(x, n));
}

static void sigmoid(struct onnx *x, const struct ls_node *n)
{
    onnx_plain(x, "Sigmoid", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
}

static void silu(struct onnx *x, const struct ls_node *n)
{
    const char *gate = onnx_format(x, "%s:sigmoid", n->name), *input = in(x, n, 0);
    onnx_plain(x, "Sigmoid", gate, &input, 1, gate);
    onnx_plain(x, "Mul", n->name, (const char *[]){input, gate}, 2, out(x, n));
}

static void hardswish(struct onnx *x, const struct ls_node *n)
{
    onnx_plain(x, "HardSwish", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
}

static void hardsigmoid(struct onnx *x, const struct ls_node *n)
{
    size_t mark = onnx_begin(x, "HardSigmoid", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
    onnx_float(x, "alpha", 1.0f / 6);
    onnx_float(x, "beta", 0.5f);
    onnx_end(x, mark);
}

/* Opset 17 has no Gelu: x (1 + erf(x / sqrt(2))) / 2. */
static void gelu(struct onnx *x, const struct ls_node *n)
{
    const char *input = in(x, n, 0), *scaled = onnx_format(x, "%s:scaled", n->name),
               *erf = onnx_format(x, "%s:erf", n->name), *above = onnx_format(x, "%s:above", n->name),
               *twice = onnx_format(x, "%s:twice", n->name);
    const char *root = number(x, onnx_format(x, "%s:root", n->name), 0.70710678f),
               *one = number(x, onnx_format(x, "%s:one", n->name), 1),
               *half = number(x, onnx_format(x, "%s:half", n->name), 0.5f);
    onnx_plain(x, "Mul", scaled, (const char *[]){input, root}, 2, scaled);
    onnx_plain(x, "Erf", erf, &scaled, 1, erf);
    onnx_plain(x, "Add", above, (const char *[]){erf, one}, 2, above);
    onnx_plain(x, "Mul", twice, (const char *[]){input, above}, 2, twice);
    onnx_plain(x, "Mul", n->name, (const char *[]){twice, half}, 2, out(x, n));
}

static void same(struct onnx *x, const struct ls_node *n)
{
    onnx_plain(x, "Identity", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
}

static const struct {
    enum ls_act act;
    void (*add)(struct onnx *x, const struct ls_node *n);
} acts[] = {
    {LS_ACT_NONE, same},
    {LS_ACT_RELU, relu},
    {LS_ACT_RELU6, relu6},
    {LS_ACT_SILU, silu},
    {LS_ACT_HARDSWISH, hardswish},
    {LS_ACT_SIGMOID, sigmoid},
    {LS_ACT_HARDSIGMOID, hardsigmoid},
    {LS_ACT_GELU, gelu},
};

static void act(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (acts[i].act == n->attr.act) {
            acts[i].add(x, n);
            return;
        }
    x->status =
        ls_fail(LS_FAILED, "layer %s: the activation %s is not exported yet", n->name, ls_act_name(n->attr.act));
}

/* --- pooling ------------------------------------------------------------------------------------------ */

static void maxpool(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    size_t mark = onnx_begin(x, "MaxPool", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
    window(x, &n->attr);
    onnx_end(x, mark);
}

static void avgpool(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    size_t mark = onnx_begin(x, "AveragePool", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
    window(x, &n->attr);
    onnx_int(x, "count_include_pad", n->attr.include_pad);
    onnx_end(x, mark);
}

/* The means along one axis as a matrix: row o has 1 / length in the columns of its window. */
static const char *means(struct onnx *x, const char *name, int64_t from, int64_t to, bool transposed)
{
    float *m = onnx_constant(x, name, 2, transposed ? (int64_t[]){from, to} : (int64_t[]){to, from});
    for (int64_t o = 0; m && o < to; o++) {
        int64_t first = o * from / to, end = ((o + 1) * from + to - 1) / to;
        for (int64_t i = first; i < end; i++)
            m[transposed ? i * to + o : o * from + i] = 1 / (float)(end - first);
    }
    return name;
}

/* ONNX has no pooling to a given size: global pooling, or a product with a matrix of means for rows and for columns. */
static void adaptive_avgpool(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    const struct ls_shape *from = &x->g->tensors[n->in[0]].shape, *to = &x->g->tensors[n->out[0]].shape;
    const char *input = in(x, n, 0);
    if (to->dim[2] == 1 && to->dim[3] == 1) {
        onnx_plain(x, "GlobalAveragePool", n->name, &input, 1, out(x, n));
        return;
    }
    const char *rows = onnx_format(x, "%s:rows", n->name);
    const char *down = means(x, onnx_format(x, "%s:down", n->name), from->dim[2], to->dim[2], false);
    const char *across = means(x, onnx_format(x, "%s:across", n->name), from->dim[3], to->dim[3], true);
    onnx_plain(x, "MatMul", rows, (const char *[]){down, input}, 2, rows);
    onnx_plain(x, "MatMul", n->name, (const char *[]){rows, across}, 2, out(x, n));
}

/* --- the others --------------------------------------------------------------------------------------- */

static void add(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    onnx_plain(x, "Add", n->name, (const char *[]){in(x, n, 0), in(x, n, 1)}, 2, out(x, n));
}

/* The factors are (N, C, 1, 1), which ONNX spreads over the map. */
static void mul(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    onnx_plain(x, "Mul", n->name, (const char *[]){in(x, n, 0), in(x, n, 1)}, 2, out(x, n));
}

static void scale(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    const char *factor = number(x, onnx_format(x, "%s:factor", n->name), n->attr.factor);
    onnx_plain(x, "Mul", n->name, (const char *[]){in(x, n, 0), factor}, 2, out(x, n));
}

static void concat(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    const char *names[LS_MAX_IN];
    int count = 0;
    for (; count < LS_MAX_IN && n->in[count] != LS_NONE; count++)
        names[count] = in(x, n, count);
    size_t mark = onnx_begin(x, "Concat", n->name, names, count, out(x, n));
    onnx_int(x, "axis", 1);
    onnx_end(x, mark);
}

/* A window of even size leans towards lower channels here and towards higher ones in ONNX, and ONNX Runtime refuses it. The
 * mean of squares is then a 1x1 convolution of the squares with a band matrix. */
static void even_lrn(struct onnx *x, const struct ls_node *n)
{
    int64_t c = x->g->tensors[n->in[0]].shape.dim[1], size = n->attr.size;
    const char *input = in(x, n, 0), *squares = onnx_format(x, "%s:squares", n->name),
               *base = onnx_format(x, "%s:base", n->name), *power = onnx_format(x, "%s:power", n->name),
               *band_name = onnx_format(x, "%s:band", n->name), *k_name = onnx_format(x, "%s:k", n->name);
    float *band = onnx_constant(x, band_name, 4, (int64_t[]){c, c, 1, 1});
    float *k = onnx_constant(x, k_name, 1, &c);
    for (int64_t row = 0; band && k && row < c; row++) {
        k[row] = n->attr.k;
        for (int64_t i = row - size / 2; i <= row + (size - 1) / 2; i++)
            if (i >= 0 && i < c)
                band[row * c + i] = n->attr.alpha / (float)size;
    }
    onnx_plain(x, "Mul", squares, (const char *[]){input, input}, 2, squares);
    onnx_plain(x, "Conv", base, (const char *[]){squares, band_name, k_name}, 3, base);
    const char *beta = number(x, onnx_format(x, "%s:beta", n->name), n->attr.beta);
    onnx_plain(x, "Pow", power, (const char *[]){base, beta}, 2, power);
    onnx_plain(x, "Div", n->name, (const char *[]){input, power}, 2, out(x, n));
}

static void lrn(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    if (n->attr.size % 2 == 0) {
        even_lrn(x, n);
        return;
    }
    size_t mark = onnx_begin(x, "LRN", n->name, (const char *[]){in(x, n, 0)}, 1, out(x, n));
    onnx_int(x, "size", n->attr.size);
    onnx_float(x, "alpha", n->attr.alpha);
    onnx_float(x, "beta", n->attr.beta);
    onnx_float(x, "bias", n->attr.k);
    onnx_end(x, mark);
}

/* Dropout and drop_path are absent from a graph for evaluation. One line for each op. */
/* clang-format off */
static const struct {
    const char *op;
    void (*add)(struct onnx *x, int node);
} ops[] = {
    {"conv", conv},
    {"dense", dense},
    {"bn", bn},
    {"act", act},
    {"lrn", lrn},
    {"maxpool", maxpool},
    {"avgpool", avgpool},
    {"adaptive_avgpool", adaptive_avgpool},
    {"add", add},
    {"mul", mul},
    {"scale", scale},
    {"concat", concat},
    {"flatten", flatten},
};
/* clang-format on */

void onnx_translate(struct onnx *x, int node)
{
    const struct ls_node *n = &x->g->nodes[node];
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].op, n->op->name) == 0) {
            ops[i].add(x, node);
            return;
        }
    x->status = ls_fail(LS_FAILED, "layer %s: the op %s is not exported yet", n->name, n->op->name);
}
