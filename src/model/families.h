/* The built-in models, for the list; each is defined in its family's file. */
#ifndef LS_MODEL_FAMILIES_H
#define LS_MODEL_FAMILIES_H

#include "model/model.h"

#define LS_DECLARE_MODEL(name) extern const struct ls_model ls_model_##name;
LS_DECLARE_MODEL(mlp)
LS_DECLARE_MODEL(lenet)
LS_DECLARE_MODEL(convnet)
LS_DECLARE_MODEL(alexnet)
LS_DECLARE_MODEL(alexnet_cntk)
LS_DECLARE_MODEL(vgg11)
LS_DECLARE_MODEL(vgg11_bn)
LS_DECLARE_MODEL(vgg13)
LS_DECLARE_MODEL(vgg13_bn)
LS_DECLARE_MODEL(vgg16)
LS_DECLARE_MODEL(vgg16_bn)
LS_DECLARE_MODEL(vgg19)
LS_DECLARE_MODEL(vgg19_bn)
LS_DECLARE_MODEL(vgg11_cifar)
LS_DECLARE_MODEL(vgg16_cntk)
LS_DECLARE_MODEL(resnet18)
LS_DECLARE_MODEL(resnet34)
LS_DECLARE_MODEL(resnet50)
LS_DECLARE_MODEL(resnet101)
LS_DECLARE_MODEL(mobilenet_v2)

#endif
