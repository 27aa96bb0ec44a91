#include "backend/cuda/program.h"

#include <math.h>
#include <string.h>

struct layout layout_default(const struct ls_shape *s)
{
    struct layout l = {.rank = s->rank};
    memcpy(l.dim, s->dim, sizeof l.dim);
    if (s->rank == 4) {
        int64_t c = padded(s->dim[1]);
        l.stride[1] = 1;
        l.stride[3] = c;
        l.stride[2] = s->dim[3] * c;
        l.stride[0] = s->dim[2] * s->dim[3] * c;
        l.count = s->dim[0] * l.stride[0];
        return l;
    }
    l.count = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        l.stride[i] = l.count;
        l.count *= i == s->rank - 1 ? padded(s->dim[i]) : s->dim[i];
    }
    return l;
}

struct layout layout_weights(int64_t out, int64_t in, int64_t height, int64_t width)
{
    int64_t c = padded(in);
    return (struct layout){.rank = 4,
                           .dim = {out, in, height, width},
                           .stride = {height * width * c, 1, width * c, c},
                           .count = padded(out) * height * width * c};
}

struct layout layout_depthwise(int64_t channels, int64_t height, int64_t width)
{
    int64_t c = padded(channels);
    return (struct layout){
        .rank = 4, .dim = {channels, 1, height, width}, .stride = {1, c, width * c, c}, .count = height * width * c};
}

/* --- numbers of 16 bits on the host --------------------------------------------------------------------------- */

static float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static float from_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float f = exponent == 31  ? (fraction ? NAN : INFINITY)
              : exponent == 0 ? ldexpf((float)fraction, -24)
                              : ldexpf((float)(1024 + fraction), exponent - 25);
    return h & 0x8000 ? -f : f;
}

/* To the nearest, ties to even; from 65520 on infinite. */
static uint16_t to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000u) /* below 2^-14: multiples of 2^-24 */
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(f) * 0x1p24f));
    return (uint16_t)(sign | (size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13);
}

float layout_value(enum ls_dtype t, const void *stored, int64_t at)
{
    return t == LS_BF16  ? from_bf16(((const uint16_t *)stored)[at])
           : t == LS_F16 ? from_f16(((const uint16_t *)stored)[at])
                         : ((const float *)stored)[at];
}

/* --- between plain rows and memory ---------------------------------------------------------------------------- */

static int64_t place_in(const struct layout *l, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t place = a * l->stride[0] + b * l->stride[1];
    if (!l->block)
        return place + c * l->stride[2] + d * l->stride[3];
    c += l->shift;
    return place + c / l->block * l->stride[2] + c % l->block * l->row + d * l->dim[1];
}

/* Over the logical elements. */
static void walk(const struct layout *l, const char *from, char *to, bool scatter, enum ls_dtype t)
{
    int64_t n[LS_MAX_DIMS] = {1, 1, 1, 1};
    for (int i = 0; i < l->rank; i++)
        n[i] = l->dim[i];
#pragma omp parallel for
    for (int64_t a = 0; a < n[0]; a++) {
        int64_t at = a * n[1] * n[2] * n[3];
        for (int64_t b = 0; b < n[1]; b++)
            for (int64_t c = 0; c < n[2]; c++)
                for (int64_t d = 0; d < n[3]; d++, at++) {
                    int64_t place = place_in(l, a, b, c, d);
                    int64_t i = scatter ? at : place, o = scatter ? place : at;
                    switch (t) {
                    case LS_F32:
                    case LS_I32:
                        ((uint32_t *)to)[o] = ((const uint32_t *)from)[i];
                        break;
                    case LS_BF16:
                        if (scatter)
                            ((uint16_t *)to)[o] = to_bf16(((const float *)from)[i]);
                        else
                            ((float *)to)[o] = from_bf16(((const uint16_t *)from)[i]);
                        break;
                    case LS_F16:
                        if (scatter)
                            ((uint16_t *)to)[o] = to_f16(((const float *)from)[i]);
                        else
                            ((float *)to)[o] = from_f16(((const uint16_t *)from)[i]);
                        break;
                    case LS_U8:
                        if (scatter)
                            ((uint8_t *)to)[o] = (uint8_t)((const float *)from)[i];
                        else
                            ((float *)to)[o] = ((const uint8_t *)from)[i];
                        break;
                    }
                }
    }
}

void layout_gather(const struct layout *l, enum ls_dtype t, const void *stored, void *plain)
{
    walk(l, stored, plain, false, t);
}

void layout_scatter(const struct layout *l, enum ls_dtype t, const void *plain, void *stored)
{
    memset(stored, 0, (size_t)l->count * ls_dtype_size(t));
    walk(l, plain, stored, true, t);
}
