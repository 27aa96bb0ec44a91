/* What of the backend cuda needs no card: layouts, and a first convolution over unfolded images. Built where that backend
 * is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/cuda/program.h"
#include "base/random.h"
#include "graph/ops.h"
#include "model/model.h"

/* --- layouts ---------------------------------------------------------------------------------------------------- */

/* Scattered and gathered, values are as before, and as many stored values as there are logical ones are not zero. */
static void there_and_back(const struct layout *l, enum ls_dtype t)
{
    int64_t n = 1, filled = 0;
    for (int i = 0; i < l->rank; i++)
        n *= l->dim[i];
    float *plain = calloc((size_t)n, sizeof *plain), *again = calloc((size_t)n, sizeof *again);
    char *stored = malloc((size_t)l->count * ls_dtype_size(t));
    assert_true(plain && again && stored);
    for (int64_t i = 0; i < n; i++)
        plain[i] = (float)(i % 120 + 1) / 128; /* exact in all types */
    memset(stored, 0xee, (size_t)l->count * ls_dtype_size(t));
    layout_scatter(l, t, plain, stored);
    layout_gather(l, t, stored, again);
    assert_memory_equal(plain, again, (size_t)n * sizeof *plain);
    for (int64_t i = 0; i < l->count; i++)
        filled += layout_value(t, stored, i) != 0;
    assert_int_equal(filled, n);
    free(plain);
    free(again);
    free(stored);
}

static void test_layouts(void **state)
{
    (void)state;
    static const enum ls_dtype types[] = {LS_F32, LS_BF16, LS_F16};
    const struct ls_shape shapes[] = {ls_shape_make(1, 10, 0, 0, 0), ls_shape_make(2, 3, 10, 0, 0),
                                      ls_shape_make(2, 2, 16, 0, 0), ls_shape_make(4, 2, 3, 5, 7),
                                      ls_shape_make(4, 1, 24, 2, 2)};
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct layout l = layout_default(&shapes[i]);
            assert_int_equal(l.count % LS_CUDA_LANE, 0);
            there_and_back(&l, types[t]);
        }
        struct layout weights = layout_weights(10, 3, 5, 4), depthwise = layout_depthwise(13, 3, 3);
        assert_int_equal(weights.count, 16 * 5 * 4 * 8);
        assert_int_equal(depthwise.count, 3 * 3 * 16);
        there_and_back(&weights, types[t]);
        there_and_back(&depthwise, types[t]);
    }
}

static void test_half(void **state)
{
    (void)state;
    static const struct {
        float value;
        uint16_t f16, bf16;
    } cases[] = {
        {0, 0, 0},
        {1, 0x3c00, 0x3f80},
        {-2, 0xc000, 0xc000},
        {65504, 0x7bff, 0x4780},
        {65519, 0x7bff, 0x4780},
        {65520, 0x7c00, 0x4780},
        {0x1p-24f, 0x0001, 0x3380},
        {0x1p-25f, 0x0000, 0x3300},   /* a tie, to even */
        {0x1.8p-24f, 0x0002, 0x33c0}, /* and another */
        {0x1.002p0f, 0x3c00, 0x3f80}, /* 1 + 2^-11: a tie, to even */
        {0x1.006p0f, 0x3c02, 0x3f80}, /* 1 + 3 * 2^-11: likewise */
        {0x1.01p0f, 0x3c04, 0x3f80},  /* 1 + 2^-8: a tie in bf16 */
        {0x1.03p0f, 0x3c0c, 0x3f82},
        {INFINITY, 0x7c00, 0x7f80},
    };
    const struct ls_shape one = ls_shape_make(1, 1, 0, 0, 0);
    struct layout l = layout_default(&one);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t stored[LS_CUDA_LANE];
        layout_scatter(&l, LS_F16, &cases[i].value, stored);
        assert_int_equal(stored[0], cases[i].f16);
        layout_scatter(&l, LS_BF16, &cases[i].value, stored);
        assert_int_equal(stored[0], cases[i].bf16);
    }
    float nan = NAN;
    uint16_t stored[LS_CUDA_LANE];
    layout_scatter(&l, LS_F16, &nan, stored);
    assert_true(isnan(layout_value(LS_F16, stored, 0)));
    layout_scatter(&l, LS_BF16, &nan, stored);
    assert_true(isnan(layout_value(LS_BF16, stored, 0)));
}

/* --- the first convolution ------------------------------------------------------------------------------------------ */

struct image {
    int64_t c, h, w;
    const float *v;
};

static double pixel(const struct image *m, int64_t c, int64_t y, int64_t x)
{
    return y < 0 || y >= m->h || x < 0 || x >= m->w ? 0 : (double)m->v[(c * m->h + y) * m->w + x];
}

/* As the model has it. */
static double plain_conv(const struct image *m, const struct ls_attr *a, const float *w, int64_t y, int64_t x)
{
    double sum = 0;
    for (int64_t c = 0; c < m->c; c++)
        for (int64_t i = 0; i < a->kernel_h; i++)
            for (int64_t k = 0; k < a->kernel_w; k++)
                sum += (double)w[(c * a->kernel_h + i) * a->kernel_w + k] *
                       pixel(m, c, y * a->stride_h - a->pad_t + i, x * a->stride_w - a->pad_l + k);
    return sum;
}

/* Over what kernels.h says of the unfolded map, with weights as they are stored. */
static double unfolded_conv(const struct image *m, const struct ls_attr *a, const struct stem *s, const float *stored,
                            int64_t c_stored, int64_t y, int64_t x)
{
    double sum = 0;
    for (int64_t q = 0; q < s->kernel; q++)
        for (int64_t r = 0; r < s->block; r++)
            for (int64_t k = 0; k < a->kernel_w; k++)
                for (int64_t c = 0; c < m->c; c++)
                    sum += (double)stored[q * c_stored + r * s->row + k * m->c + c] *
                           pixel(m, c, (y + q) * a->stride_h - s->border + r, x * a->stride_w - a->pad_l + k);
    return sum;
}

static void same_first_layer(const char *model, int64_t channels, int64_t side, bool whole)
{
    struct ls_graph g;
    struct ls_model_request request = {
        .model = model,
        .size = {.batch = 2, .channels = channels, .height = side, .width = side, .classes = 10},
        .training = true,
        .dtype = LS_F32,
        .loss = "xent",
    };
    ls_graph_init(&g);
    assert_int_equal(ls_model_build(&request, &g), LS_OK);
    assert_int_equal(ls_graph_fuse(&g, false), LS_OK);
    assert_int_equal(ls_graph_backward(&g), LS_OK);
    struct ls_program p = {.core.g = &g};
    assert_int_equal(stem_insert(&p), LS_OK);
    const struct ls_node *conv = &g.nodes[p.stem.conv];
    assert_string_equal(conv->op->name, "conv");
    assert_int_equal(conv->in[0], p.stem.unfolded[0]);
    assert_int_equal(p.stem.kernel == 1, whole);
    int made = 0, read = 0;
    for (int n = 0; n < g.n_nodes; n++)
        for (int i = 0; i < 2; i++) {
            made += g.nodes[n].out[0] == p.stem.unfolded[i];
            read += g.nodes[n].in[i] == p.stem.unfolded[i] && (i == 0 || ls_graph_producer(&g, p.stem.unfolded[i]) < n);
        }
    assert_int_equal(made, 2); /* for the convolution, and again before its gradient */
    assert_int_equal(read, 2);

    const struct ls_shape *y = &g.tensors[conv->out[0]].shape, *u = &g.tensors[p.stem.unfolded[0]].shape;
    assert_int_equal(u->dim[2], y->dim[2] + p.stem.kernel - 1);
    assert_int_equal(u->dim[3], y->dim[3]);
    struct ls_shape one = g.tensors[conv->in[1]].shape; /* of one output channel */
    one.dim[0] = 1;
    struct layout l = stem_weights_layout(&p, &one);
    int64_t n_image = channels * side * side, n_weights = ls_shape_count(&one);
    float *image = malloc((size_t)n_image * sizeof *image), *weights = malloc((size_t)n_weights * sizeof *weights);
    float *stored = malloc((size_t)l.count * sizeof *stored);
    assert_true(image && weights && stored);
    ls_random_fill_uniform(1, 2, -1, 1, n_image, image);
    ls_random_fill_uniform(1, 3, -1, 1, n_weights, weights);
    layout_scatter(&l, LS_F32, weights, stored);
    struct image m = {channels, side, side, image};
    for (int64_t row = 0; row < y->dim[2]; row++)
        for (int64_t column = 0; column < y->dim[3]; column++) {
            double a = plain_conv(&m, &conv->attr, weights, row, column);
            double b = unfolded_conv(&m, &conv->attr, &p.stem, stored, padded(u->dim[1]), row, column);
            assert_true(fabs(a - b) < 1e-9);
        }
    free(image);
    free(weights);
    free(stored);
    ls_graph_release(&g);
}

static void test_first_layers(void **state)
{
    (void)state;
    same_first_layer("resnet18", 3, 33, false); /* 7x7, stride 2, padding 3 */
    same_first_layer("resnet18", 3, 32, false);
    same_first_layer("alexnet", 3, 64, false); /* 11x11, stride 4, padding 2 */
    same_first_layer("alexnet-cntk", 3, 64, false);
    same_first_layer("mobilenet_v2", 3, 33, true); /* 3x3, stride 2, padding 1 */
    same_first_layer("vgg11-cifar", 3, 32, true);  /* 3x3, padding 1 */
    same_first_layer("lenet", 1, 28, true);        /* 5x5 of one channel */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_first_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
