/* A heartbeat comes from another process: its length and numbers are checked before they are used. */
#include "comm/failures/heartbeat.h"
#include "comm/group.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { SIZE = 4, SENDER = 2 };

static struct ls_heartbeat good(void)
{
    return (struct ls_heartbeat){.rank = SENDER, .about = -1, .bucket = -1, .stage = LS_STAGE_COMPUTE, .age = 0.5};
}

static bool valid(struct ls_heartbeat h)
{
    return ls_heartbeat_valid(&h, sizeof h, SENDER, SIZE);
}

static void takes_what_ranks_send(void **state)
{
    struct ls_heartbeat h = good();
    (void)state;
    assert_true(valid(h));
    h.status = LS_PEER_LOST;
    h.about = SIZE - 1;
    h.stage = LS_STAGE_END;
    h.waits = SIZE;
    h.allowed = 1e9;
    assert_true(valid(h));
}

static void refuses_other_lengths_and_senders(void **state)
{
    struct ls_heartbeat h = good();
    (void)state;
    assert_false(ls_heartbeat_valid(&h, sizeof h - 1, SENDER, SIZE));
    assert_false(ls_heartbeat_valid(&h, 0, SENDER, SIZE));
    assert_false(ls_heartbeat_valid(&h, sizeof h, SENDER + 1, SIZE));
    assert_false(ls_heartbeat_valid(&h, sizeof h, SENDER, SENDER));
}

static void refuses_numbers_out_of_range(void **state)
{
    static const int32_t bad[] = {INT32_MIN, -2, SIZE + 1, INT32_MAX};
    static const double seconds[] = {-1, NAN, INFINITY, -INFINITY};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_heartbeat about = good(), waits = good();
        about.about = waits.waits = bad[i];
        assert_false(valid(about));
        assert_false(valid(waits));
    }
    for (int i = 0; i < 2; i++) {
        struct ls_heartbeat stage = good(), status = good();
        stage.stage = i ? LS_STAGE_END + 1 : -1;
        status.status = i ? LS_INTERRUPTED + 1 : -1;
        assert_false(valid(stage));
        assert_false(valid(status));
    }
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        struct ls_heartbeat age = good(), allowed = good(), unheard = good();
        age.age = allowed.allowed = unheard.unheard = seconds[i];
        assert_false(valid(age));
        assert_false(valid(allowed));
        assert_false(valid(unheard));
    }
}

static void extends_deadlines_by_any_number(void **state)
{
    static const double none[] = {0, -1, NAN, -INFINITY}, some[] = {1, 1e9, 1e300, INFINITY};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        _Atomic int64_t until = 0;
        ls_deadline_extend(&until, none[i]);
        assert_int_equal(until, 0);
        ls_deadline_extend(&until, some[i]);
        assert_true(until > ls_clock_ns());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_ranks_send),
        cmocka_unit_test(refuses_other_lengths_and_senders),
        cmocka_unit_test(refuses_numbers_out_of_range),
        cmocka_unit_test(extends_deadlines_by_any_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
