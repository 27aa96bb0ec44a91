/* The list of data set formats; the first that recognises a path opens it. */
#include "data/formats/formats.h"

#include <stddef.h>

const struct ls_dataset_ops *const ls_dataset_formats[] = {
    &ls_format_mnist,    &ls_format_synthetic,     &ls_format_idx,    &ls_format_cifar10,
    &ls_format_cifar100, &ls_format_tiny_imagenet, &ls_format_folder, NULL,
};
