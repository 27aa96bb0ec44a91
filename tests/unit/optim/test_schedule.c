/* Learning rates against their formulas, computed here by hand, and against PyTorch's schedulers. */
#include "../../golden/schedules.h"
#include "base/log.h"
#include "optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define STEPS 10 /* an epoch */

/* Global rate 1.6 = 0.1 a 256 samples, 4096 samples a step, dealt to 16 replicas of 256. */
static struct ls_schedule made(const char *schedule, const char *warmup, int64_t epochs)
{
    struct ls_schedule s;
    assert_int_equal(ls_schedule_parse(schedule, warmup, &s), LS_OK);
    ls_schedule_scale(&s, 0.1, true, 4096, 16, STEPS, epochs * STEPS);
    return s;
}

static double at_epoch(const struct ls_schedule *s, uint64_t epoch)
{
    double first = ls_schedule_lr(s, epoch * STEPS), last = ls_schedule_lr(s, epoch * STEPS + STEPS - 1);
    assert_true(first == last);
    return first;
}

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%.17g where %.17g was expected", found, expected);
}

static void test_scaling(void **state)
{
    (void)state;
    struct ls_schedule s = made("constant", "none", 90);
    near(s.global, 1.6);
    near(s.base, 0.1);
    near(ls_schedule_lr(&s, 899), 1.6);
    ls_schedule_scale(&s, 0.05, false, 4096, 1, STEPS, 900);
    near(ls_schedule_lr(&s, 0), 0.05);
}

static void test_every(void **state)
{
    (void)state;
    struct ls_schedule s = made("every:30", "none", 90), half = made("every:2:0.5", "none", 90);
    near(at_epoch(&s, 0), 1.6);
    near(at_epoch(&s, 29), 1.6);
    near(at_epoch(&s, 30), 0.16);
    near(at_epoch(&s, 89), 0.016);
    near(at_epoch(&half, 7), 1.6 / 8);
}

static void test_multistep(void **state)
{
    (void)state;
    struct ls_schedule s = made("multistep:30,60,80", "none", 90), other = made("multistep:1:0.25", "none", 90);
    near(at_epoch(&s, 29), 1.6);
    near(at_epoch(&s, 30), 0.16);
    near(at_epoch(&s, 60), 0.016);
    near(at_epoch(&s, 79), 0.016);
    near(at_epoch(&s, 80), 0.0016);
    near(at_epoch(&other, 5), 0.4);
}

static void test_exponential(void **state)
{
    (void)state;
    struct ls_schedule s = made("exponential:0.9", "none", 90);
    for (uint64_t epoch = 0; epoch < 90; epoch++)
        near(at_epoch(&s, epoch), 1.6 * pow(0.9, (double)epoch));
}

/* By iteration: PyTorch's ExponentialLR, stepped after each batch. */
static void test_exponential_by_steps(void **state)
{
    (void)state;
    struct ls_schedule s = made("exponential:0.97:1", "none", 4), slow = made("exponential:0.5:20", "none", 4);
    for (uint64_t step = 0; step <= GOLDEN_STEPS; step++)
        near(ls_schedule_lr(&s, step), golden_exponential[step]);
    near(ls_schedule_lr(&slow, 10), 1.6 * sqrt(0.5));
    near(ls_schedule_lr(&slow, 40), 0.4);
}

static void test_polynomial(void **state)
{
    (void)state;
    struct ls_schedule s = made("polynomial", "none", 4), squared = made("polynomial:2", "none", 4);
    struct ls_schedule low = made("polynomial:1:0.4", "stepping:1", 3);
    for (uint64_t step = 0; step < GOLDEN_STEPS; step++) {
        near(ls_schedule_lr(&s, step), golden_polynomial[step]);
        near(ls_schedule_lr(&squared, step), golden_polynomial_squared[step]);
    }
    assert_true(ls_schedule_lr(&s, GOLDEN_STEPS) == 0 && ls_schedule_lr(&s, GOLDEN_STEPS + 5) == 0);
    near(ls_schedule_lr(&low, 10), 1.6);
    near(ls_schedule_lr(&low, 20), 1.0);
    near(ls_schedule_lr(&low, 30), 0.4);
}

static void follow(const char *schedule, const double *expected)
{
    struct ls_schedule s = made(schedule, "none", 90), again = s;
    assert_true(ls_schedule_observes(&s));
    for (int i = 0; i < GOLDEN_LOSSES; i++) {
        near(ls_schedule_lr(&s, (uint64_t)i * STEPS), expected[i]);
        ls_schedule_observe(&s, (uint64_t)(i + 1) * STEPS, golden_losses[i]);
        again = made(schedule, "none", 90); /* a run that was resumed here */
        again.memory = s.memory;
        s = again;
    }
    near(ls_schedule_lr(&s, 900), expected[GOLDEN_LOSSES]);
}

/* PyTorch's ReduceLROnPlateau. Evaluations of the warm-up do not count. */
static void test_plateau(void **state)
{
    (void)state;
    follow("plateau:2", golden_plateau);
    follow("plateau:2:0.1", golden_plateau);
    follow("plateau:0:0.5:0.3", golden_plateau_low);
    struct ls_schedule s = made("plateau:0", "stepping:3", 90);
    for (uint64_t epoch = 1; epoch <= 3; epoch++)
        ls_schedule_observe(&s, epoch * STEPS, (double)epoch);
    near(ls_schedule_lr(&s, 30), 1.6);
    assert_false(s.memory.any);
    ls_schedule_observe(&s, 40, 5);
    ls_schedule_observe(&s, 50, 5);
    near(ls_schedule_lr(&s, 50), 0.16);
    ls_schedule_observe(&s, 60, NAN);
    near(ls_schedule_lr(&s, 60), 0.016);
    assert_true(s.memory.best == 5);
}

static void test_cosine(void **state)
{
    (void)state;
    struct ls_schedule s = made("cosine", "none", 2), low = made("cosine:0.2", "none", 2);
    for (uint64_t step = 0; step < 20; step++) {
        double share = (1 + cos(3.14159265358979323846 * (double)step / 20)) / 2;
        near(ls_schedule_lr(&s, step), 1.6 * share);
        near(ls_schedule_lr(&low, step), 0.2 + 1.4 * share);
    }
    near(ls_schedule_lr(&low, 20), 0.2);
    near(ls_schedule_lr(&low, 2000), 0.2);
}

/* lr = global * (epoch + 1) / (warmup + 1) */
static void test_stepping(void **state)
{
    (void)state;
    struct ls_schedule s = made("constant", "stepping:5", 90);
    for (uint64_t epoch = 0; epoch < 5; epoch++)
        near(at_epoch(&s, epoch), 1.6 * (double)(epoch + 1) / 6);
    near(at_epoch(&s, 5), 1.6);
}

/* lr = base + (scaled - base) / warmup * epoch, base = 0.1 * (per-worker batch / 256) */
static void test_gradual(void **state)
{
    (void)state;
    struct ls_schedule s = made("multistep:30,60,80", "gradual:10", 90);
    for (uint64_t epoch = 0; epoch < 10; epoch++)
        near(at_epoch(&s, epoch), 0.1 + (1.6 - 0.1) / 10 * (double)epoch);
    near(at_epoch(&s, 10), 1.6);
    near(at_epoch(&s, 30), 0.16);
}

/* A base is given; it may not be above the full rate, and is of no use at it. */
static void test_gradual_base(void **state)
{
    (void)state;
    struct ls_schedule s = made("constant", "gradual:4:0.4", 90), high = made("constant", "gradual:4:1.7", 90);
    for (uint64_t epoch = 0; epoch < 4; epoch++)
        near(at_epoch(&s, epoch), 0.4 + 0.3 * (double)epoch);
    near(at_epoch(&s, 4), 1.6);
    assert_false(ls_schedule_is_flat(&s));
    assert_int_equal(ls_schedule_check(&s), LS_OK);
    ls_log_mute(1);
    assert_int_equal(ls_schedule_check(&high), LS_USAGE);
    ls_log_mute(0);
    struct ls_schedule alone = made("constant", "gradual:4", 90), none = made("constant", "none", 90);
    assert_false(ls_schedule_is_flat(&alone));
    ls_schedule_scale(&alone, 0.1, false, 64, 1, STEPS, 90 * STEPS);
    assert_true(ls_schedule_is_flat(&alone));
    assert_false(ls_schedule_is_flat(&none));
}

/* A least rate may not be above the full one. */
static void test_least_rate(void **state)
{
    static const char *const high[] = {"cosine:1.7", "polynomial:2:1.7", "plateau:1:0.5:1.7"};
    (void)state;
    struct ls_schedule equal = made("cosine:1.6", "none", 90);
    assert_int_equal(ls_schedule_check(&equal), LS_OK);
    ls_log_mute(1);
    for (size_t i = 0; i < sizeof high / sizeof *high; i++) {
        struct ls_schedule s = made(high[i], "none", 90);
        assert_int_equal(ls_schedule_check(&s), LS_USAGE);
    }
    ls_log_mute(0);
}

static void test_short_run(void **state)
{
    (void)state;
    struct ls_schedule s = made("constant", "stepping:5", 5), cut = made("constant", "stepping:5", 4);
    assert_false(ls_schedule_only_warms(&s));
    assert_true(ls_schedule_only_warms(&cut));
}

static void test_iterations(void **state)
{
    (void)state;
    struct ls_schedule s = made("constant", "iterations:7", 90);
    for (uint64_t step = 0; step < 7; step++)
        near(ls_schedule_lr(&s, step), 1.6 * (double)(step + 1) / 8);
    near(ls_schedule_lr(&s, 7), 1.6);
}

/* The cosine begins where the warm-up ends, and is at its end when the run is. */
static void test_cosine_after_warmup(void **state)
{
    (void)state;
    struct ls_schedule s = made("cosine", "stepping:1", 3);
    near(ls_schedule_lr(&s, 9), 0.8);
    near(ls_schedule_lr(&s, 10), 1.6);
    near(ls_schedule_lr(&s, 20), 0.8);
    assert_true(ls_schedule_lr(&s, 29) < 0.02);
}

static void refuse(const char *schedule, const char *warmup, const char *option)
{
    struct ls_schedule s;
    if (ls_schedule_parse(schedule, warmup, &s) != LS_USAGE)
        fail_msg("--schedule %s --warmup %s is accepted", schedule, warmup);
    assert_non_null(strstr(ls_log_last(), option));
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const schedules[] = {"",
                                            "constantly",
                                            "constant:1",
                                            "every",
                                            "every:",
                                            "every:0",
                                            "every:-3",
                                            "every:2:x",
                                            "every:2:0.1:",
                                            "multistep",
                                            "multistep:",
                                            "multistep:30,",
                                            "multistep:60,30",
                                            "multistep:3,3",
                                            "exponential",
                                            "exponential:nan",
                                            "exponential:0.9:",
                                            "exponential:0.9:0",
                                            "polynomial:",
                                            "polynomial:0",
                                            "polynomial:2:-1",
                                            "plateau:",
                                            "plateau:x",
                                            "plateau:1:0",
                                            "plateau:1:1",
                                            "plateau:1:nan",
                                            "plateau:1:0.5:",
                                            "cosine:",
                                            "cosine:-1",
                                            "every:99999999999999999999",
                                            "multistep:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    static const char *const warmups[] = {"",           "non",         "none:1",         "stepping",
                                          "stepping:0", "gradual:1.5", "iterations:1,2", "warm:5",
                                          "gradual:5:", "gradual:5:0", "gradual:5:-1",   "stepping:5:0.1"};
    ls_log_mute(1);
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        refuse(schedules[i], "none", "--schedule");
    for (size_t i = 0; i < sizeof warmups / sizeof *warmups; i++)
        refuse("constant", warmups[i], "--warmup");
    refuse("every", "none", "every:EPOCHS[:FACTOR]");
    refuse("constant", "gradual", "gradual:EPOCHS");
    ls_log_mute(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_every),
        cmocka_unit_test(test_multistep),
        cmocka_unit_test(test_exponential),
        cmocka_unit_test(test_exponential_by_steps),
        cmocka_unit_test(test_polynomial),
        cmocka_unit_test(test_plateau),
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_stepping),
        cmocka_unit_test(test_gradual),
        cmocka_unit_test(test_gradual_base),
        cmocka_unit_test(test_least_rate),
        cmocka_unit_test(test_short_run),
        cmocka_unit_test(test_iterations),
        cmocka_unit_test(test_cosine_after_warmup),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
