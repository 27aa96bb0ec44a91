/* Convolutions by AMX against sums in double precision, and the same bits on any number of threads. */
#include "bf16.h"
#include "backend/onednn/kernels/kernels.h"
#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { B = 16 };

static const struct shape {
    int64_t n, in, out, h, w, kernel_h, kernel_w, stride, pad;
} shapes[] = {
    {1, 16, 16, 1, 1, 1, 1, 1, 0},
    {3, 32, 48, 7, 7, 1, 1, 1, 0},
    {2, 16, 32, 9, 8, 1, 1, 2, 0},
    {2, 48, 16, 7, 7, 3, 3, 1, 1},
    {1, 16, 16, 40, 70, 3, 3, 1, 1},
    {3, 32, 32, 13, 12, 3, 3, 2, 1},
    {2, 16, 48, 11, 9, 5, 5, 1, 2},
    {1, 16, 16, 12, 12, 5, 5, 1, 0},
    {1, 32, 16, 23, 23, 7, 7, 2, 3},
    {2, 16, 16, 15, 17, 3, 3, 3, 0},
    {1, 16, 32, 6, 20, 1, 7, 1, 0},
    {5, 64, 160, 8, 8, 3, 3, 1, 1},
    {40, 16, 16, 4, 4, 3, 3, 1, 1},
    {2, 16, 16, 2, 2, 3, 3, 1, 1},
    {1, 16, 16, 3, 3, 3, 3, 2, 1},
    {2, 80, 16, 160, 20, 3, 3, 1, 1},
    /* small maps of many samples */
    {37, 48, 80, 2, 2, 3, 3, 1, 1},
    {32, 16, 48, 7, 7, 3, 3, 2, 1},
    {35, 48, 32, 5, 4, 1, 1, 2, 0},
    {65, 32, 16, 9, 8, 5, 5, 1, 2},
    {34, 16, 32, 6, 6, 3, 3, 3, 0},
    {33, 32, 48, 1, 1, 1, 1, 1, 0},
    /* images */
    {2, 3, 16, 37, 70, 7, 7, 2, 3},
    {3, 3, 48, 9, 8, 3, 3, 1, 1},
    {40, 1, 32, 12, 12, 5, 5, 1, 2},
    {1, 4, 32, 20, 33, 8, 8, 4, 0},
    {2, 3, 64, 35, 66, 5, 5, 3, 2},
    {35, 2, 16, 1, 1, 1, 1, 1, 0},
    {3, 3, 64, 47, 44, 11, 11, 4, 2},
    {2, 7, 16, 9, 40, 9, 9, 1, 4},
};

static struct ls_kernels kernels;

static float value(uint64_t i)
{
    i = i * 0x9e3779b97f4a7c15u;
    i ^= i >> 29;
    i *= 0xbf58476d1ce4e5b9u;
    return (float)(int32_t)(i >> 40) / (float)(1 << 23) - 1.0f;
}

/* Operands of a convolution in blocks. Exact sizes, so that a tool for memory errors sees what is read beyond them. */
struct operands {
    struct shape s;
    int64_t out_h, out_w, x_count, y_count, w_count;
    uint16_t *x, *y;
    float *w;
};
static void operands_make(struct operands *o, const struct shape *s)
{
    *o = (struct operands){.s = *s,
                           .out_h = (s->h + 2 * s->pad - s->kernel_h) / s->stride + 1,
                           .out_w = (s->w + 2 * s->pad - s->kernel_w) / s->stride + 1};
    o->x_count = s->n * s->in * s->h * s->w;
    o->y_count = s->n * s->out * o->out_h * o->out_w;
    o->w_count = s->in * s->out * s->kernel_h * s->kernel_w;
    o->x = ls_alloc((size_t)o->x_count, sizeof *o->x);
    o->y = ls_alloc((size_t)o->y_count, sizeof *o->y);
    o->w = ls_alloc((size_t)o->w_count, sizeof *o->w);
    for (int64_t i = 0; i < o->x_count; i++)
        o->x[i] = to_bf16(value((uint64_t)i));
    for (int64_t i = 0; i < o->y_count; i++)
        o->y[i] = to_bf16(value((uint64_t)i + (1u << 30)));
    for (int64_t i = 0; i < o->w_count; i++)
        o->w[i] = from_bf16(to_bf16(value((uint64_t)i + (1u << 31))));
}
static void operands_free(struct operands *o)
{
    ls_free(o->x);
    ls_free(o->y);
    ls_free(o->w);
}
/* Images have fewer channels than a block. They and their weights are not in blocks. */
static bool is_images(const struct shape *s)
{
    return s->in < B;
}
static int64_t map_at(int64_t n, int64_t channels, int64_t c, int64_t h, int64_t w, int64_t y, int64_t x)
{
    if (channels < B)
        return ((n * channels + c) * h + y) * w + x;
    return (((n * channels / B + c / B) * h + y) * w + x) * B + c % B;
}
static int64_t weight_at(const struct shape *s, int64_t o, int64_t i, int64_t ky, int64_t kx)
{
    int64_t tap = ky * s->kernel_w + kx, taps = s->kernel_h * s->kernel_w;
    if (is_images(s))
        return (o * s->in + i) * taps + tap;
    return (((o / B * (s->in / B) + i / B) * taps + tap) * B + i % B) * B + o % B;
}

/* One pass in double precision: adds every product to the operand that the pass computes. */
static void plain(const struct operands *o, enum ls_conv_pass pass, double *to)
{
    const struct shape *s = &o->s;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oy = 0; oy < o->out_h; oy++)
            for (int64_t ox = 0; ox < o->out_w; ox++)
                for (int64_t ky = 0; ky < s->kernel_h; ky++)
                    for (int64_t kx = 0; kx < s->kernel_w; kx++) {
                        int64_t y = oy * s->stride + ky - s->pad, x = ox * s->stride + kx - s->pad;
                        if (y < 0 || y >= s->h || x < 0 || x >= s->w)
                            continue;
                        for (int64_t c = 0; c < s->out; c++)
                            for (int64_t i = 0; i < s->in; i++) {
                                int64_t at_x = map_at(n, s->in, i, s->h, s->w, y, x), at_w = weight_at(s, c, i, ky, kx);
                                int64_t at_y = map_at(n, s->out, c, o->out_h, o->out_w, oy, ox);
                                if (pass == LS_CONV_FORWARD)
                                    to[at_y] += (double)from_bf16(o->x[at_x]) * (double)o->w[at_w];
                                else if (pass == LS_CONV_DATA)
                                    to[at_x] += (double)from_bf16(o->y[at_y]) * (double)o->w[at_w];
                                else
                                    to[at_w] += (double)from_bf16(o->y[at_y]) * (double)from_bf16(o->x[at_x]);
                            }
                    }
}

static void by_amx(const struct operands *o, enum ls_conv_pass pass, int threads, void *to)
{
    const struct shape *s = &o->s;
    bool back = pass == LS_CONV_DATA;
    enum ls_conv_method method = is_images(s) ? LS_CONV_IMAGES : LS_CONV_AMX;
    struct ls_conv c = {.method = method,
                        .channels = s->in,
                        .results = s->out,
                        .pass = pass,
                        .threads = threads,
                        .n = s->n,
                        .in_blocks = (back ? s->out : s->in) / B,
                        .in_h = back ? o->out_h : s->h,
                        .in_w = back ? o->out_w : s->w,
                        .out_blocks = (back ? s->in : s->out) / B,
                        .out_h = back ? s->h : o->out_h,
                        .out_w = back ? s->w : o->out_w,
                        .kernel_h = s->kernel_h,
                        .kernel_w = s->kernel_w,
                        .stride = s->stride,
                        .pad_t = s->pad,
                        .pad_l = s->pad,
                        .in = back ? o->y : o->x,
                        .out = pass == LS_CONV_WEIGHTS ? o->y : to,
                        .weights = pass == LS_CONV_WEIGHTS ? to : o->w};
    size_t bytes = kernels.conv[method].scratch(&c);
    c.scratch = ls_alloc(bytes, 1);
    assert_non_null(c.scratch);
    memset(c.scratch, 0xff, bytes); /* NaN: whatever is read must have been written */
    kernels.conv[method].run(&c);
    ls_free(c.scratch);
}

static void check(const struct operands *o, enum ls_conv_pass pass)
{
    int64_t count = pass == LS_CONV_FORWARD ? o->y_count : pass == LS_CONV_DATA ? o->x_count : o->w_count;
    size_t bytes = (size_t)count * (pass == LS_CONV_WEIGHTS ? sizeof(float) : sizeof(uint16_t));
    double *expected = ls_alloc((size_t)count, sizeof *expected), largest = 0, worst = 0;
    char *once = ls_alloc(bytes, 1), *again = ls_alloc(bytes, 1);
    plain(o, pass, expected);
    by_amx(o, pass, 1, once);
    for (int64_t i = 0; i < count; i++) {
        double is = pass == LS_CONV_WEIGHTS ? (double)((const float *)(const void *)once)[i]
                                            : (double)from_bf16(((const uint16_t *)(const void *)once)[i]);
        largest = fmax(largest, fabs(expected[i]));
        worst = fmax(worst, isnan(is) ? INFINITY : fabs(is - expected[i]));
    }
    if (worst > largest * (pass == LS_CONV_WEIGHTS ? 1e-5 : 4e-3))
        fail_msg("pass %d of %dx%d stride %d: error %g of %g", (int)pass, (int)o->s.kernel_h, (int)o->s.kernel_w,
                 (int)o->s.stride, worst, largest);
    for (int threads = 2; threads <= 5; threads += 3) {
        by_amx(o, pass, threads, again);
        assert_memory_equal(once, again, bytes);
    }
    ls_free(expected);
    ls_free(once);
    ls_free(again);
}

static void test_pass(void **state)
{
    enum ls_conv_pass pass = *(const enum ls_conv_pass *)*state;
    if (!ls_kernels_pick(LS_BF16, NULL, &kernels) || !kernels.conv[LS_CONV_AMX].run)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct operands o;
        if (is_images(&shapes[i]) && pass == LS_CONV_DATA)
            continue;
        operands_make(&o, &shapes[i]);
        check(&o, pass);
        operands_free(&o);
    }
}

int main(void)
{
    static enum ls_conv_pass forward = LS_CONV_FORWARD, data = LS_CONV_DATA, weights = LS_CONV_WEIGHTS;
    const struct CMUnitTest tests[] = {
        {"forward", test_pass, NULL, NULL, &forward},
        {"gradient of the inputs", test_pass, NULL, NULL, &data},
        {"gradient of the weights", test_pass, NULL, NULL, &weights},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
