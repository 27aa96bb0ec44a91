/* Cases of the convolutions, depthwise, direct and of few channels, against loops in double. */
#include "misc.h"

#include <cmath>

struct shape {
    int64_t n, h, w, channels, out, groups;
    int kernel, stride, pad, dilation;
    enum ls_act act;
};

static int64_t size_after(int64_t size, const struct shape &s)
{
    return (size + 2 * s.pad - (int64_t)s.dilation * (s.kernel - 1) - 1) / s.stride + 1;
}

static struct ls_cuda_conv conv_of(enum ls_dtype t, const struct shape &s)
{
    struct ls_cuda_conv c = {};
    c.t = t;
    c.x = {s.n, s.h, s.w, pad8(s.channels)};
    c.y = {s.n, size_after(s.h, s), size_after(s.w, s), pad8(s.out)};
    c.channels = s.channels;
    c.out = s.out;
    c.groups = s.groups;
    c.kernel_h = c.kernel_w = s.kernel;
    c.stride_h = c.stride_w = s.stride;
    c.pad_t = c.pad_l = s.pad;
    c.dilation_h = c.dilation_w = s.dilation;
    c.act = s.act;
    return c;
}

/* Where weight (o, ky, kx, i) lies. */
struct layout {
    bool depthwise;
    int64_t stored; /* inputs of a group, padded; or channels, padded */
    int kernel;
    size_t at(int64_t o, int ky, int kx, int64_t i) const
    {
        int64_t tap = ky * kernel + kx;
        return (size_t)(depthwise ? tap * stored + o : (o * kernel * kernel + tap) * stored + i);
    }
};

/* Calls f with the indices in x, y and w of every product of the convolution. */
template <typename F> static void each_product(const struct ls_cuda_conv &c, const struct layout &l, F f)
{
    int64_t inputs = c.channels / c.groups, outputs = c.out / c.groups;
    for (int64_t n = 0; n < c.y.n; n++)
        for (int64_t oy = 0; oy < c.y.h; oy++)
            for (int64_t ox = 0; ox < c.y.w; ox++)
                for (int ky = 0; ky < c.kernel_h; ky++)
                    for (int kx = 0; kx < c.kernel_w; kx++) {
                        int64_t iy = oy * c.stride_h - c.pad_t + (int64_t)ky * c.dilation_h;
                        int64_t ix = ox * c.stride_w - c.pad_l + (int64_t)kx * c.dilation_w;
                        if (iy < 0 || iy >= c.x.h || ix < 0 || ix >= c.x.w)
                            continue;
                        for (int64_t o = 0; o < c.out; o++)
                            for (int64_t i = 0; i < inputs; i++)
                                f((size_t)(((n * c.x.h + iy) * c.x.w + ix) * c.x.c + o / outputs * inputs + i),
                                  (size_t)(((n * c.y.h + oy) * c.y.w + ox) * c.y.c + o), l.at(o, ky, kx, i));
                    }
}

static float finish(enum ls_act act, double v)
{
    return (float)(act == LS_ACT_NONE ? v : act == LS_ACT_RELU6 && v > 6 ? 6 : v < 0 ? 0 : v);
}

static values narrow(const std::vector<double> &v)
{
    return values(v.begin(), v.end());
}

enum kind { DIRECT, DEPTHWISE, FEW };

static void conv(enum ls_dtype t, const struct shape &s, enum kind kind, bool with_bias)
{
    const bool depthwise = kind == DEPTHWISE;
    struct ls_cuda_conv c = conv_of(t, s);
    struct layout l = {depthwise, depthwise ? c.y.c : pad8(s.channels / s.groups), s.kernel};
    size_t rows = (size_t)(depthwise ? s.kernel * s.kernel : c.y.c * s.kernel * s.kernel);
    values x = random_rows((size_t)(s.n * s.h * s.w), s.channels, c.x.c);
    values dy = random_rows((size_t)(c.y.n * c.y.h * c.y.w), s.out, c.y.c);
    values w = random_rows(rows, depthwise ? s.out : s.channels / s.groups, l.stored);
    values b = random_rows(1, s.out, c.y.c);
    device dev_x(t, x), dev_dy(t, dy), dev_w(t, w), dev_b(LS_F32, b);
    device y(dy.size() * 4), dx(x.size() * 4), dw(w.size() * 4),
        scratch(kind == FEW ? ls_cuda_few_scratch(&c) : ls_cuda_depthwise_scratch(&c));
    std::vector<double> want_y(dy.size()), want_dx(x.size()), want_dw(w.size());
    for (size_t i = 0; i < want_y.size(); i++)
        want_y[i] = with_bias ? b[i % (size_t)c.y.c] : 0;
    each_product(c, l, [&](size_t ix, size_t iy, size_t iw) {
        want_y[iy] += (double)x[ix] * w[iw];
        want_dx[ix] += (double)dy[iy] * w[iw];
        want_dw[iw] += (double)dy[iy] * x[ix];
    });
    for (double &v : want_y)
        v = finish(s.act, v);
    const float *bias = with_bias ? dev_b.as<float>() : NULL;
    if (kind == FEW) {
        ls_cuda_few(0, &c, dev_x.at, dev_w.at, y.at);
        ls_cuda_few_bwd_weights(0, &c, dev_dy.at, dev_x.at, dw.as<float>(), scratch.as<float>());
    } else if (depthwise) {
        ls_cuda_depthwise(0, &c, dev_x.at, dev_w.at, bias, y.at);
        ls_cuda_depthwise_bwd_data(0, &c, dev_dy.at, dev_w.at, dx.at);
        ls_cuda_depthwise_bwd_weights(0, &c, dev_dy.at, dev_x.at, dw.as<float>(), scratch.as<float>());
    } else {
        ls_cuda_direct(0, &c, dev_x.at, dev_w.at, bias, y.at);
        ls_cuda_direct_bwd_data(0, &c, dev_dy.at, dev_w.at, dx.at);
        ls_cuda_direct_bwd_weights(0, &c, dev_dy.at, dev_x.at, dw.as<float>());
    }
    std::string name = std::string(kind == FEW ? "few "
                                   : depthwise ? "depthwise "
                                               : "direct ") +
                       misc_type(t) + " " + std::to_string(s.channels) + "x" + std::to_string(s.h) + "x" +
                       std::to_string(s.w) + " k" + std::to_string(s.kernel) + " s" + std::to_string(s.stride) + " p" +
                       std::to_string(s.pad) + " d" + std::to_string(s.dilation) + " g" + std::to_string(s.groups);
    verdict(name + " forward", y.read(t, dy.size()), narrow(want_y), misc_tolerance(t));
    if (kind != FEW)
        verdict(name + " bwd_data", dx.read(t, x.size()), narrow(want_dx), misc_tolerance(t));
    verdict(name + " bwd_weights", dw.read(LS_F32, w.size()), narrow(want_dw), 5e-5);
}

static void depthwise(enum ls_dtype t, int64_t c, int64_t h, int64_t w, int kernel, int stride, int pad, int dilation,
                      enum ls_act act, bool bias)
{
    conv(t, {3, h, w, c, c, c, kernel, stride, pad, dilation, act}, DEPTHWISE, bias);
}

static void direct(enum ls_dtype t, int64_t channels, int64_t out, int64_t groups, int kernel, int stride, int pad,
                   int dilation, enum ls_act act, bool bias)
{
    conv(t, {2, 9, 8, channels, out, groups, kernel, stride, pad, dilation, act}, DIRECT, bias);
}

static void few(enum ls_dtype t, int64_t n, int64_t h, int64_t w, int64_t channels, int64_t out)
{
    const struct shape s = {n, h, w, channels, out, 1, 3, 1, 1, 1, LS_ACT_NONE};
    const struct ls_cuda_conv c = conv_of(t, s);
    if (ls_cuda_few_can(&c))
        conv(t, s, FEW, false);
    else
        verdict("few channels take it", values(1, 0), values(1, 1), 0);
}

/* Against loops in double; the activation is GELU. */
static void narrow_product(enum ls_dtype t, int64_t rows, int64_t channels, int64_t out, bool with_bias)
{
    struct ls_cuda_conv c = conv_of(t, {1, rows, 1, channels, out, 1, 1, 1, 0, 1, LS_ACT_NONE});
    values x = random_rows((size_t)rows, channels, c.x.c, 2), w = random_rows((size_t)c.y.c, channels, c.x.c, 1),
           b = random_rows(1, out, c.y.c), want((size_t)(rows * c.y.c));
    for (size_t i = (size_t)(out * c.x.c); i < w.size(); i++)
        w[i] = 0;
    device dev_x(t, x), dev_w(t, w), dev_b(LS_F32, b), y(want.size() * 4);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double z = with_bias ? b[(size_t)o] : 0;
            for (int64_t i = 0; i < channels; i++)
                z += (double)x[(size_t)(r * c.x.c + i)] * w[(size_t)(o * c.x.c + i)];
            want[(size_t)(r * c.y.c + o)] = (float)(z * std::erfc(-z / std::sqrt(2)) / 2);
        }
    const std::string name = std::string("narrow ") + misc_type(t) + " " + std::to_string(rows) + "x" +
                             std::to_string(channels) + " to " + std::to_string(out);
    if (ls_cuda_narrow_can(&c, LS_ACT_GELU))
        ls_cuda_narrow(0, &c, LS_ACT_GELU, dev_x.at, dev_w.at, with_bias ? dev_b.as<float>() : NULL, y.at);
    verdict(name, y.read(t, want.size()), want, misc_tolerance(t));
}

/* With a max pooling: what the two give apart. */
static void few_pool(enum ls_dtype t, int64_t n, int64_t h, int64_t w, int64_t channels, int64_t out)
{
    const struct shape s = {n, h, w, channels, out, 1, 3, 1, 1, 1, LS_ACT_NONE};
    const struct ls_cuda_conv c = conv_of(t, s);
    struct ls_cuda_pool p = {};
    p.t = t;
    p.x = c.y;
    p.y = {n, h / 2, w / 2, out};
    p.kernel_h = p.kernel_w = p.stride_h = p.stride_w = 2;
    const std::string name = std::string("few with pool ") + misc_type(t) + " " + std::to_string(channels) + "x" +
                             std::to_string(h) + "x" + std::to_string(w);
    if (!ls_cuda_few_pool_can(&c, &p)) {
        verdict(name + ": takes it", values(1, 0), values(1, 1), 0);
        return;
    }
    const size_t pooled = (size_t)(n * (h / 2) * (w / 2) * out), weights = (size_t)(out * 9) * (size_t)c.x.c;
    values x = random_rows((size_t)(n * h * w), channels, c.x.c), f = random_rows((size_t)(out * 9), channels, c.x.c),
           d = random_rows(pooled / (size_t)out, out, out);
    device dev_x(t, x), dev_w(t, f), dev_d(t, d), dy((size_t)(n * h * w * out) * 4);
    device map((size_t)(n * h * w * out) * 4), one(pooled * 4), other(pooled * 4), index(pooled), index2(pooled);
    device dw(weights * 4), dw2(weights * 4), scratch(ls_cuda_few_scratch(&c));
    ls_cuda_few(0, &c, dev_x.at, dev_w.at, map.at);
    ls_cuda_maxpool(0, &p, map.at, one.at, (uint8_t *)index.at);
    ls_cuda_few_pool(0, &c, dev_x.at, dev_w.at, other.at, (uint8_t *)index2.at);
    ls_cuda_maxpool_bwd(0, &p, dev_d.at, (const uint8_t *)index.at, NULL, dy.at);
    ls_cuda_few_bwd_weights(0, &c, dy.at, dev_x.at, dw.as<float>(), scratch.as<float>());
    ls_cuda_few_pool_bwd_weights(0, &c, dev_d.at, (const uint8_t *)index.at, dev_x.at, dw2.as<float>(),
                                 scratch.as<float>());
    verdict(name + " forward", other.read(t, pooled), one.read(t, pooled), 0);
    verdict_ints(name + " index", index2.read_ints(pooled / 4), index.read_ints(pooled / 4));
    verdict(name + " bwd_weights", dw2.read(LS_F32, weights), dw.read(LS_F32, weights), 5e-5);
}

void misc_conv(void)
{
    for (enum ls_dtype t : misc_types) {
        for (int stride = 1; stride <= 2; stride++) {
            depthwise(t, 8, 7, 7, 3, stride, 1, 1, LS_ACT_NONE, false);
            depthwise(t, 20, 5, 6, 3, stride, 1, 1, LS_ACT_RELU6, true);
            depthwise(t, 32, 14, 29, 3, stride, 1, 1, LS_ACT_RELU, true);
            depthwise(t, 96, 8, 33, 3, stride, 1, 1, LS_ACT_NONE, true);
            depthwise(t, 136, 4, 3, 3, stride, 1, 1, LS_ACT_NONE, false);
            depthwise(t, 24, 9, 10, 3, stride, 0, 1, LS_ACT_NONE, false);
            depthwise(t, 24, 6, 7, 3, stride, 2, 1, LS_ACT_NONE, false);
            depthwise(t, 8, 1, 1, 3, stride, 1, 1, LS_ACT_NONE, true);
            depthwise(t, 24, 11, 12, 5, stride, 2, 1, LS_ACT_RELU, true);
        }
        depthwise(t, 72, 12, 9, 3, 1, 2, 2, LS_ACT_NONE, true);
        depthwise(t, 16, 10, 10, 3, 3, 1, 1, LS_ACT_NONE, false);
        direct(t, 3, 10, 1, 3, 1, 1, 1, LS_ACT_RELU, true);
        direct(t, 6, 8, 2, 3, 2, 1, 1, LS_ACT_NONE, false);
        direct(t, 12, 12, 4, 2, 1, 0, 2, LS_ACT_RELU6, true);
        direct(t, 20, 9, 1, 1, 2, 0, 1, LS_ACT_NONE, true);
    }
    for (enum ls_dtype t : {LS_BF16, LS_F16}) {
        few(t, 3, 31, 31, 24, 64);
        few(t, 70, 17, 9, 24, 64); /* more strips than multiprocessors */
        few(t, 2, 8, 64, 20, 128);
        few(t, 1, 1, 1, 24, 64);
        few(t, 5, 16, 7, 16, 64);
        few(t, 3, 9, 12, 3, 192);
        narrow_product(t, 961, 12, 24, true);
        narrow_product(t, 1, 16, 16, false);
        narrow_product(t, 100003, 27, 30, true);
        narrow_product(t, 77, 32, 20, true);
        few_pool(t, 3, 31, 31, 24, 64);
        few_pool(t, 70, 17, 9, 24, 64);
        few_pool(t, 2, 8, 64, 20, 128);
        few_pool(t, 300, 2, 2, 24, 64);
        few_pool(t, 5, 16, 7, 16, 64);
        few_pool(t, 3, 9, 12, 3, 192);
    }
    depthwise(LS_BF16, 144, 57, 57, 3, 1, 1, 1, LS_ACT_NONE, false);
    depthwise(LS_BF16, 96, 64, 64, 3, 2, 1, 1, LS_ACT_NONE, false);
}
