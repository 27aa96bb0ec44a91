/* Mixup and cutmix: how the samples of a batch are mixed with their neighbours. The choice is a function of (seed, step,
 * replica), so the images, the loss and its gradient each compute it again. The host and the device kernels both compile this
 * file. */
#ifndef LS_BASE_MIX_H
#define LS_BASE_MIX_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LS_MIX_FUNCTION static __host__ __device__ inline
#else
#define LS_MIX_FUNCTION static inline
#endif

/* Parameters of Beta(alpha, alpha), above 0 and at most 1; 0: that kind is off. With both, each batch has one of them. */
struct ls_mix_rule {
    float mixup, cutmix;
    int32_t height, width; /* of the images */
};

/* Sample i becomes weight * i + (1 - weight) * partner everywhere (mixup), or the partner within the box (cutmix); its loss is
 * weight * loss of its own label + (1 - weight) * loss of the partner's. */
struct ls_mix {
    float weight;
    int32_t cuts; /* cutmix */
    int32_t top, left, bottom, right;
};

/* Random words that one choice takes, in blocks of four. */
enum { LS_MIX_BLOCKS = 16, LS_MIX_WORDS = 4 * LS_MIX_BLOCKS };

/* The sample before, in a circle over the `valid` samples of the batch. */
LS_MIX_FUNCTION int64_t ls_mix_partner(int64_t i, int64_t valid)
{
    if (i >= valid)
        return i;
    return i > 0 ? i - 1 : valid - 1;
}

/* Uniform above 0 and below 1. */
LS_MIX_FUNCTION double ls_mix_uniform(uint32_t word)
{
    return ((double)word + 0.5) * (1.0 / 4294967296.0);
}

/* Beta(alpha, alpha) by Joehnk's method. If all words are used up, 1: nothing is mixed. */
LS_MIX_FUNCTION double ls_mix_beta(double alpha, const uint32_t *words, int n)
{
    for (int i = 0; i + 1 < n; i += 2) {
        double x = pow(ls_mix_uniform(words[i]), 1 / alpha), y = pow(ls_mix_uniform(words[i + 1]), 1 / alpha);
        if (x + y <= 1 && x + y > 0)
            return x / (x + y);
    }
    return 1;
}

LS_MIX_FUNCTION struct ls_mix ls_mix_choose(const struct ls_mix_rule *rule, const uint32_t words[LS_MIX_WORDS])
{
    struct ls_mix m = {1, 0, 0, 0, 0, 0};
    m.cuts = rule->cutmix > 0 && (rule->mixup <= 0 || words[0] >> 31);
    double share = ls_mix_beta((double)(m.cuts ? rule->cutmix : rule->mixup), words + 4, LS_MIX_WORDS - 4);
    m.weight = (float)share;
    if (!m.cuts)
        return m;
    double reach = 0.5 * sqrt(1 - share);
    int32_t y = (int32_t)(ls_mix_uniform(words[1]) * rule->height),
            x = (int32_t)(ls_mix_uniform(words[2]) * rule->width);
    int32_t half_h = (int32_t)(reach * rule->height), half_w = (int32_t)(reach * rule->width);
    m.top = y - half_h < 0 ? 0 : y - half_h;
    m.left = x - half_w < 0 ? 0 : x - half_w;
    m.bottom = y + half_h > rule->height ? rule->height : y + half_h;
    m.right = x + half_w > rule->width ? rule->width : x + half_w;
    double area = (double)(m.bottom - m.top) * (m.right - m.left);
    m.weight = (float)(1 - area / ((double)rule->height * rule->width));
    return m;
}

#endif
