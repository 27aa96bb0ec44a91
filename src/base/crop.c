#include "base/crop.h"

static void make_planes(const struct ls_pixels *p, const uint8_t *image, const struct ls_crop *crop, float *planes)
{
    int64_t plane = (int64_t)p->height * p->width;
    for (int32_t y = 0; y < p->height; y++)
        for (int32_t x = 0; x < p->width; x++) {
            int64_t at = ls_crop_source(p, crop, y, x);
            for (int32_t c = 0; c < p->channels; c++)
                planes[c * plane + (int64_t)y * p->width + x] = p->table[c][ls_crop_byte(p, image, at, c)];
        }
}

void ls_crop_planes(const struct ls_pixels *p, const uint8_t *images, const struct ls_crop *crops, int64_t count,
                    float *planes)
{
    int64_t values = (int64_t)p->channels * p->height * p->width;
    for (int64_t i = 0; i < count; i++, planes += values) {
        if (crops[i].image >= 0) {
            make_planes(p, images + crops[i].image * ls_pixels_bytes(p), &crops[i], planes);
            continue;
        }
        for (int64_t v = 0; v < values; v++)
            planes[v] = 0;
    }
}
