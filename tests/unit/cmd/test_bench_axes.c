/* The product of the lists of bench, and the estimate of the time that is left. */
#include "base/log.h"
#include "cmd/bench/axes.h"
#include "cmd/bench/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

static void parse(struct ls_options *o, int n, char **words)
{
    bool help;
    assert_int_equal(ls_options_parse(o, LS_CMD_BENCH, n, words, &help), LS_OK);
}

static void combinations_in_order(void **state)
{
    (void)state;
    struct ls_options o;
    struct ls_bench_axes a;
    /* the order is that of the option table, not that of the words */
    parse(&o, 6, (char *[]){"--workers", "1,2", "--model", "lenet,mlp", "--batch", "8,16,max"});
    assert_true(ls_bench_has_lists(&o));
    assert_int_equal(ls_bench_axes_read(&o, &a), LS_OK);
    assert_int_equal(a.n, 3);
    assert_int_equal(a.total, 12);
    static const char *const expected[][3] = {
        {"lenet", "8", "1"},   {"lenet", "8", "2"},   {"lenet", "16", "1"}, {"lenet", "16", "2"},
        {"lenet", "max", "1"}, {"lenet", "max", "2"}, {"mlp", "8", "1"},    {"mlp", "8", "2"},
        {"mlp", "16", "1"},    {"mlp", "16", "2"},    {"mlp", "max", "1"},  {"mlp", "max", "2"},
    };
    for (int i = 0; i < 12; i++) {
        for (int k = 0; k < 3; k++)
            assert_string_equal(ls_bench_axes_item(&a, k, i), expected[i][k]);
        assert_string_equal(ls_bench_axes_value(&a, "batch", i), expected[i][1]);
        assert_null(ls_bench_axes_value(&a, "threads", i));
    }
    ls_bench_axes_release(&a);
    ls_options_release(&o);
}

static void one_value_is_no_list(void **state)
{
    (void)state;
    struct ls_options o;
    struct ls_bench_axes a;
    parse(&o, 2, (char *[]){"--batch", "8"});
    assert_false(ls_bench_has_lists(&o));
    assert_int_equal(ls_bench_axes_read(&o, &a), LS_OK);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.total, 1);
    ls_bench_axes_release(&a);
    ls_options_release(&o);
}

static void repeated_items_count_once(void **state)
{
    (void)state;
    struct ls_options o;
    struct ls_bench_axes a;
    ls_log_mute(true);
    parse(&o, 2, (char *[]){"--threads", "2,1,2,1,2"});
    assert_int_equal(ls_bench_axes_read(&o, &a), LS_OK);
    ls_log_mute(false);
    assert_int_equal(a.total, 2);
    assert_string_equal(ls_bench_axes_item(&a, 0, 0), "2");
    assert_string_equal(ls_bench_axes_item(&a, 0, 1), "1");
    ls_bench_axes_release(&a);
    ls_options_release(&o);
}

static void expect_left(const struct ls_bench_progress *p, double now, double seconds)
{
    double left = ls_bench_progress_left(p, now);
    if (left < seconds - 1e-9 || left > seconds + 1e-9)
        fail_msg("%g seconds left were expected, %g found", seconds, left);
}

static void time_left(void **state)
{
    (void)state;
    struct ls_options o;
    struct ls_bench_progress p;
    parse(&o, 4, (char *[]){"--repeat", "4", "--quiet", "--no-progress"});
    assert_int_equal(ls_bench_progress_open(&p, &o, 3), LS_OK);
    expect_left(&p, 0, -1);
    /* one of three is known: the others are taken to be like it */
    p.seconds[0] = 2;
    p.left[0] = 3;
    expect_left(&p, 0, 3 * 2 + 4 * 2 + 4 * 2);
    /* two are known: the third is like their mean */
    p.seconds[1] = 6;
    p.left[1] = 3;
    expect_left(&p, 0, 3 * 2 + 3 * 6 + 4 * 4);
    /* what runs now has run for a while, and is never counted for more than it takes */
    p.at = 1;
    p.begun = 100;
    expect_left(&p, 105, 40 - 5);
    expect_left(&p, 120, 40 - 6);
    /* one that failed is over */
    p.at = -1;
    ls_bench_progress_end(&p, 1, 1, true);
    expect_left(&p, 0, 3 * 2 + 4 * 4);
    assert_int_equal(p.left[1], 0);
    ls_bench_progress_close(&p);
    ls_options_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combinations_in_order),
        cmocka_unit_test(one_value_is_no_list),
        cmocka_unit_test(repeated_items_count_once),
        cmocka_unit_test(time_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
