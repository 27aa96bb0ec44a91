/* Test-time augmentation: the logits of a graph with views are the mean of those of each view alone. */
#include "ops_session.h"

#include "model/model.h"

enum { SAMPLES = 3, CHANNELS = 3, SIDE = 16, CLASSES = 10, PLANE = SIDE * SIDE, IMAGE = CHANNELS * PLANE };

static void open_model(struct ls_session *s, const struct ls_backend *backend, struct ls_views views, bool training,
                       enum ls_dtype dtype)
{
    struct ls_model_request request = {.model = "convnet",
                                       .size = {SAMPLES, CHANNELS, SIDE, SIDE, CLASSES},
                                       .training = training,
                                       .dtype = dtype,
                                       .loss = "xent",
                                       .dropout = 0,
                                       .views = views};
    assert_int_equal(ls_model_build(&request, &s->g), LS_OK);
    session_open(s, backend, SAMPLES, &apart);
}

/* Row or column i, mirrored at the borders, by hand. */
static int reflected(int i)
{
    return i < 0 ? -i : i >= SIDE ? 2 * (SIDE - 1) - i : i;
}

/* Moves all images by `move` pixels and mirrors them. */
static void move_images(const float *from, int move, bool mirror, float *to)
{
    for (int plane = 0; plane < SAMPLES * CHANNELS; plane++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                int column = mirror ? SIDE - 1 - x : x;
                to[plane * PLANE + y * SIDE + x] =
                    from[plane * PLANE + reflected(y + move) * SIDE + reflected(column + move)];
            }
}

/* Adds weight times the logits of one view, computed by ref without views. */
static void add_view(int move, bool mirror, float weight, float *mean)
{
    struct ls_session s = {0};
    float *images = ls_alloc(SAMPLES * IMAGE, sizeof *images);
    open_model(&s, ls_backend_find("ref"), (struct ls_views){0}, false, LS_F32);
    memcpy(images, s.images, SAMPLES * IMAGE * sizeof *images);
    move_images(images, move, mirror, s.images);
    session_run(&s);
    float *logits = session_read(&s, s.g.logits);
    for (int i = 0; i < SAMPLES * CLASSES; i++)
        mean[i] += weight * logits[i];
    ls_free(logits);
    ls_free(images);
    session_close(&s);
}

static void expect_mean(const struct ls_session *s, const float *expected, double tolerance)
{
    float *logits = session_read(s, s->g.logits);
    assert_int_equal(s->g.tensors[s->g.logits].shape.dim[0], SAMPLES);
    double error = ls_relative_error(expected, logits, SAMPLES * CLASSES);
    if (!(error <= tolerance))
        fail_msg("%s: relative error of the logits %.3g", s->backend->name, error);
    ls_free(logits);
}

static void expect_views(struct ls_views views, const float *expected)
{
    const struct ls_backend *backends[] = {ls_backend_find("ref"), tested_backend()};
    for (int b = 0; b < 2; b++) {
        struct ls_session s = {0};
        open_model(&s, backends[b], views, false, LS_F32);
        session_run(&s);
        expect_mean(&s, expected, 1e-4);
        session_close(&s);
    }
}

static void six_views(void **state)
{
    float mean[SAMPLES * CLASSES] = {0};
    (void)state;
    for (int mirror = 0; mirror < 2; mirror++) {
        add_view(0, mirror, 0.25f, mean);
        add_view(-2, mirror, 0.125f, mean);
        add_view(2, mirror, 0.125f, mean);
    }
    expect_views((struct ls_views){.mirror = true, .shift = 2}, mean);
}

static void mirrored(void **state)
{
    float mean[SAMPLES * CLASSES] = {0};
    (void)state;
    add_view(0, false, 0.5f, mean);
    add_view(0, true, 0.5f, mean);
    expect_views((struct ls_views){.mirror = true}, mean);
}

/* A training program stores the first convolution's weights in its own layout; the program with views reads the same. */
static void beside_training(void **state)
{
    struct ls_session train = {0}, eval = {0};
    float mean[SAMPLES * CLASSES] = {0};
    (void)state;
    add_view(0, false, 0.5f, mean);
    add_view(0, true, 0.5f, mean);
    open_model(&train, tested_backend(), (struct ls_views){0}, true, LS_F32);
    eval.store = train.store;
    open_model(&eval, tested_backend(), (struct ls_views){.mirror = true}, false, LS_F32);
    session_run(&eval);
    expect_mean(&eval, mean, 1e-4);
    session_close(&eval);
    session_close(&train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(six_views),
        cmocka_unit_test(mirrored),
        cmocka_unit_test(beside_training),
    };
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
