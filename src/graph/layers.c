/* Layers by one call each, for the built-in models. */
#include "graph/build.h"

static void set_window(struct ls_attr *attr, int64_t kernel, int64_t stride, int64_t pad)
{
    attr->kernel_h = attr->kernel_w = kernel;
    attr->stride_h = attr->stride_w = stride;
    attr->pad_t = attr->pad_l = attr->pad_b = attr->pad_r = pad;
}

int ls_conv(struct ls_build *b, const char *name, int x, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
            int64_t groups, bool bias)
{
    struct ls_attr attr = ls_attr_default(&ls_op_conv);
    set_window(&attr, kernel, stride, pad);
    attr.out = out;
    attr.groups = groups;
    attr.bias = bias;
    return ls_build_layer(b, &ls_op_conv, name, &attr, &x, 1);
}

int ls_dense(struct ls_build *b, const char *name, int x, int64_t out)
{
    struct ls_attr attr = ls_attr_default(&ls_op_dense);
    attr.out = out;
    attr.bias = true;
    return ls_build_layer(b, &ls_op_dense, name, &attr, &x, 1);
}

int ls_bn(struct ls_build *b, const char *name, int x)
{
    struct ls_attr attr = ls_attr_default(&ls_op_bn);
    return ls_build_layer(b, &ls_op_bn, name, &attr, &x, 1);
}

int ls_bn_with(struct ls_build *b, const char *name, int x, float eps, float momentum)
{
    struct ls_attr attr = ls_attr_default(&ls_op_bn);
    attr.eps = eps;
    attr.momentum = momentum;
    return ls_build_layer(b, &ls_op_bn, name, &attr, &x, 1);
}

int ls_act(struct ls_build *b, const char *name, int x, enum ls_act kind)
{
    struct ls_attr attr = ls_attr_default(&ls_op_act);
    attr.act = kind;
    return ls_build_layer(b, &ls_op_act, name, &attr, &x, 1);
}

int ls_relu(struct ls_build *b, const char *name, int x)
{
    return ls_act(b, name, x, LS_ACT_RELU);
}

int ls_relu6(struct ls_build *b, const char *name, int x)
{
    return ls_act(b, name, x, LS_ACT_RELU6);
}

static int pool(struct ls_build *b, const struct ls_op *op, const char *name, int x, int64_t kernel, int64_t stride,
                int64_t pad)
{
    struct ls_attr attr = ls_attr_default(op);
    set_window(&attr, kernel, stride, pad);
    return ls_build_layer(b, op, name, &attr, &x, 1);
}

int ls_maxpool(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad)
{
    return pool(b, &ls_op_maxpool, name, x, kernel, stride, pad);
}

int ls_maxpool_ceil(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride)
{
    struct ls_attr attr = ls_attr_default(&ls_op_maxpool);
    set_window(&attr, kernel, stride, 0);
    attr.ceil = true;
    return ls_build_layer(b, &ls_op_maxpool, name, &attr, &x, 1);
}

int ls_avgpool(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad)
{
    return pool(b, &ls_op_avgpool, name, x, kernel, stride, pad);
}

int ls_maxpool_same(struct ls_build *b, const char *name, int x, int64_t kernel, int64_t stride)
{
    struct ls_attr attr = ls_attr_default(&ls_op_maxpool);
    if (b->status != LS_OK)
        return LS_NONE;
    set_window(&attr, kernel, stride, 0);
    ls_attr_same_padding(&attr, b->g->tensors[x].shape.dim[2], b->g->tensors[x].shape.dim[3]);
    return ls_build_layer(b, &ls_op_maxpool, name, &attr, &x, 1);
}

int ls_adaptive_avgpool(struct ls_build *b, const char *name, int x, int64_t out_h, int64_t out_w)
{
    struct ls_attr attr = ls_attr_default(&ls_op_adaptive_avgpool);
    attr.out_h = out_h;
    attr.out_w = out_w;
    return ls_build_layer(b, &ls_op_adaptive_avgpool, name, &attr, &x, 1);
}

int ls_lrn(struct ls_build *b, const char *name, int x, int64_t size, float alpha, float beta, float k)
{
    struct ls_attr attr = ls_attr_default(&ls_op_lrn);
    attr.size = size;
    attr.alpha = alpha;
    attr.beta = beta;
    attr.k = k;
    return ls_build_layer(b, &ls_op_lrn, name, &attr, &x, 1);
}

int ls_dropout(struct ls_build *b, const char *name, int x, float p)
{
    struct ls_attr attr = ls_attr_default(&ls_op_dropout);
    attr.p = p;
    return ls_build_layer(b, &ls_op_dropout, name, &attr, &x, 1);
}

int ls_add(struct ls_build *b, const char *name, int a, int c)
{
    struct ls_attr attr = ls_attr_default(&ls_op_add);
    int in[] = {a, c};
    return ls_build_layer(b, &ls_op_add, name, &attr, in, 2);
}

int ls_mul(struct ls_build *b, const char *name, int a, int s)
{
    struct ls_attr attr = ls_attr_default(&ls_op_mul);
    int in[] = {a, s};
    return ls_build_layer(b, &ls_op_mul, name, &attr, in, 2);
}

int ls_concat(struct ls_build *b, const char *name, int a, int c)
{
    struct ls_attr attr = ls_attr_default(&ls_op_concat);
    int in[] = {a, c};
    return ls_build_layer(b, &ls_op_concat, name, &attr, in, 2);
}

int ls_drop_path(struct ls_build *b, const char *name, int x, float p)
{
    struct ls_attr attr = ls_attr_default(&ls_op_drop_path);
    attr.p = p;
    return ls_build_layer(b, &ls_op_drop_path, name, &attr, &x, 1);
}

int ls_flatten(struct ls_build *b, const char *name, int x)
{
    struct ls_attr attr = ls_attr_default(&ls_op_flatten);
    return ls_build_layer(b, &ls_op_flatten, name, &attr, &x, 1);
}
