/* ResNet v1.5 as in torchvision: in a bottleneck the 3x3 convolution has the stride. ResNeXt divides that convolution into
 * groups, and a wide ResNet has more channels in it. */
#include "model/families.h"

struct spec {
    int blocks[4];
    bool bottleneck;
    int64_t groups, group_width; /* of a bottleneck's 3x3 convolution; the width is that of the first stage */
};

/* A convolution and BN, named "<block>.conv<n>" and "<block>.bn<n>". */
static int conv_bn(struct ls_build *b, const char *block, int n, int x, int64_t out, int64_t kernel, int64_t stride,
                   int64_t groups)
{
    x = ls_conv(b, ls_build_name(b, "%s.conv%d", block, n), x, out, kernel, stride, kernel / 2, groups, false);
    return ls_bn(b, ls_build_name(b, "%s.bn%d", block, n), x);
}

static int relu(struct ls_build *b, const char *block, int n, int x)
{
    return ls_relu(b, ls_build_name(b, "%s.relu%d", block, n), x);
}

/* One residual block from `in` channels to `planes`, or four times as many. The shortcut is a projection where the shape
 * changes. */
static int residual(struct ls_build *b, const char *block, int x, int64_t in, int64_t planes, int64_t stride,
                    const struct spec *spec)
{
    int64_t out = spec->bottleneck ? 4 * planes : planes;
    int convs = spec->bottleneck ? 3 : 2, y, shortcut = x;
    if (spec->bottleneck) {
        int64_t width = planes * spec->group_width / 64 * spec->groups;
        y = relu(b, block, 1, conv_bn(b, block, 1, x, width, 1, 1, 1));
        y = relu(b, block, 2, conv_bn(b, block, 2, y, width, 3, stride, spec->groups));
        y = conv_bn(b, block, 3, y, out, 1, 1, 1);
    } else {
        y = relu(b, block, 1, conv_bn(b, block, 1, x, planes, 3, stride, 1));
        y = conv_bn(b, block, 2, y, planes, 3, 1, 1);
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
        int64_t planes = (int64_t)64 << stage;
        for (int i = 0; i < spec->blocks[stage]; i++) {
            const char *block = ls_build_name(b, "layer%d.%d", stage + 1, i);
            x = residual(b, block, x, in, planes, stage > 0 && i == 0 ? 2 : 1, spec);
            in = spec->bottleneck ? 4 * planes : planes;
        }
    }
    x = ls_adaptive_avgpool(b, "avgpool", x, 1, 1);
    return ls_dense(b, "fc", x, classes);
}

#define RESNET(model, text, is_bottleneck, n_groups, each, ...)                         \
    static int model(struct ls_build *b, int x, int64_t classes)                        \
    {                                                                                   \
        static const struct spec spec = {{__VA_ARGS__}, is_bottleneck, n_groups, each}; \
        return resnet(b, x, classes, &spec);                                            \
    }                                                                                   \
    const struct ls_model ls_model_##model = {                                          \
        .name = #model,                                                                 \
        .summary = text ", torchvision's",                                              \
        .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},          \
        .build = model,                                                                 \
    };
RESNET(resnet18, "residual net with 18 layers", false, 1, 64, 2, 2, 2, 2)
RESNET(resnet34, "residual net with 34 layers", false, 1, 64, 3, 4, 6, 3)
RESNET(resnet50, "residual net with 50 layers", true, 1, 64, 3, 4, 6, 3)
RESNET(resnet101, "residual net with 101 layers", true, 1, 64, 3, 4, 23, 3)
RESNET(resnet152, "residual net with 152 layers", true, 1, 64, 3, 8, 36, 3)
RESNET(resnext50_32x4d, "ResNeXt with 50 layers, 32 groups of 4 channels", true, 32, 4, 3, 4, 6, 3)
RESNET(wide_resnet50_2, "residual net with 50 layers of twice the inner width", true, 1, 128, 3, 4, 6, 3)
