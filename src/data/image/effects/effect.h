/* Effects: changes of an image's bytes behind the crop and the flip. Each is one file and one line of list.def. */
#ifndef LS_DATA_IMAGE_EFFECT_H
#define LS_DATA_IMAGE_EFFECT_H

#include "data/data.h"

/* An image that an effect changes in place, H x W x C bytes. */
struct ls_canvas {
    int channels, height, width; /* channels: 1 or 3 */
    uint8_t *pixels;
    uint8_t *spare;  /* as large as pixels; its contents are lost */
    uint8_t mean[4]; /* the data set's mean colour */
};

/* Random numbers of an effect. They depend on (seed, epoch, sample, effect) and their order only. */
struct ls_dice {
    uint64_t seed, stream, next;
};
/* Uniform in [low, high). */
double ls_dice_between(struct ls_dice *dice, double low, double high);
/* A whole number from 0 to below `limit`. */
int ls_dice_below(struct ls_dice *dice, int limit);

struct ls_effect {
    const char *name, *argument, *help; /* argument: "" none, ":DEGREES" required, "[:P]" optional */
    int least, most;                    /* how many numbers may follow the name */
    float high[LS_EFFECT_VALUES];       /* the range of each is 0 to this */
    float missing[LS_EFFECT_VALUES];    /* of those that are not given; below 0: as the first */
    void (*apply)(const float *values, struct ls_dice *dice, struct ls_canvas *canvas);
};
extern const struct ls_effect *const ls_effects[LS_EFFECTS]; /* by enum ls_effect_id */

/* --- operations, with the results of Pillow -------------------------------------------------------------------------- */

/* Output (x, y) is the pixel at (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]), nearest; black outside. */
void ls_canvas_affine(struct ls_canvas *c, const double m[6]);
/* Turns the image around its middle, counter-clockwise. */
void ls_canvas_rotate(struct ls_canvas *c, double degrees);
/* A factor of 1 changes nothing. 0 gives black, the mean grey, or the grey image. */
void ls_canvas_brightness(struct ls_canvas *c, float factor);
void ls_canvas_contrast(struct ls_canvas *c, float factor);
void ls_canvas_saturation(struct ls_canvas *c, float factor);
/* 0 gives a smoothed image. */
void ls_canvas_sharpness(struct ls_canvas *c, float factor);
/* Turns the hue by a share of the whole circle, -1/2 to 1/2. */
void ls_canvas_hue(struct ls_canvas *c, float turn);
/* Keeps the upper `bits` bits; inverts values from the threshold on. */
void ls_canvas_posterize(struct ls_canvas *c, int bits);
void ls_canvas_solarize(struct ls_canvas *c, float threshold);
/* Stretches each channel to 0 .. 255; makes its histogram even. */
void ls_canvas_autocontrast(struct ls_canvas *c);
void ls_canvas_equalize(struct ls_canvas *c);

#endif
