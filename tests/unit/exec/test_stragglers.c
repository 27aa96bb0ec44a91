/* --stragglers: how long workers sleep. */
#include "exec/stragglers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct ls_stragglers of(const char *text, int rank)
{
    struct ls_stragglers s;
    struct ls_options o = {.stragglers = (char *)(uintptr_t)text, .seed = 3};
    assert_int_equal(ls_stragglers_init(&s, &o, rank, 4), LS_OK);
    return s;
}

static void nobody_sleeps_by_default(void **state)
{
    (void)state;
    struct ls_stragglers s = of(NULL, 1);
    assert_true(ls_stragglers_seconds(&s, 5) == 0);
    assert_true(ls_stragglers_sleep(&s, 5) == 0);
}

static void ranks_are_slow_in_their_steps(void **state)
{
    (void)state;
    struct ls_stragglers one = of("2,1*4@3-5", 1), other = of("2,1*4@3-5", 2);
    for (uint64_t step = 0; step < 8; step++) {
        double seconds = ls_stragglers_seconds(&one, step), usual = step >= 2 && step <= 4 ? 8 : 2;
        assert_true(seconds >= 0.9 * usual && seconds <= 1.1 * usual);
        assert_true(fabs(ls_stragglers_seconds(&other, step) - 2) <= 0.2);
    }
    assert_true(ls_stragglers_seconds(&one, 0) != ls_stragglers_seconds(&other, 0));
    assert_true(ls_stragglers_seconds(&one, 0) != ls_stragglers_seconds(&one, 1));
}

static void draws_have_their_share_and_repeat(void **state)
{
    (void)state;
    struct ls_stragglers a = of("1,p0.25*3", 0), b = of("1,p0.25*3", 0);
    int slow = 0;
    for (uint64_t step = 0; step < 2000; step++) {
        double seconds = ls_stragglers_seconds(&a, step);
        assert_true(seconds == ls_stragglers_seconds(&b, step));
        slow += seconds > 2;
    }
    assert_in_range(slow, 420, 580);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_sleeps_by_default),
        cmocka_unit_test(ranks_are_slow_in_their_steps),
        cmocka_unit_test(draws_have_their_share_and_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
