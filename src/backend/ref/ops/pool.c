/* Max, average and adaptive average pooling. */
#include "backend/ref/ref.h"

#include <math.h>
#include <string.h>

/* The pixels one output covers. */
struct window {
    int64_t top, left, bottom, right; /* inclusive, exclusive */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Of a sliding pooling, without its padding. */
static struct window sliding(const struct ls_attr *a, const struct ls_ref_view *x, int64_t oy, int64_t ox)
{
    int64_t top = oy * a->stride_h - a->pad_t, left = ox * a->stride_w - a->pad_l;
    return (struct window){most(top, 0), most(left, 0), least(top + a->kernel_h, x->h),
                           least(left + a->kernel_w, x->w)};
}

/* Of an adaptive pooling with the outputs of y. */
static struct window adaptive(const struct ls_ref_view *y, const struct ls_ref_view *x, int64_t oy, int64_t ox)
{
    return (struct window){oy * x->h / y->h, ox * x->w / y->w, ((oy + 1) * x->h + y->h - 1) / y->h,
                           ((ox + 1) * x->w + y->w - 1) / y->w};
}

/* What is not a number wins, so that it shows. */
static bool wins(float v, float best)
{
    return v > best || isnan(v);
}

void ls_ref_pool_max(const struct ls_attr *attr, enum ls_act act, const struct ls_ref_view *x,
                     const struct ls_ref_view *y, uint8_t *index)
{
    for (int64_t n = 0; n < y->n; n++)
        for (int64_t c = 0; c < y->c; c++)
            for (int64_t oy = 0; oy < y->h; oy++)
                for (int64_t ox = 0; ox < y->w; ox++) {
                    struct window win = sliding(attr, x, oy, ox);
                    int64_t best_y = win.top, best_x = win.left;
                    for (int64_t iy = win.top; iy < win.bottom; iy++)
                        for (int64_t ix = win.left; ix < win.right; ix++)
                            if (wins(*ls_ref_at(x, n, c, iy, ix), *ls_ref_at(x, n, c, best_y, best_x)))
                                best_y = iy, best_x = ix;
                    int64_t ky = best_y - (oy * attr->stride_h - attr->pad_t);
                    int64_t kx = best_x - (ox * attr->stride_w - attr->pad_l);
                    *ls_ref_at(y, n, c, oy, ox) = ls_ref_act_of(act, (double)*ls_ref_at(x, n, c, best_y, best_x));
                    if (index)
                        index[ls_ref_index(y, n, c, oy, ox)] = (uint8_t)(ky * attr->kernel_w + kx);
                }
}

void ls_ref_unpool_max(const struct ls_attr *attr, enum ls_act act, const struct ls_ref_view *dy, const uint8_t *index,
                       const float *y, const struct ls_ref_view *dx)
{
    for (int64_t n = 0; n < dy->n; n++)
        for (int64_t c = 0; c < dy->c; c++)
            for (int64_t oy = 0; oy < dy->h; oy++)
                for (int64_t ox = 0; ox < dy->w; ox++) {
                    int64_t at = ls_ref_index(dy, n, c, oy, ox);
                    int64_t iy = oy * attr->stride_h - attr->pad_t + index[at] / attr->kernel_w;
                    int64_t ix = ox * attr->stride_w - attr->pad_l + index[at] % attr->kernel_w;
                    if (!y || ls_ref_act_passes(act, y[at]))
                        *ls_ref_at(dx, n, c, iy, ix) += dy->v[at];
                }
}

static void maxpool(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    ls_ref_pool_max(&call->n->attr, call->n->attr.act, &x, &y, ls_ref_out_data(call, 1));
}

static void maxpool_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), y = ls_ref_in(call, 2), dx = ls_ref_out(call, 0);
    memset(dx.v, 0, (size_t)ls_ref_count(&dx) * sizeof *dx.v);
    ls_ref_unpool_max(&call->n->attr, call->n->attr.act, &dy, ls_ref_in_data(call, 1), y.v, &dx);
}

/* By how much an average pooling's window divides. */
static double divisor(const struct ls_attr *a, struct window win)
{
    return (double)(a->include_pad ? a->kernel_h * a->kernel_w : (win.bottom - win.top) * (win.right - win.left));
}

static double window_sum(const struct ls_ref_view *x, int64_t n, int64_t c, struct window win)
{
    double sum = 0;
    for (int64_t iy = win.top; iy < win.bottom; iy++)
        for (int64_t ix = win.left; ix < win.right; ix++)
            sum += (double)*ls_ref_at(x, n, c, iy, ix);
    return sum;
}

static void window_spread(const struct ls_ref_view *dx, int64_t n, int64_t c, struct window win, double value)
{
    for (int64_t iy = win.top; iy < win.bottom; iy++)
        for (int64_t ix = win.left; ix < win.right; ix++)
            *ls_ref_at(dx, n, c, iy, ix) += (float)value;
}

/* Both average poolings, forward (x to y) or backward (y's gradient spread over x's). */
static void average(const struct ls_attr *a, bool sliding_window, bool backward, const struct ls_ref_view *x,
                    const struct ls_ref_view *y)
{
    if (backward)
        memset(x->v, 0, (size_t)ls_ref_count(x) * sizeof *x->v);
    for (int64_t n = 0; n < y->n; n++)
        for (int64_t c = 0; c < y->c; c++)
            for (int64_t oy = 0; oy < y->h; oy++)
                for (int64_t ox = 0; ox < y->w; ox++) {
                    struct window win = sliding_window ? sliding(a, x, oy, ox) : adaptive(y, x, oy, ox);
                    double share =
                        sliding_window ? divisor(a, win) : (double)((win.bottom - win.top) * (win.right - win.left));
                    float *value = ls_ref_at(y, n, c, oy, ox);
                    if (backward)
                        window_spread(x, n, c, win, *value / share);
                    else
                        *value = (float)(window_sum(x, n, c, win) / share);
                }
}

static void avgpool(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    average(&call->n->attr, true, false, &x, &y);
}

static void avgpool_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), dx = ls_ref_out(call, 0);
    average(&call->n->attr, true, true, &dx, &dy);
}

static void adaptive_avgpool(const struct ls_ref_call *call)
{
    struct ls_ref_view x = ls_ref_in(call, 0), y = ls_ref_out(call, 0);
    average(&call->n->attr, false, false, &x, &y);
}

static void adaptive_avgpool_bwd(const struct ls_ref_call *call)
{
    struct ls_ref_view dy = ls_ref_in(call, 0), dx = ls_ref_out(call, 0);
    average(&call->n->attr, false, true, &dx, &dy);
}

const struct ls_ref_op ls_ref_ops_pool[] = {
    {"maxpool", maxpool},
    {"maxpool_bwd", maxpool_bwd},
    {"avgpool", avgpool},
    {"avgpool_bwd", avgpool_bwd},
    {"adaptive_avgpool", adaptive_avgpool},
    {"adaptive_avgpool_bwd", adaptive_avgpool_bwd},
    {0},
};
