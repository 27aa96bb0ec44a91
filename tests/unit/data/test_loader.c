/* The loader's promises: what comes out is a function of the options alone, whatever the threads do. */
#include "data_files.h"
#include "base/system/clock.h"

#define VALUES (3 * 8 * 8)

static struct ls_dataset *synthetic(int count)
{
    struct ls_dataset *set;
    char spec[64];
    snprintf(spec, sizeof spec, "synthetic:3x8x8:5:%d", count);
    GOOD(ls_dataset_open(spec, "train", &set));
    return set;
}

static struct ls_loader_options options_for(struct ls_dataset *set)
{
    struct ls_loader_options o = {
        .set = set, .seed = 11, .shuffle = true, .threads = 3, .ring = 3, .batch = 7, .parts = 1, .epochs = 2};
    GOOD(ls_augment_parse("crop:2,flip", true, ls_dataset_info(set), 3, 8, 8, &o.augment));
    return o;
}

static struct ls_loader *started(const struct ls_loader_options *o)
{
    struct ls_loader *loader;
    GOOD(ls_loader_new(o, &loader));
    return loader;
}

/* Everything a run gives, slot by slot. */
struct record {
    int slots;
    struct {
        uint64_t epoch, hash;
        int64_t position, valid;
    } slot[256];
};

static void run(const struct ls_loader_options *o, struct record *r)
{
    struct ls_loader *loader = started(o);
    const struct ls_slot *s;
    memset(r, 0, sizeof *r);
    for (;;) {
        GOOD(ls_loader_next(loader, &s));
        if (!s)
            break;
        assert_true(r->slots < 256);
        r->slot[r->slots].epoch = s->epoch;
        r->slot[r->slots].position = s->position;
        r->slot[r->slots].valid = s->valid;
        r->slot[r->slots].hash = fnv((const uint8_t *)s->images, sizeof(float) * VALUES * (size_t)o->batch) ^
                                 fnv((const uint8_t *)s->labels, sizeof(int32_t) * (size_t)o->batch);
        r->slots++;
    }
    GOOD(ls_loader_next(loader, &s)); /* the end stays the end */
    assert_null(s);
    ls_loader_free(loader);
}

static void threads_change_nothing(void **state)
{
    struct ls_dataset *set = synthetic(50);
    struct ls_loader_options o = options_for(set);
    struct record one, many;
    (void)state;
    o.threads = 1;
    run(&o, &one);
    assert_int_equal(one.slots, 2 * 8); /* 7 full batches and one of a single sample, twice */
    assert_int_equal(one.slot[7].valid, 1);
    assert_int_equal(one.slot[8].epoch, 1);
    for (int threads = 2; threads <= 5; threads++) {
        o.threads = threads;
        o.ring = 1 + threads;
        run(&o, &many);
        assert_memory_equal(&one, &many, sizeof one);
    }
    o.seed++;
    run(&o, &many);
    assert_true(one.slot[0].hash != many.slot[0].hash);
    ls_dataset_close(set);
}

static void wait_a_little(void)
{
    struct timespec ten = {.tv_nsec = 10000000};
    nanosleep(&ten, NULL);
}

/* However many threads measuring comes to, and whenever, the slots are the same, and nothing is allocated for them. */
static void measuring_changes_nothing(void **state)
{
    struct ls_dataset *set = synthetic(50);
    struct ls_loader_options o = options_for(set);
    struct record one;
    const struct ls_slot *s;
    (void)state;
    o.threads = 1;
    o.epochs = 10;
    run(&o, &one);
    o.max_threads = 4;
    struct ls_loader *loader = started(&o);
    assert_int_equal(ls_loader_pace(loader).threads, 1);
    uint64_t before = ls_memory_calls();
    for (int i = 0; i < one.slots; i++) {
        if (i % 8 == 3)
            wait_a_little(); /* so that windows come to an end */
        GOOD(ls_loader_next(loader, &s));
        assert_int_equal(one.slot[i].hash, fnv((const uint8_t *)s->images, sizeof(float) * VALUES * 7) ^
                                               fnv((const uint8_t *)s->labels, sizeof(int32_t) * 7));
        if (i < o.ring) /* the caller warms up, which says nothing about its speed */
            assert_true(ls_loader_pace(loader).uses == 0);
    }
    assert_true(ls_memory_calls() == before);
    struct ls_loader_pace pace = ls_loader_pace(loader);
    assert_in_range(pace.threads, 1, 16);
    assert_true(pace.prepares > 0 && pace.uses > 0 && pace.reading >= 0 && pace.reading <= 1);
    ls_loader_free(loader);
    ls_dataset_close(set);
}

static void slots_hold_the_samples_of_the_order(void **state)
{
    struct ls_dataset *set = synthetic(23);
    struct ls_loader_options o = options_for(set);
    struct ls_image image = {0}, scratch = {0};
    const struct ls_slot *s;
    float planes[VALUES];
    (void)state;
    o.epochs = 3;
    struct ls_loader *loader = started(&o);
    struct ls_sampler sampler = {.count = 23, .seed = o.seed, .shuffle = true};
    for (;;) {
        GOOD(ls_loader_next(loader, &s));
        if (!s)
            break;
        for (int64_t i = 0; i < o.batch; i++) {
            int32_t label = -1;
            memset(planes, 0, sizeof planes);
            if (i < s->valid) {
                int64_t sample = ls_sampler_at(&sampler, s->epoch, s->position + i);
                GOOD(ls_dataset_read(set, sample, 0, &image, &label));
                GOOD(ls_augment_apply(&o.augment, &image, o.seed, s->epoch, (uint64_t)sample, &scratch, planes));
            }
            assert_int_equal(s->labels[i], label);
            assert_memory_equal(s->images + i * VALUES, planes, sizeof planes);
        }
    }
    ls_loader_free(loader);
    ls_dataset_close(set);
    ls_image_release(&image);
    ls_image_release(&scratch);
}

/* The slots of three loaders side by side: bytes and crops stand for the planes. */
static void all_forms_hold_the_same(void **state)
{
    struct ls_dataset *set = synthetic(23);
    struct ls_loader_options o = options_for(set);
    struct ls_loader *loaders[3];
    struct ls_image image = {0};
    const struct ls_slot *s[3];
    uint8_t stored[23 * VALUES];
    float planes[7 * VALUES];
    int slots = 0;
    (void)state;
    for (int i = 0; i < 23; i++) {
        int32_t label;
        GOOD(ls_dataset_read(set, i, 0, &image, &label));
        memcpy(stored + i * VALUES, image.pixels, VALUES);
    }
    struct ls_pixels whole = ls_augment_source(&o.augment, NULL), cropped;
    cropped = ls_augment_source(&o.augment, ls_dataset_info(set));
    o.epochs = 3;
    for (int form = 0; form < 3; form++) {
        o.form = (enum ls_form)form;
        loaders[form] = started(&o);
    }
    for (;; slots++) {
        for (int form = 0; form < 3; form++)
            GOOD(ls_loader_next(loaders[form], &s[form]));
        if (!s[0])
            break;
        for (int form = 1; form < 3; form++) {
            assert_int_equal(s[form]->form, form);
            assert_int_equal(s[form]->valid, s[0]->valid);
            assert_memory_equal(s[form]->labels, s[0]->labels, 7 * sizeof(int32_t));
            assert_null(s[form]->images);
        }
        assert_true(s[1]->pixels && !s[2]->pixels && !s[0]->pixels && !s[0]->crops);
        ls_crop_planes(&whole, s[1]->pixels, s[1]->crops, 7, planes);
        assert_memory_equal(planes, s[0]->images, sizeof planes);
        ls_crop_planes(&cropped, stored, s[2]->crops, 7, planes);
        assert_memory_equal(planes, s[0]->images, sizeof planes);
    }
    assert_true(!s[1] && !s[2] && slots == 12);
    for (int form = 0; form < 3; form++)
        ls_loader_free(loaders[form]);
    ls_dataset_close(set);
    ls_image_release(&image);
}

static void resuming_gives_the_tail(void **state)
{
    struct ls_dataset *set = synthetic(61);
    struct ls_loader_options o = options_for(set);
    struct record whole, tail;
    (void)state;
    o.batch = 4;
    o.parts = 3;
    o.epochs = 3;
    run(&o, &whole);
    assert_int_equal(whole.slots, 3 * 6 * 3);
    for (int step = 0; step <= 18; step++) {
        o.epoch = (uint64_t)step / 6;
        o.position = step % 6 * 12;
        run(&o, &tail);
        assert_int_equal(tail.slots, whole.slots - 3 * step);
        assert_memory_equal(tail.slot, whole.slot + 3 * step, (size_t)tail.slots * sizeof tail.slot[0]);
    }
    o.epoch = 0;
    o.position = 61; /* the end of an epoch is the beginning of the next */
    run(&o, &tail);
    assert_memory_equal(tail.slot, whole.slot + 18, sizeof tail.slot[0] * 36);
    ls_dataset_close(set);
}

static void slices_follow_the_replicas(void **state)
{
    struct ls_dataset *set = synthetic(30);
    struct ls_loader_options o = options_for(set);
    struct record r;
    static const int order[4] = {0, 2, 1, 3};
    (void)state;
    o.batch = 5;
    o.parts = 4;
    o.order = order;
    o.own = 4;
    o.epochs = 1;
    o.shuffle = false;
    run(&o, &r);
    assert_int_equal(r.slots, 8);
    static const int64_t positions[8] = {0, 10, 5, 15, 20, 26, 23, 28}, valid[8] = {5, 5, 5, 5, 3, 2, 3, 2};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(r.slot[i].position, positions[i]);
        assert_int_equal(r.slot[i].valid, valid[i]);
    }
    /* Fewer samples than slices: the last ones are empty, and still come. */
    o.epoch_samples = 22;
    run(&o, &r);
    assert_int_equal(r.slots, 8);
    assert_true(r.slot[4].valid == 1 && r.slot[5].valid == 0 && r.slot[6].valid == 1 && r.slot[7].valid == 0);
    ls_dataset_close(set);
}

/* Seven epochs of 10 samples go through 35 samples twice: the batches are those of two whole epochs. */
static void short_epochs_go_on_through_the_data(void **state)
{
    struct ls_dataset *set = synthetic(35);
    struct ls_loader_options o = options_for(set);
    struct record whole, parts, tail;
    (void)state;
    o.batch = 5;
    run(&o, &whole);
    assert_int_equal(whole.slots, 14);
    o.epoch_samples = 10;
    o.epochs = 7;
    o.goes_on = true;
    run(&o, &parts);
    assert_int_equal(parts.slots, 14);
    for (int i = 0; i < 14; i++) {
        assert_true(parts.slot[i].hash == whole.slot[i].hash);
        assert_true(parts.slot[i].epoch == (uint64_t)i / 2 && parts.slot[i].position == i % 2 * 5);
    }
    o.epoch = 3;
    o.position = 5;
    run(&o, &tail);
    assert_int_equal(tail.slots, 7);
    assert_memory_equal(tail.slot, parts.slot + 7, sizeof parts.slot[0] * 7);
    /* As older versions did: each epoch is the first part of an order of its own. */
    o.goes_on = false;
    o.epoch = 0;
    o.position = 0;
    run(&o, &parts);
    assert_true(parts.slot[0].hash == whole.slot[0].hash && parts.slot[2].hash == whole.slot[7].hash);
    ls_dataset_close(set);
}

static void every_epoch_shows_every_sample_once(void **state)
{
    struct ls_dataset *set = synthetic(37);
    struct ls_loader_options o = options_for(set);
    const struct ls_slot *s;
    struct ls_sampler sampler = {.count = 37, .seed = o.seed, .shuffle = true};
    int seen[2][37] = {{0}};
    bool differs = false;
    (void)state;
    struct ls_loader *loader = started(&o);
    for (;;) {
        GOOD(ls_loader_next(loader, &s));
        if (!s)
            break;
        for (int64_t i = 0; i < s->valid; i++)
            seen[s->epoch][ls_sampler_at(&sampler, s->epoch, s->position + i)]++;
    }
    for (int i = 0; i < 37; i++) {
        assert_true(seen[0][i] == 1 && seen[1][i] == 1);
        differs |= ls_sampler_at(&sampler, 0, i) != ls_sampler_at(&sampler, 1, i);
    }
    assert_true(differs);
    ls_loader_free(loader);
    ls_dataset_close(set);
}

/* With `held`, a slot stays as it is for that many calls more, while the loader goes on around it. */
static void slots_are_held_as_long_as_asked(void **state)
{
    struct ls_dataset *set = synthetic(50);
    struct ls_loader_options o = options_for(set);
    struct record plain, held;
    (void)state;
    run(&o, &plain);
    for (o.held = 1; o.held <= 3; o.held++) {
        const struct ls_slot *slots[2 * 8], *s;
        o.ring = 2 + o.held;
        run(&o, &held);
        assert_memory_equal(&plain, &held, sizeof plain);
        struct ls_loader *loader = started(&o);
        size_t bytes;
        const char *region = ls_loader_region(loader, &bytes);
        for (int i = 0; i < plain.slots; i++) {
            GOOD(ls_loader_next(loader, &slots[i]));
            for (int k = i - o.held < 0 ? 0 : i - o.held; k <= i; k++) {
                assert_int_equal(slots[k]->position, plain.slot[k].position);
                uint64_t hash = fnv((const uint8_t *)slots[k]->images, sizeof(float) * VALUES * (size_t)o.batch) ^
                                fnv((const uint8_t *)slots[k]->labels, sizeof(int32_t) * (size_t)o.batch);
                assert_true(hash == plain.slot[k].hash);
                const char *images = (const char *)slots[k]->images, *labels = (const char *)slots[k]->labels;
                assert_true(images >= region && images + sizeof(float) * VALUES * (size_t)o.batch <= region + bytes);
                assert_true(labels >= region && labels + sizeof(int32_t) * (size_t)o.batch <= region + bytes);
            }
        }
        GOOD(ls_loader_next(loader, &s));
        assert_null(s);
        ls_loader_free(loader);
    }
    o.ring = 2;
    assert_int_equal(ls_loader_new(&o, &(struct ls_loader *){NULL}), LS_USAGE);
    ls_dataset_close(set);
}

static void it_ends_cleanly_at_any_time(void **state)
{
    struct ls_dataset *set = synthetic(200);
    struct ls_loader_options o = options_for(set);
    const struct ls_slot *s;
    (void)state;
    o.epochs = 0; /* never ends by itself */
    for (int taken = 0; taken < 12; taken++) {
        struct ls_loader *loader = started(&o);
        for (int i = 0; i < taken; i++) {
            GOOD(ls_loader_next(loader, &s));
            assert_non_null(s);
        }
        ls_loader_free(loader);
    }
    ls_loader_free(NULL);
    ls_dataset_close(set);
}

static void nothing_is_allocated_while_it_runs(void **state)
{
    struct ls_dataset *set = synthetic(300);
    struct ls_loader_options o = options_for(set);
    const struct ls_slot *s;
    (void)state;
    GOOD(ls_augment_parse("rrc,flip", true, ls_dataset_info(set), 3, 24, 24, &o.augment));
    struct ls_loader *loader = started(&o);
    uint64_t before = ls_memory_calls();
    do
        GOOD(ls_loader_next(loader, &s));
    while (s);
    assert_true(ls_memory_calls() == before);
    assert_true(ls_loader_waited(loader) >= 0);
    ls_loader_free(loader);
    ls_dataset_close(set);
}

/* Sample 17 of 40 files cannot be decoded, sample 30 neither. */
static void make_broken_folder(void)
{
    struct ls_image image = {0};
    shade(&image, 3, 20, 30);
    for (int i = 0; i < 40; i++)
        put_jpeg(at("broken/%s/%02d.jpg", i < 20 ? "a" : "b", i), &image);
    put_text(at("broken/a/17.jpg"), "\xff\xd8\xff broken");
    put_text(at("broken/b/30.jpg"), "");
    ls_image_release(&image);
}

static void an_error_comes_once_and_in_order(void **state)
{
    struct ls_dataset *set;
    const struct ls_slot *s = NULL;
    (void)state;
    make_broken_folder();
    GOOD(ls_dataset_open(at("broken"), "train", &set));
    for (int threads = 1; threads <= 4; threads++) {
        struct ls_loader_options o = {.set = set, .threads = threads, .ring = 8, .batch = 6, .parts = 1, .epochs = 1};
        GOOD(ls_augment_parse("none", true, ls_dataset_info(set), 3, 16, 16, &o.augment));
        struct ls_loader *loader = started(&o);
        for (int i = 0; i < 2; i++) {
            GOOD(ls_loader_next(loader, &s));
            assert_int_equal(s->position, 6 * i);
        }
        BAD(ls_loader_next(loader, &s)); /* samples 12 .. 17 */
        SAID("broken/a/17.jpg: corrupt or truncated JPEG");
        ls_fail(LS_OK, "marker");
        BAD(ls_loader_next(loader, &s));
        assert_string_equal(ls_log_last(), "marker"); /* not said again */
        ls_loader_free(loader);
    }
    ls_dataset_close(set);
}

static int64_t broken_of(const struct ls_loader_options *o, int64_t *without_label)
{
    struct ls_loader *loader = started(o);
    const struct ls_slot *s;
    int64_t broken = 0;
    *without_label = 0;
    for (GOOD(ls_loader_next(loader, &s)); s; GOOD(ls_loader_next(loader, &s))) {
        broken += s->broken;
        for (int64_t i = 0; i < s->valid; i++)
            *without_label += s->labels[i] < 0;
    }
    ls_loader_free(loader);
    return broken;
}

/* A broken sample gives way to the next one, whichever thread finds it, and keeps its own crop and flip. */
static void broken_samples_are_replaced_or_left_out(void **state)
{
    struct ls_dataset *set;
    struct record first, again;
    int64_t without_label, sample;
    (void)state;
    make_broken_folder();
    put_text(at("broken/b/31.jpg"), ""); /* behind another broken one */
    GOOD(ls_dataset_open(at("broken"), "train", &set));
    struct ls_loader_options o = options_for(set);
    o.on_bad = LS_BAD_REPLACED;
    o.threads = 1;
    run(&o, &first);
    for (o.threads = 2; o.threads <= 5; o.threads++) {
        run(&o, &again);
        assert_memory_equal(&first, &again, sizeof first);
        assert_int_equal(broken_of(&o, &without_label), 2 * 3); /* in two epochs */
        assert_int_equal(without_label, 0);
    }
    assert_int_equal(ls_dataset_bad_count(set), 3);
    o.on_bad = LS_BAD_LEFT_OUT;
    assert_int_equal(broken_of(&o, &without_label), 2 * 3);
    assert_int_equal(without_label, 2 * 3);
    int64_t expected[] = {17, 30, 31};
    for (int i = 0; i < 3; i++) {
        assert_true(ls_dataset_next_bad(set, &sample));
        assert_int_equal(sample, expected[i]);
    }
    assert_false(ls_dataset_next_bad(set, &sample));
    assert_false(ls_dataset_take_bad(set, 30));
    assert_true(ls_dataset_take_bad(set, 5));
    ls_dataset_close(set);
}

static void the_embedded_set_is_shared_by_threads(void **state)
{
    struct ls_dataset *set;
    const struct ls_slot *s;
    int64_t samples = 0;
    (void)state;
    GOOD(ls_dataset_open("mnist", "test", &set));
    struct ls_loader_options o = {
        .set = set, .threads = 4, .ring = 4, .batch = 100, .parts = 1, .epochs = 1, .shuffle = true};
    GOOD(ls_augment_parse("auto", true, ls_dataset_info(set), 0, 0, 0, &o.augment));
    struct ls_loader *loader = started(&o);
    for (;;) {
        GOOD(ls_loader_next(loader, &s));
        if (!s)
            break;
        samples += s->valid;
    }
    assert_int_equal(samples, 10000);
    ls_loader_free(loader);
    ls_dataset_close(set);
}

static void impossible_options_are_refused(void **state)
{
    struct ls_dataset *set = synthetic(10);
    struct ls_loader *loader;
    struct ls_loader_options good = options_for(set), o = good;
    (void)state;
    o.ring = 1;
    assert_int_equal(ls_loader_new(&o, &loader), LS_USAGE);
    o = good;
    o.epoch_samples = 11;
    assert_int_equal(ls_loader_new(&o, &loader), LS_USAGE);
    SAID("an epoch of 11 samples, but the data set has 10");
    o = good;
    o.batch = INT64_MAX / 2;
    assert_int_equal(ls_loader_new(&o, &loader), LS_USAGE);
    o = good;
    o.form = LS_FORM_CROPS;
    GOOD(ls_augment_parse("rrc", true, ls_dataset_info(set), 3, 8, 8, &o.augment));
    assert_int_equal(ls_loader_new(&o, &loader), LS_USAGE);
    ls_dataset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(measuring_changes_nothing),
        cmocka_unit_test(slots_hold_the_samples_of_the_order),
        cmocka_unit_test(all_forms_hold_the_same),
        cmocka_unit_test(resuming_gives_the_tail),
        cmocka_unit_test(slices_follow_the_replicas),
        cmocka_unit_test(every_epoch_shows_every_sample_once),
        cmocka_unit_test(slots_are_held_as_long_as_asked),
        cmocka_unit_test(it_ends_cleanly_at_any_time),
        cmocka_unit_test(nothing_is_allocated_while_it_runs),
        cmocka_unit_test(an_error_comes_once_and_in_order),
        cmocka_unit_test(short_epochs_go_on_through_the_data),
        cmocka_unit_test(broken_samples_are_replaced_or_left_out),
        cmocka_unit_test(the_embedded_set_is_shared_by_threads),
        cmocka_unit_test(impossible_options_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
