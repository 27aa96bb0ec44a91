/* Inverted residuals with squeeze-and-excitation, the blocks of EfficientNet and MobileNetV3. */
#ifndef LS_MODEL_MBCONV_H
#define LS_MODEL_MBCONV_H

#include "graph/build.h"

/* What the blocks of a model have in common. */
struct ls_mbconv_style {
    float eps, momentum;        /* of BN */
    enum ls_act squeeze_act;    /* between the two convolutions of squeeze-and-excitation */
    enum ls_act excitation_act; /* of its factors */
};

struct ls_mbconv {
    int64_t kernel, in, hidden, out, stride;
    int64_t squeeze; /* channels between the convolutions of squeeze-and-excitation; 0: none */
    enum ls_act act;
    float drop_path;
};

/* A convolution, BN and an activation, named `part`.0, `part`.1 and `part`.2. */
int ls_conv_bn_act(struct ls_build *b, const struct ls_mbconv_style *style, const char *part, int x, int64_t out,
                   int64_t kernel, int64_t stride, int64_t groups, enum ls_act act);
/* A block whose layers are named "<name>.block.<n>". */
int ls_mbconv(struct ls_build *b, const struct ls_mbconv_style *style, const char *name, int x,
              const struct ls_mbconv *block);

#endif
