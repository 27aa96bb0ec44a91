/* Decoding: right pixels out of good files, a clear refusal of all others. */
#include "data_files.h"

/* The largest difference between two images of one size. */
static int difference(const struct ls_image *a, const struct ls_image *b)
{
    int largest = 0;
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->channels, b->channels);
    for (int i = 0; i < a->height * a->width * a->channels; i++)
        if (abs(a->pixels[i] - b->pixels[i]) > largest)
            largest = abs(a->pixels[i] - b->pixels[i]);
    return largest;
}

static void not_decoded(const uint8_t *bytes, size_t size, const char *why)
{
    struct ls_image image = {0};
    /* A copy of exactly that size, so that a sanitizer sees a read beyond it. */
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    BAD(ls_image_decode(copy, size, NULL, 3, &image));
    if (!strstr(image.why, why))
        print_error("expected '%s' in '%s'\n", why, image.why);
    assert_non_null(strstr(image.why, why));
    free(copy);
    ls_image_release(&image);
}

static void jpeg_comes_out_as_it_went_in(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 3; channels += 2)
        for (int progressive = 0; progressive < 2; progressive++) {
            struct ls_image in = {0}, out = {0};
            unsigned long size;
            shade(&in, channels, 45, 70);
            unsigned char *bytes = encode_jpeg(&in, progressive, &size);
            GOOD(ls_image_decode(bytes, size, NULL, channels, &out));
            assert_true(difference(&in, &out) <= 12);
            GOOD(ls_image_decode(bytes, size, NULL, 4 - channels, &out)); /* the other number of channels */
            assert_int_equal(out.channels, 4 - channels);
            free(bytes);
            ls_image_release(&in);
            ls_image_release(&out);
        }
}

static void jpeg_of_inks_becomes_rgb(void **state)
{
    struct ls_image in = {0}, out = {0};
    unsigned long size;
    (void)state;
    GOOD(ls_image_reserve(&in, 4, 16, 16));
    for (int i = 0; i < 16 * 16; i++)
        memcpy(in.pixels + 4 * i, (uint8_t[]){255, 128, 0, 204}, 4); /* Adobe's way: 255 is no ink */
    unsigned char *bytes = encode_jpeg(&in, false, &size);
    GOOD(ls_image_decode(bytes, size, NULL, 3, &out));
    assert_true(abs(out.pixels[0] - 204) < 5 && abs(out.pixels[1] - 102) < 5 && out.pixels[2] < 5);
    free(bytes);
    ls_image_release(&in);
    ls_image_release(&out);
}

static void jpeg_is_decoded_no_larger_than_needed(void **state)
{
    static const int sizes[][3] = {{0, 400, 300},   {301, 400, 300}, {300, 400, 300}, {151, 400, 300}, {150, 200, 150},
                                   {100, 200, 150}, {75, 100, 75},   {37, 50, 38},    {1, 50, 38}};
    struct ls_image in = {0}, out = {0};
    unsigned long size;
    (void)state;
    shade(&in, 3, 300, 400);
    unsigned char *bytes = encode_jpeg(&in, false, &size);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ls_view view = {.min_side = sizes[i][0]};
        GOOD(ls_image_decode(bytes, size, &view, 3, &out));
        assert_int_equal(out.width, sizes[i][1]);
        assert_int_equal(out.height, sizes[i][2]);
        assert_false(out.cropped);
    }
    free(bytes);
    ls_image_release(&in);
    ls_image_release(&out);
}

/* A view of a part gives the same pixels as the whole image cut there, but for the smoothing of colours at
 * the rim. */
static void jpeg_is_decoded_only_where_seen(void **state)
{
    struct ls_dataset_info info = {.channels = 3, .format = "folder", .deviation = {1, 1, 1}};
    struct ls_image in = {0}, whole = {0}, part = {0};
    struct ls_augment a;
    unsigned long size;
    (void)state;
    GOOD(ls_augment_parse("rrc", true, &info, 3, 300, 300, &a));
    shade(&in, 3, 301, 403);
    for (int progressive = 0; progressive < 2; progressive++) {
        unsigned char *bytes = encode_jpeg(&in, progressive, &size);
        GOOD(ls_image_decode(bytes, size, NULL, 3, &whole));
        for (uint64_t s = 0; s < 60; s++) {
            struct ls_view view = ls_augment_view(&a, 5, 0, s);
            struct ls_box box = ls_view_box(&view, 301, 403);
            GOOD(ls_image_decode(bytes, size, &view, 3, &part));
            assert_true(part.cropped);
            assert_int_equal(part.height, box.height);
            assert_int_equal(part.width, box.width);
            for (int y = 0; y < box.height; y++)
                for (int x = 0; x < 3 * box.width; x++)
                    assert_true(abs(part.pixels[y * 3 * box.width + x] -
                                    whole.pixels[((box.top + y) * 403 + box.left) * 3 + x]) <= 4);
            view.min_side = 20; /* scaled as well: the part keeps its shape */
            GOOD(ls_image_decode(bytes, size, &view, 3, &part));
            assert_true(part.height >= 20 && part.width >= 20 && part.width <= box.width);
            assert_true(abs(part.pixels[0] - whole.pixels[(box.top * 403 + box.left) * 3]) < 16);
        }
        free(bytes);
    }
    ls_image_release(&in);
    ls_image_release(&whole);
    ls_image_release(&part);
}

static void broken_jpeg_is_refused(void **state)
{
    struct ls_image in = {0};
    unsigned long size;
    (void)state;
    for (int progressive = 0; progressive < 2; progressive++) {
        paint(&in, 3, 64, 64);
        unsigned char *bytes = encode_jpeg(&in, progressive, &size);
        for (unsigned long cut = 3; cut < size - 2; cut += 61)
            not_decoded(bytes, cut, "JPEG");
        not_decoded(bytes, size - 2, "JPEG"); /* only the end marker is missing */
        memset(bytes + size / 2, 0xff, 40);
        not_decoded(bytes, size, "JPEG");
        free(bytes);
    }
    not_decoded((const uint8_t *)"\xff\xd8\xff", 3, "JPEG");
    ls_image_release(&in);
}

static void jpeg_bombs_are_refused(void **state)
{
    struct ls_image in = {0};
    unsigned long size;
    (void)state;
    paint(&in, 3, 16, 16);
    unsigned char *bytes = encode_jpeg(&in, false, &size);
    for (unsigned long i = 0; i + 9 < size; i++)
        if (bytes[i] == 0xff && bytes[i + 1] == 0xc0) {
            memcpy(bytes + i + 5, "\xf0\x00\xf0\x00", 4); /* 61440 x 61440 */
            break;
        }
    not_decoded(bytes, size, "more than the 178956970");
    free(bytes);
    ls_image_release(&in);
}

static void png_of_every_kind(void **state)
{
    struct ls_image in = {0}, out = {0};
    uint8_t rows[16 * 8 * 8];
    (void)state;
    for (int channels = 1; channels <= 3; channels += 2) {
        paint(&in, channels, 21, 13);
        put_png_image(at("plain.png"), &in);
        GOOD(ls_image_read_file(at("plain.png"), 0, channels, &out));
        assert_int_equal(difference(&in, &out), 0);
        put_png(at("inter.png"), 13, 21, 8, channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                PNG_INTERLACE_ADAM7, in.pixels, 13 * (size_t)channels);
        GOOD(ls_image_read_file(at("inter.png"), 0, channels, &out));
        assert_int_equal(difference(&in, &out), 0);
    }
    /* alpha: dropped */
    for (int i = 0; i < 64; i++)
        memcpy(rows + 4 * i, (uint8_t[]){10, 20, 30, 0}, 4);
    put_png(at("alpha.png"), 8, 8, 8, PNG_COLOR_TYPE_RGB_ALPHA, PNG_INTERLACE_NONE, rows, 32);
    GOOD(ls_image_read_file(at("alpha.png"), 0, 3, &out));
    assert_memory_equal(out.pixels + 63 * 3, ((uint8_t[]){10, 20, 30}), 3);
    /* 16 bits: rounded to 8 */
    for (int i = 0; i < 64; i++)
        memcpy(rows + 2 * i, (uint8_t[]){0x00, 0x81}, 2);
    put_png(at("deep.png"), 8, 8, 16, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE, rows, 16);
    GOOD(ls_image_read_file(at("deep.png"), 0, 3, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){1, 1, 1}), 3);
    /* a palette with transparency, two bits a pixel */
    memset(rows, 0x1b, sizeof rows);
    put_png(at("palette.png"), 8, 8, 2, PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE, rows, 2);
    GOOD(ls_image_read_file(at("palette.png"), 0, 3, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){10, 20, 30, 200, 100, 50, 0, 0, 255, 255, 255, 255}), 12);
    /* one bit */
    memset(rows, 0xa0, sizeof rows);
    put_png(at("bits.png"), 8, 8, 1, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE, rows, 1);
    GOOD(ls_image_read_file(at("bits.png"), 0, 1, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){255, 0, 255, 0}), 4);
    ls_image_release(&in);
    ls_image_release(&out);
}

static void broken_png_is_refused(void **state)
{
    struct ls_image in = {0};
    char *bytes;
    size_t size;
    (void)state;
    paint(&in, 3, 40, 40);
    put_png_image(at("a.png"), &in);
    GOOD(ls_file_read(at("a.png"), 1 << 20, &bytes, &size));
    for (size_t cut = 8; cut < size; cut += 37)
        not_decoded((uint8_t *)bytes, cut, "PNG");
    bytes[size / 2] = (char)~bytes[size / 2];
    not_decoded((uint8_t *)bytes, size, "PNG");
    bytes[size / 2] = (char)~bytes[size / 2];
    memcpy(bytes + 16, "\x7f\xff\xff\xff\x7f\xff\xff\xff", 8);
    not_decoded((uint8_t *)bytes, size, "PNG");
    ls_free(bytes);
    ls_image_release(&in);
}

static void ppm_and_pgm(void **state)
{
    struct ls_image out = {0};
    static const uint8_t p6[] = "P6 # a comment\n2 1\n255\n\x01\x02\x03\x04\x05\x06";
    static const uint8_t p5[] = "P5\n2 1 1023\n\x03\xff\x01\xff";
    (void)state;
    GOOD(ls_image_decode(p6, sizeof p6 - 1, NULL, 3, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){1, 2, 3, 4, 5, 6}), 6);
    GOOD(ls_image_decode(p5, sizeof p5 - 1, NULL, 1, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){255, 127}), 2);
    not_decoded(p6, sizeof p6 - 2, "truncated PPM: 5 bytes of pixels, expected 6");
    not_decoded((const uint8_t *)"P3 1 1 255 1 2 3", 16, "only binary PPM");
    not_decoded((const uint8_t *)"P6 0 5 255 ", 11, "5 pixels");
    not_decoded((const uint8_t *)"P6 99999 99999 255 ", 19, "more than");
    not_decoded((const uint8_t *)"P6 99999999999999999999 1 255 ", 30, "bad PPM header");
    not_decoded((const uint8_t *)"P6 1 1 0 abc", 12, "bad PPM header");
    not_decoded((const uint8_t *)"P6", 2, "bad PPM header");
    ls_image_release(&out);
}

static size_t make_bmp(uint8_t *b, int width, int height, int bits)
{
    size_t palette = bits == 8 ? 1024 : 0, row = ((size_t)width * (size_t)bits / 8 + 3) / 4 * 4;
    size_t size = 54 + palette + row * (size_t)abs(height);
    memset(b, 0, size);
    memcpy(b, "BM", 2);
    memcpy(b + 10, &(uint32_t){(uint32_t)(54 + palette)}, 4);
    memcpy(b + 14, &(uint32_t){40}, 4);
    memcpy(b + 18, &width, 4);
    memcpy(b + 22, &height, 4);
    memcpy(b + 28, &bits, 2);
    for (size_t i = 0; i < row * (size_t)abs(height); i++)
        b[54 + palette + i] = (uint8_t)i;
    if (bits == 8)
        for (int c = 0; c < 256; c++)
            memcpy(b + 54 + 4 * c, (uint8_t[]){(uint8_t)c, 1, 2, 0}, 4);
    return size;
}

static void bmp_of_the_common_kinds(void **state)
{
    struct ls_image out = {0};
    uint8_t b[2048];
    (void)state;
    size_t size = make_bmp(b, 2, 2, 24); /* rows of 6 bytes and 2 of padding, the lower first */
    GOOD(ls_image_decode(b, size, NULL, 3, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){10, 9, 8, 13, 12, 11, 2, 1, 0, 5, 4, 3}), 12);
    not_decoded(b, size - 1, "truncated BMP");
    size = make_bmp(b, 2, -2, 32);
    GOOD(ls_image_decode(b, size, NULL, 3, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12}), 12);
    size = make_bmp(b, 2, 1, 8);
    GOOD(ls_image_decode(b, size, NULL, 3, &out));
    assert_memory_equal(out.pixels, ((uint8_t[]){2, 1, 0, 2, 1, 1}), 6);
    not_decoded(b, 100, "palette");
    make_bmp(b, 2, 1, 16);
    not_decoded(b, 100, "only uncompressed");
    make_bmp(b, 0, 1, 24);
    not_decoded(b, 54, "pixels");
    make_bmp(b, 1, 1, 24);
    memcpy(b + 22, "\x00\x00\x00\x80", 4); /* the height whose negative is itself */
    not_decoded(b, 58, "more than");
    ls_image_release(&out);
}

static void other_files_are_named(void **state)
{
    struct ls_image image = {0};
    (void)state;
    not_decoded((const uint8_t *)"", 0, "empty");
    not_decoded((const uint8_t *)"II*\0", 4, "PPM and BMP): it begins with 49 49");
    BAD(ls_image_read_file(at("missing.jpg"), 0, 3, &image));
    SAID("missing.jpg: cannot be opened");
    BAD(ls_image_read_file(folder, 0, 3, &image));
    SAID("not a regular file");
    put_text(at("text.png"), "hello");
    BAD(ls_image_read_file(at("text.png"), 0, 3, &image));
    SAID("text.png: not an image that is read (JPEG, PNG");
    ls_image_release(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jpeg_comes_out_as_it_went_in),
        cmocka_unit_test(jpeg_of_inks_becomes_rgb),
        cmocka_unit_test(jpeg_is_decoded_no_larger_than_needed),
        cmocka_unit_test(jpeg_is_decoded_only_where_seen),
        cmocka_unit_test(broken_jpeg_is_refused),
        cmocka_unit_test(jpeg_bombs_are_refused),
        cmocka_unit_test(png_of_every_kind),
        cmocka_unit_test(broken_png_is_refused),
        cmocka_unit_test(ppm_and_pgm),
        cmocka_unit_test(bmp_of_the_common_kinds),
        cmocka_unit_test(other_files_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
