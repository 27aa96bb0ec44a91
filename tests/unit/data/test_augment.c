/* Scaling against Pillow, the augmentations against torchvision's definitions, and the order of samples.
 * Reference values were made by Pillow 13.0 and torchvision from the picture that paint() draws. */
#include "data_files.h"

#include <math.h>

static const struct ls_dataset_info cifar_like = {.count = 10,
                                                  .channels = 3,
                                                  .height = 32,
                                                  .width = 32,
                                                  .classes = 10,
                                                  .format = "cifar10",
                                                  .mean = {0.4914f, 0.4822f, 0.4465f},
                                                  .deviation = {0.2470f, 0.2435f, 0.2616f}};
static const struct ls_dataset_info folder_like = {.count = 10,
                                                   .channels = 3,
                                                   .classes = 10,
                                                   .format = "folder",
                                                   .mean = {0.485f, 0.456f, 0.406f},
                                                   .deviation = {0.229f, 0.224f, 0.225f}};
static const struct ls_dataset_info bytes_like = {/* planes come out as value / 255 */
                                                  .count = 10,
                                                  .channels = 3,
                                                  .classes = 10,
                                                  .format = "folder",
                                                  .deviation = {1, 1, 1}};
static const struct ls_dataset_info mnist_like = {.count = 10,
                                                  .channels = 1,
                                                  .height = 28,
                                                  .width = 28,
                                                  .classes = 10,
                                                  .format = "mnist",
                                                  .mean = {0.1307f},
                                                  .deviation = {0.3081f}};

static void resized(int channels, int h, int w, int to_h, int to_w, struct ls_image *out)
{
    struct ls_image image = {0};
    struct ls_box box = {0, 0, h, w}, all = {0, 0, to_h, to_w};
    paint(&image, channels, h, w);
    GOOD(ls_image_resize(&image, &box, to_h, to_w, &all, out));
    ls_image_release(&image);
}

static void resize_equals_pillow(void **state)
{
    static const uint8_t small[] = {61,  114, 161, 126, 148, 144, 124, 146, 170, 158, 134, 125,
                                    149, 141, 114, 134, 127, 121, 132, 125, 104, 126, 88,  134,
                                    102, 155, 140, 111, 133, 99,  121, 143, 120, 144, 140, 109};
    static const uint8_t grey[] = {0,   4,   19,  33,  37,  57,  62,  79,  96,  101,
                                   125, 131, 151, 172, 177, 182, 188, 212, 235, 241};
    static const struct {
        int h, w, to_h, to_w;
        uint64_t hash;
    } large[] = {{61, 47, 32, 24, 0x650f088b6b51b061},
                 {97, 130, 20, 90, 0x8bd42c957e29a124},
                 {16, 16, 50, 33, 0xbc28f061816f96b4},
                 {224, 300, 224, 224, 0x6baa2b5067ba5152},
                 {5, 300, 9, 7, 0x13f610127810d0f8}};
    struct ls_image out = {0};
    (void)state;
    resized(3, 5, 7, 3, 4, &out);
    assert_memory_equal(out.pixels, small, sizeof small);
    resized(1, 3, 2, 4, 5, &out);
    assert_memory_equal(out.pixels, grey, sizeof grey);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        resized(3, large[i].h, large[i].w, large[i].to_h, large[i].to_w, &out);
        assert_true(fnv(out.pixels, (size_t)(large[i].to_h * large[i].to_w * 3)) == large[i].hash);
    }
    ls_image_release(&out);
}

static void a_window_is_a_part_of_the_whole(void **state)
{
    struct ls_image image = {0}, whole = {0}, part = {0};
    struct ls_box box = {3, 5, 40, 50}, all = {0, 0, 23, 61}, window = {7, 11, 9, 30};
    (void)state;
    paint(&image, 3, 60, 70);
    GOOD(ls_image_resize(&image, &box, 23, 61, &all, &whole));
    GOOD(ls_image_resize(&image, &box, 23, 61, &window, &part));
    for (int y = 0; y < window.height; y++)
        assert_memory_equal(part.pixels + y * window.width * 3,
                            whole.pixels + ((y + window.top) * 61 + window.left) * 3, (size_t)window.width * 3);
    ls_image_release(&image);
    ls_image_release(&whole);
    ls_image_release(&part);
}

/* The hash of the pixels behind normalised planes made with bytes_like. */
static uint64_t planes_hash(const float *planes, int channels, int h, int w)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int p = 0; p < h * w; p++)
        for (int c = 0; c < channels; c++) {
            uint8_t v = (uint8_t)lrintf(planes[c * h * w + p] * 255);
            hash = (hash ^ v) * 0x100000001b3u;
        }
    return hash;
}

static void resize_and_center_equal_torchvision(void **state)
{
    static const struct {
        int h, w, resize, center;
        uint64_t hash;
    } cases[] = {{75, 100, 64, 56, 0xbab42ff67533fd11},
                 {101, 67, 64, 57, 0xb9e7676a7973bc43},
                 {333, 500, 256, 224, 0x459607d8fb978626}};
    struct ls_image image = {0}, scratch = {0};
    float *planes = malloc(sizeof *planes * 3 * 224 * 224);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        struct ls_augment a;
        snprintf(text, sizeof text, "resize:%d,center:%d", cases[i].resize, cases[i].center);
        GOOD(ls_augment_parse(text, false, &bytes_like, 3, 0, 0, &a));
        assert_int_equal(a.height, cases[i].center);
        paint(&image, 3, cases[i].h, cases[i].w);
        GOOD(ls_augment_apply(&a, &image, 0, 0, 0, &scratch, planes));
        assert_true(planes_hash(planes, 3, cases[i].center, cases[i].center) == cases[i].hash);
    }
    free(planes);
    ls_image_release(&image);
    ls_image_release(&scratch);
}

static void normalised_values_equal_torchvision(void **state)
{
    static const float expected[12] = {-0x1.0f177ap+1f, -0x1.7bfa4ep+0f, -0x1.1e7d84p-1f, 0x1.0cbc42p-2f,
                                       -0x1.1b9b9ap+0f, -0x1.d72042p-2f, 0x1.f0f0f8p-2f,  0x1.535c82p+0f,
                                       0x1.60aac8p-5f,  0x1.60386cp-1f,  0x1.a10d26p+0f,  0x1.3b9c52p+1f};
    struct ls_image image = {0}, scratch = {0};
    struct ls_augment a;
    float planes[12];
    (void)state;
    GOOD(ls_augment_parse("none", true, &folder_like, 3, 2, 2, &a));
    paint(&image, 3, 2, 2);
    GOOD(ls_augment_apply(&a, &image, 0, 0, 0, &scratch, planes));
    assert_memory_equal(planes, expected, sizeof expected);
    ls_image_release(&image);
    ls_image_release(&scratch);
}

/* Every output of crop and flip must be one of the (2 pad + 1)^2 x 2 shifts of the padded picture. */
static void crop_and_flip_are_shifts(void **state)
{
    enum { SIDE = 8, PAD = 2, N = 400 };
    struct ls_dataset_info info = bytes_like;
    struct ls_image image = {0}, scratch = {0};
    struct ls_augment a;
    float planes[3 * SIDE * SIDE];
    int seen[2 * PAD + 1][2 * PAD + 1][2] = {0};
    (void)state;
    info.height = info.width = SIDE;
    GOOD(ls_augment_parse("crop:2,flip", true, &info, 3, SIDE, SIDE, &a));
    paint(&image, 3, SIDE, SIDE);
    for (uint64_t s = 0; s < N; s++) {
        int matches = 0;
        GOOD(ls_augment_apply(&a, &image, 7, 1, s, &scratch, planes));
        for (int top = 0; top <= 2 * PAD; top++)
            for (int left = 0; left <= 2 * PAD; left++)
                for (int flip = 0; flip < 2; flip++) {
                    bool same = true;
                    for (int i = 0; i < 3 * SIDE * SIDE && same; i++) {
                        int c = i / (SIDE * SIDE), y = i / SIDE % SIDE + top - PAD;
                        int x = (flip ? SIDE - 1 - i % SIDE : i % SIDE) + left - PAD;
                        bool inside = y >= 0 && y < SIDE && x >= 0 && x < SIDE;
                        int v = inside ? image.pixels[(y * SIDE + x) * 3 + c] : 0;
                        same = lrintf(planes[i] * 255) == v;
                    }
                    matches += same;
                    seen[top][left][flip] += same;
                }
        assert_int_equal(matches, 1);
    }
    for (int k = 0; k < (2 * PAD + 1) * (2 * PAD + 1) * 2; k++)
        assert_true((&seen[0][0][0])[k] > 0);
    ls_image_release(&image);
    ls_image_release(&scratch);
}

static void random_boxes_keep_to_the_recipe(void **state)
{
    struct ls_augment a;
    double area = 0;
    int n = 4000;
    (void)state;
    GOOD(ls_augment_parse("rrc:224,flip", true, &folder_like, 3, 0, 0, &a));
    assert_int_equal(a.height, 224);
    for (int s = 0; s < n; s++) {
        struct ls_view view = ls_augment_view(&a, 1, 0, (uint64_t)s);
        struct ls_box b = ls_view_box(&view, 300, 400);
        assert_true(b.top >= 0 && b.left >= 0 && b.height > 0 && b.width > 0);
        assert_true(b.top + b.height <= 300 && b.left + b.width <= 400);
        double share = (double)b.height * b.width / (300.0 * 400), shape = (double)b.width / b.height;
        assert_true(share > 0.078 && share <= 1.0 && shape > 0.74 && shape < 1.35);
        area += share / n;
    }
    assert_true(area > 0.42 && area < 0.445); /* torchvision: 0.433 on this shape */
    /* No allowed shape fits into a strip: the largest centred one is taken. */
    struct ls_view view = ls_augment_view(&a, 1, 0, 0);
    struct ls_box strip = ls_view_box(&view, 10, 1000);
    assert_int_equal(strip.height, 10);
    assert_int_equal(strip.width, 13);
    assert_int_equal(strip.left, (1000 - 13) / 2);
}

static void choices_follow_seed_epoch_and_sample(void **state)
{
    struct ls_image image = {0}, scratch = {0};
    struct ls_augment a;
    float first[3 * 32 * 32], again[3 * 32 * 32];
    (void)state;
    GOOD(ls_augment_parse("rrc,flip", true, &cifar_like, 3, 32, 32, &a));
    paint(&image, 3, 60, 50);
    GOOD(ls_augment_apply(&a, &image, 1, 2, 3, &scratch, first));
    GOOD(ls_augment_apply(&a, &image, 1, 2, 3, &scratch, again));
    assert_memory_equal(first, again, sizeof first);
    uint64_t others[3][3] = {{2, 2, 3}, {1, 3, 3}, {1, 2, 4}};
    for (int i = 0; i < 3; i++) {
        GOOD(ls_augment_apply(&a, &image, others[i][0], others[i][1], others[i][2], &scratch, again));
        assert_memory_not_equal(first, again, sizeof first);
    }
    ls_image_release(&image);
    ls_image_release(&scratch);
}

static void other_sizes_and_channels_are_fitted(void **state)
{
    static const struct {
        int channels, h, w;
    } shapes[] = {{3, 1, 1}, {1, 28, 28}, {3, 500, 20}, {3, 20, 500}, {1, 33, 31}, {3, 64, 64}};
    static const char *const texts[] = {"none", "crop:4,flip", "rrc", "resize:40,center", "center", "resize:8,crop:0"};
    struct ls_image image = {0}, scratch = {0};
    float planes[3 * 32 * 24];
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
            for (int channels = 1; channels <= 3; channels += 2) {
                struct ls_augment a;
                GOOD(ls_augment_parse(texts[t], true, &bytes_like, channels, 32, 24, &a));
                GOOD(ls_image_reserve(&image, shapes[s].channels, shapes[s].h, shapes[s].w));
                memset(image.pixels, 100, (size_t)(shapes[s].channels * shapes[s].h * shapes[s].w));
                GOOD(ls_augment_apply(&a, &image, 3, 4, 5, &scratch, planes));
                for (int i = 0; i < channels * 32 * 24; i++) {
                    long v = lrintf(planes[i] * 255);
                    assert_true(v == 100 || (a.crop_pad > 0 && v == 0));
                }
            }
    ls_image_release(&image);
    ls_image_release(&scratch);
}

static void auto_suits_the_data(void **state)
{
    struct ls_augment a;
    (void)state;
    GOOD(ls_augment_parse("auto", true, &cifar_like, 0, 0, 0, &a));
    assert_true(a.flip && a.crop_pad == 4 && !a.random_resized && a.height == 32 && a.channels == 3);
    GOOD(ls_augment_parse("auto", false, &cifar_like, 0, 0, 0, &a));
    assert_true(!a.flip && a.crop_pad < 0 && !a.resize && !a.center);
    GOOD(ls_augment_parse("auto", true, &folder_like, 3, 0, 0, &a));
    assert_true(a.flip && a.random_resized && a.height == 224);
    GOOD(ls_augment_parse("auto", false, &folder_like, 3, 224, 224, &a));
    assert_true(!a.flip && !a.random_resized && a.resize == 256 && a.center);
    GOOD(ls_augment_parse("auto", true, &mnist_like, 0, 0, 0, &a));
    assert_true(!a.flip && a.crop_pad < 0 && a.height == 28 && a.channels == 1);
    /* An explicit list is calmed for evaluation. */
    GOOD(ls_augment_parse("rrc,flip", false, &folder_like, 3, 64, 64, &a));
    assert_true(!a.flip && !a.random_resized && a.center && a.resize == 73);
    GOOD(ls_augment_parse("crop:4,flip", false, &cifar_like, 3, 32, 32, &a));
    assert_true(!a.flip && a.crop_pad < 0);
}

static void mistakes_in_the_list_are_named(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {{"flop", "did you mean 'flip'"},
                 {"crop", "a number is expected"},
                 {"crop:x", "expected a number"},
                 {"crop:-1", "expected a number"},
                 {"crop:4x", "expected a number"},
                 {"crop:99999999999999999999", "expected a number"},
                 {"resize:0", "expected a number"},
                 {"crop:40", "padding by 40"},
                 {"flip,", "last comma"},
                 {"", "--augment"},
                 {",flip", "commas"},
                 {"rrc,crop:4", "only one"},
                 {"rrc,resize:40", "leave out resize"},
                 {"rrc:64", "--input 3x64x64"}};
    struct ls_augment a;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum ls_status st = ls_augment_parse(cases[i].text, true, &cifar_like, 3, 32, 32, &a);
        if (!*cases[i].text) { /* an empty list asks for nothing */
            assert_int_equal(st, LS_OK);
            continue;
        }
        assert_int_equal(st, LS_USAGE);
        SAID(cases[i].said);
    }
    assert_int_equal(ls_augment_parse("none", true, &cifar_like, 2, 32, 32, &a), LS_USAGE);
    SAID("1 or 3 channels");
}

static void every_order_is_a_permutation(void **state)
{
    static const int64_t counts[] = {1, 2, 3, 4, 5, 10, 16, 17, 100, 101, 1000, 60000, 65536, 65537};
    (void)state;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            struct ls_sampler s = {.count = counts[k], .seed = 42, .shuffle = true};
            char *seen = calloc((size_t)counts[k], 1);
            for (int64_t p = 0; p < counts[k]; p++) {
                int64_t i = ls_sampler_at(&s, epoch, p);
                assert_true(i >= 0 && i < counts[k] && !seen[i]);
                seen[i] = 1;
            }
            free(seen);
        }
}

static void orders_differ_and_are_even(void **state)
{
    enum { COUNT = 10, EPOCHS = 20000 };
    struct ls_sampler s = {.count = 50000, .seed = 1, .shuffle = true}, other = s, plain = s;
    int same_epoch = 0, same_seed = 0, neighbours = 0, at[COUNT][COUNT] = {0};
    (void)state;
    other.seed = 2;
    plain.shuffle = false;
    for (int64_t p = 0; p < s.count; p++) {
        int64_t i = ls_sampler_at(&s, 0, p);
        same_epoch += i == ls_sampler_at(&s, 1, p);
        same_seed += i == ls_sampler_at(&other, 0, p);
        neighbours += p > 0 && llabs(i - ls_sampler_at(&s, 0, p - 1)) == 1;
        assert_int_equal(ls_sampler_at(&plain, 5, p), p);
    }
    /* One of each is expected by chance, two neighbours. */
    assert_true(same_epoch < 10 && same_seed < 10 && neighbours < 12);
    s.count = COUNT;
    for (uint64_t e = 0; e < EPOCHS; e++)
        for (int64_t p = 0; p < COUNT; p++)
            at[p][ls_sampler_at(&s, e, p)]++;
    double chi = 0, expected = (double)EPOCHS / COUNT;
    for (int k = 0; k < COUNT * COUNT; k++)
        chi += ((&at[0][0])[k] - expected) * ((&at[0][0])[k] - expected) / expected;
    assert_true(chi < 130); /* 81 degrees of freedom: 99.95 % lie below */
}

/* --- the same values by bytes and choices --------------------------------------------------------------------- */

static const char *const lists[] = {"auto",
                                    "none",
                                    "crop:4,flip",
                                    "crop:0",
                                    "flip",
                                    "rrc,flip",
                                    "resize:40",
                                    "center",
                                    "center,flip",
                                    "resize:32,flip",
                                    "resize:20,crop:3,flip",
                                    "resize:29,crop:2"};

struct sizes {
    const struct ls_dataset_info *info;
    int height, width;              /* of the image */
    int64_t channels, out_h, out_w; /* of the output */
};
static const struct sizes all_sizes[] = {
    {&cifar_like, 32, 32, 3, 32, 32},  {&cifar_like, 32, 32, 3, 24, 28},  {&cifar_like, 32, 32, 1, 32, 32},
    {&mnist_like, 28, 28, 1, 28, 28},  {&mnist_like, 28, 28, 3, 28, 28},  {&mnist_like, 28, 28, 1, 32, 20},
    {&folder_like, 61, 47, 3, 32, 32}, {&folder_like, 20, 90, 3, 24, 31}, {&folder_like, 40, 33, 1, 32, 32},
};

static void bytes_and_crops_give_the_planes(void **state)
{
    enum { MOST = 3 * 32 * 32 };
    float planes[MOST], again[MOST];
    uint8_t pixels[MOST];
    struct ls_image image = {0}, scratch = {0};
    int cropped = 0, flipped = 0;
    (void)state;
    for (size_t k = 0; k < sizeof all_sizes / sizeof *all_sizes; k++)
        for (size_t l = 0; l < 2 * sizeof lists / sizeof *lists; l++) {
            const struct sizes *c = &all_sizes[k];
            struct ls_augment a;
            if (ls_augment_parse(lists[l / 2], l % 2, c->info, c->channels, c->out_h, c->out_w, &a) != LS_OK)
                continue;
            size_t bytes = sizeof(float) * (size_t)(c->channels * c->out_h * c->out_w);
            struct ls_pixels whole = ls_augment_source(&a, NULL), stored = ls_augment_source(&a, c->info);
            paint(&image, (int)c->info->channels, c->height, c->width);
            bool only_crops = ls_augment_only_crops(&a, c->info);
            for (uint64_t sample = 0; sample < 12; sample++) {
                struct ls_crop crop = {.image = 0};
                GOOD(ls_augment_apply(&a, &image, 7, 1, sample, &scratch, planes));
                GOOD(ls_augment_pixels(&a, &image, 7, 1, sample, &scratch, pixels, &crop));
                memset(again, 0xff, sizeof again);
                ls_crop_planes(&whole, pixels, &crop, 1, again);
                assert_memory_equal(planes, again, bytes);
                flipped += crop.flip;
                if (!only_crops)
                    continue;
                ls_augment_crop(&a, c->info, 7, 1, sample, &crop);
                assert_int_equal(crop.image, sample);
                crop.image = 0;
                memset(again, 0xff, sizeof again);
                ls_crop_planes(&stored, image.pixels, &crop, 1, again);
                assert_memory_equal(planes, again, bytes);
                cropped++;
            }
        }
    assert_true(cropped > 500 && flipped > 200);
    ls_image_release(&image);
    ls_image_release(&scratch);
}

/* What is scaled cannot be cropped, nor what has no one size. */
static void scaled_images_are_no_crops(void **state)
{
    struct ls_augment a;
    (void)state;
    GOOD(ls_augment_parse("auto", true, &cifar_like, 3, 32, 32, &a));
    assert_true(ls_augment_only_crops(&a, &cifar_like));
    GOOD(ls_augment_parse("none", true, &cifar_like, 3, 24, 24, &a));
    assert_false(ls_augment_only_crops(&a, &cifar_like));
    GOOD(ls_augment_parse("center", true, &cifar_like, 3, 24, 24, &a));
    assert_true(ls_augment_only_crops(&a, &cifar_like));
    GOOD(ls_augment_parse("crop:4", true, &cifar_like, 3, 48, 48, &a));
    assert_false(ls_augment_only_crops(&a, &cifar_like));
    GOOD(ls_augment_parse("rrc", true, &cifar_like, 3, 32, 32, &a));
    assert_false(ls_augment_only_crops(&a, &cifar_like));
    GOOD(ls_augment_parse("auto", false, &folder_like, 3, 32, 32, &a));
    assert_false(ls_augment_only_crops(&a, &folder_like));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resize_equals_pillow),
        cmocka_unit_test(a_window_is_a_part_of_the_whole),
        cmocka_unit_test(resize_and_center_equal_torchvision),
        cmocka_unit_test(normalised_values_equal_torchvision),
        cmocka_unit_test(crop_and_flip_are_shifts),
        cmocka_unit_test(random_boxes_keep_to_the_recipe),
        cmocka_unit_test(choices_follow_seed_epoch_and_sample),
        cmocka_unit_test(other_sizes_and_channels_are_fitted),
        cmocka_unit_test(auto_suits_the_data),
        cmocka_unit_test(mistakes_in_the_list_are_named),
        cmocka_unit_test(every_order_is_a_permutation),
        cmocka_unit_test(orders_differ_and_are_even),
        cmocka_unit_test(bytes_and_crops_give_the_planes),
        cmocka_unit_test(scaled_images_are_no_crops),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
