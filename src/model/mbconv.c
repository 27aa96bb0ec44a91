#include "model/mbconv.h"

int ls_conv_bn_act(struct ls_build *b, const struct ls_mbconv_style *style, const char *part, int x, int64_t out,
                   int64_t kernel, int64_t stride, int64_t groups, enum ls_act act)
{
    x = ls_conv(b, ls_build_name(b, "%s.0", part), x, out, kernel, stride, kernel / 2, groups, false);
    x = ls_bn_with(b, ls_build_name(b, "%s.1", part), x, style->eps, style->momentum);
    return act == LS_ACT_NONE ? x : ls_act(b, ls_build_name(b, "%s.2", part), x, act);
}

/* Squeeze-and-excitation: a factor for each channel, computed from the means of all channels. */
static int excite(struct ls_build *b, const struct ls_mbconv_style *style, const char *part, int x, int64_t channels,
                  int64_t squeeze)
{
    int s = ls_adaptive_avgpool(b, ls_build_name(b, "%s.avgpool", part), x, 1, 1);
    s = ls_conv(b, ls_build_name(b, "%s.fc1", part), s, squeeze, 1, 1, 0, 1, true);
    s = ls_act(b, ls_build_name(b, "%s.activation", part), s, style->squeeze_act);
    s = ls_conv(b, ls_build_name(b, "%s.fc2", part), s, channels, 1, 1, 0, 1, true);
    s = ls_act(b, ls_build_name(b, "%s.scale_activation", part), s, style->excitation_act);
    return ls_mul(b, ls_build_name(b, "%s.mul", part), x, s);
}

int ls_mbconv(struct ls_build *b, const struct ls_mbconv_style *style, const char *name, int x,
              const struct ls_mbconv *m)
{
    int n = 0, y = x;
    if (m->hidden != m->in)
        y = ls_conv_bn_act(b, style, ls_build_name(b, "%s.block.%d", name, n++), y, m->hidden, 1, 1, 1, m->act);
    y = ls_conv_bn_act(b, style, ls_build_name(b, "%s.block.%d", name, n++), y, m->hidden, m->kernel, m->stride,
                       m->hidden, m->act);
    if (m->squeeze)
        y = excite(b, style, ls_build_name(b, "%s.block.%d", name, n++), y, m->hidden, m->squeeze);
    y = ls_conv_bn_act(b, style, ls_build_name(b, "%s.block.%d", name, n), y, m->out, 1, 1, 1, LS_ACT_NONE);
    if (m->stride != 1 || m->in != m->out)
        return y;
    if (m->drop_path > 0)
        y = ls_drop_path(b, ls_build_name(b, "%s.stochastic_depth", name), y, m->drop_path);
    return ls_add(b, ls_build_name(b, "%s.add", name), x, y);
}
