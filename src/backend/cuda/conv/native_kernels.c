/* Native kernels as algorithms: depthwise convolutions, 3x3 ones of few channels, the gradient of the weights of 3x3 ones of many,
 * and a slow one that computes every convolution. */
#include "backend/cuda/conv/conv_algorithm.h"

#include <stdio.h>

static bool has_few(const struct linear *l)
{
    return l->pass != BWD_DATA && !l->bias && l->pad_b == 1 && l->pad_r == 1 &&
           (l->pass != FORWARD || l->conv.act == LS_ACT_NONE) && ls_cuda_few_can(&l->conv);
}

static bool has_taps(const struct linear *l)
{
    return l->pass == BWD_WEIGHTS && l->pad_b == 1 && l->pad_r == 1 && ls_cuda_taps_weights_can(&l->conv);
}

static int list(struct device *d, const struct linear *l, struct conv_algorithm *list, int room)
{
    (void)d;
    const struct ls_cuda_conv *c = &l->conv;
    bool grouped = c->groups > 1 && (c->channels / c->groups % LS_CUDA_LANE || c->out / c->groups % LS_CUDA_LANE);
    if (room < 1 || (!linear_is_depthwise(l) && !grouped && !has_few(l) && !has_taps(l)))
        return 0;
    snprintf(list->name, sizeof list->name,
             linear_is_depthwise(l) ? "own depthwise"
             : grouped              ? "own direct"
             : has_few(l)           ? "own few channels"
                                    : "own taps");
    return 1;
}

static bool build(struct device *d, const struct linear *l, struct conv_algorithm *algorithm)
{
    (void)d;
    if (l->pass == BWD_WEIGHTS && linear_is_depthwise(l))
        algorithm->workspace = ls_cuda_depthwise_scratch(&l->conv);
    else if (l->pass == BWD_WEIGHTS && has_few(l))
        algorithm->workspace = ls_cuda_few_scratch(&l->conv);
    else if (has_taps(l))
        algorithm->workspace = ls_cuda_taps_weights_scratch(&l->conv);
    return true;
}

static enum ls_status run(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                          const struct operands *o)
{
    const struct ls_cuda_conv *c = &l->conv;
    (void)algorithm;
    bool depthwise = linear_is_depthwise(l);
    if (!depthwise && has_few(l)) {
        if (l->pass == FORWARD)
            ls_cuda_few(d->compute, c, o->x, o->w, o->y);
        else
            ls_cuda_few_bwd_weights(d->compute, c, o->y, o->x, o->w, (float *)(void *)o->workspace);
        return LS_OK;
    }
    if (has_taps(l)) {
        ls_cuda_taps_weights(d->compute, c, o->y, o->x, o->w, (float *)(void *)o->workspace);
        return LS_OK;
    }
    if (l->pass == FORWARD)
        (depthwise ? ls_cuda_depthwise : ls_cuda_direct)(d->compute, c, o->x, o->w, o->bias, o->y);
    else if (l->pass == BWD_DATA)
        (depthwise ? ls_cuda_depthwise_bwd_data : ls_cuda_direct_bwd_data)(d->compute, c, o->y, o->w, o->x);
    else if (depthwise)
        ls_cuda_depthwise_bwd_weights(d->compute, c, o->y, o->x, o->w, (float *)(void *)o->workspace);
    else
        ls_cuda_direct_bwd_weights(d->compute, c, o->y, o->x, o->w);
    return LS_OK;
}

const struct conv_library ls_cuda_native = {.list = list, .build = build, .run = run};
