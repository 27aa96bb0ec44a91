/* Two forms of AlexNet. torchvision's ("one weird trick") has adaptive pooling before the dense layers. CNTK's has
 * local response normalisation, "same" padding in every layer, and a first dense layer whose size follows the input. */
#include "model/families.h"

static int alexnet(struct ls_build *b, int x, int64_t classes)
{
    x = ls_relu(b, "features.1", ls_conv(b, "features.0", x, 64, 11, 4, 2, 1, true));
    x = ls_maxpool(b, "features.2", x, 3, 2, 0);
    x = ls_relu(b, "features.4", ls_conv(b, "features.3", x, 192, 5, 1, 2, 1, true));
    x = ls_maxpool(b, "features.5", x, 3, 2, 0);
    x = ls_relu(b, "features.7", ls_conv(b, "features.6", x, 384, 3, 1, 1, 1, true));
    x = ls_relu(b, "features.9", ls_conv(b, "features.8", x, 256, 3, 1, 1, 1, true));
    x = ls_relu(b, "features.11", ls_conv(b, "features.10", x, 256, 3, 1, 1, 1, true));
    x = ls_maxpool(b, "features.12", x, 3, 2, 0);
    x = ls_adaptive_avgpool(b, "avgpool", x, 6, 6);
    x = ls_dropout(b, "classifier.0", x, 0.5f);
    x = ls_relu(b, "classifier.2", ls_dense(b, "classifier.1", x, 4096));
    x = ls_dropout(b, "classifier.3", x, 0.5f);
    x = ls_relu(b, "classifier.5", ls_dense(b, "classifier.4", x, 4096));
    return ls_dense(b, "classifier.6", x, classes);
}

/* A convolution with "same" padding and ReLU. The bias starts at `bias`, which is not 0 for some layers in the
 * paper. */
static int cntk_conv(struct ls_build *b, int number, int x, int64_t out, int64_t kernel, int64_t stride, float bias)
{
    struct ls_attr attr = ls_attr_default(&ls_op_conv);
    if (b->status != LS_OK)
        return LS_NONE;
    attr.out = out;
    attr.kernel_h = attr.kernel_w = kernel;
    attr.stride_h = attr.stride_w = stride;
    ls_attr_same_padding(&attr, b->g->tensors[x].shape.dim[2], b->g->tensors[x].shape.dim[3]);
    x = ls_build_layer(b, &ls_op_conv, ls_build_name(b, "conv%d", number), &attr, &x, 1);
    ls_build_init(b, ls_build_name(b, "conv%d.bias", number), LS_INIT_CONST, bias);
    return ls_relu(b, ls_build_name(b, "relu%d", number), x);
}

static int cntk_dense(struct ls_build *b, int number, int x)
{
    x = ls_dense(b, ls_build_name(b, "fc%d", number), x, 4096);
    ls_build_init(b, ls_build_name(b, "fc%d.weight", number), LS_INIT_NORMAL, 0.005f);
    ls_build_init(b, ls_build_name(b, "fc%d.bias", number), LS_INIT_CONST, 0.1f);
    x = ls_relu(b, ls_build_name(b, "relu%d", number), x);
    return ls_dropout(b, ls_build_name(b, "drop%d", number), x, 0.5f);
}

static int alexnet_cntk(struct ls_build *b, int x, int64_t classes)
{
    b->conv_scheme = b->dense_scheme = LS_SCHEME_NORMAL_001;
    x = ls_lrn(b, "norm1", cntk_conv(b, 1, x, 96, 11, 4, 0), 5, 1e-4f, 0.75f, 1);
    x = ls_maxpool_same(b, "pool1", x, 3, 2);
    x = ls_lrn(b, "norm2", cntk_conv(b, 2, x, 192, 5, 1, 0.1f), 5, 1e-4f, 0.75f, 1);
    x = ls_maxpool_same(b, "pool2", x, 3, 2);
    x = cntk_conv(b, 3, x, 384, 3, 1, 0);
    x = cntk_conv(b, 4, x, 384, 3, 1, 0.1f);
    x = cntk_conv(b, 5, x, 256, 3, 1, 0.1f);
    x = ls_maxpool_same(b, "pool5", x, 3, 2);
    x = cntk_dense(b, 6, x);
    x = cntk_dense(b, 7, x);
    return ls_dense(b, "fc8", x, classes);
}

const struct ls_model ls_model_alexnet = {
    .name = "alexnet",
    .summary = "AlexNet, torchvision's",
    .size = {.channels = 3, .height = 224, .width = 224, .classes = 1000},
    .build = alexnet,
};
const struct ls_model ls_model_alexnet_cntk = {
    .name = "alexnet-cntk",
    .summary = "AlexNet, CNTK's: LRN, the dense layers follow the input size",
    .size = {.channels = 3, .height = 64, .width = 64, .classes = 200},
    .build = alexnet_cntk,
};
