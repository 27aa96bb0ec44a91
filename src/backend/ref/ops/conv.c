/* Convolutions. */
#include "backend/ref/ref.h"

/* Which output row (or column) has its window's tap k on input position i; -1 when none has. */
static int64_t output_at(int64_t i, int64_t k, int64_t pad, int64_t dilation, int64_t stride, int64_t outputs)
{
    int64_t from = i + pad - k * dilation;
    return from >= 0 && from % stride == 0 && from / stride < outputs ? from / stride : -1;
}

static void conv(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    struct ls_ref_view x = ls_ref_in(call, 0), w = ls_ref_in(call, 1), b = ls_ref_in(call, 2), y = ls_ref_out(call, 0);
    int64_t per_group = y.c / a->groups;
    for (int64_t n = 0; n < y.n; n++)
        for (int64_t o = 0; o < y.c; o++)
            for (int64_t oy = 0; oy < y.h; oy++)
                for (int64_t ox = 0; ox < y.w; ox++) {
                    double sum = b.v ? (double)b.v[o] : 0;
                    for (int64_t i = 0; i < w.c; i++)
                        for (int64_t ky = 0; ky < w.h; ky++)
                            for (int64_t kx = 0; kx < w.w; kx++) {
                                int64_t iy = oy * a->stride_h - a->pad_t + ky * a->dilation_h;
                                int64_t ix = ox * a->stride_w - a->pad_l + kx * a->dilation_w;
                                if (iy < 0 || iy >= x.h || ix < 0 || ix >= x.w)
                                    continue;
                                int64_t channel = o / per_group * w.c + i;
                                sum += (double)*ls_ref_at(&x, n, channel, iy, ix) * *ls_ref_at(&w, o, i, ky, kx);
                            }
                    *ls_ref_at(&y, n, o, oy, ox) = ls_ref_act_of(a->act, sum);
                }
}

static void conv_bwd_data(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    struct ls_ref_view dy = ls_ref_in(call, 0), w = ls_ref_in(call, 1), dx = ls_ref_out(call, 0);
    int64_t per_group = dy.c / a->groups;
    for (int64_t n = 0; n < dx.n; n++)
        for (int64_t c = 0; c < dx.c; c++)
            for (int64_t iy = 0; iy < dx.h; iy++)
                for (int64_t ix = 0; ix < dx.w; ix++) {
                    double sum = 0;
                    int64_t group = c / w.c, i = c % w.c;
                    for (int64_t ky = 0; ky < w.h; ky++)
                        for (int64_t kx = 0; kx < w.w; kx++) {
                            int64_t oy = output_at(iy, ky, a->pad_t, a->dilation_h, a->stride_h, dy.h);
                            int64_t ox = output_at(ix, kx, a->pad_l, a->dilation_w, a->stride_w, dy.w);
                            if (oy < 0 || ox < 0)
                                continue;
                            for (int64_t o = group * per_group; o < (group + 1) * per_group; o++)
                                sum += (double)*ls_ref_at(&dy, n, o, oy, ox) * *ls_ref_at(&w, o, i, ky, kx);
                        }
                    *ls_ref_at(&dx, n, c, iy, ix) = (float)sum;
                }
}

/* The gradient of one weight: all places of the output that it touched. */
static double weight_gradient(const struct ls_attr *a, const struct ls_ref_view *dy, const struct ls_ref_view *x,
                              int64_t o, int64_t channel, int64_t ky, int64_t kx)
{
    double sum = 0;
    for (int64_t n = 0; n < dy->n; n++)
        for (int64_t oy = 0; oy < dy->h; oy++)
            for (int64_t ox = 0; ox < dy->w; ox++) {
                int64_t iy = oy * a->stride_h - a->pad_t + ky * a->dilation_h;
                int64_t ix = ox * a->stride_w - a->pad_l + kx * a->dilation_w;
                if (iy >= 0 && iy < x->h && ix >= 0 && ix < x->w)
                    sum += (double)*ls_ref_at(dy, n, o, oy, ox) * *ls_ref_at(x, n, channel, iy, ix);
            }
    return sum;
}

static void conv_bwd_weights(const struct ls_ref_call *call)
{
    const struct ls_attr *a = &call->n->attr;
    struct ls_ref_view dy = ls_ref_in(call, 0), x = ls_ref_in(call, 1);
    struct ls_ref_view dw = ls_ref_out(call, 0), db = ls_ref_out(call, 1);
    int64_t per_group = dy.c / a->groups;
    for (int64_t o = 0; o < dw.n; o++)
        for (int64_t i = 0; i < dw.c; i++)
            for (int64_t ky = 0; ky < dw.h; ky++)
                for (int64_t kx = 0; kx < dw.w; kx++)
                    *ls_ref_at(&dw, o, i, ky, kx) =
                        (float)weight_gradient(a, &dy, &x, o, o / per_group * dw.c + i, ky, kx);
    for (int64_t o = 0; db.v && o < dy.c; o++) {
        double sum = 0;
        for (int64_t n = 0; n < dy.n; n++)
            for (int64_t i = 0; i < dy.h * dy.w; i++)
                sum += (double)ls_ref_at(&dy, n, o, 0, 0)[i];
        db.v[o] = (float)sum;
    }
}

const struct ls_ref_op ls_ref_ops_conv[] = {
    {"conv", conv},
    {"conv_bwd_data", conv_bwd_data},
    {"conv_bwd_weights", conv_bwd_weights},
    {0},
};
