/* Series of a report: any number of points in constant memory, nothing lost that a plot shows. */
#include "cmd/report/plot.h"
#include "cmd/report/inputs/series.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void few_points_stay_as_they_are(void **state)
{
    (void)state;
    struct ls_series s = {0};
    struct ls_point points[LS_SERIES_BUCKETS];
    for (int i = 1; i <= 100; i++)
        assert_int_equal(ls_series_add(&s, i, 2.0 * i, 1), LS_OK);
    assert_int_equal(ls_series_points(&s, 0, points), 100);
    for (int i = 0; i < 100; i++)
        assert_true(points[i].x == i + 1 && points[i].mean == 2.0 * (i + 1) && points[i].min == points[i].max);
    assert_true(ls_series_end(&s) == 100);
    ls_series_release(&s);
}

static void a_spike_in_a_million_is_kept(void **state)
{
    (void)state;
    struct ls_series s = {0};
    struct ls_point points[LS_SERIES_BUCKETS];
    double low, high, most = 0, sum = 0, steps = 0;
    for (int i = 1; i <= 1000000; i++)
        assert_int_equal(ls_series_add(&s, i, i == 777777 ? 50 : 1, 1), LS_OK);
    int n = ls_series_points(&s, 60, points);
    assert_true(n > 30 && n <= 60);
    for (int i = 0; i < n; i++) {
        most = fmax(most, points[i].max);
        sum += points[i].mean * (points[i].x_last - points[i].x + 1);
        steps += points[i].x_last - points[i].x + 1;
        assert_true(points[i].min == 1 && (i == 0 || points[i].x > points[i - 1].x_last));
    }
    assert_true(most == 50);
    assert_true(steps == 1000000 && fabs(sum - 1000049) < 1e-3);
    assert_true(ls_series_range(&s, true, &low, &high) && low == 1 && high == 50);
    assert_true(ls_series_range(&s, false, &low, &high) && high < 2);
    ls_series_release(&s);
}

static void means_are_weighted(void **state)
{
    (void)state;
    struct ls_series s = {0};
    struct ls_point points[LS_SERIES_BUCKETS];
    ls_series_add(&s, 1, 10, 1);
    ls_series_add(&s, 1, 20, 3);
    ls_series_add(&s, 1, 99, -1); /* no weight is 1 */
    assert_int_equal(ls_series_points(&s, 0, points), 1);
    assert_true(fabs(points[0].mean - (10 + 60 + 99) / 5.0) < 1e-12);
    ls_series_release(&s);
}

static void values_that_are_not_finite_are_gaps(void **state)
{
    (void)state;
    struct ls_series s = {0};
    struct ls_point points[LS_SERIES_BUCKETS];
    double low, high;
    assert_false(ls_series_range(&s, true, &low, &high));
    assert_true(ls_series_end(&s) == -1 && isnan(ls_series_tail(&s)));
    ls_series_add(&s, 1, 5, 1);
    ls_series_add(&s, 2, NAN, 1);
    ls_series_add(&s, 3, INFINITY, 1);
    assert_int_equal(ls_series_points(&s, 0, points), 3);
    assert_true(points[0].lost == 0 && points[1].lost == 1 && isnan(points[1].mean) && points[2].lost == 1);
    assert_int_equal(ls_series_points(&s, 1, points), 1);
    assert_true(points[0].mean == 5 && points[0].lost == 2);
    assert_true(ls_series_range(&s, true, &low, &high) && low == 5 && high == 5);
    ls_series_release(&s);
}

static void any_x_and_any_order_is_taken(void **state)
{
    (void)state;
    struct ls_series s = {0};
    struct ls_point points[LS_SERIES_BUCKETS];
    ls_series_add(&s, 9e15, 1, 1);
    ls_series_add(&s, 3, 2, 1);
    ls_series_add(&s, -1, 7, 1);
    ls_series_add(&s, NAN, 7, 1);
    ls_series_add(&s, INFINITY, 7, 1);
    assert_int_equal(ls_series_points(&s, 0, points), 2);
    assert_true(points[0].x == 3 && points[1].x == 9e15);
    ls_series_release(&s);
    ls_series_release(&s);
}

static void ticks_are_round_and_within_the_range(void **state)
{
    (void)state;
    double ticks[16];
    assert_int_equal(ls_plot_ticks(0, 100, 5, ticks), 6);
    assert_true(ticks[0] == 0 && ticks[1] == 20 && ticks[5] == 100);
    assert_int_equal(ls_plot_ticks(0.013, 0.047, 4, ticks), 3);
    assert_true(fabs(ticks[0] - 0.02) < 1e-12 && fabs(ticks[2] - 0.04) < 1e-12);
    assert_int_equal(ls_plot_ticks(5, 5, 4, ticks), 0);
    assert_int_equal(ls_plot_ticks(0, INFINITY, 4, ticks), 0);
    assert_int_equal(ls_plot_ticks(0, NAN, 4, ticks), 0);
    for (double high = 1e-12; high < 1e18; high *= 3.7) {
        int n = ls_plot_ticks(-high / 3, high, 5, ticks);
        assert_true(n >= 2 && n <= 12);
        for (int i = 0; i < n; i++)
            assert_true(ticks[i] >= -high / 3 * 1.001 && ticks[i] <= high * 1.001);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_points_stay_as_they_are),  cmocka_unit_test(a_spike_in_a_million_is_kept),
        cmocka_unit_test(means_are_weighted),           cmocka_unit_test(values_that_are_not_finite_are_gaps),
        cmocka_unit_test(any_x_and_any_order_is_taken), cmocka_unit_test(ticks_are_round_and_within_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
