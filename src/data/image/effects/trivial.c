/* TrivialAugment (wide): one operation, chosen evenly, with a random strength of 31. As torchvision's TrivialAugmentWide. */
#include "data/image/effects/effect.h"

enum { BINS = 31 };

enum operation {
    IDENTITY,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    ROTATE,
    BRIGHTNESS,
    COLOUR,
    CONTRAST,
    SHARPNESS,
    POSTERIZE,
    SOLARIZE,
    AUTOCONTRAST,
    EQUALIZE,
    OPERATIONS
};

static void affine(struct ls_canvas *c, double xy, double yx, double x, double y)
{
    const double m[] = {1, xy, x, yx, 1, y};
    ls_canvas_affine(c, m);
}

/* share: the strength from 0 to 1; sign: 1 or -1. */
static void operate(enum operation what, int bin, double sign, struct ls_canvas *c)
{
    double share = (double)bin / (BINS - 1), strength = sign * 0.99 * share;
    switch (what) {
    case SHEAR_X:
        affine(c, strength, 0, 0, 0);
        break;
    case SHEAR_Y:
        affine(c, 0, strength, 0, 0);
        break;
    case TRANSLATE_X:
        affine(c, 0, 0, -(double)(int)(sign * 32 * share), 0);
        break;
    case TRANSLATE_Y:
        affine(c, 0, 0, 0, -(double)(int)(sign * 32 * share));
        break;
    case ROTATE:
        ls_canvas_rotate(c, sign * 135 * share);
        break;
    case BRIGHTNESS:
        ls_canvas_brightness(c, (float)(1 + strength));
        break;
    case COLOUR:
        ls_canvas_saturation(c, (float)(1 + strength));
        break;
    case CONTRAST:
        ls_canvas_contrast(c, (float)(1 + strength));
        break;
    case SHARPNESS:
        ls_canvas_sharpness(c, (float)(1 + strength));
        break;
    case POSTERIZE:
        ls_canvas_posterize(c, 8 - (bin + 2) / 5); /* 8 to 2 bits */
        break;
    case SOLARIZE:
        ls_canvas_solarize(c, (float)(255 * (1 - share)));
        break;
    case AUTOCONTRAST:
        ls_canvas_autocontrast(c);
        break;
    case EQUALIZE:
        ls_canvas_equalize(c);
        break;
    default:
        break;
    }
}

static void apply(const float *values, struct ls_dice *dice, struct ls_canvas *canvas)
{
    (void)values;
    enum operation what = (enum operation)ls_dice_below(dice, OPERATIONS);
    int bin = ls_dice_below(dice, BINS);
    operate(what, bin, ls_dice_below(dice, 2) ? -1 : 1, canvas);
}

const struct ls_effect ls_effect_trivial = {
    .name = "trivial",
    .argument = "",
    .help =
        "TrivialAugment: one of 14 operations (shears, shifts, rotation, colours, sharpness, posterize ...) with a random "
        "strength",
    .apply = apply,
};
