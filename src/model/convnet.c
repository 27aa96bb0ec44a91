/* CNTK's CIFAR-10 example. Two groups of two 3x3 convolutions and an overlapping pooling, then two hidden layers.
 * All padding is "same". Weights start by Glorot's rule. */
#include "model/families.h"

static int convnet(struct ls_build *b, int x, int64_t classes)
{
    b->conv_scheme = b->dense_scheme = LS_SCHEME_XAVIER;
    for (int stage = 0, n = 1; stage < 2; stage++) {
        for (int i = 0; i < 2; i++, n++) {
            x = ls_conv(b, ls_build_name(b, "conv%d", n), x, 64, 3, 1, 1, 1, true);
            x = ls_relu(b, ls_build_name(b, "relu%d", n), x);
        }
        x = ls_maxpool_same(b, ls_build_name(b, "pool%d", stage + 1), x, 3, 2);
    }
    x = ls_dropout(b, "drop1", ls_relu(b, "relu5", ls_dense(b, "fc1", x, 256)), 0.5f);
    x = ls_dropout(b, "drop2", ls_relu(b, "relu6", ls_dense(b, "fc2", x, 128)), 0.5f);
    return ls_dense(b, "fc3", x, classes);
}

const struct ls_model ls_model_convnet = {
    .name = "convnet",
    .summary = "CNTK's CIFAR-10 example",
    .size = {.channels = 3, .height = 32, .width = 32, .classes = 10},
    .build = convnet,
};
