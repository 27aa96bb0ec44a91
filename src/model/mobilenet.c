/* MobileNetV2 as in torchvision: inverted residuals with linear bottlenecks and depthwise convolutions. */
#include "model/families.h"

static int conv_bn(struct ls_build *b, const char *conv, const char *bn, int x, int64_t out, int64_t kernel,
                   int64_t stride, int64_t groups)
{
    return ls_bn(b, bn, ls_conv(b, conv, x, out, kernel, stride, kernel / 2, groups, false));
}

/* Convolution, BN and ReLU6, named `part`.0, `part`.1 and `part`.2. */
static int conv_bn_relu6(struct ls_build *b, const char *part, int x, int64_t out, int64_t kernel, int64_t stride,
                         int64_t groups)
{
    x = conv_bn(b, ls_build_name(b, "%s.0", part), ls_build_name(b, "%s.1", part), x, out, kernel, stride, groups);
    return ls_relu6(b, ls_build_name(b, "%s.2", part), x);
}

static int inverted_residual(struct ls_build *b, int number, int x, int64_t in, int64_t out, int64_t stride,
                             int64_t expand)
{
    int part = 0, y = x;
    int64_t hidden = in * expand;
    const char *conv = ls_build_name(b, "features.%d.conv", number);
    if (expand != 1)
        y = conv_bn_relu6(b, ls_build_name(b, "%s.%d", conv, part++), y, hidden, 1, 1, 1);
    y = conv_bn_relu6(b, ls_build_name(b, "%s.%d", conv, part++), y, hidden, 3, stride, hidden);
    y = conv_bn(b, ls_build_name(b, "%s.%d", conv, part), ls_build_name(b, "%s.%d", conv, part + 1), y, out, 1, 1, 1);
    if (stride == 1 && in == out)
        y = ls_add(b, ls_build_name(b, "features.%d.add", number), x, y);
    return y;
}

static int mobilenet_v2(struct ls_build *b, int x, int64_t classes)
{
    static const struct {
        int64_t expand, out;
        int repeat;
        int64_t stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    int number = 1;
    int64_t in = 32;
    b->conv_scheme = LS_SCHEME_KAIMING_OUT;
    b->dense_scheme = LS_SCHEME_NORMAL_001;
    x = conv_bn_relu6(b, "features.0", x, in, 3, 2, 1);
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (int i = 0; i < stages[s].repeat; i++, in = stages[s].out)
            x = inverted_residual(b, number++, x, in, stages[s].out, i == 0 ? stages[s].stride : 1, stages[s].expand);
    x = conv_bn_relu6(b, ls_build_name(b, "features.%d", number), x, 1280, 1, 1, 1);
    x = ls_adaptive_avgpool(b, "avgpool", x, 1, 1);
    x = ls_dropout(b, "classifier.0", x, 0.2f);
    return ls_dense(b, "classifier.1", x, classes);
}

const struct ls_model ls_model_mobilenet_v2 = {
    .name = "mobilenet_v2",
    .summary = "MobileNetV2, torchvision's",
    .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},
    .build = mobilenet_v2,
};
