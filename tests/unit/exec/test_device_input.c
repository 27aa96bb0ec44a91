/* Whatever form images come in to a backend with a queue, a run's weights, reports and errors are those of one that is fed
 * planes. "cuda" is the backend of queued.h. */
#include "train_story.h"
#include "data_files.h"
#include "queued.h"

#include "cmd/cmd.h"

/* How the queue is asked to take images, and in which forms it then gets them (bits, enum ls_form). */
enum mode { NO_QUEUE, PLANES, NO_ROOM, SOME_ROOM, ROOM, MODES };

static void set_mode(enum mode mode, size_t train_bytes)
{
    queued_queue.source = mode == PLANES ? NULL : queued_source;
    queued.room = mode == ROOM ? SIZE_MAX : mode == SOME_ROOM ? train_bytes - 1 : 0;
    queued.forms = 0;
}

struct story {
    const char *data, *augment, *input;
    int64_t replicas, accumulate, loader_threads, bn_samples;
    size_t train_bytes;       /* of the training set; the test set is smaller */
    unsigned some_room, room; /* forms that are expected */
};

static enum ls_status train_in(enum mode mode, const struct story *s)
{
    static const char *const runs[] = {"none", "planes", "pixels", "some", "crops"};
    struct ls_options o = tiny_options(runs[mode]);
    tiny_set(&o.backend, mode == NO_QUEUE ? "ref" : "cuda");
    tiny_set(&o.data, s->data);
    tiny_set(&o.augment, s->augment);
    if (s->input)
        tiny_set(&o.input, s->input);
    o.replicas = s->replicas ? s->replicas : 1;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.threads = 2;
    o.loader_threads = s->loader_threads ? s->loader_threads : 2;
    o.bn_samples = s->bn_samples;
    o.eval_every = s->bn_samples ? 3 : 0;
    o.steps = 8;
    set_mode(mode, s->train_bytes);
    enum ls_status st = tiny_train(&o);
    ls_options_release(&o);
    if (st == LS_OK && mode > NO_QUEUE)
        expect_same_run("none", runs[mode], 8);
    if (mode > NO_QUEUE)
        assert_int_equal(ls_dir_remove(tiny_path(runs[mode])), LS_OK);
    assert_true(queued_empty());
    return st;
}

static void compare(const struct story *s)
{
    const unsigned planes = 1u << LS_FORM_PLANES, pixels = 1u << LS_FORM_PIXELS;
    const unsigned expected[MODES] = {0, planes, pixels, s->some_room, s->room};
    for (enum mode mode = NO_QUEUE; mode < MODES; mode++) {
        assert_int_equal(train_in(mode, s), LS_OK);
        assert_int_equal(queued.forms, expected[mode]);
    }
    assert_int_equal(ls_dir_remove(tiny_path("none")), LS_OK);
}

#define PIXELS (1u << LS_FORM_PIXELS)
#define CROPS (1u << LS_FORM_CROPS)

static void sets_of_one_size(void **state)
{
    (void)state;
    static const struct story stories[] = {
        {.data = "synthetic:1x8x8:4:110", .augment = "none", .train_bytes = 110 * 64},
        {.data = "synthetic:3x8x8:4:110", .augment = "crop:2,flip", .train_bytes = 110 * 192, .accumulate = 3},
        {.data = "synthetic:3x8x8:4:110", .augment = "flip", .train_bytes = 110 * 192, .replicas = 2, .input = "1x8x8"},
        {.data = "synthetic:1x10x12:4:110", .augment = "crop:3,flip", .train_bytes = 110 * 120, .input = "3x10x12"},
    };
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
        struct story s = stories[i];
        s.some_room = PIXELS | CROPS; /* for the test set */
        s.room = CROPS;
        compare(&s);
    }
}

/* Scaled for one program and not for the other, or for both. */
static void scaled_sets(void **state)
{
    (void)state;
    compare(&(struct story){.data = "synthetic:3x8x8:4:110",
                            .augment = "rrc,flip",
                            .train_bytes = 110 * 192,
                            .some_room = PIXELS | CROPS,
                            .room = PIXELS | CROPS});
    compare(&(struct story){.data = "synthetic:3x16x16:4:110",
                            .augment = "resize:10,crop:1",
                            .input = "3x9x9",
                            .train_bytes = 110 * 768,
                            .some_room = PIXELS,
                            .room = PIXELS});
}

/* --bn-samples: training goes on with its own images behind an evaluation. */
static void statistics(void **state)
{
    (void)state;
    struct story s = {
        .data = "synthetic:3x8x8:4:110", .augment = "crop:2,flip", .train_bytes = 110 * 192, .replicas = 2};
    s.bn_samples = 50;
    s.some_room = PIXELS | CROPS; /* for the test set */
    s.room = CROPS;
    compare(&s);
    s.augment = "rrc,flip";
    s.room = PIXELS | CROPS;
    compare(&s);
}

static void folders(void **state)
{
    (void)state;
    struct ls_image image = {0};
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < 40; i++) {
            shade(&image, i % 5 ? 3 : 1, 9 + i, 40 - i % 7);
            put_jpeg(at("photos/%s/%c/%02d.jpg", part ? "val" : "train", 'a' + i % 4, i), &image);
        }
    ls_image_release(&image);
    compare(&(struct story){
        .data = at("photos"), .augment = "auto", .input = "3x8x8", .some_room = PIXELS, .room = PIXELS});
}

/* --- a set that says one size of all its images ---------------------------------------------------------------- */

static void put_tiny(const char *path, int side)
{
    struct ls_image image = {0};
    paint(&image, 3, side, side);
    put_jpeg(path, &image);
    ls_image_release(&image);
}

static void make_tiny_imagenet(void)
{
    char annotations[1024] = "";
    put_text(at("t/wnids.txt"), "n01\nn02\n");
    for (int i = 0; i < 12; i++) {
        put_tiny(at("t/train/n0%d/images/%02d.JPEG", 1 + i % 2, i), 64);
        put_tiny(at("t/val/images/%02d.JPEG", i), 64);
        size_t used = strlen(annotations);
        snprintf(annotations + used, sizeof annotations - used, "%02d.JPEG\tn0%d\n", i, 1 + i % 2);
    }
    put_text(at("t/val/val_annotations.txt"), annotations);
}

static void one_image_of_another_size(void **state)
{
    (void)state;
    struct story s = {.augment = "crop:8,flip", .train_bytes = 12 * 12288};
    make_tiny_imagenet();
    s.data = at("t");
    s.some_room = PIXELS; /* both parts are of one size */
    s.room = CROPS;
    compare(&s);
    put_tiny(at("t/train/n01/images/04.JPEG"), 80);
    s.data = at("t");
    s.some_room = PIXELS;
    s.room = PIXELS | CROPS;
    compare(&s);
}

/* A broken file is met at the same sample, and said in the same words. */
static void one_broken_image(void **state)
{
    (void)state;
    char said[1024];
    make_tiny_imagenet();
    put_text(at("t/train/n02/images/07.JPEG"), "\xff\xd8\xff nonsense");
    struct story s = {.data = at("t"), .augment = "crop:8,flip"};
    assert_int_equal(train_in(NO_QUEUE, &s), LS_BAD_INPUT);
    snprintf(said, sizeof said, "%s", ls_log_last());
    assert_non_null(strstr(said, "n02/images/07.JPEG"));
    assert_int_equal(train_in(ROOM, &s), LS_BAD_INPUT);
    assert_string_equal(ls_log_last(), said);
    assert_int_equal(ls_dir_remove(tiny_path("none")), LS_OK);
}

/* --- bench ------------------------------------------------------------------------------------------------------ */

/* As if it stood on the command line. */
static void give_data(struct ls_options *o)
{
    const char *text = "data: synthetic:1x8x8:4:110\n";
    assert_int_equal(ls_file_write(tiny_path("data.yaml"), text, strlen(text)), LS_OK);
    assert_int_equal(ls_options_load(o, tiny_path("data.yaml")), LS_OK);
}

static void bench_takes_the_same_way(void **state)
{
    (void)state;
    for (enum mode mode = PLANES; mode < MODES; mode++)
        for (int data = 0; data < 2; data++) {
            struct ls_options o = tiny_options("unused");
            tiny_set(&o.backend, "cuda");
            if (data)
                give_data(&o);
            o.json = true;
            o.steps = 2;
            o.repeat = 1;
            set_mode(mode, 110 * 64);
            FILE *terminal = stdout;
            stdout = fopen("/dev/null", "w");
            enum ls_status st = ls_cmd_bench(&o);
            fclose(stdout);
            stdout = terminal;
            assert_int_equal(st, LS_OK);
            enum ls_form form = mode == PLANES ? LS_FORM_PLANES : mode == ROOM && data ? LS_FORM_CROPS : LS_FORM_PIXELS;
            assert_int_equal(queued.forms, 1u << form);
            assert_true(queued_empty());
            ls_options_release(&o);
        }
}

static int begin(void **state)
{
    return make_folder(state) || tiny_begin(state);
}

static int end(void **state)
{
    return tiny_end(state) || remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_of_one_size), cmocka_unit_test(scaled_sets),
        cmocka_unit_test(folders),          cmocka_unit_test(one_image_of_another_size),
        cmocka_unit_test(one_broken_image), cmocka_unit_test(bench_takes_the_same_way),
        cmocka_unit_test(statistics),
    };
    return cmocka_run_group_tests_name("input", tests, begin, end);
}
