/* The Huffman decoder of jpeg_huffman.c against that of libjpeg-turbo: the same pixels, the same refusals. */
#include "data/dataset.h"
#include "data/image/jpeg/jpeg_huffman.h"
#include "base/random.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct kind {
    int channels, height, width, quality, h, v; /* h, v: sampling factors of the first component */
    bool optimised, progressive;
    unsigned restart;
};

/* Smooth colours with noise, so that all sizes of values and runs are there. */
static void paint(uint8_t *pixels, const struct kind *k, uint64_t seed)
{
    for (int i = 0; i < k->height * k->width * k->channels; i++) {
        uint32_t r[4];
        ls_philox(seed, 0, (uint64_t)i / 4, r);
        int y = i / k->channels / k->width, x = i / k->channels % k->width, c = i % k->channels;
        int noise = (int)(r[i % 4] >> 24) * (x % 64) / 64;
        pixels[i] = (uint8_t)((x * (c + 1) + y * 2) / 4 % 128 + noise / 2);
    }
}

static unsigned char *encode(const struct kind *k, uint64_t seed, unsigned long *size)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr error;
    unsigned char *bytes = NULL;
    uint8_t *pixels = malloc((size_t)(k->height * k->width * k->channels));
    paint(pixels, k, seed);
    jpeg.err = jpeg_std_error(&error);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, size);
    jpeg.image_width = (JDIMENSION)k->width;
    jpeg.image_height = (JDIMENSION)k->height;
    jpeg.input_components = k->channels;
    jpeg.in_color_space = k->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, k->quality, TRUE);
    jpeg.optimize_coding = k->optimised;
    jpeg.restart_interval = k->restart;
    if (k->channels == 3) {
        jpeg.comp_info[0].h_samp_factor = k->h;
        jpeg.comp_info[0].v_samp_factor = k->v;
    }
    if (k->progressive)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = pixels + (size_t)jpeg.next_scanline * (size_t)(k->width * k->channels);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(pixels);
    return bytes;
}

/* Two images, of which the second is decoded by libjpeg-turbo alone. */
static struct ls_image ours, theirs;

static int set_up(void **state)
{
    (void)state;
    theirs.jpeg = ls_alloc(1, sizeof *theirs.jpeg);
    theirs.jpeg->off = true;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_image_release(&ours);
    ls_image_release(&theirs);
    return 0;
}

/* Returns whether the file was good. */
static bool compare(const unsigned char *bytes, size_t size, const struct ls_view *view)
{
    memset(ours.why, 0, sizeof ours.why);
    memset(theirs.why, 0, sizeof theirs.why);
    enum ls_status a = ls_jpeg_decode(bytes, size, view, &ours), b = ls_jpeg_decode(bytes, size, view, &theirs);
    assert_int_equal(a, b);
    assert_string_equal(ours.why, theirs.why);
    if (a != LS_OK)
        return false;
    assert_int_equal(ours.height, theirs.height);
    assert_int_equal(ours.width, theirs.width);
    assert_memory_equal(ours.pixels, theirs.pixels, (size_t)ours.height * (size_t)ours.width * (size_t)ours.channels);
    return true;
}

static const struct kind kinds[] = {
    {3, 40, 50, 90, 2, 2, false, false, 0},   {3, 123, 77, 75, 2, 1, false, false, 0},
    {3, 65, 130, 95, 1, 1, true, false, 0},   {1, 33, 47, 85, 1, 1, false, false, 0},
    {3, 200, 250, 100, 2, 2, true, false, 0}, {3, 90, 90, 5, 2, 2, false, false, 0},
    {3, 64, 80, 90, 2, 2, false, false, 3},   {3, 64, 80, 90, 2, 2, true, true, 0},
    {3, 1, 1, 90, 2, 2, false, false, 0},     {3, 48, 96, 90, 4, 1, false, false, 0},
    {3, 96, 48, 90, 1, 2, false, false, 0},   {1, 8, 8, 100, 1, 1, true, false, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void pixels_are_those_of_libjpeg(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        unsigned long size = 0;
        unsigned char *bytes = encode(&kinds[i], (uint64_t)i, &size);
        for (int side = 0; side <= 100; side += 20)
            assert_true(compare(bytes, size, &(struct ls_view){.min_side = side}));
        struct ls_augment crop = {.random_resized = true};
        for (uint64_t sample = 0; sample < 30; sample++) {
            struct ls_view view = {.min_side = sample % 3 ? 0 : 20, .random_resized = &crop, .sample = sample};
            assert_true(compare(bytes, size, &view));
        }
        free(bytes);
    }
}

static void damaged_files_are_judged_alike(void **state)
{
    int good = 0, bad = 0;
    (void)state;
    for (uint64_t i = 0; i < 600; i++) {
        unsigned long size = 0;
        uint32_t r[4];
        unsigned char *bytes = encode(&kinds[i % KINDS], i, &size);
        ls_philox(7, 1, i, r);
        if (i % 3 == 0)
            size = 1 + r[0] % (size - 1);
        else
            for (unsigned k = 0; k <= r[0] % 4; k++)
                bytes[300 % size + (r[1] * (k + 1)) % (size - 300 % size)] = (unsigned char)(k % 2 ? 0xff : r[2]);
        if (compare(bytes, size, &(struct ls_view){.min_side = 0}))
            good++;
        else
            bad++;
        free(bytes);
    }
    assert_true(good > 50 && bad > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_of_libjpeg),
        cmocka_unit_test(damaged_files_are_judged_alike),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
