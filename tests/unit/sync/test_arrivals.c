/* ls_arrivals_plan: how many gradients to wait for, from the arrivals seen. */
#include "base/random.h"
#include "sync/arrivals.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MOST = 64 };

static void note_all(struct ls_arrivals *a, const double *seconds, int rounds)
{
    for (int r = 0; r < rounds; r++)
        for (int w = 0; w < a->workers; w++)
            ls_arrivals_note(a, w, seconds[w] * (1 + 0.02 * ((r + w) % 3)));
}

/* The plan where all workers begin at once. */
static struct ls_arrivals_plan plan(struct ls_arrivals *a, int least)
{
    double start[MOST] = {0};
    return ls_arrivals_plan(a, start, least);
}

static struct ls_arrivals_plan plan_for(int workers, const double *seconds, int least)
{
    struct ls_arrivals a;
    assert_int_equal(ls_arrivals_open(&a, workers), LS_OK);
    note_all(&a, seconds, 8);
    struct ls_arrivals_plan p = plan(&a, least);
    ls_arrivals_close(&a);
    return p;
}

static void waits_for_all_while_nothing_is_known(void **state)
{
    struct ls_arrivals a;
    (void)state;
    assert_int_equal(ls_arrivals_open(&a, 3), LS_OK);
    struct ls_arrivals_plan p = plan(&a, 1);
    assert_int_equal(p.k, 3);
    assert_true(isinf(p.until));
    ls_arrivals_note(&a, 0, 1);
    ls_arrivals_note(&a, 1, 1);
    assert_int_equal(plan(&a, 1).k, 3);
    ls_arrivals_close(&a);
}

static void waits_for_all_that_are_alike(void **state)
{
    (void)state;
    assert_int_equal(plan_for(1, (double[]){1}, 1).k, 1);
    assert_int_equal(plan_for(2, (double[]){1, 1}, 1).k, 2);
    assert_int_equal(plan_for(4, (double[]){1, 1, 1, 1}, 2).k, 4);
    assert_int_equal(plan_for(4, (double[]){1, 1, 1.1, 1.2}, 2).k, 4);
}

static void leaves_out_slow_ones(void **state)
{
    (void)state;
    assert_int_equal(plan_for(4, (double[]){1, 1, 1, 4}, 2).k, 3);
    assert_int_equal(plan_for(4, (double[]){1, 4, 1, 4}, 2).k, 2);
    assert_int_equal(plan_for(8, (double[]){1, 1, 1, 9, 1, 1, 1, 1}, 4).k, 7);
}

static void counts_the_least_at_least(void **state)
{
    (void)state;
    assert_int_equal(plan_for(4, (double[]){1, 4, 1, 4}, 3).k >= 3, 1);
    assert_int_equal(plan_for(4, (double[]){1, 40, 40, 40}, 3).k >= 3, 1);
}

/* A worker that did not fail before may do so now: no step waits much longer than ever before. */
static void always_has_a_limit(void **state)
{
    (void)state;
    struct ls_arrivals_plan p = plan_for(4, (double[]){1, 1, 1, 1}, 2);
    assert_true(p.until > 1.04 && p.until < 1.5);
    assert_true(p.rate > 3.5 && p.rate < 4.1);
}

static void workers_that_take_no_part_are_not_waited_for(void **state)
{
    struct ls_arrivals a;
    (void)state;
    assert_int_equal(ls_arrivals_open(&a, 4), LS_OK);
    note_all(&a, (double[]){1, 1, 1, 1}, 5);
    assert_int_equal(ls_arrivals_plan(&a, (double[]){0, INFINITY, 0, 0}, 2).k, 3);
    assert_int_equal(ls_arrivals_plan(&a, (double[]){0, INFINITY, INFINITY, INFINITY}, 2).k,
                     2); /* one will come back */
    assert_int_equal(ls_arrivals_plan(&a, (double[]){0, 0.1, 0, 0}, 2).k, 4);
    assert_int_equal(ls_arrivals_plan(&a, (double[]){0, 0.9, 0, 0}, 2).k, 3);
    ls_arrivals_close(&a);
}

/* After a change it takes few rounds until the plan follows. */
static void follows_changes(void **state)
{
    struct ls_arrivals a;
    (void)state;
    assert_int_equal(ls_arrivals_open(&a, 4), LS_OK);
    note_all(&a, (double[]){1, 1, 1, 1}, 100);
    note_all(&a, (double[]){1, 1, 1, 5}, 16);
    assert_int_equal(plan(&a, 2).k, 3);
    note_all(&a, (double[]){1, 1, 1, 1}, 8);
    assert_int_equal(plan(&a, 2).k, 4);
    ls_arrivals_close(&a);
}

static void equal_rounds_give_equal_plans(void **state)
{
    (void)state;
    double seconds[MOST];
    for (int w = 0; w < MOST; w++)
        seconds[w] = 1 + (w * 37 % 11) * 0.1;
    struct ls_arrivals_plan a = plan_for(MOST, seconds, 32), b = plan_for(MOST, seconds, 32);
    assert_true(a.k == b.k && a.until == b.until && a.rate == b.rate);
}

/* --- a cluster in virtual time ------------------------------------------------------------------------------------ */

enum { WORKERS = 8, STEPS = 100, PARTS = 4 };

/* One slow worker, then two, then none, then random ones. */
static double draw_seconds(int worker, int step)
{
    uint32_t r[4];
    ls_philox(7, (uint64_t)worker, (uint64_t)step, r);
    int part = step / STEPS;
    bool slow = (worker == 1 && part < 2) || (worker == 7 && part == 1) || (part == 3 && ls_uniform(r[1]) < 0.1f);
    return (slow ? 5 : 1) * (0.9 + 0.2 * (double)ls_uniform(r[0]));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* When the step closes that opened at `now`: with k gradients, or with `least` after `limit` seconds. */
static double close_time(const double *ends, double now, int k, int least, double limit)
{
    double sorted[WORKERS];
    for (int w = 0; w < WORKERS; w++)
        sorted[w] = ends[w];
    qsort(sorted, WORKERS, sizeof *sorted, ascending);
    double end = fmin(sorted[k - 1], now + limit);
    return fmax(end, sorted[least - 1]);
}

/* Gradients per second of a run. Workers that are not done when a step closes continue, their gradients are lost, and they
 * begin again with the step after. k 0: as planned. */
static double speed(int k)
{
    struct ls_arrivals a;
    double now = 0, start[WORKERS], began[WORKERS] = {0}, ends[WORKERS] = {0}, counted[WORKERS];
    int64_t gradients = 0;
    bool busy[WORKERS] = {false};
    assert_int_equal(ls_arrivals_open(&a, WORKERS), LS_OK);
    for (int step = 0; step < PARTS * STEPS; step++) {
        for (int w = 0; w < WORKERS; w++) {
            start[w] = busy[w] ? INFINITY : 0;
            began[w] = busy[w] ? began[w] : now;
            ends[w] = busy[w] ? ends[w] : now + draw_seconds(w, step);
            counted[w] = busy[w] ? ends[w] + 1 : ends[w]; /* a busy one would have to begin anew */
        }
        struct ls_arrivals_plan p = ls_arrivals_plan(&a, start, WORKERS / 2);
        now = k ? close_time(counted, now, k, k, INFINITY) : close_time(counted, now, p.k, WORKERS / 2, p.until);
        for (int w = 0; w < WORKERS; w++) {
            gradients += !busy[w] && ends[w] <= now;
            busy[w] = ends[w] > now;
            if (!busy[w])
                ls_arrivals_note(&a, w, ends[w] - began[w]);
        }
    }
    ls_arrivals_close(&a);
    return (double)gradients / now;
}

static void beats_every_fixed_number_where_stragglers_change(void **state)
{
    (void)state;
    double planned = speed(0);
    for (int k = 1; k <= WORKERS; k++) {
        double fixed = speed(k);
        print_message("first %d: %.2f gradients per second, planned: %.2f\n", k, fixed, planned);
        assert_true(planned > 1.05 * fixed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_all_while_nothing_is_known),
        cmocka_unit_test(waits_for_all_that_are_alike),
        cmocka_unit_test(leaves_out_slow_ones),
        cmocka_unit_test(counts_the_least_at_least),
        cmocka_unit_test(always_has_a_limit),
        cmocka_unit_test(workers_that_take_no_part_are_not_waited_for),
        cmocka_unit_test(follows_changes),
        cmocka_unit_test(equal_rounds_give_equal_plans),
        cmocka_unit_test(beats_every_fixed_number_where_stragglers_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
