/* Effects of --augment: every operation against Pillow, the random choices against torchvision's ranges, and equal values
 * whatever the form of the batch. */
#include "data_files.h"
#include "data/image/effects/effect.h"

#include "../../golden/effects.h"

#include <math.h>

static const struct ls_dataset_info pictures = {.count = 10,
                                                .channels = 3,
                                                .height = 40,
                                                .width = 40,
                                                .classes = 10,
                                                .format = "cifar10",
                                                .mean = {0.5f, 0.4f, 0.25f},
                                                .deviation = {0.25f, 0.25f, 0.25f}};

static void operate(struct ls_canvas *c, const char *name, float v)
{
    const double shear_x[] = {1, (double)v, 0, 0, 1, 0}, shear_y[] = {1, 0, 0, (double)v, 1, 0};
    const double shift_x[] = {1, 0, (double)v, 0, 1, 0};
    if (strcmp(name, "rotate") == 0)
        ls_canvas_rotate(c, (double)v);
    else if (strcmp(name, "shear_x") == 0)
        ls_canvas_affine(c, shear_x);
    else if (strcmp(name, "shear_y") == 0)
        ls_canvas_affine(c, shear_y);
    else if (strcmp(name, "shift_x") == 0)
        ls_canvas_affine(c, shift_x);
    else if (strcmp(name, "brightness") == 0)
        ls_canvas_brightness(c, v);
    else if (strcmp(name, "contrast") == 0)
        ls_canvas_contrast(c, v);
    else if (strcmp(name, "saturation") == 0)
        ls_canvas_saturation(c, v);
    else if (strcmp(name, "sharpness") == 0)
        ls_canvas_sharpness(c, v);
    else if (strcmp(name, "hue") == 0)
        ls_canvas_hue(c, v);
    else if (strcmp(name, "posterize") == 0)
        ls_canvas_posterize(c, (int)v);
    else if (strcmp(name, "solarize") == 0)
        ls_canvas_solarize(c, v);
    else {
        ls_canvas_brightness(c, v);
        strcmp(name, "equalize") == 0 ? ls_canvas_equalize(c) : ls_canvas_autocontrast(c);
    }
}

static void operations_equal_pillow(void **state)
{
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof effects_of_pillow / sizeof *effects_of_pillow; i++) {
        struct ls_image image = {0}, spare = {0};
        int channels = effects_of_pillow[i].channels;
        int height = effects_of_pillow[i].height, width = effects_of_pillow[i].width;
        paint(&image, channels, height, width);
        paint(&spare, channels, height, width);
        struct ls_canvas c = {channels, height, width, image.pixels, spare.pixels, {0}};
        operate(&c, effects_of_pillow[i].operation, effects_of_pillow[i].strength);
        if (fnv(c.pixels, (size_t)(channels * height * width)) != effects_of_pillow[i].hash) {
            print_error("%s by %g of %dx%dx%d differs from Pillow's\n", effects_of_pillow[i].operation,
                        (double)effects_of_pillow[i].strength, channels, height, width);
            wrong++;
        }
        ls_image_release(&image);
        ls_image_release(&spare);
    }
    assert_int_equal(wrong, 0);
}

static void parse(const char *text, struct ls_augment *a)
{
    GOOD(ls_augment_parse(text, true, &pictures, 3, 32, 32, a));
}

enum { VALUES = 3 * 32 * 32 };

/* The planes of a sample; image is 40 x 40. */
static void planes_of(const struct ls_augment *a, uint64_t epoch, uint64_t sample, float *planes)
{
    struct ls_image image = {0}, scratch = {0};
    paint(&image, 3, 40, 40);
    GOOD(ls_augment_apply(a, &image, 7, epoch, sample, &scratch, planes));
    ls_image_release(&image);
    ls_image_release(&scratch);
}

/* The bytes of the other form give the same planes, mirrored and all; the device can no longer cut the image itself. */
static void both_forms_have_the_same_values(void **state)
{
    static const char *const lists[] = {"crop:4,flip,rotate:30", "crop:4,flip,jitter:0.4:0.4:0.4:0.1", "flip,trivial",
                                        "rrc,flip,rotate:10,jitter:0.3,trivial,erase:0.9", "erase:1"};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct ls_augment a;
        parse(lists[i], &a);
        assert_false(ls_augment_only_crops(&a, &pictures));
        for (uint64_t sample = 0; sample < 40; sample++) {
            static float planes[VALUES];
            static uint8_t pixels[VALUES];
            struct ls_image image = {0}, scratch = {0};
            struct ls_crop crop = {0};
            planes_of(&a, 3, sample, planes);
            paint(&image, 3, 40, 40);
            GOOD(ls_augment_pixels(&a, &image, 7, 3, sample, &scratch, pixels, &crop));
            assert_int_equal(crop.flip, 0);
            for (int y = 0; y < 32 * 32; y++)
                for (int c = 0; c < 3; c++)
                    assert_true(planes[c * 1024 + y] == a.table[c][pixels[3 * y + c]]);
            ls_image_release(&image);
            ls_image_release(&scratch);
        }
    }
}

/* The share of samples that a list changes, against the same list without its last word. */
static double changed(const char *list, const char *plain, int samples)
{
    struct ls_augment a, b;
    int differ = 0;
    parse(list, &a);
    parse(plain, &b);
    for (int i = 0; i < samples; i++) {
        static float with[VALUES], without[VALUES];
        planes_of(&a, 0, (uint64_t)i, with);
        planes_of(&b, 0, (uint64_t)i, without);
        differ += memcmp(with, without, sizeof with) != 0;
    }
    return (double)differ / samples;
}

static void choices_have_their_probabilities(void **state)
{
    (void)state;
    assert_true(fabs(changed("crop:4,flip,erase:0.25", "crop:4,flip", 800) - 0.25) < 0.05);
    assert_true(changed("flip,erase:0", "flip", 50) == 0);
    assert_true(changed("flip,jitter:0", "flip", 50) == 0);
    assert_true(changed("flip,rotate:20", "flip", 200) > 0.9);
    /* Identity, and weak ones that change nothing. */
    double trivial = changed("flip,trivial", "flip", 400);
    assert_true(trivial > 0.7 && trivial < 0.97);
}

/* An erased rectangle has the mean colour and 2 to 33 % of the area. */
static void erasing_leaves_the_mean(void **state)
{
    struct ls_augment a, b;
    double least = 1, most = 0;
    (void)state;
    parse("center,erase:1", &a);
    parse("center", &b);
    for (uint64_t sample = 0; sample < 200; sample++) {
        static float with[VALUES], without[VALUES];
        int erased = 0;
        planes_of(&a, 1, sample, with);
        planes_of(&b, 1, sample, without);
        for (int i = 0; i < VALUES; i++)
            if (with[i] != without[i]) {
                assert_true(fabsf(with[i]) < 0.5f / 255 / 0.25f + 1e-6f);
                erased++;
            }
        least = fmin(least, (double)erased / VALUES);
        most = fmax(most, (double)erased / VALUES);
    }
    assert_true(least >= 0.015 && most <= 0.35 && most > 0.25);
}

/* Evaluation has no effects. The choices are those of (seed, epoch, sample). */
static void effects_follow_the_sample(void **state)
{
    struct ls_augment a, eval;
    static float first[VALUES], again[VALUES], other[VALUES];
    (void)state;
    parse("crop:4,flip,rotate:30,jitter:0.4,trivial,erase:0.5", &a);
    planes_of(&a, 2, 5, first);
    planes_of(&a, 2, 5, again);
    assert_memory_equal(first, again, sizeof first);
    planes_of(&a, 3, 5, other);
    assert_memory_not_equal(first, other, sizeof first);
    planes_of(&a, 2, 6, other);
    assert_memory_not_equal(first, other, sizeof first);
    GOOD(ls_augment_parse("crop:4,flip,rotate:30", false, &pictures, 3, 32, 32, &eval));
    assert_false(eval.has_effects);
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *list, *says;
    } cases[] = {
        {"rotate", "'rotate': expected rotate:DEGREES"},
        {"rotate:200", "'rotate:200': expected number 1 to be from 0 to 180"},
        {"rotate:", "'rotate:': expected number 1"},
        {"rotate:1:2", "'rotate:1:2': expected rotate:DEGREES"},
        {"jitter:0.4:0.4:0.4:0.6", "number 4 to be from 0 to 0.5"},
        {"jitter:nan", "number 1 to be from 0 to 1"},
        {"trivial:3", "'trivial:3': expected trivial"},
        {"erase:-0.1", "number 1 to be from 0 to 1"},
        {"rotat:5", "did you mean 'rotate'?"},
    };
    struct ls_augment a;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ls_augment_parse(cases[i].list, true, &pictures, 3, 32, 32, &a), LS_USAGE);
        if (!strstr(ls_log_last(), cases[i].says))
            fail_msg("%s: '%s' does not say '%s'", cases[i].list, ls_log_last(), cases[i].says);
    }
    parse("jitter:0.4", &a);
    const float *v = a.effects[LS_EFFECT_jitter].values;
    assert_true(v[0] == 0.4f && v[1] == 0.4f && v[2] == 0.4f && v[3] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_equal_pillow),          cmocka_unit_test(both_forms_have_the_same_values),
        cmocka_unit_test(choices_have_their_probabilities), cmocka_unit_test(erasing_leaves_the_mean),
        cmocka_unit_test(effects_follow_the_sample),        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
