/* The samples of a contact sheet are those that the loader of training gives, whatever its slices and threads. */
#include "data_files.h"

#include "cmd/data/sheet/sheet.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 40, SIDE = 16, VALUES = 3 * SIDE * SIDE };

static void options_of(struct ls_options *o)
{
    char *argv[] = {"show",   "--data", "synthetic:3x16x16:5:100", "--augment", "crop:4,flip", "--samples", "40",
                    "--seed", "7"};
    bool help;
    GOOD(ls_options_parse(o, LS_CMD_DATA, (int)(sizeof argv / sizeof *argv), argv, &help));
}

/* A step of 20 samples, cut into slices for three replicas as training cuts it. */
static void samples_are_the_loaders(void **state)
{
    struct ls_options o;
    struct ls_sheet s;
    (void)state;
    options_of(&o);
    GOOD(ls_sheet_load(&s, &o));
    assert_int_equal(s.count, SAMPLES);
    struct ls_loader_options l = {.set = s.task.train,
                                  .augment = s.task.augment,
                                  .seed = 7,
                                  .shuffle = true,
                                  .threads = 3,
                                  .ring = 4,
                                  .batch = 7,
                                  .parts = 3,
                                  .step = 20,
                                  .epochs = 1};
    struct ls_loader *loader;
    GOOD(ls_loader_new(&l, &loader));
    uint8_t pixels[VALUES];
    for (int done = 0; done < SAMPLES;) {
        const struct ls_slot *slot;
        GOOD(ls_loader_next(loader, &slot));
        for (int64_t i = 0; i < slot->valid; i++, done++) {
            ls_augment_invert(&s.task.augment, slot->images + i * VALUES, 3, pixels);
            assert_int_equal(slot->position + i, done);
            assert_memory_equal(pixels, ls_sheet_pixels(&s, done), VALUES);
            assert_int_equal(slot->labels[i], s.label[done]);
        }
    }
    ls_loader_free(loader);
    ls_sheet_release(&s);
    ls_options_release(&o);
}

/* Each sample by itself, from its number. */
static void samples_have_their_numbers(void **state)
{
    struct ls_options o;
    struct ls_sheet s;
    struct ls_image image = {0}, scratch = {0};
    float planes[VALUES];
    uint8_t pixels[VALUES];
    (void)state;
    options_of(&o);
    GOOD(ls_sheet_load(&s, &o));
    for (int i = 0; i < SAMPLES; i++) {
        int32_t label;
        GOOD(ls_dataset_read(s.task.train, s.sample[i], 0, &image, &label));
        GOOD(ls_augment_apply(&s.task.augment, &image, 7, 0, (uint64_t)s.sample[i], &scratch, planes));
        ls_augment_invert(&s.task.augment, planes, 3, pixels);
        assert_memory_equal(pixels, ls_sheet_pixels(&s, i), VALUES);
        assert_int_equal(label, s.label[i]);
    }
    ls_image_release(&image);
    ls_image_release(&scratch);
    ls_sheet_release(&s);
    ls_options_release(&o);
}

/* Normalising and its inverse give every byte back. */
static void bytes_come_back(void **state)
{
    struct ls_dataset *set;
    struct ls_augment a;
    float planes[3 * 256];
    uint8_t pixels[3 * 256];
    (void)state;
    GOOD(ls_dataset_open("synthetic:3x16x16:5:10", "train", &set));
    GOOD(ls_augment_parse("none", true, ls_dataset_info(set), 3, 16, 16, &a));
    for (int c = 0; c < 3; c++)
        memcpy(planes + 256 * c, a.table[c], sizeof a.table[c]);
    ls_augment_invert(&a, planes, 3, pixels);
    for (int i = 0; i < 256; i++)
        for (int c = 0; c < 3; c++)
            assert_int_equal(pixels[3 * i + c], i);
    ls_dataset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_the_loaders),
        cmocka_unit_test(samples_have_their_numbers),
        cmocka_unit_test(bytes_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
