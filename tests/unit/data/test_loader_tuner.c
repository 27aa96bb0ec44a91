/* The number of loader threads, chosen on machines that exist only as formulas. */
#include "data/tuner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* A slot takes `compute` seconds of computing and `prepare` seconds of one thread, which `helpful` threads at most can share;
 * each thread beyond `free` slows the computing down. pace > 0: other processes let a slot come only so often. */
struct machine {
    double compute, prepare;
    int helpful, free;
    double slowdown, pace;
};

static double computing(const struct machine *m, int threads)
{
    return m->compute * (1 + (threads > m->free ? m->slowdown * (threads - m->free) : 0));
}

/* Take slots; how often the number changed. */
static int take(struct ls_tuner *t, const struct machine *m, int slots)
{
    int changes = 0;
    for (int i = 0; i < slots; i++) {
        double compute = computing(m, t->threads);
        double filled = m->prepare / (t->threads < m->helpful ? t->threads : m->helpful);
        double waited = filled > compute ? filled - compute : 0, seconds = compute + waited;
        if (seconds < m->pace)
            seconds = m->pace;
        changes += ls_tuner_slot(t, seconds, waited);
        assert_in_range(t->threads, 1, t->max_threads);
    }
    return changes;
}

static struct ls_tuner begun(int threads, int most)
{
    struct ls_tuner t;
    ls_tuner_begin(&t, threads, most, 4, 1);
    return t;
}

static void slow_input_gets_the_threads_it_needs(void **state)
{
    (void)state;
    static const struct {
        double prepare;
        int first, most, needed;
    } cases[] = {{0.25, 1, 2, 2}, {0.98, 4, 64, 10}, {6, 1, 8, 8}, {0.25, 32, 64, 32}, {0.1, 1, 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct machine m = {.compute = 0.1, .prepare = cases[i].prepare, .helpful = 100, .free = 100};
        struct ls_tuner t = begun(cases[i].first, cases[i].most);
        take(&t, &m, 100);
        assert_int_equal(t.threads, cases[i].needed);
        assert_true(t.settled);
        assert_int_equal(take(&t, &m, 10000), 0);
    }
}

static void threads_that_do_not_help_are_taken_back(void **state)
{
    (void)state;
    struct machine storage = {.compute = 0.1, .prepare = 0.8, .helpful = 4, .free = 100}; /* four reads at a time */
    struct machine crowded = {.compute = 0.1, .prepare = 0.46, .helpful = 100, .free = 4, .slowdown = 0.2};
    const struct machine *machines[] = {&storage, &crowded};
    for (int i = 0; i < 2; i++) {
        struct ls_tuner t = begun(4, 16);
        take(&t, machines[i], 40);
        assert_int_equal(t.threads, 4);
        assert_true(t.settled);
        /* later trials are few: the time between them doubles, up to 1024 windows of six slots */
        assert_in_range(take(&t, machines[i], 100000), 0, 2 * (10 + 100000 / 6 / 1024));
        assert_true(t.threads == 4 || t.before == 4);
    }
}

static void a_later_trial_finds_what_has_become_useful(void **state)
{
    (void)state;
    struct machine m = {.compute = 0.1, .prepare = 0.8, .helpful = 2, .free = 100};
    struct ls_tuner t = begun(2, 8);
    take(&t, &m, 200);
    assert_true(t.threads == 2 || t.before == 2);
    m.helpful = 8;
    take(&t, &m, 2000);
    assert_int_equal(t.threads, 8);
}

/* The others are slower: the slots come no faster, but this process keeps nobody waiting any more. */
static void less_waiting_at_the_same_pace_counts(void **state)
{
    (void)state;
    struct machine m = {.compute = 0.1, .prepare = 0.4, .helpful = 100, .free = 100, .pace = 0.4};
    struct ls_tuner t = begun(1, 4);
    take(&t, &m, 100);
    assert_true(t.threads >= 2);
}

static void pauses_say_nothing(void **state)
{
    (void)state;
    struct machine m = {.compute = 0.1, .prepare = 0.4, .helpful = 100, .free = 100};
    struct ls_tuner t = begun(1, 4);
    for (int i = 0; i < 60; i++) {
        take(&t, &m, 5);
        ls_tuner_slot(&t, 30, 0); /* a checkpoint */
    }
    assert_int_equal(t.threads, 4);
}

/* The most may be raised and lowered while the loader runs. */
static void the_most_may_change(void **state)
{
    (void)state;
    struct machine m = {.compute = 0.1, .prepare = 9, .helpful = 100, .free = 100};
    struct ls_tuner t = begun(1, 1);
    assert_int_equal(take(&t, &m, 100), 0);
    t.max_threads = 8;
    take(&t, &m, 40);
    assert_int_equal(t.threads, 8);
    t.max_threads = 2;
    assert_int_equal(ls_tuner_slot(&t, 1, 1), 1);
    assert_int_equal(t.threads, 2);
    assert_int_equal(take(&t, &m, 1000), 0);
}

static void a_given_number_stays(void **state)
{
    (void)state;
    struct machine m = {.compute = 0.1, .prepare = 9, .helpful = 100, .free = 100};
    struct ls_tuner t = begun(3, 0);
    assert_int_equal(take(&t, &m, 1000), 0);
    assert_int_equal(t.threads, 3);
    assert_true(t.settled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_input_gets_the_threads_it_needs),
        cmocka_unit_test(threads_that_do_not_help_are_taken_back),
        cmocka_unit_test(a_later_trial_finds_what_has_become_useful),
        cmocka_unit_test(less_waiting_at_the_same_pace_counts),
        cmocka_unit_test(pauses_say_nothing),
        cmocka_unit_test(the_most_may_change),
        cmocka_unit_test(a_given_number_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
