/* Packed files: what is written is read, without a copy; damage is named. */
#include "data_files.h"
#include "base/files/mapped.h"
#include "data/formats/packed.h"
#include "data/write/writers.h"

#include <unistd.h>

enum { SAMPLES = 6, SIDE = 8, PIXELS = 3 * SIDE * SIDE };

static const char *const classes[] = {"oak tree", "été"};
static const char *const ids[] = {"n1", "n2"};

static struct ls_dataset_info described(void)
{
    struct ls_dataset_info info = {.count = SAMPLES, .classes = 2, .class_names = classes, .class_ids = ids};
    ls_dataset_photographs(&info);
    return info;
}

/* Samples 0, 2, 4 are pixels, the others PPM files; the pixels of sample i are i. */
static void write_set(const char *part)
{
    struct ls_dataset_info info = described();
    struct ls_write_plan plan = {.folder = folder, .part = part, .info = &info};
    struct ls_writer *w;
    GOOD(ls_writer_packed.open(&plan, &w));
    for (int i = 0; i < SAMPLES; i++) {
        char bytes[32 + PIXELS], name[16];
        int head = i % 2 ? snprintf(bytes, sizeof bytes, "P6 %d %d 255\n", SIDE, SIDE) : 0;
        memset(bytes + head, i, PIXELS);
        snprintf(name, sizeof name, "%d.ppm", i);
        struct ls_write_sample s = {.bytes = (uint8_t *)bytes,
                                    .size = (size_t)(head + PIXELS),
                                    .extension = i % 2 ? "ppm" : NULL,
                                    .channels = 3,
                                    .height = SIDE,
                                    .width = SIDE,
                                    .label = i / 3,
                                    .number = i,
                                    .folder = i == 5 ? NULL : "oak tree/deep",
                                    .name = i == 5 ? NULL : name};
        GOOD(ls_writer_packed.put(w, &s));
    }
    GOOD(ls_writer_packed.finish(w));
    ls_writer_packed.close(w);
}

static void what_is_written_is_read(void **state)
{
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    write_set("train");
    write_set("val");
    struct ls_dataset *set = opened(folder, "test");
    const struct ls_dataset_info *info = ls_dataset_info(set);
    assert_string_equal(info->format, "packed");
    assert_int_equal(info->count, SAMPLES);
    assert_int_equal(info->height, 0);
    assert_false(info->whole);
    assert_string_equal(info->class_names[1], "été");
    assert_string_equal(info->class_ids[1], "n2");
    assert_true(info->mean[0] == 0.485f);
    for (int i = 0; i < SAMPLES; i++) {
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        assert_int_equal(label, i / 3);
        assert_int_equal(image.channels, 3);
        assert_int_equal(image.width, SIDE);
        for (int b = 0; b < PIXELS; b++)
            assert_int_equal(image.pixels[b], i);
        assert_true((image.pixels == image.buffer) == (i % 2 == 1)); /* pixels are not copied */
    }
    ls_image_release(&image);
    ls_dataset_close(set);
}

static void samples_have_the_names_of_their_files(void **state)
{
    struct ls_identity id;
    char where[256];
    (void)state;
    write_set("train");
    struct ls_dataset *set = opened(at("train.packed"), "train");
    assert_true(ls_dataset_info(set)->whole);
    assert_true(ls_dataset_identify(set, 1, &id));
    assert_string_equal(id.folder, "oak tree/deep");
    assert_string_equal(id.name, "1.ppm");
    assert_true(ls_dataset_identify(set, 5, &id));
    assert_null(id.name);
    assert_int_equal(id.size, 11 + PIXELS);
    ls_dataset_where(set, 1, where, sizeof where);
    assert_non_null(strstr(where, "train.packed: oak tree/deep/1.ppm at byte "));
    ls_dataset_close(set);
}

static void a_file_that_is_encoded_comes_back_unchanged(void **state)
{
    struct ls_image image = {0};
    const uint8_t *bytes;
    size_t size;
    (void)state;
    write_set("train");
    struct ls_dataset *set = opened(folder, "train");
    GOOD(ls_dataset_encoded(set, 1, &image, &bytes, &size));
    assert_int_equal(size, 11 + PIXELS);
    assert_memory_equal(bytes, "P6 8 8 255\n", 11);
    GOOD(ls_dataset_encoded(set, 2, &image, &bytes, &size));
    assert_null(bytes);
    ls_image_release(&image);
    ls_dataset_close(set);
}

/* Borrowed pixels are not written when an image becomes grey. */
static void borrowed_pixels_are_copied_before_a_change(void **state)
{
    static const uint8_t colour[6] = {10, 10, 10, 90, 90, 90};
    struct ls_image image = {0};
    (void)state;
    ls_image_borrow(&image, colour, 3, 1, 2);
    GOOD(ls_image_to_channels(&image, 1));
    assert_int_equal(image.pixels[1], 90);
    ls_image_borrow(&image, colour, 1, 1, 6);
    GOOD(ls_image_to_channels(&image, 3));
    assert_int_equal(image.pixels[17], 90);
    ls_image_borrow(&image, colour, 3, 1, 2);
    GOOD(ls_image_reserve(&image, 3, 1, 2));
    assert_ptr_equal(image.pixels, image.buffer);
    ls_image_release(&image);
}

static void change(const char *path, long place, int byte)
{
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, place, place < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(byte, f);
    assert_int_equal(fclose(f), 0);
}

static void damage_is_named(void **state)
{
    struct ls_dataset *set;
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    write_set("train");
    change(at("train.packed"), 300, 77); /* within sample 0 */
    GOOD(ls_dataset_open(folder, "train", &set));
    BAD(ls_dataset_read(set, 0, 0, &image, &label));
    SAID("train.packed: oak tree/deep/0.ppm at byte 256: its checksum is wrong");
    GOOD(ls_dataset_read(set, 1, 0, &image, &label));
    ls_dataset_close(set);
    ls_image_release(&image);
    change(at("train.packed"), -3, 1);
    BAD(ls_dataset_open(folder, "train", &set));
    SAID("the checksum of the index is wrong");
    change(at("train.packed"), 20, 1);
    BAD(ls_dataset_open(folder, "train", &set));
    SAID("the checksum of its head");
    change(at("train.packed"), 8, 9);
    BAD(ls_dataset_open(folder, "train", &set));
    SAID("version 9 of the packed format");
    change(at("train.packed"), 0, 'X');
    BAD(ls_dataset_open(folder, "train", &set));
    SAID("not a packed file");
}

static void a_file_that_is_cut_off_is_refused(void **state)
{
    struct ls_dataset *set;
    (void)state;
    write_set("train");
    assert_int_equal(truncate(at("train.packed"), 1000), 0);
    BAD(ls_dataset_open(folder, "train", &set));
    SAID("found 1000: the file is cut off");
    assert_int_equal(truncate(at("train.packed"), 0), 0);
    BAD(ls_dataset_open(folder, "train", &set));
    SAID("not a packed file");
}

/* Without the guard of a mapping the process would die here. */
static void a_file_that_becomes_shorter_is_an_error(void **state)
{
    struct ls_dataset *set;
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    write_set("train");
    GOOD(ls_dataset_open(folder, "train", &set));
    GOOD(ls_dataset_read(set, 0, 0, &image, &label));
    assert_int_equal(truncate(at("train.packed"), 0), 0);
    assert_int_equal(image.pixels[5], 0); /* pixels that were in use read as 0 */
    BAD(ls_dataset_read(set, 2, 0, &image, &label));
    SAID("the file became shorter");
    ls_image_release(&image);
    ls_dataset_close(set);
}

static void two_files_for_one_part_are_refused(void **state)
{
    struct ls_dataset *set;
    (void)state;
    write_set("train");
    write_set("train2");
    BAD(ls_dataset_open(folder, "train", &set));
    SAID("2 packed files for training; expected one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(samples_have_the_names_of_their_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_is_encoded_comes_back_unchanged, make_folder, remove_folder),
        cmocka_unit_test(borrowed_pixels_are_copied_before_a_change),
        cmocka_unit_test_setup_teardown(damage_is_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_is_cut_off_is_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_becomes_shorter_is_an_error, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(two_files_for_one_part_are_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
