/* Two hidden layers on the raw pixels: the smallest network worth training on MNIST. */
#include "model/families.h"

static int mlp(struct ls_build *b, int x, int64_t classes)
{
    x = ls_relu(b, "relu1", ls_dense(b, "fc1", x, 512));
    x = ls_relu(b, "relu2", ls_dense(b, "fc2", x, 512));
    return ls_dense(b, "fc3", x, classes);
}

const struct ls_model ls_model_mlp = {
    .name = "mlp",
    .summary = "two hidden layers of 512",
    .size = {.channels = 1, .height = 28, .width = 28, .classes = 10},
    .build = mlp,
};
