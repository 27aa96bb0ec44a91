/* MobileNetV3, small and large, as in torchvision. */
#include "model/families.h"
#include "model/mbconv.h"

static const struct ls_mbconv_style style = {1e-3f, 0.01f, LS_ACT_RELU, LS_ACT_HARDSIGMOID};

struct row {
    int64_t kernel, hidden, out;
    bool excites, hardswish;
    int64_t stride;
};

/* A quarter of the channels, rounded to a multiple of 8 that is at least 90 % of it. */
static int64_t squeeze_channels(int64_t hidden)
{
    int64_t quarter = hidden / 4, rounded = (quarter + 4) / 8 * 8;
    rounded = rounded < 8 ? 8 : rounded;
    return 10 * rounded < 9 * quarter ? rounded + 8 : rounded;
}

static int mobilenet_v3(struct ls_build *b, int x, int64_t classes, const struct row *rows, int n_rows, int64_t last)
{
    int64_t in = 16;
    b->conv_scheme = LS_SCHEME_KAIMING_OUT;
    b->dense_scheme = LS_SCHEME_NORMAL_001;
    x = ls_conv_bn_act(b, &style, "features.0", x, in, 3, 2, 1, LS_ACT_HARDSWISH);
    for (int i = 0; i < n_rows; in = rows[i].out, i++) {
        const struct row *r = &rows[i];
        struct ls_mbconv block = {.kernel = r->kernel,
                                  .in = in,
                                  .hidden = r->hidden,
                                  .out = r->out,
                                  .stride = r->stride,
                                  .squeeze = r->excites ? squeeze_channels(r->hidden) : 0,
                                  .act = r->hardswish ? LS_ACT_HARDSWISH : LS_ACT_RELU};
        x = ls_mbconv(b, &style, ls_build_name(b, "features.%d", i + 1), x, &block);
    }
    x = ls_conv_bn_act(b, &style, ls_build_name(b, "features.%d", n_rows + 1), x, 6 * in, 1, 1, 1, LS_ACT_HARDSWISH);
    x = ls_dense(b, "classifier.0", ls_adaptive_avgpool(b, "avgpool", x, 1, 1), last);
    x = ls_dropout(b, "classifier.2", ls_act(b, "classifier.1", x, LS_ACT_HARDSWISH), 0.2f);
    return ls_dense(b, "classifier.3", x, classes);
}

static int mobilenet_v3_small(struct ls_build *b, int x, int64_t classes)
{
    static const struct row rows[] = {
        {3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
        {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
        {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
        {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1},
    };
    return mobilenet_v3(b, x, classes, rows, sizeof rows / sizeof *rows, 1024);
}

static int mobilenet_v3_large(struct ls_build *b, int x, int64_t classes)
{
    static const struct row rows[] = {
        {3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
        {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
        {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
        {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
        {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1},
    };
    return mobilenet_v3(b, x, classes, rows, sizeof rows / sizeof *rows, 1280);
}

const struct ls_model ls_model_mobilenet_v3_small = {
    .name = "mobilenet_v3_small",
    .summary = "MobileNetV3, small, torchvision's",
    .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},
    .build = mobilenet_v3_small,
};
const struct ls_model ls_model_mobilenet_v3_large = {
    .name = "mobilenet_v3_large",
    .summary = "MobileNetV3, large, torchvision's",
    .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},
    .build = mobilenet_v3_large,
};
