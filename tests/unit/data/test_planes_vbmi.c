/* Bytes to planes with vectors: the values of the table, and nothing else is read or written. */
#include "data/image/planes_vbmi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 3, WIDEST = 200 };

/* Any bits, so that each byte of a float counts. */
static void make_table(float table[256])
{
    for (uint32_t v = 0; v < 256; v++) {
        uint32_t bits = v * 2654435761u;
        memcpy(&table[v], &bits, sizeof bits);
    }
}

/* The rows of an image of `width` pixels that lie without a gap, in memory of their very size: a sanitizer sees what is read
 * beside it. The planes have a margin. */
static void compare(int width, int channel, bool flip, bool past_cache)
{
    size_t bytes = (size_t)(ROWS * width) * 3, stride = past_cache ? (size_t)(width + 15) / 16 * 16 : (size_t)width + 3;
    float table[256], *out = aligned_alloc(64, (ROWS * stride * sizeof(float) + 63) / 64 * 64);
    uint8_t *pixels = malloc(bytes);
    assert_non_null(out);
    assert_non_null(pixels);
    make_table(table);
    for (size_t i = 0; i < bytes; i++)
        pixels[i] = (uint8_t)(i * 31 + i / 251);
    memset(out, 0x5a, ROWS * stride * sizeof(float));
    struct ls_vbmi_part part = {.pixels = pixels + (flip ? 3 * (width - 1) : 0),
                                .pixel_stride = 3 * width,
                                .flip = flip,
                                .rows = ROWS,
                                .count = width,
                                .out = out,
                                .out_stride = stride,
                                .past_cache = past_cache};
    ls_vbmi_plane(&part, channel, table);
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < (int)stride; x++) {
            const float *value = &out[(size_t)y * stride + (size_t)x];
            uint32_t untouched = 0x5a5a5a5a;
            const uint8_t *pixel = pixels + 3 * (y * width + (flip ? width - 1 - x : x));
            assert_memory_equal(value, x < width ? (const void *)&table[pixel[channel]] : &untouched, sizeof *value);
        }
    free(pixels);
    free(out);
}

static void gives_the_values_of_the_table(void **state)
{
    (void)state;
    if (!ls_vbmi())
        skip();
    for (int width = 1; width <= WIDEST; width++)
        for (int channel = 0; channel < 3; channel++)
            for (int way = 0; way < 4; way++)
                compare(width, channel, way & 1, way & 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gives_the_values_of_the_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
