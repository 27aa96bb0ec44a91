/* Watching a card, with tests/probes/nvml.c in the place of the driver's library. */
#include "report/gpu.h"
#include "base/system/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BUS "0000:01:00.0"

/* Until the card was asked n times. */
static void wait_samples(struct ls_gpu *g, int64_t n)
{
    struct ls_gpu_sums sums = {0};
    double deadline = ls_now() + 30;
    while (sums.n[0] < n) {
        ls_gpu_sums(g, &sums);
        usleep(1000);
        assert_true(ls_now() < deadline);
    }
}

static void test_samples(void **state)
{
    (void)state;
    struct ls_gpu g;
    struct ls_gpu_state last, mean, later;
    struct ls_gpu_sums first;
    assert_true(ls_gpu_watch(&g, BUS));
    wait_samples(&g, 1);
    assert_true(ls_gpu_last(&g, &last));
    assert_true(last.utilisation >= 2 && last.memory == 0x1.4p33 && last.power == 412 && last.clock == 1755);
    assert_true(isnan(last.temperature));
    ls_gpu_sums(&g, &first);
    wait_samples(&g, first.n[0] + 1);
    assert_true(ls_gpu_mean(&g, NULL, &mean) && ls_gpu_mean(&g, &first, &later));
    assert_true(later.utilisation > mean.utilisation && later.power == 412 && mean.memory == 0x1.4p33);
    assert_true(isnan(mean.temperature));
    ls_gpu_stop(&g);
    ls_gpu_stop(&g);
    assert_false(ls_gpu_last(&g, &last) || ls_gpu_mean(&g, NULL, &mean));
}

static void test_no_card(void **state)
{
    (void)state;
    struct ls_gpu g;
    struct ls_gpu_state last;
    assert_false(ls_gpu_watch(&g, ""));
    assert_false(ls_gpu_watch(&g, "0000:02:00.0"));
    assert_false(ls_gpu_last(&g, &last));
    ls_gpu_stop(&g);
}

static void test_text(void **state)
{
    (void)state;
    struct ls_gpu_state s = {
        .utilisation = 97, .memory = 10.3 * 0x1p30, .power = 412, .clock = 1755, .temperature = 60};
    char text[LS_GPU_TEXT];
    ls_gpu_text(&s, text);
    assert_string_equal(text, "97% busy on average, 412 W, 1755 MHz, 10.3 GiB");
    s.power = s.clock = NAN;
    ls_gpu_text(&s, text);
    assert_string_equal(text, "97% busy on average, 10.3 GiB");
    s = (struct ls_gpu_state){NAN, NAN, NAN, NAN, NAN};
    ls_gpu_text(&s, text);
    assert_string_equal(text, "");
}

static void test_driver(void **state)
{
    (void)state;
    char version[80];
    assert_true(ls_gpu_driver(version, sizeof version));
    assert_string_equal(version, "999.01.02");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_no_card),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_driver),
    };
    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
