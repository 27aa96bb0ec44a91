/* A rotation around the middle, as torchvision's RandomRotation. */
#include "data/image/effects/effect.h"

static void apply(const float *values, struct ls_dice *dice, struct ls_canvas *canvas)
{
    ls_canvas_rotate(canvas, ls_dice_between(dice, -(double)values[0], (double)values[0]));
}

const struct ls_effect ls_effect_rotate = {
    .name = "rotate",
    .argument = ":DEGREES",
    .help = "turn by an angle of up to DEGREES to either side; what comes into the picture is black",
    .least = 1,
    .most = 1,
    .high = {180},
    .apply = apply,
};
