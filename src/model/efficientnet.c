/* EfficientNet-B0 as in torchvision. The probability of stochastic depth grows with the depth of a block. */
#include "model/families.h"
#include "model/mbconv.h"

#include <math.h>

static const struct ls_mbconv_style style = {1e-5f, 0.1f, LS_ACT_SILU, LS_ACT_SIGMOID};

enum { BLOCKS = 16 };
#define DEEPEST 0.2f

static int efficientnet_b0(struct ls_build *b, int x, int64_t classes)
{
    static const struct {
        int64_t expand, kernel, stride, out;
        int repeat;
    } stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                  {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
    int number = 0;
    int64_t in = 32;
    b->conv_scheme = LS_SCHEME_KAIMING_OUT;
    x = ls_conv_bn_act(b, &style, "features.0", x, in, 3, 2, 1, LS_ACT_SILU);
    for (int s = 0; s < (int)(sizeof stages / sizeof *stages); s++)
        for (int i = 0; i < stages[s].repeat; i++, in = stages[s].out, number++) {
            struct ls_mbconv block = {.kernel = stages[s].kernel,
                                      .in = in,
                                      .hidden = in * stages[s].expand,
                                      .out = stages[s].out,
                                      .stride = i == 0 ? stages[s].stride : 1,
                                      .squeeze = in / 4,
                                      .act = LS_ACT_SILU,
                                      .drop_path = DEEPEST * (float)number / BLOCKS};
            x = ls_mbconv(b, &style, ls_build_name(b, "features.%d.%d", s + 1, i), x, &block);
        }
    x = ls_conv_bn_act(b, &style, "features.8", x, 1280, 1, 1, 1, LS_ACT_SILU);
    x = ls_dropout(b, "classifier.0", ls_adaptive_avgpool(b, "avgpool", x, 1, 1), 0.2f);
    x = ls_dense(b, "classifier.1", x, classes);
    ls_build_init(b, "classifier.1.weight", LS_INIT_UNIFORM, (float)(1 / sqrt((double)classes)));
    ls_build_init(b, "classifier.1.bias", LS_INIT_CONST, 0);
    return x;
}

const struct ls_model ls_model_efficientnet_b0 = {
    .name = "efficientnet_b0",
    .summary = "EfficientNet-B0, torchvision's",
    .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},
    .build = efficientnet_b0,
};
