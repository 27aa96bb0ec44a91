/* DenseNet-BC as in torchvision: each layer reads the features of all layers before it. */
#include "model/families.h"

enum { GROWTH = 32, BOTTLENECK = 4 * GROWTH };

/* BN, ReLU and a convolution, named "<layer>.norm<n>", ".relu<n>" and ".conv<n>"; n is "" in a transition. */
static int norm_relu_conv(struct ls_build *b, const char *layer, const char *n, int x, int64_t out, int64_t kernel)
{
    x = ls_bn(b, ls_build_name(b, "%s.norm%s", layer, n), x);
    x = ls_relu(b, ls_build_name(b, "%s.relu%s", layer, n), x);
    return ls_conv(b, ls_build_name(b, "%s.conv%s", layer, n), x, out, kernel, 1, kernel / 2, 1, false);
}

/* Appends GROWTH channels to the features. */
static int dense_layer(struct ls_build *b, const char *layer, int x)
{
    int y = norm_relu_conv(b, layer, "1", x, BOTTLENECK, 1);
    y = norm_relu_conv(b, layer, "2", y, GROWTH, 3);
    return ls_concat(b, ls_build_name(b, "%s.cat", layer), x, y);
}

static int densenet121(struct ls_build *b, int x, int64_t classes)
{
    static const int layers[] = {6, 12, 24, 16};
    int64_t channels = 64;
    b->conv_scheme = LS_SCHEME_KAIMING_IN;
    x = ls_bn(b, "features.norm0", ls_conv(b, "features.conv0", x, channels, 7, 2, 3, 1, false));
    x = ls_maxpool(b, "features.pool0", ls_relu(b, "features.relu0", x), 3, 2, 1);
    for (int block = 1; block <= 4; block++) {
        for (int i = 1; i <= layers[block - 1]; i++, channels += GROWTH)
            x = dense_layer(b, ls_build_name(b, "features.denseblock%d.denselayer%d", block, i), x);
        if (block == 4)
            break;
        channels /= 2;
        const char *transition = ls_build_name(b, "features.transition%d", block);
        x = norm_relu_conv(b, transition, "", x, channels, 1);
        x = ls_avgpool(b, ls_build_name(b, "%s.pool", transition), x, 2, 2, 0);
    }
    x = ls_relu(b, "features.relu5", ls_bn(b, "features.norm5", x));
    x = ls_dense(b, "classifier", ls_adaptive_avgpool(b, "avgpool", x, 1, 1), classes);
    ls_build_init(b, "classifier.bias", LS_INIT_CONST, 0);
    return x;
}

const struct ls_model ls_model_densenet121 = {
    .name = "densenet121",
    .summary = "densely connected net with 121 layers, torchvision's",
    .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},
    .build = densenet121,
};
