/* SqueezeNet 1.1 as in torchvision: few channels are "squeezed" and then expanded by 1x1 and 3x3 convolutions. */
#include "model/families.h"

static int conv_relu(struct ls_build *b, const char *name, int x, int64_t out, int64_t kernel)
{
    x = ls_conv(b, name, x, out, kernel, 1, kernel / 2, 1, true);
    return ls_relu(b, ls_build_name(b, "%s_activation", name), x);
}

static int fire(struct ls_build *b, int number, int x, int64_t squeeze, int64_t expand)
{
    const char *part = ls_build_name(b, "features.%d", number);
    x = conv_relu(b, ls_build_name(b, "%s.squeeze", part), x, squeeze, 1);
    int one = conv_relu(b, ls_build_name(b, "%s.expand1x1", part), x, expand, 1);
    int three = conv_relu(b, ls_build_name(b, "%s.expand3x3", part), x, expand, 3);
    return ls_concat(b, ls_build_name(b, "%s.cat", part), one, three);
}

static int squeezenet1_1(struct ls_build *b, int x, int64_t classes)
{
    b->conv_scheme = LS_SCHEME_KAIMING_UNIFORM;
    x = ls_relu(b, "features.1", ls_conv(b, "features.0", x, 64, 3, 2, 0, 1, true));
    x = ls_maxpool_ceil(b, "features.2", x, 3, 2);
    x = fire(b, 4, fire(b, 3, x, 16, 64), 16, 64);
    x = ls_maxpool_ceil(b, "features.5", x, 3, 2);
    x = fire(b, 7, fire(b, 6, x, 32, 128), 32, 128);
    x = ls_maxpool_ceil(b, "features.8", x, 3, 2);
    x = fire(b, 10, fire(b, 9, x, 48, 192), 48, 192);
    x = fire(b, 12, fire(b, 11, x, 64, 256), 64, 256);
    x = ls_dropout(b, "classifier.0", x, 0.5f);
    x = ls_conv(b, "classifier.1", x, classes, 1, 1, 0, 1, true);
    ls_build_init(b, "classifier.1.weight", LS_INIT_NORMAL, 0.01f);
    x = ls_adaptive_avgpool(b, "classifier.3", ls_relu(b, "classifier.2", x), 1, 1);
    return ls_flatten(b, "flatten", x);
}

const struct ls_model ls_model_squeezenet1_1 = {
    .name = "squeezenet1_1",
    .summary = "SqueezeNet 1.1, torchvision's",
    .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},
    .build = squeezenet1_1,
};
