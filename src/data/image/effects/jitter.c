/* Random brightness, contrast, saturation and hue, in random order, as torchvision's ColorJitter. */
#include "data/image/effects/effect.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, STEPS };

static float factor(struct ls_dice *dice, float width)
{
    double low = width < 1 ? 1 - (double)width : 0;
    return (float)ls_dice_between(dice, low, 1 + (double)width);
}

static void apply_one(int step, float chosen, struct ls_canvas *canvas)
{
    if (step == BRIGHTNESS)
        ls_canvas_brightness(canvas, chosen);
    else if (step == CONTRAST)
        ls_canvas_contrast(canvas, chosen);
    else if (step == SATURATION)
        ls_canvas_saturation(canvas, chosen);
    else
        ls_canvas_hue(canvas, chosen);
}

static void apply(const float *values, struct ls_dice *dice, struct ls_canvas *canvas)
{
    int order[STEPS] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    float chosen[STEPS];
    for (int i = 0; i < STEPS; i++) {
        int other = i + ls_dice_below(dice, STEPS - i), step = order[other];
        order[other] = order[i];
        order[i] = step;
    }
    for (int i = 0; i < HUE; i++)
        chosen[i] = factor(dice, values[i]);
    chosen[HUE] = (float)ls_dice_between(dice, -(double)values[HUE], (double)values[HUE]);
    for (int i = 0; i < STEPS; i++)
        if (values[order[i]] > 0)
            apply_one(order[i], chosen[order[i]], canvas);
}

const struct ls_effect ls_effect_jitter = {
    .name = "jitter",
    .argument = ":B[:C:S:H]",
    .help =
        "random brightness, contrast and saturation by factors of 1-B to 1+B (C, S: as B), in random order; hue by up to "
        "H of the circle to either side (0)",
    .least = 1,
    .most = 4,
    .high = {1, 1, 1, 0.5f},
    .missing = {0, -1, -1, 0},
    .apply = apply,
};
