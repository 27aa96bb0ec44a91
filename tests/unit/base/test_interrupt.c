/* Signals that a run takes, and those that it leaves alone. */
#define _GNU_SOURCE
#include "base/interrupt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>

/* Sent to this thread, so that no other takes it before ls_interrupted() looks. */
static int seen_after(int number)
{
    ls_interrupt_watch();
    pthread_kill(pthread_self(), number);
    int seen = ls_interrupted();
    ls_interrupt_release();
    return seen;
}

static void takes_a_hangup(void **state)
{
    (void)state;
    signal(SIGHUP, SIG_DFL);
    assert_int_equal(seen_after(SIGHUP), SIGHUP);
}

static void leaves_an_ignored_hangup_alone(void **state)
{
    (void)state;
    signal(SIGHUP, SIG_IGN);
    assert_int_equal(seen_after(SIGHUP), 0);
}

/* A shell's background job. */
static void takes_an_ignored_interrupt(void **state)
{
    (void)state;
    signal(SIGINT, SIG_IGN);
    assert_int_equal(seen_after(SIGINT), SIGINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_hangup),
        cmocka_unit_test(leaves_an_ignored_hangup_alone),
        cmocka_unit_test(takes_an_ignored_interrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
