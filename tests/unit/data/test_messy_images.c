/* Pictures as cameras and other programs write them: the orientation of Exif, and every kind of colour, against Pillow. */
#define _GNU_SOURCE /* memmem */
#include "data_files.h"

#include <dirent.h>

/* --- orientation -------------------------------------------------------------------------------------- */

/* Exif data with one entry: the orientation. */
static size_t exif(uint8_t *b, int orientation, bool little)
{
    static const uint8_t big[] = "MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\0\0\0\0\0\0";
    static const uint8_t small[] = "II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0\0\0\0\0\0\0\0";
    memcpy(b, little ? small : big, 26);
    b[little ? 18 : 19] = (uint8_t)orientation;
    return 26;
}

/* Returns a copy of a JPEG with an APP1 segment behind its first marker. Freed by free. */
static uint8_t *with_segment(const uint8_t *jpeg, size_t size, const uint8_t *segment, size_t n, size_t *total)
{
    *total = size + n + 4;
    uint8_t *copy = malloc(*total);
    assert_non_null(copy);
    memcpy(copy, jpeg, 2);
    memcpy(copy + 2, (uint8_t[]){0xff, 0xe1, (uint8_t)((n + 2) >> 8), (uint8_t)(n + 2)}, 4);
    memcpy(copy + 6, segment, n);
    memcpy(copy + 6 + n, jpeg + 2, size - 2);
    return copy;
}

static uint8_t *turned_jpeg(const uint8_t *jpeg, size_t size, int orientation, bool little, size_t *total)
{
    uint8_t segment[64] = "Exif\0";
    return with_segment(jpeg, size, segment, 6 + exif(segment + 6, orientation, little), total);
}

/* The pixel of the stored image that stands at (y, x) of the upright one, as the Exif standard defines the eight values. */
static const uint8_t *stored_pixel(const struct ls_image *stored, int orientation, int y, int x)
{
    int last_row = stored->height - 1, last_column = stored->width - 1;
    int at_y[] = {0, y, y, last_row - y, last_row - y, x, last_row - x, last_row - x, x};
    int at_x[] = {0, x, last_column - x, last_column - x, x, y, y, last_column - y, last_column - y};
    return stored->pixels + 3 * (at_y[orientation] * stored->width + at_x[orientation]);
}

static void photographs_are_turned_upright(void **state)
{
    struct ls_image in = {0}, stored = {0}, out = {0};
    unsigned long size;
    (void)state;
    shade(&in, 3, 37, 50);
    unsigned char *bytes = encode_jpeg(&in, false, &size);
    GOOD(ls_image_decode(bytes, size, NULL, 3, &stored));
    for (int o = 1; o <= 8; o++)
        for (int little = 0; little < 2; little++) {
            size_t total;
            uint8_t *turned = turned_jpeg(bytes, size, o, little, &total);
            GOOD(ls_image_decode(turned, total, NULL, 3, &out));
            assert_int_equal(out.height, o >= 5 ? 50 : 37);
            assert_int_equal(out.width, o >= 5 ? 37 : 50);
            for (int y = 0; y < out.height; y++)
                for (int x = 0; x < out.width; x++)
                    assert_memory_equal(out.pixels + 3 * (y * out.width + x), stored_pixel(&stored, o, y, x), 3);
            put(at("turned.jpg"), turned, total); /* the bytes of a file are in the buffer that is reused */
            GOOD(ls_image_read_file(at("turned.jpg"), 0, 1, &out));
            assert_int_equal(out.width, o >= 5 ? 37 : 50);
            free(turned);
        }
    free(bytes);
    ls_image_release(&in);
    ls_image_release(&stored);
    ls_image_release(&out);
}

/* A view of a part, also at a reduced size, shows the same as the same part of the upright whole. */
static void parts_are_those_of_the_upright_image(void **state)
{
    struct ls_dataset_info info = {.channels = 3, .format = "folder", .deviation = {1, 1, 1}};
    struct ls_image in = {0}, whole = {0}, part = {0};
    struct ls_augment a;
    unsigned long size;
    (void)state;
    GOOD(ls_augment_parse("rrc", true, &info, 3, 300, 300, &a));
    shade(&in, 3, 203, 306);
    unsigned char *bytes = encode_jpeg(&in, false, &size);
    for (int o = 1; o <= 8; o++) {
        size_t total;
        uint8_t *turned = turned_jpeg(bytes, size, o, true, &total);
        GOOD(ls_image_decode(turned, total, NULL, 3, &whole));
        for (uint64_t s = 0; s < 20; s++) {
            struct ls_view view = ls_augment_view(&a, 5, 0, s);
            struct ls_box box = ls_view_box(&view, whole.height, whole.width);
            GOOD(ls_image_decode(turned, total, &view, 3, &part));
            assert_true(part.cropped && part.height == box.height && part.width == box.width);
            for (int y = 0; y < box.height; y++)
                for (int x = 0; x < 3 * box.width; x++)
                    assert_true(abs(part.pixels[y * 3 * box.width + x] -
                                    whole.pixels[((box.top + y) * whole.width + box.left) * 3 + x]) <= 4);
            view.min_side = 20;
            GOOD(ls_image_decode(turned, total, &view, 3, &part));
            assert_true(part.height >= 20 && part.width >= 20 && part.width <= box.width);
            const uint8_t *corner = whole.pixels + 3 * (box.top * whole.width + box.left);
            const uint8_t *last = corner + 3 * ((box.height - 1) * whole.width + box.width - 1);
            const uint8_t *end = part.pixels + 3 * (part.height * part.width - 1);
            for (int c = 0; c < 3; c++)
                assert_true(abs(part.pixels[c] - corner[c]) < 16 && abs(end[c] - last[c]) < 16);
        }
        free(turned);
    }
    free(bytes);
    ls_image_release(&in);
    ls_image_release(&whole);
    ls_image_release(&part);
}

/* Damaged Exif data leaves the image as it is stored. */
static void damaged_exif_is_ignored(void **state)
{
    struct ls_image in = {0}, out = {0};
    uint8_t segment[64] = "Exif\0";
    unsigned long size;
    size_t total, n = 6 + exif(segment + 6, 6, false);
    (void)state;
    shade(&in, 3, 20, 30);
    unsigned char *bytes = encode_jpeg(&in, false, &size);
    struct {
        size_t at;
        uint8_t value;
    } damage[] = {{6, 'X'}, {10, 0xff}, {13, 0x7f}, {15, 0}, {17, 0}, {19, 2}, {23, 2}, {25, 9}, {25, 0}, {0, 'e'}};
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        uint8_t broken[64];
        memcpy(broken, segment, sizeof broken);
        broken[damage[i].at] = damage[i].value;
        uint8_t *file = with_segment(bytes, size, broken, n, &total);
        GOOD(ls_image_decode(file, total, NULL, 3, &out));
        assert_int_equal(out.width, 30);
        free(file);
    }
    for (size_t cut = 0; cut < n; cut++) { /* a sanitizer sees a read beyond it */
        uint8_t *file = with_segment(bytes, size, segment, cut, &total);
        GOOD(ls_image_decode(file, total, NULL, 3, &out));
        assert_int_equal(out.width, cut >= n - 4 ? 20 : 30); /* only the offset of a second directory is missing */
        free(file);
    }
    for (size_t cut = 0; cut < n + 8; cut++) {
        uint8_t *file = with_segment(bytes, size, segment, n, &total), *start = malloc(cut + 1);
        memcpy(start, file, cut);
        assert_int_equal(ls_exif_orientation(start, cut), cut >= n + 6 ? 6 : 1);
        free(start);
        free(file);
    }
    free(bytes);
    ls_image_release(&in);
    ls_image_release(&out);
}

/* --- inks --------------------------------------------------------------------------------------------- */

/* Without Adobe's marker (APP14) 255 is full ink. */
static void inks_without_adobes_marker_are_not_inverted(void **state)
{
    struct ls_image in = {0}, out = {0};
    unsigned long size;
    (void)state;
    GOOD(ls_image_reserve(&in, 4, 16, 16));
    for (int i = 0; i < 16 * 16; i++)
        memcpy(in.pixels + 4 * i, (uint8_t[]){255, 128, 0, 204}, 4);
    unsigned char *bytes = encode_jpeg(&in, false, &size), *marker = memmem(bytes, size, "\xff\xee", 2);
    assert_non_null(marker);
    size_t length = 2 + (size_t)(marker[2] << 8 | marker[3]);
    memmove(marker, marker + length, size - (size_t)(marker - bytes) - length);
    GOOD(ls_image_decode(bytes, size - length, NULL, 3, &out));
    assert_true(out.pixels[0] < 5 && abs(out.pixels[1] - 25) < 5 && abs(out.pixels[2] - 51) < 5);
    free(bytes);
    ls_image_release(&in);
    ls_image_release(&out);
}

/* --- WebP and GIF ------------------------------------------------------------------------------------- */

/* Reads a file of the fuzz corpus without its first byte, which is not the image's. Freed by free. */
static uint8_t *corpus(const char *name, size_t *size)
{
    char path[256];
    snprintf(path, sizeof path, "tests/fuzz/corpus/image/%s", name);
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = malloc(1 << 16);
    assert_non_null(f);
    fgetc(f);
    *size = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

/* A build without the library names the package; one with it refuses a file that is cut off anywhere. */
static void webp_and_gif_are_read_or_refused(void **state)
{
    static const char *const names[] = {"lossless.webp", "frame.gif"}, *const lacks[] = {"libwebp-dev", "libgif-dev"};
    struct ls_image out = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t size;
        uint8_t *bytes = corpus(names[i], &size);
        if (*ls_image_needs(strchr(names[i], '.') + 1)) {
            BAD(ls_image_decode(bytes, size, NULL, 3, &out));
            assert_non_null(strstr(out.why, lacks[i]));
            free(bytes);
            continue;
        }
        GOOD(ls_image_decode(bytes, size, NULL, 3, &out));
        assert_true(out.width == 20 && out.height == 12);
        for (size_t cut = 12; cut < size * 3 / 4; cut++) {
            uint8_t *part = malloc(cut);
            memcpy(part, bytes, cut);
            BAD(ls_image_decode(part, cut, NULL, 3, &out));
            assert_non_null(strstr(out.why, "corrupt or truncated"));
            free(part);
        }
        free(bytes);
    }
    ls_image_release(&out);
}

static void gif_of_absurd_size_is_refused(void **state)
{
    static const uint8_t gif[] = "GIF89a\377\377\377\377\200\0\0\377\0\0\0\0\377,\0\0\0\0\2\0\1\0\0\2\2\104\12\0;";
    struct ls_image out = {0};
    (void)state;
    BAD(ls_image_decode(gif, sizeof gif - 1, NULL, 3, &out));
    assert_non_null(strstr(out.why, *ls_image_needs("gif") ? "libgif-dev" : "65535 x 65535 pixels are more than"));
    ls_image_release(&out);
}

/* --- against Pillow ----------------------------------------------------------------------------------- */

static int largest_difference(const struct ls_image *a, const struct ls_image *b, const char *name)
{
    int largest = 0;
    if (a->height != b->height || a->width != b->width)
        fail_msg("%s: %d x %d, Pillow has %d x %d", name, a->width, a->height, b->width, b->height);
    for (int i = 0; i < a->height * a->width * 3; i++)
        if (abs(a->pixels[i] - b->pixels[i]) > largest)
            largest = abs(a->pixels[i] - b->pixels[i]);
    return largest;
}

/* messy_images.py writes NAME.TYPE and NAME.TYPE.ppm: the picture, and what exif_transpose and convert("RGB") of Pillow make
 * of it. */
static void pictures_are_those_of_pillow(void **state)
{
    struct ls_image ours = {0}, theirs = {0};
    char command[1024];
    int compared = 0;
    (void)state;
    const char *python = getenv("PYTHON");
    snprintf(command, sizeof command, "'%s' tests/unit/data/messy_images.py '%s' >/dev/null 2>&1",
             python ? python : "false", at("pillow"));
    GOOD(ls_dir_make(at("pillow")));
    if (!python || system(command) != 0) {
        print_message("no Python with Pillow\n");
        skip();
    }
    DIR *dir = opendir(at("pillow"));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.' || strstr(e->d_name, ".ppm") || ls_image_by_name(e->d_name) == LS_IMAGE_UNREAD)
            continue;
        GOOD(ls_image_read_file(at("pillow/%s", e->d_name), 0, 3, &ours));
        GOOD(ls_image_read_file(at("pillow/%s.ppm", e->d_name), 0, 3, &theirs));
        int off = largest_difference(&ours, &theirs, e->d_name);
        if (off > 1)
            fail_msg("%s differs from Pillow's by up to %d", e->d_name, off);
        compared++;
    }
    closedir(dir);
    assert_true(compared >= 40);
    ls_image_release(&ours);
    ls_image_release(&theirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(photographs_are_turned_upright),
        cmocka_unit_test(parts_are_those_of_the_upright_image),
        cmocka_unit_test(damaged_exif_is_ignored),
        cmocka_unit_test(inks_without_adobes_marker_are_not_inverted),
        cmocka_unit_test(webp_and_gif_are_read_or_refused),
        cmocka_unit_test(gif_of_absurd_size_is_refused),
        cmocka_unit_test(pictures_are_those_of_pillow),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
