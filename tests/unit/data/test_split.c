/* --val-split: two parts of a data set, decided by the identity of each sample. */
#include "data_files.h"
#include "data/split.h"

static struct ls_dataset *part_of(const char *spec, double share, bool validation)
{
    struct ls_dataset *part;
    GOOD(ls_dataset_split(opened(spec, "train"), spec, share, validation, &part));
    return part;
}

static int64_t count_of(const struct ls_dataset *set)
{
    return ls_dataset_info(set)->count;
}

/* Tests whether the part holds a file of that name. */
static bool holds(const struct ls_dataset *part, const char *path)
{
    char where[512];
    for (int64_t i = 0; i < count_of(part); i++) {
        ls_dataset_where(part, i, where, sizeof where);
        if (strcmp(where, path) == 0)
            return true;
    }
    return false;
}

static void put_files(int first, int end)
{
    for (int i = first; i < end; i++)
        put_text(at("set/%s/%d é.ppm", i % 2 ? "a b" : "c", i), "P5 1 1 255\nx");
}

static void files_keep_their_part_when_others_are_added(void **state)
{
    bool validation[100];
    (void)state;
    put_files(0, 100);
    struct ls_dataset *train = part_of(at("set"), 0.25, false), *val = part_of(at("set"), 0.25, true);
    assert_int_equal(count_of(train) + count_of(val), 100);
    assert_true(count_of(val) > 10 && count_of(val) < 45);
    for (int i = 0; i < 100; i++) {
        validation[i] = holds(val, at("set/%s/%d é.ppm", i % 2 ? "a b" : "c", i));
        assert_true(validation[i] != holds(train, at("set/%s/%d é.ppm", i % 2 ? "a b" : "c", i)));
    }
    ls_dataset_close(train);
    ls_dataset_close(val);
    put_files(100, 150);
    put_text(at("set/B/0.ppm"), "P5 1 1 255\nx"); /* classes get other numbers */
    train = part_of(at("set"), 0.25, false);
    val = part_of(at("set"), 0.25, true);
    assert_int_equal(count_of(train) + count_of(val), 151);
    for (int i = 0; i < 100; i++)
        assert_true(validation[i] == holds(val, at("set/%s/%d é.ppm", i % 2 ? "a b" : "c", i)));
    ls_dataset_close(train);
    ls_dataset_close(val);
}

/* Samples in memory, and samples that are computed. */
static void every_format_is_split(void **state)
{
    static const char *const specs[] = {"mnist", "synthetic:3x8x8:10:500"};
    (void)state;
    for (int s = 0; s < 2; s++) {
        struct ls_dataset *whole = opened(specs[s], "train"), *train = part_of(specs[s], 0.1, false);
        struct ls_dataset *val = part_of(specs[s], 0.1, true);
        int64_t all = count_of(whole), at_train = 0, at_val = 0;
        assert_int_equal(count_of(train) + count_of(val), all);
        assert_true((double)count_of(val) > 0.06 * (double)all && (double)count_of(val) < 0.14 * (double)all);
        assert_string_equal(ls_dataset_info(val)->format, ls_dataset_info(whole)->format);
        struct ls_image a = {0}, b = {0};
        for (int64_t i = 0; i < 200; i++) { /* both parts keep the order of the whole */
            int32_t label, other = -1;
            GOOD(ls_dataset_try(whole, i, NULL, &a, &label));
            size_t bytes = (size_t)(a.channels * a.height * a.width);
            bool in_train = at_train < count_of(train) && ls_dataset_try(train, at_train, NULL, &b, &other) == LS_OK &&
                            other == label && memcmp(a.pixels, b.pixels, bytes) == 0;
            if (in_train) {
                at_train++;
                continue;
            }
            GOOD(ls_dataset_try(val, at_val++, NULL, &b, &other));
            assert_int_equal(label, other);
            assert_memory_equal(a.pixels, b.pixels, bytes);
            assert_int_equal(ls_dataset_label(val, at_val - 1), label);
        }
        assert_true(at_val > 0 && at_train > 0);
        ls_image_release(&a);
        ls_image_release(&b);
        ls_dataset_close(whole);
        ls_dataset_close(train);
        ls_dataset_close(val);
    }
}

static void what_has_a_validation_part(void **state)
{
    (void)state;
    assert_true(ls_dataset_has_validation("mnist"));
    put_text(at("plain/a/1.ppm"), "P5 1 1 255\nx");
    assert_false(ls_dataset_has_validation(at("plain")));
    put_text(at("parts/train/a/1.ppm"), "P5 1 1 255\nx");
    assert_false(ls_dataset_has_validation(at("parts")));
    put_text(at("parts/val/a/1.ppm"), "P5 1 1 255\nx");
    assert_true(ls_dataset_has_validation(at("parts")));
    assert_false(ls_dataset_has_validation(at("nothing")));
}

static void a_part_without_samples_is_refused(void **state)
{
    struct ls_dataset *part;
    (void)state;
    put_text(at("one/a/1.ppm"), "P5 1 1 255\nx");
    enum ls_status held = ls_dataset_split(opened(at("one"), "train"), "one", 1e-12, true, &part);
    assert_int_equal(held, LS_USAGE);
    SAID("none of the 1 samples of one is left for validation; give a larger share");
    held = ls_dataset_split(opened(at("one"), "train"), "one", 1 - 1e-12, false, &part);
    assert_int_equal(held, LS_USAGE);
    SAID("left for training; give a smaller share");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_keep_their_part_when_others_are_added),
        cmocka_unit_test(every_format_is_split),
        cmocka_unit_test(what_has_a_validation_part),
        cmocka_unit_test(a_part_without_samples_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
