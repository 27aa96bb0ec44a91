/* Signals that a run takes, and those that it leaves alone. */
#define _GNU_SOURCE
#include "base/system/interrupt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static time_t later; /* seconds by which the clock is ahead */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int failed = __real_clock_gettime(clock, t);
    t->tv_sec += later;
    return failed;
}

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

/* Does a process that takes one signal, and another so many seconds later, end by the second? */
static bool ends(int first, int second, int seconds, bool expected)
{
    int how;
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        omp_set_num_threads(1); /* a forked child has none of its parent's threads to wait for */
        signal(SIGHUP, SIG_DFL);
        ls_interrupt_watch();
        pthread_kill(pthread_self(), first);
        bool seen = ls_interrupted() == first;
        later += seconds;
        pthread_kill(pthread_self(), second);
        seen = seen && ls_interrupted() == first;
        while (expected) /* the thread that takes it may still be starting */
            pause();
        _exit(seen ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) ? WTERMSIG(how) == second : WEXITSTATUS(how) == 0);
    return WIFSIGNALED(how);
}

static void an_echo_counts_for_nothing(void **state)
{
    (void)state;
    assert_false(ends(SIGTERM, SIGTERM, 0, false));
    assert_false(ends(SIGINT, SIGTERM, 0, false));
    assert_false(ends(SIGHUP, SIGHUP, 0, false));
}

static void a_second_signal_ends_the_process(void **state)
{
    (void)state;
    assert_true(ends(SIGTERM, SIGTERM, 2, true));
    assert_true(ends(SIGHUP, SIGINT, 2, true));
}

static void a_second_hangup_does_not(void **state)
{
    (void)state;
    assert_false(ends(SIGHUP, SIGHUP, 2, false));
    assert_false(ends(SIGTERM, SIGHUP, 2, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_hangup),
        cmocka_unit_test(leaves_an_ignored_hangup_alone),
        cmocka_unit_test(takes_an_ignored_interrupt),
        cmocka_unit_test(an_echo_counts_for_nothing),
        cmocka_unit_test(a_second_signal_ends_the_process),
        cmocka_unit_test(a_second_hangup_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
