/* VGG: stages of 3x3 convolutions, each followed by a max pooling that halves the size. There are torchvision's
 * eight (adaptive pooling to 7x7 before the dense layers), CNTK's VGG16 (dense layers whose size follows the input),
 * and a small one for CIFAR-10. */
#include "model/families.h"

#define STAGES 5

/* The number of convolutions in each stage. The stages have 64, 128, 256, 512 and 512 channels. */
static const int depth_11[STAGES] = {1, 1, 2, 2, 2}, depth_13[STAGES] = {2, 2, 2, 2, 2};
static const int depth_16[STAGES] = {2, 2, 3, 3, 3}, depth_19[STAGES] = {2, 2, 4, 4, 4};
static const int64_t channels[STAGES] = {64, 128, 256, 512, 512};

/* The convolutional part, numbered as in a torch.nn.Sequential. *number is the number of the next layer. */
static int features(struct ls_build *b, const char *prefix, int x, const int *depth, bool bn, int *number)
{
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < depth[stage]; i++) {
            x = ls_conv(b, ls_build_name(b, "%s%d", prefix, (*number)++), x, channels[stage], 3, 1, 1, 1, true);
            if (bn)
                x = ls_bn(b, ls_build_name(b, "%s%d", prefix, (*number)++), x);
            x = ls_relu(b, ls_build_name(b, "%s%d", prefix, (*number)++), x);
        }
        x = ls_maxpool(b, ls_build_name(b, "%s%d", prefix, (*number)++), x, 2, 2, 0);
    }
    return x;
}

static int vgg(struct ls_build *b, int x, int64_t classes, const int *depth, bool bn)
{
    int number = 0;
    b->conv_scheme = LS_SCHEME_KAIMING_OUT;
    b->dense_scheme = LS_SCHEME_NORMAL_001;
    x = features(b, "features.", x, depth, bn, &number);
    x = ls_adaptive_avgpool(b, "avgpool", x, 7, 7);
    x = ls_relu(b, "classifier.1", ls_dense(b, "classifier.0", x, 4096));
    x = ls_dropout(b, "classifier.2", x, 0.5f);
    x = ls_relu(b, "classifier.4", ls_dense(b, "classifier.3", x, 4096));
    x = ls_dropout(b, "classifier.5", x, 0.5f);
    return ls_dense(b, "classifier.6", x, classes);
}

static int vgg11_cifar(struct ls_build *b, int x, int64_t classes)
{
    int number = 0;
    x = features(b, "", x, depth_11, true, &number);
    /* The Sequential has a flatten layer here, which takes one number. The dense layer reads feature maps directly. */
    return ls_dense(b, ls_build_name(b, "%d", number + 1), x, classes);
}

static int vgg16_cntk(struct ls_build *b, int x, int64_t classes)
{
    b->conv_scheme = b->dense_scheme = LS_SCHEME_XAVIER;
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < depth_16[stage]; i++) {
            x = ls_conv(b, ls_build_name(b, "conv%d_%d", stage + 1, i), x, channels[stage], 3, 1, 1, 1, true);
            x = ls_relu(b, ls_build_name(b, "relu%d_%d", stage + 1, i), x);
        }
        x = ls_maxpool_same(b, ls_build_name(b, "pool%d", stage + 1), x, 2, 2);
    }
    x = ls_dropout(b, "drop6", ls_relu(b, "relu6", ls_dense(b, "fc6", x, 4096)), 0.5f);
    x = ls_dropout(b, "drop7", ls_relu(b, "relu7", ls_dense(b, "fc7", x, 4096)), 0.5f);
    return ls_dense(b, "fc8", x, classes);
}

/* A torchvision VGG with and without BN. */
#define VGG(layers)                                                            \
    static int vgg##layers(struct ls_build *b, int x, int64_t classes)         \
    {                                                                          \
        return vgg(b, x, classes, depth_##layers, false);                      \
    }                                                                          \
    static int vgg##layers##_bn(struct ls_build *b, int x, int64_t classes)    \
    {                                                                          \
        return vgg(b, x, classes, depth_##layers, true);                       \
    }                                                                          \
    const struct ls_model ls_model_vgg##layers = {                             \
        .name = "vgg" #layers,                                                 \
        .summary = "VGG with " #layers " layers, torchvision's",               \
        .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000}, \
        .build = vgg##layers,                                                  \
    };                                                                         \
    const struct ls_model ls_model_vgg##layers##_bn = {                        \
        .name = "vgg" #layers "_bn",                                           \
        .summary = "VGG with " #layers " layers and BN, torchvision's",        \
        .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000}, \
        .build = vgg##layers##_bn,                                             \
    };
VGG(11)
VGG(13)
VGG(16)
VGG(19)

const struct ls_model ls_model_vgg11_cifar = {
    .name = "vgg11-cifar",
    .summary = "VGG11 with BN and one dense layer, for 32x32 images",
    .size = {.channels = 3, .height = 32, .width = 32, .classes = 10},
    .build = vgg11_cifar,
};
const struct ls_model ls_model_vgg16_cntk = {
    .name = "vgg16-cntk",
    .summary = "VGG16, CNTK's: the dense layers follow the input size",
    .size = {.channels = 3, .height = 64, .width = 64, .classes = 200},
    .build = vgg16_cntk,
};
