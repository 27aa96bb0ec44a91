/* LeNet in its modern form: two 5x5 convolutions with max pooling and one hidden layer. The names are those of the
 * same layers in a torch.nn.Sequential, so that weights can be exchanged with it. */
#include "model/families.h"

static int lenet(struct ls_build *b, int x, int64_t classes)
{
    x = ls_relu(b, "1", ls_conv(b, "0", x, 32, 5, 1, 2, 1, true));
    x = ls_maxpool(b, "2", x, 2, 2, 0);
    x = ls_relu(b, "4", ls_conv(b, "3", x, 64, 5, 1, 2, 1, true));
    x = ls_maxpool(b, "5", x, 2, 2, 0);
    x = ls_relu(b, "8", ls_dense(b, "7", x, 512));
    return ls_dense(b, "9", x, classes);
}

const struct ls_model ls_model_lenet = {
    .name = "lenet",
    .summary = "two 5x5 convolutions, one hidden layer",
    .size = {.channels = 1, .height = 28, .width = 28, .classes = 10},
    .build = lenet,
};
