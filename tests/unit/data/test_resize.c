/* Vectors scale as plain C does: colours as three grey images, rows as the columns of the turned image. */
#include "data/dataset.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct ls_image colour, scaled, grey, grey_scaled;

static void fill(struct ls_image *image, int channels, int height, int width, uint64_t seed)
{
    assert_int_equal(ls_image_reserve(image, channels, height, width), LS_OK);
    for (int i = 0; i < channels * height * width; i++)
        image->pixels[i] = (uint8_t)ls_random_below(seed, 3, (uint64_t)i, 256);
}

static int below(uint64_t seed, uint64_t index, int limit)
{
    return (int)ls_random_below(seed, 5, index, (uint64_t)limit);
}

static void colours_are_scaled_as_grey_is(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 200; n++) {
        int h = 1 + below(n, 0, 90), w = 1 + below(n, 1, 90), height = 1 + below(n, 2, 60), width = 1 + below(n, 3, 60);
        struct ls_box box = {below(n, 4, h), below(n, 5, w), 0, 0}, all = {0, 0, height, width};
        box.height = h - box.top;
        box.width = w - box.left;
        fill(&colour, 3, h, w, n);
        assert_int_equal(ls_image_resize(&colour, &box, height, width, &all, &scaled), LS_OK);
        for (int c = 0; c < 3; c++) {
            assert_int_equal(ls_image_reserve(&grey, 1, h, w), LS_OK);
            for (int i = 0; i < h * w; i++)
                grey.pixels[i] = colour.pixels[3 * i + c];
            assert_int_equal(ls_image_resize(&grey, &box, height, width, &all, &grey_scaled), LS_OK);
            for (int i = 0; i < height * width; i++)
                assert_int_equal(scaled.pixels[3 * i + c], grey_scaled.pixels[i]);
        }
    }
}

static void rows_are_scaled_as_columns_are(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 200; n++) {
        int h = 1 + below(n, 0, 300), w = 1 + below(n, 1, 90), height = 1 + below(n, 2, 60);
        struct ls_box box = {0, 0, h, w}, all = {0, 0, height, w};
        fill(&grey, 1, h, w, n);
        assert_int_equal(ls_image_resize(&grey, &box, height, w, &all, &grey_scaled), LS_OK);
        assert_int_equal(ls_image_reserve(&colour, 1, w, h), LS_OK);
        for (int i = 0; i < h * w; i++)
            colour.pixels[i % w * h + i / w] = grey.pixels[i];
        struct ls_box turned = {0, 0, w, h}, turned_all = {0, 0, w, height};
        assert_int_equal(ls_image_resize(&colour, &turned, w, height, &turned_all, &scaled), LS_OK);
        for (int i = 0; i < height * w; i++)
            assert_int_equal(grey_scaled.pixels[i], scaled.pixels[i % w * height + i / w]);
    }
}

static int tear_down(void **state)
{
    (void)state;
    ls_image_release(&colour);
    ls_image_release(&scaled);
    ls_image_release(&grey);
    ls_image_release(&grey_scaled);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colours_are_scaled_as_grey_is),
        cmocka_unit_test(rows_are_scaled_as_columns_are),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
