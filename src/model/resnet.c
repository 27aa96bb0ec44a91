/* ResNet v1.5 as in torchvision: in a bottleneck the 3x3 convolution has the stride. */
#include "model/families.h"

struct spec {
    int blocks[4];
    bool bottleneck;
};

/* A convolution and BN, named "<block>.conv<n>" and "<block>.bn<n>". */
static int conv_bn(struct ls_build *b, const char *block, int n, int x, int64_t out, int64_t kernel, int64_t stride)
{
    x = ls_conv(b, ls_build_name(b, "%s.conv%d", block, n), x, out, kernel, stride, kernel / 2, 1, false);
    return ls_bn(b, ls_build_name(b, "%s.bn%d", block, n), x);
}

static int relu(struct ls_build *b, const char *block, int n, int x)
{
    return ls_relu(b, ls_build_name(b, "%s.relu%d", block, n), x);
}

/* One residual block from `in` channels, with `width` inner channels. The shortcut is a projection where the shape
 * changes. */
static int residual(struct ls_build *b, const char *block, int x, int64_t in, int64_t width, int64_t stride,
                    bool bottleneck)
{
    int64_t out = bottleneck ? 4 * width : width;
    int convs = bottleneck ? 3 : 2, y, shortcut = x;
    if (bottleneck) {
        y = relu(b, block, 1, conv_bn(b, block, 1, x, width, 1, 1));
        y = relu(b, block, 2, conv_bn(b, block, 2, y, width, 3, stride));
        y = conv_bn(b, block, 3, y, out, 1, 1);
    } else {
        y = relu(b, block, 1, conv_bn(b, block, 1, x, width, 3, stride));
        y = conv_bn(b, block, 2, y, width, 3, 1);
    }
    if (stride != 1 || in != out) {
        shortcut = ls_conv(b, ls_build_name(b, "%s.downsample.0", block), x, out, 1, stride, 0, 1, false);
        shortcut = ls_bn(b, ls_build_name(b, "%s.downsample.1", block), shortcut);
    }
    y = ls_add(b, ls_build_name(b, "%s.add", block), y, shortcut);
    return relu(b, block, convs, y);
}

static int resnet(struct ls_build *b, int x, int64_t classes, const struct spec *spec)
{
    int64_t in = 64;
    b->conv_scheme = LS_SCHEME_KAIMING_OUT;
    x = ls_bn(b, "bn1", ls_conv(b, "conv1", x, 64, 7, 2, 3, 1, false));
    x = ls_maxpool(b, "maxpool", ls_relu(b, "relu", x), 3, 2, 1);
    for (int stage = 0; stage < 4; stage++) {
        int64_t width = (int64_t)64 << stage;
        for (int i = 0; i < spec->blocks[stage]; i++) {
            const char *block = ls_build_name(b, "layer%d.%d", stage + 1, i);
            x = residual(b, block, x, in, width, stage > 0 && i == 0 ? 2 : 1, spec->bottleneck);
            in = spec->bottleneck ? 4 * width : width;
        }
    }
    x = ls_adaptive_avgpool(b, "avgpool", x, 1, 1);
    return ls_dense(b, "fc", x, classes);
}

#define RESNET(layers, is_bottleneck, ...)                                     \
    static int resnet##layers(struct ls_build *b, int x, int64_t classes)      \
    {                                                                          \
        static const struct spec spec = {{__VA_ARGS__}, is_bottleneck};        \
        return resnet(b, x, classes, &spec);                                   \
    }                                                                          \
    const struct ls_model ls_model_resnet##layers = {                          \
        .name = "resnet" #layers,                                              \
        .summary = "residual net with " #layers " layers, torchvision's",      \
        .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000}, \
        .build = resnet##layers,                                               \
    };
RESNET(18, false, 2, 2, 2, 2)
RESNET(34, false, 3, 4, 6, 3)
RESNET(50, true, 3, 4, 6, 3)
RESNET(101, true, 3, 4, 23, 3)
