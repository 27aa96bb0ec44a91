/* Our own Winograd against sums in double precision, on every instruction set this processor has, in f32 and, where there is
 * one, in bf16: each pass, few tiles and many, maps that are no multiple of a tile, odd numbers of blocks, every padding;
 * and the same bits on one, two and three threads (LOOP-1). */
#include "bf16.h"
#include "backend/onednn/kernels/kernels.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct shape {
    int64_t n, in_blocks, out_blocks, h, w, pad;
    bool bias;
    enum ls_act act;
};
static const struct shape shapes[] = {
    {2, 1, 1, 4, 4, 1, false, LS_ACT_NONE},   {3, 2, 3, 7, 5, 1, true, LS_ACT_RELU},
    {1, 3, 1, 6, 9, 0, true, LS_ACT_NONE},    {2, 1, 2, 3, 3, 2, false, LS_ACT_RELU6},
    {1, 17, 2, 8, 8, 1, false, LS_ACT_NONE},  {19, 1, 3, 16, 15, 1, true, LS_ACT_NONE},
    {65, 1, 1, 14, 16, 1, true, LS_ACT_NONE}, /* beyond what a gradient takes at a time */
    {43, 2, 9, 9, 8, 1, true, LS_ACT_RELU}    /* in bf16 several parts, and several groups of results */
};

static const char *const sets[] = {"avx512bf16", "avx512", "avx2", "sse2"};

struct problem {
    struct shape s;
    int64_t block, in, out, oh, ow;
    float *x, *w, *bias, *y, *dx, *dw, *db;
    size_t nx, nw, ny;
};

/* Numbers that bf16 holds exactly. */
static float *numbers(uint64_t stream, size_t count)
{
    float *values = ls_alloc(count, sizeof *values);
    assert_non_null(values);
    ls_random_fill_normal(7, stream, 1, (int64_t)count, values);
    for (size_t i = 0; i < count; i++)
        values[i] = from_bf16(to_bf16(values[i]));
    return values;
}

static void problem_init(struct problem *p, const struct shape *s, int block)
{
    *p = (struct problem){.s = *s, .block = block, .in = s->in_blocks * block, .out = s->out_blocks * block};
    p->oh = s->h + 2 * s->pad - 2;
    p->ow = s->w + 2 * s->pad - 2;
    p->nx = (size_t)(s->n * p->in * s->h * s->w);
    p->ny = (size_t)(s->n * p->out * p->oh * p->ow);
    p->nw = (size_t)(p->in * p->out * 9);
    p->x = numbers(1, p->nx);
    p->w = numbers(2, p->nw);
    p->bias = numbers(3, (size_t)p->out);
    p->y = numbers(4, p->ny); /* also the gradient of the results */
    p->dx = numbers(5, p->nx);
    p->dw = numbers(6, p->nw);
    p->db = numbers(7, (size_t)p->out);
}

static void problem_release(struct problem *p)
{
    float *all[] = {p->x, p->w, p->bias, p->y, p->dx, p->dw, p->db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ls_free(all[i]);
}

static size_t map_at(const struct problem *p, int64_t channels, int64_t h, int64_t w, int64_t n, int64_t c, int64_t y,
                     int64_t x)
{
    int64_t b = p->block;
    return (size_t)((((n * (channels / b) + c / b) * h + y) * w + x) * b + c % b);
}
static size_t weight_at(const struct problem *p, int64_t o, int64_t i, int64_t tap)
{
    int64_t b = p->block;
    return (size_t)((((o / b * p->s.in_blocks + i / b) * 9 + tap) * b + i % b) * b + o % b);
}

/* Every product of the convolution, once: f(input, weight, result). */
typedef void (*product)(void *context, size_t x, size_t w, size_t y);
static void each_product(const struct problem *p, product f, void *context)
{
    const struct shape *s = &p->s;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < p->out; o++)
            for (int64_t y = 0; y < p->oh; y++)
                for (int64_t x = 0; x < p->ow; x++) {
                    size_t result = map_at(p, p->out, p->oh, p->ow, n, o, y, x);
                    for (int64_t tap = 0; tap < 9; tap++) {
                        int64_t iy = y + tap / 3 - s->pad, ix = x + tap % 3 - s->pad;
                        if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w)
                            continue;
                        for (int64_t i = 0; i < p->in; i += p->block) {
                            size_t first = map_at(p, p->in, s->h, s->w, n, i, iy, ix), weight = weight_at(p, o, i, tap);
                            for (int64_t lane = 0; lane < p->block; lane++)
                                f(context, first + (size_t)lane, weight + (size_t)(lane * p->block), result);
                        }
                    }
                }
}

struct sums {
    const float *x, *w, *y;
    double *to;
};
static void forward_product(void *context, size_t x, size_t w, size_t y)
{
    struct sums *s = context;
    s->to[y] += (double)s->x[x] * (double)s->w[w];
}
static void data_product(void *context, size_t x, size_t w, size_t y)
{
    struct sums *s = context;
    s->to[x] += (double)s->y[y] * (double)s->w[w];
}
static void weights_product(void *context, size_t x, size_t w, size_t y)
{
    struct sums *s = context;
    s->to[w] += (double)s->x[x] * (double)s->y[y];
}

static double *expected(const struct problem *p, product f, size_t count)
{
    struct sums s = {p->x, p->w, p->y, ls_alloc(count, sizeof(double))};
    assert_non_null(s.to);
    each_product(p, f, &s);
    return s.to;
}

/* In bf16 transformed inputs and weights are rounded, and so are results. */
static void assert_close(const struct ls_kernels *k, const char *what, const float *got, const double *want,
                         size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(error) <= (k->dtype == LS_BF16 ? 6e-3 : 1e-5) * sqrt(norm)))
        fail_msg("%s: relative error %g", what, sqrt(error / norm));
}

/* Runs the pass on maps as the kernels store them. */
static void run_pass(const struct ls_kernels *k, const struct ls_conv *w)
{
    if (k->dtype == LS_F32) {
        k->conv[LS_CONV_WINOGRAD].run(w);
        return;
    }
    struct ls_conv half = *w;
    size_t n_in = (size_t)(w->n * w->in_blocks * w->in_h * w->in_w * k->block);
    size_t n_out = (size_t)(w->n * w->out_blocks * w->out_h * w->out_w * k->block);
    uint16_t *in = ls_alloc(n_in, sizeof *in), *out = ls_alloc(n_out, sizeof *out);
    assert_non_null(in);
    assert_non_null(out);
    for (size_t i = 0; i < n_in; i++)
        in[i] = to_bf16(((const float *)w->in)[i]);
    for (size_t i = 0; i < n_out; i++)
        out[i] = to_bf16(((const float *)w->out)[i]);
    half.in = in;
    half.out = out;
    k->conv[LS_CONV_WINOGRAD].run(&half);
    for (size_t i = 0; i < n_out; i++)
        ((float *)w->out)[i] = from_bf16(out[i]);
    ls_free(in);
    ls_free(out);
}

/* Run on one, two and three threads into `to`; the bits must be the same. */
static void run(const struct ls_kernels *k, struct ls_conv *w, float *to, size_t bytes)
{
    void *first = ls_alloc(bytes, 1);
    assert_non_null(first);
    for (w->threads = 1; w->threads <= 3; w->threads++) {
        w->scratch = ls_alloc(k->conv[LS_CONV_WINOGRAD].scratch(w), 1);
        assert_non_null(w->scratch);
        memset(w->scratch, 0xff, k->conv[LS_CONV_WINOGRAD].scratch(w)); /* NaN: what is read must have been written */
        run_pass(k, w);
        ls_free(w->scratch);
        if (w->threads == 1)
            memcpy(first, to, bytes);
        else
            assert_memory_equal(first, to, bytes);
    }
    ls_free(first);
}

static void check(const struct ls_kernels *k, const struct shape *s)
{
    struct problem p;
    problem_init(&p, s, k->block);
    double *dx = expected(&p, data_product, p.nx), *dw = expected(&p, weights_product, p.nw);
    double *y = expected(&p, forward_product, p.ny), *db = ls_alloc((size_t)p.out, sizeof *db);
    assert_non_null(db);
    struct ls_conv w = {.n = s->n,
                        .in_blocks = s->in_blocks,
                        .in_h = s->h,
                        .in_w = s->w,
                        .out_blocks = s->out_blocks,
                        .out_h = p.oh,
                        .out_w = p.ow,
                        .pad_t = s->pad,
                        .pad_l = s->pad,
                        .in = p.x,
                        .out = p.y};
    w.pass = LS_CONV_WEIGHTS;
    w.weights = p.dw;
    w.bias = s->bias ? p.db : NULL;
    run(k, &w, p.dw, p.nw * sizeof(float));
    assert_close(k, "gradient of the weights", p.dw, dw, p.nw);
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < p.out; o++)
            for (int64_t i = 0; i < p.oh * p.ow; i++)
                db[o] += (double)p.y[map_at(&p, p.out, p.oh, p.ow, n, o, i / p.ow, i % p.ow)];
    if (s->bias)
        assert_close(k, "gradient of the bias", p.db, db, (size_t)p.out);

    struct ls_conv back = {.pass = LS_CONV_DATA,
                           .n = s->n,
                           .in_blocks = s->out_blocks,
                           .in_h = p.oh,
                           .in_w = p.ow,
                           .out_blocks = s->in_blocks,
                           .out_h = s->h,
                           .out_w = s->w,
                           .pad_t = s->pad,
                           .pad_l = s->pad,
                           .in = p.y,
                           .weights = p.w,
                           .out = p.dx};
    run(k, &back, p.dx, p.nx * sizeof(float));
    assert_close(k, "gradient of the inputs", p.dx, dx, p.nx);

    w.pass = LS_CONV_FORWARD;
    w.weights = p.w;
    w.bias = s->bias ? p.bias : NULL;
    w.act = s->act;
    run(k, &w, p.y, p.ny * sizeof(float));
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < p.out; o++)
            for (int64_t i = 0; i < p.oh * p.ow; i++) {
                double *v = &y[map_at(&p, p.out, p.oh, p.ow, n, o, i / p.ow, i % p.ow)];
                *v += s->bias ? (double)p.bias[o] : 0;
                *v = s->act != LS_ACT_NONE && *v < 0 ? 0 : s->act == LS_ACT_RELU6 && *v > 6 ? 6 : *v;
            }
    assert_close(k, "forward", p.y, y, p.ny);
    double *all[] = {dx, dw, y, db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ls_free(all[i]);
    problem_release(&p);
}

static void check_shapes(enum ls_dtype dtype, const char *isa)
{
    struct ls_kernels k = {0};
    if (!ls_kernels_pick(dtype, isa, &k) || !k.conv[LS_CONV_WINOGRAD].run)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check(&k, &shapes[i]);
}
static void run_set(void **state)
{
    check_shapes(LS_F32, *state);
}
static void in_bf16(void **state)
{
    (void)state;
    check_shapes(LS_BF16, NULL);
}

int main(void)
{
    enum { SETS = sizeof sets / sizeof *sets };
    struct CMUnitTest tests[SETS + 1];
    for (size_t i = 0; i < SETS; i++)
        tests[i] = (struct CMUnitTest){sets[i], run_set, NULL, NULL, (void *)(uintptr_t)sets[i]};
    tests[SETS] = (struct CMUnitTest){"bf16", in_bf16, NULL, NULL, NULL};
    return cmocka_run_group_tests_name("winograd", tests, NULL, NULL);
}
