/* The curves of `lockstep watch`: means in constant memory. tests/cli/test-watch.sh tests what is shown of them. */
#include "base/memory.h"
#include "cmd/watch/chart.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void means_are_exact_at_any_length(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 2047, 2048, 2049, 5000, 1000000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct ls_curve *c = ls_alloc(1, sizeof *c);
        for (int64_t step = 1; step <= lengths[i]; step++)
            ls_curve_add(c, step, (double)step);
        assert_int_equal(c->last, lengths[i]);
        double mean = ls_curve_mean(c, 0, lengths[i] + 1);
        assert_true(fabs(mean - (double)(lengths[i] + 1) / 2) < 1e-6);
        /* Neighbouring ranges have every step once: the right one has the larger mean. */
        int64_t middle = lengths[i] / 2;
        double left = ls_curve_mean(c, 0, middle), right = ls_curve_mean(c, middle, lengths[i] + 1);
        assert_true(isnan(left) || right > left);
        ls_free(c);
    }
}

static void strange_values_are_left_out(void **state)
{
    (void)state;
    struct ls_curve *c = ls_alloc(1, sizeof *c);
    assert_true(isnan(ls_curve_mean(c, 0, 10)));
    ls_curve_add(c, 3, NAN);
    ls_curve_add(c, 3, INFINITY);
    ls_curve_add(c, -1, 1);
    ls_curve_add(c, INT64_MAX, 1);
    assert_int_equal(c->width, 0);
    ls_curve_add(c, 3, 7);
    assert_true(ls_curve_mean(c, 0, 10) == 7);
    assert_true(isnan(ls_curve_mean(c, 4, 10)));
    ls_curve_add(c, (int64_t)1 << 60, 9); /* all earlier steps come into one bin */
    assert_true(ls_curve_mean(c, 0, ((int64_t)1 << 60) + 1) == 8);
    ls_free(c);
}

/* Charts of any size and range stay within their memory, which AddressSanitizer checks. */
static void charts_of_any_size(void **state)
{
    (void)state;
    static const double values[] = {0, 1, -1, 1e-300, 1e300, -1e300};
    struct ls_curve *line = ls_alloc(1, sizeof *line);
    struct ls_chart *c = ls_alloc(1, sizeof *c);
    char *text = NULL;
    size_t size;
    for (int n = 0; n <= 6; n++) {
        for (int width = 1; width < 1200; width = 3 * width + 1)
            for (int height = 1; height < 200; height = 3 * height + 1)
                for (int utf8 = 0; utf8 < 2; utf8++) {
                    *c = (struct ls_chart){
                        .lines = {line}, .n_lines = 1, .points = line, .width = width, .height = height};
                    ls_chart_draw(c, utf8);
                    struct ls_screen s = {.width = width, .utf8 = utf8, .out = open_memstream(&text, &size)};
                    for (int row = 0; row < c->height; row++) {
                        ls_chart_row(c, row, &s);
                        assert_true(s.column <= width);
                        ls_screen_end(&s);
                    }
                    fclose(s.out);
                    free(text);
                }
        if (n < 6)
            ls_curve_add(line, 10 * n, values[n]);
    }
    ls_free(line);
    ls_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_exact_at_any_length),
        cmocka_unit_test(strange_values_are_left_out),
        cmocka_unit_test(charts_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
