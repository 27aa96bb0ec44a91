#include "cmd/data/check.h"

#include <math.h>

/* The mean over the pixels of an image is an integer in units of 1/SHARES grey levels. */
#define SHARES ((int64_t)1 << 20)

void ls_tally_image(struct ls_tally *t, const struct ls_image *image)
{
    int64_t pixels = (int64_t)image->height * image->width;
    for (int c = 0; c < image->channels; c++) {
        int64_t sum = 0, squares = 0;
        const uint8_t *p = image->pixels + c;
        for (int64_t i = 0; i < pixels; i++, p += image->channels) {
            sum += *p;
            squares += *p * *p;
        }
        t->sum[c] += sum;
        t->squares[c] += squares;
        t->image_sum[c] += (int64_t)((double)sum / (double)pixels * SHARES + 0.5);
        t->image_squares[c] += (int64_t)((double)squares / (double)pixels * SHARES + 0.5);
    }
    t->images++;
    if (t->pixels == 0 || image->height < t->min_height)
        t->min_height = image->height;
    if (t->pixels == 0 || image->width < t->min_width)
        t->min_width = image->width;
    t->max_height = image->height > t->max_height ? image->height : t->max_height;
    t->max_width = image->width > t->max_width ? image->width : t->max_width;
    t->pixels += pixels;
}

void ls_tally_add(struct ls_tally *all, const struct ls_tally *t)
{
    if (t->pixels == 0)
        return;
    if (all->pixels == 0 || t->min_height < all->min_height)
        all->min_height = t->min_height;
    if (all->pixels == 0 || t->min_width < all->min_width)
        all->min_width = t->min_width;
    all->max_height = t->max_height > all->max_height ? t->max_height : all->max_height;
    all->max_width = t->max_width > all->max_width ? t->max_width : all->max_width;
    all->pixels += t->pixels;
    for (int c = 0; c < 3; c++) {
        all->sum[c] += t->sum[c];
        all->squares[c] += t->squares[c];
        all->image_sum[c] += t->image_sum[c];
        all->image_squares[c] += t->image_squares[c];
    }
    all->images += t->images;
}

double ls_tally_pixel_mean(const struct ls_tally *t, int c)
{
    return t->pixels ? (double)t->sum[c] / (double)t->pixels / 255 : 0;
}

static double deviation_about(double mean, double squares)
{
    return squares > mean * mean ? sqrt(squares - mean * mean) : 0;
}

double ls_tally_pixel_deviation(const struct ls_tally *t, int c)
{
    return deviation_about(ls_tally_pixel_mean(t, c),
                           t->pixels ? (double)t->squares[c] / (double)t->pixels / (255.0 * 255) : 0);
}

double ls_tally_mean(const struct ls_tally *t, int c)
{
    return t->images ? (double)t->image_sum[c] / SHARES / (double)t->images / 255 : 0;
}

double ls_tally_deviation(const struct ls_tally *t, int c)
{
    return deviation_about(ls_tally_mean(t, c),
                           t->images ? (double)t->image_squares[c] / SHARES / (double)t->images / (255.0 * 255) : 0);
}
