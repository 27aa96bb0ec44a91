/* Random erasing: a rectangle of the mean colour, which is about 0 after the normalisation. As torchvision's RandomErasing:
 * 2 to 33 % of the area, with an aspect ratio of 0.3 to 3.3. */
#include "data/image/effects/effect.h"

#include <math.h>
#include <string.h>

enum { TRIES = 10 };

static void fill(struct ls_canvas *c, const struct ls_box *box)
{
    size_t pixel = (size_t)c->channels;
    for (int y = box->top; y < box->top + box->height; y++)
        for (int x = box->left; x < box->left + box->width; x++)
            memcpy(c->pixels + (size_t)(y * c->width + x) * pixel, c->mean, pixel);
}

static void apply(const float *values, struct ls_dice *dice, struct ls_canvas *canvas)
{
    double area = (double)canvas->height * canvas->width;
    if (ls_dice_between(dice, 0, 1) >= (double)values[0])
        return;
    for (int i = 0; i < TRIES; i++) {
        double erased = area * ls_dice_between(dice, 0.02, 0.33);
        double shape = exp(ls_dice_between(dice, log(0.3), log(3.3)));
        struct ls_box box = {.height = (int)rint(sqrt(erased * shape)), .width = (int)rint(sqrt(erased / shape))};
        if (box.height >= canvas->height || box.width >= canvas->width)
            continue;
        box.top = ls_dice_below(dice, canvas->height - box.height + 1);
        box.left = ls_dice_below(dice, canvas->width - box.width + 1);
        fill(canvas, &box);
        return;
    }
}

const struct ls_effect ls_effect_erase = {
    .name = "erase",
    .argument = "[:P]",
    .help = "random erasing: with probability P (0.1) a rectangle of 2% to 33% of the area gets the mean colour",
    .least = 0,
    .most = 1,
    .high = {1},
    .missing = {0.1f},
    .apply = apply,
};
