/* Messages of one thread while another one is muted, and of a process that is quiet. */
#include "base/log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void *lose_peer(void *unused)
{
    ls_fail(LS_PEER_LOST, "rank 2 is gone");
    return unused;
}

/* What standard error gets while other threads and this one, muted, report. */
static void printed(char *text, size_t room)
{
    pthread_t thread;
    int ends[2], before = dup(STDERR_FILENO);
    assert_return_code(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    bool before_mute = ls_log_mute(true);
    ls_fail(LS_BAD_INPUT, "a file cannot be read");
    assert_int_equal(pthread_create(&thread, NULL, lose_peer, NULL), 0);
    pthread_join(thread, NULL);
    ls_log_mute(before_mute);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(ends[1]);
    ssize_t n = read(ends[0], text, room - 1);
    text[n > 0 ? n : 0] = 0;
    close(ends[0]);
    close(before);
}

static void a_muted_thread_does_not_mute_others(void **state)
{
    char text[512];
    (void)state;
    printed(text, sizeof text);
    assert_null(strstr(text, "cannot be read"));
    assert_non_null(strstr(text, "rank 2 is gone"));
}

static void the_last_message_knows_whether_it_was_printed(void **state)
{
    char text[512];
    (void)state;
    ls_log_mute(1);
    ls_fail(LS_BAD_INPUT, "a file cannot be read");
    assert_false(ls_log_last_copy(text, sizeof text));
    assert_string_equal(text, "a file cannot be read");
    ls_log_mute(0);
    printed(text, sizeof text);
    assert_true(ls_log_last_copy(text, sizeof text));
    assert_string_equal(text, "rank 2 is gone");
}

static void a_quiet_process_prints_nothing_of_any_thread(void **state)
{
    char text[512];
    (void)state;
    ls_log_quiet(true);
    printed(text, sizeof text);
    ls_log_quiet(false);
    assert_string_equal(text, "");
    assert_false(ls_log_last_copy(text, sizeof text));
    assert_string_equal(text, "rank 2 is gone");
}

static void mutes_are_nested(void **state)
{
    (void)state;
    bool outer = ls_log_mute(true), inner = ls_log_mute(true);
    assert_true(!outer && inner);
    ls_log_mute(inner);
    ls_fail(LS_BAD_INPUT, "still muted");
    assert_false(ls_log_last_copy((char[16]){0}, 16));
    ls_log_mute(outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_process_prints_nothing_of_any_thread),
        cmocka_unit_test(mutes_are_nested),
        cmocka_unit_test(a_muted_thread_does_not_mute_others),
        cmocka_unit_test(the_last_message_knows_whether_it_was_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
