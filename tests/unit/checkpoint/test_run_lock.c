/* The lock of a run directory. Cites Q1 .. Q3 of checkpoint/run_lock.h. */
#define _GNU_SOURCE
#include "base/files/file.h"
#include "base/log.h"
#include "checkpoint/run_lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char run[] = "/tmp/lockstep-lock-XXXXXX";
static char path[sizeof run + 8];
static const struct ls_run_lock_times quick = {.touch = 0.05, .stale = 1};
static char *command[] = {"lockstep", "train", "--token", "hush-hush", "--batch", "7", NULL};

static int begin(void **state)
{
    (void)state;
    strcpy(run + strlen(run) - 6, "XXXXXX");
    ls_log_mute(1);
    if (!mkdtemp(run))
        return -1;
    snprintf(path, sizeof path, "%s/lock", run);
    return 0;
}

static int end(void **state)
{
    (void)state;
    ls_log_mute(0);
    return ls_dir_remove(run) != LS_OK;
}

static enum ls_status take(struct ls_run_lock **lock)
{
    return ls_run_lock_take(run, command, quick, lock);
}

static int names(void)
{
    int n = 0;
    DIR *dir = opendir(run);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static const char *text_of_lock(void)
{
    static char text[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void is_refused_to_a_second_which_hears_who_has_it(void **state)
{
    (void)state;
    struct ls_run_lock *first, *second;
    char pid[32];
    assert_int_equal(take(&first), LS_OK);
    assert_int_equal(names(), 1);
    assert_int_equal(take(&second), LS_FAILED);
    snprintf(pid, sizeof pid, "(pid %ld,", (long)getpid());
    assert_non_null(strstr(ls_log_last(), run));
    assert_non_null(strstr(ls_log_last(), pid));
    assert_non_null(strstr(ls_log_last(), "lockstep train"));
    assert_null(strstr(ls_log_last(), "hush"));
    assert_int_equal(names(), 1);
    ls_run_lock_release(first);
    assert_int_equal(names(), 0);
    assert_int_equal(take(&second), LS_OK);
    ls_run_lock_release(second);
}

/* A child that ends with this process, also if an assertion fails: it would keep the output of the test open. */
static pid_t start(void)
{
    pid_t pid = fork();
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

/* A child that holds it until it is killed. */
static pid_t holder(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = start();
    if (pid == 0) {
        struct ls_run_lock *lock;
        if (take(&lock) != LS_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void kill_off(pid_t pid)
{
    int how;
    kill(pid, SIGKILL);
    kill(pid, SIGCONT);
    waitpid(pid, &how, 0);
}

static void of_a_killed_process_is_taken_over_at_once(void **state)
{
    (void)state;
    struct ls_run_lock *lock;
    pid_t pid = holder();
    assert_int_equal(take(&lock), LS_FAILED);
    kill_off(pid);
    assert_int_equal(ls_run_lock_take(run, command, LS_RUN_LOCK_TIMES, &lock), LS_OK);
    assert_int_equal(names(), 1);
    ls_run_lock_release(lock);
}

/* Q1: each of them holds it for a moment, and counts how many do. */
static void goes_to_one_of_many(void **state)
{
    (void)state;
    enum { MANY = 24, ROUNDS = 8 };
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (int round = 0; round < ROUNDS; round++) {
        kill_off(holder());
        shared[0] = shared[1] = 0;
        for (int i = 0; i < MANY; i++) {
            pid_t pid = start();
            if (pid == 0) {
                struct ls_run_lock *lock;
                while (!__atomic_load_n(&shared[1], __ATOMIC_SEQ_CST))
                    usleep(100);
                if (take(&lock) == LS_OK) {
                    __atomic_fetch_add(&shared[0], 1, __ATOMIC_SEQ_CST);
                    pause(); /* nobody gives it back */
                }
                _exit(0);
            }
            shared[16 + i] = pid;
        }
        __atomic_store_n(&shared[1], 1, __ATOMIC_SEQ_CST);
        int how, ended = 0;
        while (ended < MANY - 1 && wait(&how) > 0)
            ended++;
        for (int i = 0; i < 100000 && !__atomic_load_n(&shared[0], __ATOMIC_SEQ_CST); i++)
            usleep(100); /* the others may be through before the one that holds it counts itself */
        assert_int_equal(shared[0], 1);
        for (int i = 0; i < MANY; i++)
            kill(shared[16 + i], SIGKILL);
        while (wait(&how) > 0)
            ;
        assert_int_equal(names(), 1);
        unlink(path);
    }
    munmap(shared, 4096);
}

/* The lock of this process with one line changed. */
static void forge(const char *key, const char *value)
{
    struct ls_run_lock *lock;
    char line[64], other[4096];
    assert_int_equal(take(&lock), LS_OK);
    const char *text = text_of_lock();
    ls_run_lock_release(lock);
    snprintf(line, sizeof line, "\n%s: ", key);
    const char *at = strstr(text, line);
    assert_non_null(at);
    snprintf(other, sizeof other, "%.*s\n%s: %s%s", (int)(at - text), text, key, value, strchr(at + 1, '\n'));
    assert_int_equal(ls_file_write(path, other, strlen(other)), LS_OK);
}

static void of_a_pid_that_is_another_process_now_is_stale(void **state)
{
    (void)state;
    struct ls_run_lock *lock;
    forge("start", "1");
    assert_int_equal(ls_run_lock_take(run, command, LS_RUN_LOCK_TIMES, &lock), LS_OK);
    ls_run_lock_release(lock);
}

static void of_another_machine_is_stale_when_nobody_touches_it(void **state)
{
    (void)state;
    struct ls_run_lock *lock;
    static const char *const keys[] = {"boot", "pids"};
    for (int i = 0; i < 2; i++) {
        forge(keys[i], "of another machine or container");
        assert_int_equal(take(&lock), LS_OK); /* after quick.stale seconds */
        ls_run_lock_release(lock);
    }
    forge("boot", "of another machine");
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_int_equal(ls_run_lock_take(run, command, LS_RUN_LOCK_TIMES, &lock), LS_OK); /* at once */
    ls_run_lock_release(lock);
}

static void of_another_machine_holds_while_it_is_touched(void **state)
{
    (void)state;
    struct ls_run_lock *lock;
    forge("boot", "of another machine");
    pid_t pid = start();
    if (pid == 0)
        for (;;) {
            utimensat(AT_FDCWD, path, NULL, 0);
            usleep(50000);
        }
    assert_int_equal(ls_run_lock_take(run, command, LS_RUN_LOCK_TIMES, &lock), LS_FAILED);
    kill_off(pid);
    assert_non_null(strstr(ls_log_last(), "in use"));
}

static void that_is_no_lock_is_waited_for_too(void **state)
{
    (void)state;
    struct ls_run_lock *lock;
    assert_int_equal(ls_file_write(path, "", 0), LS_OK);
    assert_int_equal(take(&lock), LS_OK);
    ls_run_lock_release(lock);
    assert_int_equal(ls_file_write(path, "pid: -1\nboot\n\n:", 15), LS_OK);
    assert_int_equal(take(&lock), LS_OK);
    ls_run_lock_release(lock);
}

/* Q3 */
static void is_missed_by_who_lost_it(void **state)
{
    (void)state;
    struct ls_run_lock *lock;
    assert_int_equal(ls_run_lock_take(run, command, LS_RUN_LOCK_TIMES, &lock), LS_OK);
    assert_int_equal(ls_run_lock_held(lock, true), LS_OK);
    const char other[] = "host: other\npid: 7\nid: 1\n";
    assert_int_equal(ls_file_write(path, other, sizeof other - 1), LS_OK);
    assert_int_equal(ls_run_lock_held(lock, false), LS_OK); /* it was seen a moment ago */
    assert_int_equal(ls_run_lock_held(lock, true), LS_FAILED);
    assert_non_null(strstr(ls_log_last(), "host other"));
    assert_int_equal(ls_run_lock_held(lock, false), LS_FAILED);
    ls_run_lock_release(lock);
    assert_string_equal(text_of_lock(), other); /* it is not ours to remove */
    unlink(path);
}

static void comes_back_when_somebody_removes_it(void **state)
{
    (void)state;
    struct ls_run_lock *lock, *second;
    assert_int_equal(take(&lock), LS_OK);
    unlink(path);
    assert_int_equal(ls_run_lock_held(lock, true), LS_OK);
    assert_int_equal(take(&second), LS_FAILED);
    assert_int_equal(ls_run_lock_held(lock, true), LS_OK);
    ls_run_lock_release(lock);
    assert_int_equal(names(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_refused_to_a_second_which_hears_who_has_it, begin, end),
        cmocka_unit_test_setup_teardown(of_a_killed_process_is_taken_over_at_once, begin, end),
        cmocka_unit_test_setup_teardown(goes_to_one_of_many, begin, end),
        cmocka_unit_test_setup_teardown(of_a_pid_that_is_another_process_now_is_stale, begin, end),
        cmocka_unit_test_setup_teardown(of_another_machine_is_stale_when_nobody_touches_it, begin, end),
        cmocka_unit_test_setup_teardown(of_another_machine_holds_while_it_is_touched, begin, end),
        cmocka_unit_test_setup_teardown(that_is_no_lock_is_waited_for_too, begin, end),
        cmocka_unit_test_setup_teardown(is_missed_by_who_lost_it, begin, end),
        cmocka_unit_test_setup_teardown(comes_back_when_somebody_removes_it, begin, end),
    };
    return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
