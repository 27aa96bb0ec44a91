#include "data/image/planes.h"
#include "data/image/planes_vbmi.h"

/* Fills one row of one plane: outputs x0 .. x1-1 come from the image, the others are padding. `pixel` is the source of x0;
 * the source of x0+1 is `step` bytes further. */
static void fill_plane_row(const uint8_t *pixel, ptrdiff_t step, int x0, int x1, int width, const float *table,
                           float *out)
{
    for (int x = 0; x < x0; x++)
        out[x] = table[0];
    for (int x = x0; x < x1; x++, pixel += step)
        out[x] = table[*pixel];
    for (int x = x1; x < width; x++)
        out[x] = table[0];
}

/* Fills one row of three planes, `plane` values apart, from pixels of three channels. */
static void fill_colour_row(const uint8_t *pixel, ptrdiff_t step, int x0, int x1, int width, const float table[][256],
                            size_t plane, float *out)
{
    float *red = out, *green = out + plane, *blue = out + 2 * plane;
    for (int x = x0; x < x1; x++, pixel += step) {
        red[x] = table[0][pixel[0]];
        green[x] = table[1][pixel[1]];
        blue[x] = table[2][pixel[2]];
    }
    for (int c = 0; c < 3; c++, out += plane) {
        for (int x = 0; x < x0; x++)
            out[x] = table[c][0];
        for (int x = x1; x < width; x++)
            out[x] = table[c][0];
    }
}

static void fill_luma_row(const uint8_t *pixel, ptrdiff_t step, int x0, int x1, int width, const float *table,
                          float *out)
{
    for (int x = 0; x < x0; x++)
        out[x] = table[0];
    for (int x = x0; x < x1; x++, pixel += step)
        out[x] = table[ls_luma(pixel)];
    for (int x = x1; x < width; x++)
        out[x] = table[0];
}

/* Bytes of an image from which on its planes are stored past the cache: a batch of them does not stay there. */
#define PAST_CACHE (256 * 1024)

/* Fills three planes without padding from pixels of three channels, with vectors. `pixel` is the source of the first output. */
static void fill_colour_planes(const struct ls_augment *a, const struct ls_image *image, const uint8_t *pixel,
                               bool flip, float *planes)
{
    size_t width = (size_t)a->width, plane = (size_t)a->height * width;
    struct ls_vbmi_part part = {.pixels = pixel,
                                .pixel_stride = 3 * (ptrdiff_t)image->width,
                                .flip = flip,
                                .rows = (int)a->height,
                                .count = (int)a->width,
                                .out = planes,
                                .out_stride = width,
                                .past_cache = plane * 3 * sizeof(float) >= PAST_CACHE};
    for (int c = 0; c < 3; c++, part.out += plane)
        ls_vbmi_plane(&part, c, a->table[c]);
}

void ls_planes_fill(const struct ls_augment *a, const struct ls_image *image, int top, int left, bool flip,
                    float *planes)
{
    int height = (int)a->height, width = (int)a->width, from = image->channels, to = (int)a->channels;
    int x0 = left < 0 ? -left : 0, x1 = image->width - left < width ? image->width - left : width;
    x0 = x0 < width ? x0 : width;
    x1 = x1 > x0 ? x1 : x0;
    ptrdiff_t first = left + x0, step = from;
    if (flip) {
        int mirrored = width - x1;
        first = left + x1 - 1;
        step = -from;
        x1 = width - x0;
        x0 = mirrored;
    }
    bool whole = top >= 0 && top + height <= image->height && x0 == 0 && x1 == width;
    if (whole && from == 3 && to == 3 && ls_vbmi()) {
        fill_colour_planes(a, image, image->pixels + ((ptrdiff_t)top * image->width + first) * 3, flip, planes);
        return;
    }
    for (int y = 0; y < height; y++) {
        bool inside = top + y >= 0 && top + y < image->height && x1 > x0;
        int end = inside ? x1 : x0;
        const uint8_t *pixel = image->pixels;
        if (inside)
            pixel += ((ptrdiff_t)(top + y) * image->width + first) * from;
        if (from == 3 && to == 3)
            fill_colour_row(pixel, step, x0, end, width, a->table, (size_t)height * (size_t)width,
                            planes + (size_t)y * (size_t)width);
        for (int c = 0; c < to && (from != 3 || to != 3); c++) {
            float *out = planes + ((size_t)c * (size_t)height + (size_t)y) * (size_t)width;
            if (from == 3 && to == 1)
                fill_luma_row(pixel, step, x0, end, width, a->table[c], out);
            else
                fill_plane_row(pixel + (from == 3 ? c : 0), step, x0, end, width, a->table[c], out);
        }
    }
}
