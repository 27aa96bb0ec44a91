/* The codecs: promises Z1 to Z3 of sync/compress.h, and their error bounds. Every codec is tested on every instruction
 * set that this processor has. */
#include "compress_help.h"

#include "sync/compress.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

enum { COUNT = 5000 };

static const char *const codec_names[] = {"fp16", "bf16", "1bit"};
static const size_t counts[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 511, 512, 513, 1023, 1024, 1025, 4999};

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void codecs_are_found_by_name(void **state)
{
    (void)state;
    for (const char *const *name = codec_names; name < codec_names + LENGTH(codec_names); name++)
        assert_string_equal(ls_compress_find(*name)->name, *name);
    assert_null(ls_compress_find("zip"));
    assert_null(ls_compress_find_isa("fp16", "mmx"));
    assert_non_null(ls_compress_find_isa("fp16", "sse2"));
}

static void wire_is_as_long_as_said(void **state)
{
    (void)state;
    float values[COUNT], feedback[COUNT] = {0}, decoded[COUNT + 16];
    unsigned char wire[COUNT * 4 + 64];
    fill(values, COUNT, 1);
    for (const char *const *name = codec_names; name < codec_names + LENGTH(codec_names); name++)
        for (const char *const *isa = isas; isa < isas + LENGTH(isas); isa++)
            for (const size_t *count = counts; count < counts + LENGTH(counts); count++) {
                const struct ls_codec *c = ls_compress_find_isa(*name, *isa);
                if (!c)
                    continue;
                size_t bytes = c->bytes(*count);
                assert_int_equal(bytes % 4, 0);
                assert_true(bytes < *count * 4 || *count <= 3);
                memset(wire, 0xa5, sizeof wire);
                c->encode(values, c->feedback ? feedback : NULL, *count, wire);
                assert_int_equal(wire[bytes], 0xa5);
                for (size_t i = 0; i < COUNT + 16; i++)
                    decoded[i] = 77.0f;
                c->decode(wire, *count, decoded);
                assert_true(decoded[*count] == 77.0f);
                c->decode_add(wire, *count, decoded);
                assert_true(decoded[*count] == 77.0f);
            }
}

/* Z1, Z2 */
static void instruction_sets_agree_and_chunks_stand_alone(void **state)
{
    (void)state;
    float values[COUNT], feedback[2][COUNT] = {{0}}, decoded[2][COUNT];
    unsigned char wire[2][COUNT * 4];
    fill(values, COUNT, 2);
    values[7] = 1e-7f;
    values[8] = -3e-41f;
    values[9] = -1e30f;
    values[10] = 65519.0f;
    values[2000] = INFINITY;
    values[2001] = -NAN;
    for (const char *const *name = codec_names; name < codec_names + LENGTH(codec_names); name++) {
        const struct ls_codec *base = ls_compress_find_isa(*name, "sse2");
        for (const char *const *isa = isas; isa < isas + LENGTH(isas); isa++) {
            const struct ls_codec *c = ls_compress_find_isa(*name, *isa);
            if (!c)
                continue;
            memset(feedback, 0, sizeof feedback);
            for (int round = 0; round < 3; round++) {
                base->encode(values, feedback[0], COUNT - 1, wire[0]);
                c->encode(values, feedback[1], COUNT - 1, wire[1]);
                assert_memory_equal(wire[0], wire[1], c->bytes(COUNT - 1));
                assert_memory_equal(feedback[0], feedback[1], sizeof feedback[0]);
            }
            base->decode(wire[0], COUNT - 1, decoded[0]);
            for (size_t first = 0; first < COUNT - 1; first += LS_COMPRESS_CHUNK) {
                size_t n = first + LS_COMPRESS_CHUNK < COUNT - 1 ? LS_COMPRESS_CHUNK : COUNT - 1 - first;
                c->decode(wire[1] + c->bytes(first), n, decoded[1] + first);
            }
            for (int i = 0; i < COUNT - 1; i++)
                assert_true(decoded[0][i] == decoded[1][i] || (isnan(decoded[0][i]) && isnan(decoded[1][i])));
            float sum[COUNT];
            memcpy(sum, values, sizeof sum);
            c->decode_add(wire[1], COUNT - 1, sum);
            for (int i = 0; i < COUNT - 1; i++)
                assert_true(sum[i] == values[i] + decoded[0][i] || isnan(sum[i]));
        }
    }
}

/* What a value becomes on its way. */
static float pass_through(const struct ls_codec *c, float x)
{
    unsigned char wire[64];
    float y = 0;
    c->encode(&x, NULL, 1, wire);
    c->decode(wire, 1, &y);
    return y;
}

static void fp16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (const char *const *isa = isas; isa < isas + LENGTH(isas); isa++) {
        const struct ls_codec *c = ls_compress_find_isa("fp16", *isa);
        if (!c)
            continue;
        float values[COUNT], decoded[COUNT];
        unsigned char wire[COUNT * 2];
        for (int i = 0; i < COUNT; i++) { /* exponents -14 .. 14 */
            uint32_t r[4];
            ls_philox(3, 3, (uint64_t)i, r);
            values[i] = from_bits((r[0] & 0x807fffff) | (113 + r[1] % 29) << 23);
        }
        c->encode(values, NULL, COUNT, wire);
        c->decode(wire, COUNT, decoded);
        for (int i = 0; i < COUNT; i++)
            assert_true(fabsf(decoded[i] - values[i]) <= 0x1p-11f * fabsf(values[i]));
        assert_true(pass_through(c, 1.0f + 0x1p-11f) == 1.0f); /* ties go to the even neighbour */
        assert_true(pass_through(c, 1.0f + 3 * 0x1p-11f) == 1.0f + 2 * 0x1p-10f);
        assert_true(pass_through(c, 2.0f - 0x1p-12f) == 2.0f); /* into the next exponent */
        assert_true(pass_through(c, 0x1p-24f) == 0x1p-24f);
        assert_true(pass_through(c, 3 * 0x1p-25f) == 2 * 0x1p-24f);
        assert_true(pass_through(c, 0x1p-25f) == 0.0f && pass_through(c, 0x1.8p-25f) == 0x1p-24f);
        assert_true(pass_through(c, 0x1.ffep-15f) == 0x1p-14f); /* the smallest normal number */
        assert_true(signbit(pass_through(c, -0.0f)));
        assert_true(pass_through(c, 65504.0f) == 65504.0f);
        for (uint32_t h = 0; h < 0x10000; h++) { /* every fp16 number survives, and so do Inf and NaN */
            uint16_t half = (uint16_t)h;
            float x;
            uint16_t again[2];
            c->decode((uint16_t[2]){half}, 1, &x);
            c->encode(&x, NULL, 1, again);
            assert_true(again[0] == half || isnan(x));
            assert_int_equal(isnan(x), (h & 0x7fff) > 0x7c00);
        }
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (const char *const *isa = isas; isa < isas + LENGTH(isas); isa++) {
        const struct ls_codec *c = ls_compress_find_isa("bf16", *isa);
        if (!c)
            continue;
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t r[4];
            ls_philox(3, 4, i, r);
            float x = from_bits(r[0]);
            if (isfinite(x) && fabsf(x) >= FLT_MIN)
                assert_true(fabsf(pass_through(c, x) - x) <= 0x1p-8f * fabsf(x));
        }
        assert_true(pass_through(c, 1.0f + 0x1p-8f) == 1.0f);
        assert_true(pass_through(c, 1.0f + 3 * 0x1p-8f) == 1.0f + 2 * 0x1p-7f);
        assert_true(pass_through(c, from_bits(0x00018000)) == from_bits(0x00020000));
        assert_true(signbit(pass_through(c, -0.0f)));
    }
}

/* Z3, and what is too large for the type */
static void overflow_is_clipped(void **state)
{
    (void)state;
    for (const char *const *isa = isas; isa < isas + LENGTH(isas); isa++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const struct ls_codec *c = ls_compress_find_isa(codec_names[bf16], *isa);
            if (!c)
                continue;
            float largest = bf16 ? from_bits(0x7f7f0000) : 65504.0f;
            assert_true(pass_through(c, FLT_MAX) == largest && pass_through(c, -FLT_MAX) == -largest);
            assert_true(pass_through(c, INFINITY) == INFINITY && pass_through(c, -INFINITY) == -INFINITY);
            assert_true(isnan(pass_through(c, NAN)) && isnan(pass_through(c, from_bits(0xff800001))));
        }
    assert_true(pass_through(ls_compress_find("fp16"), 65520.0f) == 65504.0f); /* would be rounded to infinity */
}

static void errors_and_sizes_are_small(void **state)
{
    (void)state;
    static const double most_error[] = {0x1p-11, 0x1p-8, 0.7}, least_ratio[] = {2, 2, 28};
    const size_t many = 1 << 20;
    float values[COUNT], feedback[COUNT] = {0}, decoded[COUNT];
    unsigned char wire[COUNT * 4];
    fill(values, COUNT, 5);
    for (int i = 0; i < 3; i++) {
        const struct ls_codec *c = ls_compress_find(codec_names[i]);
        c->encode(values, feedback, COUNT, wire);
        c->decode(wire, COUNT, decoded);
        double error = distance(decoded, values, COUNT), ratio = 4.0 * (double)many / (double)c->bytes(many);
        assert_true(error > 0 && error < most_error[i]);
        assert_true(ratio >= least_ratio[i] && ratio < 32);
    }
}

/* B1 of onebit.c: what went out follows what came in, however coarse each step is. */
static void one_bit_makes_up_for_its_error(void **state)
{
    (void)state;
    enum { STEPS = 200 };
    const struct ls_codec *c = ls_compress_find("1bit");
    float base[COUNT], values[COUNT], feedback[COUNT] = {0}, decoded[COUNT];
    static double in[COUNT], out[COUNT];
    unsigned char wire[COUNT];
    double early = 0, late = 0;
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    fill(base, COUNT, 6);
    for (int step = 1; step <= STEPS; step++) {
        fill(values, COUNT, 100 + (uint64_t)step);
        c->encode(values, feedback, COUNT, wire);
        c->decode(wire, COUNT, decoded);
        double apart = 0, whole = 0;
        for (int i = 0; i < COUNT; i++) {
            in[i] += (double)values[i];
            out[i] += (double)decoded[i];
            assert_true(fabs(in[i] - out[i] - (double)feedback[i]) < 1e-5);
            apart += (in[i] - out[i]) * (in[i] - out[i]);
            whole += in[i] * in[i];
        }
        double relative = sqrt(apart / whole);
        if (step == 10)
            early = relative;
        late = relative;
    }
    assert_true(late < early / 2);
    assert_true(sqrt(squares(feedback, COUNT)) < 4 * sqrt(squares(base, COUNT))); /* it does not pile up */
}

/* B2 of onebit.c */
static void one_bit_shows_what_is_no_number(void **state)
{
    (void)state;
    for (const char *const *isa = isas; isa < isas + LENGTH(isas); isa++) {
        const struct ls_codec *c = ls_compress_find_isa("1bit", *isa);
        static const float bad[] = {NAN, INFINITY, -INFINITY};
        for (int b = 0; c && b < 3; b++) {
            float values[1100], feedback[1100] = {0}, decoded[1100];
            unsigned char wire[1100];
            fill(values, 1100, 7);
            values[513] = bad[b];
            values[1098] = bad[b];
            c->encode(values, feedback, 1100, wire);
            c->decode(wire, 1100, decoded);
            for (int i = 0; i < 1100; i++) {
                assert_int_equal(isnan(decoded[i]), i >= 512);
                assert_true(isfinite(feedback[i]) && (i < 512 || feedback[i] == 0.0f));
            }
        }
    }
}

static void one_bit_of_two_values_is_exact(void **state)
{
    (void)state;
    const struct ls_codec *c = ls_compress_find("1bit");
    float values[700], feedback[700] = {0}, decoded[700];
    unsigned char wire[700];
    for (int i = 0; i < 700; i++)
        values[i] = i % 3 == 0 ? 0.5f : -0.25f;
    c->encode(values, feedback, 700, wire);
    c->decode(wire, 700, decoded);
    for (int i = 0; i < 700; i++)
        assert_true(decoded[i] == values[i] && feedback[i] == 0.0f);
    memset(values, 0, sizeof values); /* nothing but zeros: no division by none */
    c->encode(values, feedback, 700, wire);
    c->decode(wire, 700, decoded);
    assert_true(squares(decoded, 700) == 0.0);
}

struct codec_group {
    const struct ls_codec *codec;
    float feedback[WORKERS + 1][PARAMETERS];
};

/* Each worker's part is encoded, and then the sum. */
static void sum_encoded(void *context, float (*grads)[PARAMETERS], float *sum)
{
    struct codec_group *g = context;
    unsigned char wire[PARAMETERS * 4];
    memset(sum, 0, PARAMETERS * sizeof *sum);
    for (int w = 0; w < WORKERS; w++) {
        g->codec->encode(grads[w], g->feedback[w], PARAMETERS, wire);
        g->codec->decode_add(wire, PARAMETERS, sum);
    }
    g->codec->encode(sum, g->feedback[WORKERS], PARAMETERS, wire);
    g->codec->decode(wire, PARAMETERS, sum);
}

static void sgd_converges_with_each(void **state)
{
    (void)state;
    static struct codec_group g;
    for (size_t i = 0; i < LENGTH(codec_names); i++) {
        g = (struct codec_group){.codec = ls_compress_find(codec_names[i])};
        assert_true(descend(sum_encoded, &g) < 0.05);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codecs_are_found_by_name),
        cmocka_unit_test(wire_is_as_long_as_said),
        cmocka_unit_test(instruction_sets_agree_and_chunks_stand_alone),
        cmocka_unit_test(fp16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(overflow_is_clipped),
        cmocka_unit_test(errors_and_sizes_are_small),
        cmocka_unit_test(one_bit_makes_up_for_its_error),
        cmocka_unit_test(one_bit_shows_what_is_no_number),
        cmocka_unit_test(one_bit_of_two_values_is_exact),
        cmocka_unit_test(sgd_converges_with_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
