/* Operations on the pixels of an image. Results are those of Pillow, byte by byte. */
#include "data/image/effects/effect.h"

#include <math.h>
#include <string.h>

static int64_t bytes_of(const struct ls_canvas *c)
{
    return (int64_t)c->channels * c->height * c->width;
}

/* --- geometry -------------------------------------------------------------------------------------------------------- */

static int64_t fixed(double v)
{
    return (int64_t)floor(v * 65536 + 0.5);
}

/* Positions are whole multiples of 2^-16, as in Pillow. */
void ls_canvas_affine(struct ls_canvas *c, const double m[6])
{
    size_t pixel = (size_t)c->channels;
    int64_t row_x = fixed(m[2] + m[0] / 2 + m[1] / 2), row_y = fixed(m[5] + m[3] / 2 + m[4] / 2);
    memcpy(c->spare, c->pixels, (size_t)bytes_of(c));
    uint8_t *to = c->pixels;
    for (int y = 0; y < c->height; y++, row_x += fixed(m[1]), row_y += fixed(m[4])) {
        int64_t at_x = row_x, at_y = row_y;
        for (int x = 0; x < c->width; x++, to += pixel, at_x += fixed(m[0]), at_y += fixed(m[3])) {
            int64_t from_x = at_x >> 16, from_y = at_y >> 16;
            if (from_x < 0 || from_x >= c->width || from_y < 0 || from_y >= c->height)
                memset(to, 0, pixel);
            else
                memcpy(to, c->spare + (size_t)(from_y * c->width + from_x) * pixel, pixel);
        }
    }
}

void ls_canvas_rotate(struct ls_canvas *c, double degrees)
{
    double angle = -degrees * M_PI / 180, co = cos(angle), si = sin(angle);
    double x = c->width / 2.0, y = c->height / 2.0;
    const double m[] = {co, si, x - co * x - si * y, -si, co, y + si * x - co * y};
    ls_canvas_affine(c, m);
}

/* --- blending -------------------------------------------------------------------------------------------------------- */

static uint8_t blend(int plain, int value, float factor)
{
    float v = (float)plain + factor * (float)(value - plain);
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

static uint8_t grey(const struct ls_canvas *c, int64_t pixel)
{
    return c->channels == 1 ? c->pixels[pixel] : ls_luma(c->pixels + 3 * pixel);
}

void ls_canvas_brightness(struct ls_canvas *c, float factor)
{
    for (int64_t i = 0; i < bytes_of(c); i++)
        c->pixels[i] = blend(0, c->pixels[i], factor);
}

void ls_canvas_contrast(struct ls_canvas *c, float factor)
{
    int64_t count = (int64_t)c->height * c->width;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += grey(c, i);
    int mean = (int)(sum / (double)count + 0.5);
    for (int64_t i = 0; i < bytes_of(c); i++)
        c->pixels[i] = blend(mean, c->pixels[i], factor);
}

void ls_canvas_saturation(struct ls_canvas *c, float factor)
{
    for (int64_t i = 0; c->channels == 3 && i < (int64_t)c->height * c->width; i++) {
        int plain = grey(c, i);
        for (int k = 0; k < 3; k++)
            c->pixels[3 * i + k] = blend(plain, c->pixels[3 * i + k], factor);
    }
}

/* The smoothed image is the mean of 3 x 3 pixels with weight 5 of 13 in the middle. Pixels at the border stay. */
void ls_canvas_sharpness(struct ls_canvas *c, float factor)
{
    int64_t row = (int64_t)c->width * c->channels, step = c->channels;
    memcpy(c->spare, c->pixels, (size_t)bytes_of(c));
    for (int y = 1; y < c->height - 1; y++)
        for (int64_t i = y * row + step; i < (y + 1) * row - step; i++) {
            const uint8_t *p = c->spare + i;
            int sum = 4 * p[0];
            for (int64_t line = -row; line <= row; line += row)
                sum += p[line - step] + p[line] + p[line + step];
            c->pixels[i] = blend((2 * sum + 13) / 26, p[0], factor);
        }
}

/* --- hue ------------------------------------------------------------------------------------------------------------- */

static uint8_t clip8(int v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Pillow's HSV: 0 .. 255 each. */
static void to_hsv(const uint8_t *rgb, uint8_t hsv[3])
{
    int r = rgb[0], g = rgb[1], b = rgb[2];
    int top = r > g ? (r > b ? r : b) : (g > b ? g : b), low = r < g ? (r < b ? r : b) : (g < b ? g : b);
    hsv[0] = hsv[1] = 0;
    hsv[2] = (uint8_t)top;
    if (top == low)
        return;
    float range = (float)(top - low), s = range / (float)top;
    float from_r = (float)(top - r) / range, from_g = (float)(top - g) / range, from_b = (float)(top - b) / range;
    float h = r == top ? from_b - from_g : g == top ? 2.0f + from_r - from_b : 4.0f + from_g - from_r;
    h = (float)fmod((double)h / 6.0 + 1.0, 1.0);
    hsv[0] = clip8((int)((double)h * 255.0));
    hsv[1] = clip8((int)((double)s * 255.0));
}

static void from_hsv(const uint8_t hsv[3], uint8_t *rgb)
{
    double v = hsv[2], share = hsv[1] / 255.0, sixth = hsv[0] * 6.0 / 255.0;
    int part = (int)floor(sixth);
    double rest = sixth - part;
    uint8_t top = hsv[2], low = clip8((int)round(v * (1 - share))), down = clip8((int)round(v * (1 - share * rest)));
    uint8_t up = clip8((int)round(v * (1 - share * (1 - rest))));
    const uint8_t parts[6][3] = {{top, up, low},   {down, top, low}, {low, top, up},
                                 {low, down, top}, {up, low, top},   {top, low, down}};
    if (hsv[1] == 0)
        memset(rgb, top, 3);
    else
        memcpy(rgb, parts[part % 6], 3);
}

void ls_canvas_hue(struct ls_canvas *c, float turn)
{
    int shift = (int)(turn * 255.0f);
    for (int64_t i = 0; c->channels == 3 && i < (int64_t)c->height * c->width; i++) {
        uint8_t hsv[3];
        to_hsv(c->pixels + 3 * i, hsv);
        hsv[0] = (uint8_t)(hsv[0] + shift);
        from_hsv(hsv, c->pixels + 3 * i);
    }
}

/* --- tables ---------------------------------------------------------------------------------------------------------- */

void ls_canvas_posterize(struct ls_canvas *c, int bits)
{
    uint8_t mask = (uint8_t)(0xff00 >> bits);
    for (int64_t i = 0; i < bytes_of(c); i++)
        c->pixels[i] &= mask;
}

void ls_canvas_solarize(struct ls_canvas *c, float threshold)
{
    for (int64_t i = 0; i < bytes_of(c); i++)
        if (!((float)c->pixels[i] < threshold))
            c->pixels[i] = (uint8_t)(255 - c->pixels[i]);
}

static void histogram(const struct ls_canvas *c, int channel, int64_t counts[256])
{
    memset(counts, 0, 256 * sizeof *counts);
    for (int64_t i = channel; i < bytes_of(c); i += c->channels)
        counts[c->pixels[i]]++;
}

static void apply_table(struct ls_canvas *c, int channel, const uint8_t table[256])
{
    for (int64_t i = channel; i < bytes_of(c); i += c->channels)
        c->pixels[i] = table[c->pixels[i]];
}

void ls_canvas_autocontrast(struct ls_canvas *c)
{
    for (int channel = 0; channel < c->channels; channel++) {
        int64_t counts[256];
        uint8_t table[256];
        int low = 0, high = 255;
        histogram(c, channel, counts);
        while (low < 255 && !counts[low])
            low++;
        while (high > 0 && !counts[high])
            high--;
        if (high <= low)
            continue;
        double scale = 255.0 / (high - low), offset = -low * scale;
        for (int v = 0; v < 256; v++)
            table[v] = clip8((int)(v * scale + offset));
        apply_table(c, channel, table);
    }
}

void ls_canvas_equalize(struct ls_canvas *c)
{
    for (int channel = 0; channel < c->channels; channel++) {
        int64_t counts[256], last = 0, step, sum;
        uint8_t table[256];
        histogram(c, channel, counts);
        for (int v = 0; v < 256; v++)
            last = counts[v] ? counts[v] : last;
        step = ((int64_t)c->height * c->width - last) / 255;
        if (step == 0)
            continue;
        sum = step / 2;
        for (int v = 0; v < 256; sum += counts[v++])
            table[v] = clip8((int)(sum / step));
        apply_table(c, channel, table);
    }
}
