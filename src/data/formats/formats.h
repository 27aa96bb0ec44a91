/* The ops table at the end of each format's file. */
#ifndef LS_DATA_FORMATS_FORMATS_H
#define LS_DATA_FORMATS_FORMATS_H

#include "data/data.h"

extern const struct ls_dataset_ops ls_format_mnist;
extern const struct ls_dataset_ops ls_format_synthetic;
extern const struct ls_dataset_ops ls_format_idx;
extern const struct ls_dataset_ops ls_format_cifar10;
extern const struct ls_dataset_ops ls_format_cifar100;
extern const struct ls_dataset_ops ls_format_tiny_imagenet;
extern const struct ls_dataset_ops ls_format_folder;

#endif
