/* Other decoders than libjpeg-turbo: which files they get, what of an image, and what is done about those they leave. With
 * LOCKSTEP_TEST_BACKEND=cuda also nvJPEG itself, on a card, held against libjpeg-turbo. */
#include "data_files.h"

#include "base/system/clock.h"
#include "base/decoder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* --- a decoder without a device ------------------------------------------------------------------------- */

struct fake {
    struct ls_decoder base;
    struct ls_image whole;
    bool used;
    pthread_t user;
};

static atomic_int opens, closed, called, strangers; /* of all threads */
static bool refuses, fails, cannot_open;

static void count_from_zero(void)
{
    opens = closed = called = strangers = 0;
    refuses = fails = cannot_open = false;
}

static enum ls_status fake_check(void)
{
    return LS_OK;
}

static enum ls_status fake_open(struct ls_decoder **decoder)
{
    if (cannot_open)
        return LS_FAILED;
    struct fake *f = ls_alloc(1, sizeof *f);
    atomic_fetch_add(&opens, 1);
    *decoder = &f->base;
    return LS_OK;
}

static void fake_close(struct ls_decoder *decoder)
{
    struct fake *f = (struct fake *)decoder;
    atomic_fetch_add(&closed, 1);
    ls_image_release(&f->whole);
    ls_free(f);
}

/* As base/decoder.h has it: the whole image, squares of it as their means, the part of that. */
static enum ls_decoded fake_decode(struct ls_decoder *decoder, const struct ls_decoder_job *job, uint8_t *pixels)
{
    struct fake *f = (struct fake *)decoder;
    atomic_fetch_add(&called, 1);
    if (f->used && !pthread_equal(f->user, pthread_self()))
        atomic_fetch_add(&strangers, 1);
    f->used = true;
    f->user = pthread_self();
    f->base.why = "out of memory";
    if (fails)
        return LS_DECODER_FAILED;
    if (refuses || ls_image_decode(job->bytes, job->size, NULL, job->channels, &f->whole) != LS_OK ||
        f->whole.height != job->height || f->whole.width != job->width)
        return LS_DECODER_UNSUPPORTED;
    for (int y = job->top; y < job->top + job->rows; y++)
        for (int x = job->left; x < job->left + job->columns; x++)
            for (int c = 0; c < job->channels; c++) {
                int sum = 0, n = 0;
                for (int v = y * job->shrink; v < (y + 1) * job->shrink && v < job->height; v++)
                    for (int u = x * job->shrink; u < (x + 1) * job->shrink && u < job->width; u++, n++)
                        sum += f->whole.pixels[(v * job->width + u) * job->channels + c];
                assert_true(n > 0); /* parts lie inside */
                *pixels++ = (uint8_t)((sum + n / 2) / n);
            }
    return LS_DECODED;
}

static const struct ls_decoder_ops fake_ops = {
    .check = fake_check, .open = fake_open, .close = fake_close, .decode = fake_decode};

/* --- files ------------------------------------------------------------------------------------------------ */

/* Waves that JPEG keeps well, another picture for each number. */
static void wave(struct ls_image *image, int channels, int height, int width, int number)
{
    GOOD(ls_image_reserve(image, channels, height, width));
    uint8_t *p = image->pixels;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) {
                int t = (x * (c + 1) + y * (3 - c) + 40 * number) % 256;
                *p++ = (uint8_t)(t < 128 ? 2 * t : 511 - 2 * t);
            }
}

/* The kinds of files that there are, as data set `name`: of each sample, whether another decoder may have it. */
enum { BASELINE, GREY, ODD, LARGE, PROGRESSIVE, CMYK, TRAILING, KINDS };
static const bool suits[KINDS] = {true, true, true, true, false, false, false};

static struct ls_dataset *open_kinds(const char *name)
{
    static const int sizes[KINDS][3] = {{3, 90, 120}, {1, 64, 64}, {3, 37, 53}, {3, 400, 560},
                                        {3, 90, 120}, {4, 50, 50}, {3, 60, 61}};
    struct ls_image image = {0};
    struct ls_dataset *set;
    for (int k = 0; k < KINDS; k++) {
        unsigned long size;
        wave(&image, sizes[k][0], sizes[k][1], sizes[k][2], k);
        unsigned char *bytes = encode_jpeg(&image, k == PROGRESSIVE, &size);
        unsigned char *file = malloc(size + 1);
        memcpy(file, bytes, size);
        file[size] = 0;
        put(at("%s/train/a/%d.jpg", name, k), file, size + (k == TRAILING));
        put(at("%s/test/a/%d.jpg", name, k), file, size);
        free(file);
        free(bytes);
    }
    ls_image_release(&image);
    GOOD(ls_dataset_open(at("%s", name), "train", &set));
    assert_int_equal(ls_dataset_info(set)->count, KINDS);
    return set;
}

static double mean_difference(const struct ls_image *a, const struct ls_image *b)
{
    int64_t sum = 0, count = (int64_t)a->channels * a->height * a->width;
    assert_int_equal(a->channels, b->channels);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->cropped, b->cropped);
    for (int64_t i = 0; i < count; i++)
        sum += abs(a->pixels[i] - b->pixels[i]);
    return (double)sum / (double)count;
}

/* Every file by both, in many views: the same parts, and bytes that differ little. The worst mean difference comes back. */
static double compare(struct ls_dataset *by_cpu, struct ls_dataset *by_other)
{
    struct ls_augment a;
    struct ls_image one = {0}, other = {0};
    int32_t label;
    double worst = 0;
    GOOD(ls_augment_parse("rrc", true, ls_dataset_info(by_cpu), 3, 32, 32, &a));
    for (int64_t i = 0; i < KINDS; i++)
        for (uint64_t s = 0; s < 40; s++) {
            struct ls_view seen = ls_augment_view(&a, 7, s / 4, (uint64_t)i), whole = {.min_side = s % 4 == 1 ? 16 : 0};
            const struct ls_view *view = s < 4 ? NULL : s % 2 ? &whole : &seen;
            GOOD(ls_dataset_try(by_cpu, i, view, &one, &label));
            GOOD(ls_dataset_try(by_other, i, view, &other, &label));
            double difference = mean_difference(&one, &other);
            worst = difference > worst ? difference : worst;
            if (!suits[i])
                assert_true(difference == 0);
        }
    ls_image_release(&one);
    ls_image_release(&other);
    return worst;
}

/* --- the cases -------------------------------------------------------------------------------------------- */

static void parts_are_those_of_the_cpu(void **state)
{
    struct ls_dataset *cpu = open_kinds("parts"), *other = open_kinds("parts");
    (void)state;
    count_from_zero();
    other->decoding.ops = &fake_ops;
    assert_true(compare(cpu, other) < 1); /* libjpeg smooths a little differently when it shrinks */
    assert_int_equal(other->decoding.done, 40 * 4);
    assert_int_equal(other->decoding.left, 40 * 3);
    assert_int_equal(called, 40 * 4);
    assert_int_equal(opens, 1);
    assert_int_equal(closed, 1);
    ls_dataset_close(cpu);
    ls_dataset_close(other);
}

static void what_is_refused_is_decoded_by_the_cpu(void **state)
{
    struct ls_dataset *cpu = open_kinds("refused"), *other = open_kinds("refused");
    (void)state;
    count_from_zero();
    refuses = true;
    other->decoding.ops = &fake_ops;
    assert_true(compare(cpu, other) == 0);
    assert_int_equal(called, 40 * 4);
    assert_int_equal(other->decoding.done, 0);
    assert_int_equal(other->decoding.left, 40 * KINDS);
    ls_dataset_close(cpu);
    ls_fail(LS_OK, "marker");
    ls_dataset_close(other);
    SAID("280 of 280 JPEGs were decoded by the CPU");
}

static void a_few_that_are_left_are_no_warning(void **state)
{
    struct ls_decoding by = {.ops = &fake_ops, .done = 90, .left = 10};
    (void)state;
    ls_fail(LS_OK, "marker");
    ls_decoding_report(&by);
    by.left = 0;
    ls_decoding_report(&by);
    assert_string_equal(ls_log_last(), "marker");
}

static void broken_files_are_named_as_ever(void **state)
{
    struct ls_dataset *sets[2];
    struct ls_image image = {0};
    unsigned long size;
    char why[2][sizeof image.why];
    int32_t label;
    (void)state;
    count_from_zero();
    refuses = true; /* as a strict decoder does where something is wrong */
    wave(&image, 3, 100, 100, 0);
    unsigned char *bytes = encode_jpeg(&image, false, &size);
    put(at("bad/train/a/0.jpg"), bytes, size / 2); /* cut off */
    bytes[size / 2] = 0xff;
    bytes[size / 2 + 1] = 0xd9;
    put(at("bad/train/a/1.jpg"), bytes, size / 2 + 2); /* too short, with an end */
    put(at("bad/train/a/2.jpg"), bytes, 20);           /* no header */
    put(at("bad/test/a/0.jpg"), bytes, 20);
    free(bytes);
    for (int s = 0; s < 2; s++)
        GOOD(ls_dataset_open(at("bad"), "train", &sets[s]));
    sets[1]->decoding.ops = &fake_ops;
    for (int i = 0; i < 3; i++) {
        for (int s = 0; s < 2; s++) {
            BAD(ls_dataset_try(sets[s], i, NULL, &image, &label));
            memcpy(why[s], image.why, sizeof image.why);
        }
        assert_string_equal(why[0], why[1]);
    }
    assert_int_equal(called, 1); /* the one with an end */
    ls_image_release(&image);
    for (int s = 0; s < 2; s++)
        ls_dataset_close(sets[s]);
}

static void a_decoder_that_cannot_be_opened_ends_it(void **state)
{
    struct ls_dataset *set = open_kinds("closed");
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    count_from_zero();
    cannot_open = true;
    set->decoding.ops = &fake_ops;
    assert_int_equal(ls_dataset_try(set, 0, NULL, &image, &label), LS_FAILED);
    assert_non_null(strstr(image.why, "no decoder can be opened on the GPU"));
    ls_image_release(&image);
    ls_dataset_close(set);
}

/* Else a run's bits would depend on how full the card is. */
static void what_fails_is_not_decoded_by_the_cpu(void **state)
{
    struct ls_dataset *set = open_kinds("fails");
    struct ls_image image = {0};
    int32_t label;
    (void)state;
    count_from_zero();
    fails = true;
    set->decoding.ops = &fake_ops;
    for (int k = 0; k < KINDS; k++) {
        assert_int_equal(ls_dataset_try(set, k, NULL, &image, &label), suits[k] ? LS_FAILED : LS_OK);
        if (suits[k])
            assert_string_equal(image.why, "it cannot be decoded on the GPU: out of memory");
    }
    assert_int_equal(called, 4);
    assert_int_equal(set->decoding.done, 0);
    assert_int_equal(set->decoding.left, KINDS - 4);
    fails = false; /* and the next may be fine again */
    GOOD(ls_dataset_try(set, 0, NULL, &image, &label));
    assert_int_equal(set->decoding.done, 1);
    ls_image_release(&image);
    assert_int_equal(closed, 1);
    ls_dataset_close(set);
}

/* All slots of some epochs, as one number. */
static uint64_t through_a_loader(struct ls_dataset *set, int threads)
{
    struct ls_loader_options o = {.set = set,
                                  .form = LS_FORM_PIXELS,
                                  .seed = 3,
                                  .shuffle = true,
                                  .threads = threads,
                                  .ring = 4,
                                  .batch = 3,
                                  .parts = 1,
                                  .epochs = 6};
    struct ls_loader *loader;
    const struct ls_slot *slot;
    uint64_t sum = 0;
    GOOD(ls_augment_parse("rrc,flip", true, ls_dataset_info(set), 3, 32, 32, &o.augment));
    GOOD(ls_loader_new(&o, &loader));
    for (GOOD(ls_loader_next(loader, &slot)); slot; GOOD(ls_loader_next(loader, &slot)))
        sum = sum * 31 + fnv(slot->pixels, (size_t)slot->valid * 3 * 32 * 32);
    ls_loader_free(loader);
    return sum;
}

static void threads_have_decoders_of_their_own(void **state)
{
    struct ls_dataset *set = open_kinds("threads");
    uint64_t first = 0;
    (void)state;
    count_from_zero();
    set->decoding.ops = &fake_ops;
    for (int threads = 1; threads <= 4; threads++) {
        uint64_t sum = through_a_loader(set, threads);
        first = threads == 1 ? sum : first;
        assert_true(sum == first);
        assert_int_equal(opens, closed);
    }
    assert_true(opens >= 4 && opens <= 1 + 2 + 3 + 4);
    assert_int_equal(strangers, 0);
    ls_dataset_close(set);
}

static void the_cpu_is_the_default(void **state)
{
    struct ls_dataset *set = open_kinds("default");
    (void)state;
    assert_null(set->decoding.ops);
    GOOD(ls_dataset_decode_by(set, "cpu"));
    assert_null(set->decoding.ops);
    setenv("LOCKSTEP_MODULES", folder, 1);
    put_text(at("lockstep-cuda.so"), "no library");
    assert_int_equal(ls_dataset_decode_by(set, "gpu"), LS_FAILED);
    SAID("lockstep-cuda.so: cannot be loaded");
    assert_null(set->decoding.ops);
    unsetenv("LOCKSTEP_MODULES");
    ls_dataset_close(set);
}

/* --- on a card -------------------------------------------------------------------------------------------- */

/* Photographs as ImageNet has them, cut to 224 x 224 by as many threads as there are cores. */
static double images_per_second(const char *name)
{
    enum { PHOTOS = 64, EPOCHS = 16 };
    struct ls_loader_options o = {.form = LS_FORM_PIXELS,
                                  .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                                  .ring = 8,
                                  .batch = PHOTOS,
                                  .parts = 1,
                                  .epochs = EPOCHS};
    struct ls_image image = {0};
    struct ls_loader *loader;
    const struct ls_slot *slot;
    double start = 0;
    for (int i = 0; i < PHOTOS; i++) {
        paint(&image, 3, 375, 500); /* much detail: about 200 KB */
        image.pixels[0] = (uint8_t)i;
        put_jpeg(at("photos/train/a/%d.jpg", i), &image);
    }
    put_jpeg(at("photos/test/a/0.jpg"), &image);
    ls_image_release(&image);
    GOOD(ls_dataset_open(at("photos"), "train", &o.set));
    GOOD(ls_dataset_decode_by(o.set, name));
    GOOD(ls_augment_parse("rrc,flip", true, ls_dataset_info(o.set), 3, 224, 224, &o.augment));
    GOOD(ls_loader_new(&o, &loader));
    for (GOOD(ls_loader_next(loader, &slot)); slot; GOOD(ls_loader_next(loader, &slot)))
        start = slot->epoch == EPOCHS / 2 - 1 ? ls_now() : start;
    double seconds = ls_now() - start;
    ls_loader_free(loader);
    ls_dataset_close(o.set);
    return PHOTOS * EPOCHS / 2 / seconds;
}

static void as_the_cpu_does(const char *name)
{
    struct ls_dataset *cpu = open_kinds("card"), *gpu = open_kinds("card");
    GOOD(ls_dataset_decode_by(gpu, name));
    double worst = compare(cpu, gpu);
    long long done = gpu->decoding.done;
    print_message("# --decode %s: bytes differ by %.3f on average at worst; %.0f images/s, cpu %.0f\n", name, worst,
                  images_per_second(name), images_per_second("cpu"));
    assert_true(worst < 2);
    assert_true(done == 40 * 4);
    uint64_t first = through_a_loader(gpu, 1);
    for (int threads = 2; threads <= 4; threads++)
        assert_true(through_a_loader(gpu, threads) == first);
    ls_dataset_close(cpu);
    ls_dataset_close(gpu);
}

static bool on_a_card(void)
{
    const char *name = getenv("LOCKSTEP_TEST_BACKEND");
    return name && strcmp(name, "cuda") == 0;
}

static void nvjpeg_decodes_as_the_cpu_does(void **state)
{
    (void)state;
    as_the_cpu_does("gpu");
}

static void jpeg_engines_decode_as_the_cpu_does(void **state)
{
    struct ls_dataset *set;
    (void)state;
    set = open_kinds("engines");
    bool there = ls_dataset_decode_by(set, "hardware") == LS_OK;
    ls_dataset_close(set);
    if (!there)
        skip(); /* it has said why */
    as_the_cpu_does("hardware");
}

int main(void)
{
    const struct CMUnitTest on_card[] = {
        cmocka_unit_test(nvjpeg_decodes_as_the_cpu_does),
        cmocka_unit_test(jpeg_engines_decode_as_the_cpu_does),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_those_of_the_cpu),
        cmocka_unit_test(what_is_refused_is_decoded_by_the_cpu),
        cmocka_unit_test(a_few_that_are_left_are_no_warning),
        cmocka_unit_test(broken_files_are_named_as_ever),
        cmocka_unit_test(a_decoder_that_cannot_be_opened_ends_it),
        cmocka_unit_test(what_fails_is_not_decoded_by_the_cpu),
        cmocka_unit_test(threads_have_decoders_of_their_own),
        cmocka_unit_test(the_cpu_is_the_default),
    };
    return on_a_card() ? cmocka_run_group_tests(on_card, make_folder, remove_folder)
                       : cmocka_run_group_tests(tests, make_folder, remove_folder);
}
