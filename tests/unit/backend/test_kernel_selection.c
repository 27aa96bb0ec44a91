/* Choosing kernels by measuring: the choice must not depend on the noise of measuring. */
#include "backend/core/kernel_selection.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* A machine that takes `ms` for each candidate when idle. Busy: up to four times as long, whenever it likes. */
struct machine {
    const double *ms;
    double busy; /* 0: idle; 1: always disturbed */
    uint64_t seed, calls;
};

static double uniform(struct machine *m)
{
    return (double)ls_random_below(m->seed, 7, m->calls++, 1000000) / 1e6;
}

static enum ls_status take_time(void *context, int candidate, double *ms)
{
    struct machine *m = context;
    double jitter = 1 + 0.02 * uniform(m), disturbed = uniform(m) < m->busy ? 1 + 3 * uniform(m) : 1;
    *ms = m->ms[candidate] * jitter * disturbed;
    return LS_OK;
}

static int choose(const double *ms, int n, const uint64_t *groups, double busy, uint64_t seed)
{
    struct machine m = {.ms = ms, .busy = busy, .seed = seed};
    struct ls_kernel_selection c = {
        .n = n, .groups = groups, .margin = 1.5, .noise = 0.15, .time = take_time, .context = &m};
    int winner;
    double best;
    assert_int_equal(ls_kernel_select(&c, &winner, &best), LS_OK);
    return winner;
}

/* SELECT-3 */
static void stays_with_the_first_on_idle_and_busy_machines(void **state)
{
    static const double ms[] = {10, 9.5, 8, 11, 10};
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++)
        for (int busy = 0; busy <= 4; busy++)
            assert_int_equal(choose(ms, 5, NULL, busy / 4.0, seed), 0);
}

/* SELECT-3 */
static void takes_what_is_clearly_faster(void **state)
{
    static const double ms[] = {20, 30, 10, 9.5, 10};
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++)
        assert_int_equal(choose(ms, 5, NULL, 0, seed), 2);
}

/* SELECT-2 */
static void takes_the_fastest_of_a_group(void **state)
{
    static const double ms[] = {10, 9, 8, 7.5};
    static const uint64_t groups[] = {1, 2, 1, 2};
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++)
        assert_int_equal(choose(ms, 4, groups, 0, seed), 2);
}

static void passes_over_what_cannot_run(void **state)
{
    static const double some[] = {HUGE_VAL, 10, HUGE_VAL, 9}, none[] = {HUGE_VAL, HUGE_VAL};
    (void)state;
    assert_int_equal(choose(some, 4, NULL, 0, 1), 1);
    assert_int_equal(choose(none, 2, NULL, 0, 1), -1);
    assert_int_equal(choose(none, 0, NULL, 0, 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_with_the_first_on_idle_and_busy_machines),
        cmocka_unit_test(takes_what_is_clearly_faster),
        cmocka_unit_test(takes_the_fastest_of_a_group),
        cmocka_unit_test(passes_over_what_cannot_run),
    };
    return cmocka_run_group_tests_name("contest", tests, NULL, NULL);
}
