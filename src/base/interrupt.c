/* oneDNN's products of matrices lay their stack into a buffer of the heap (oneDNN 3.11.2 is the first that does not). A
 * signal that comes to such a thread overwrites what lies before that buffer. So while signals are watched, those who
 * compute take none; a thread that does nothing else does. */
#define _GNU_SOURCE /* sigorset */
#include "base/interrupt.h"
#include "base/thread.h"

#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
/* A signal handler reaches nothing but globals. */
static _Atomic int caught;
static _Atomic int64_t caught_at; /* ns; 0: none */
static char leaves[PATH_MAX];     /* a file to remove when a signal ends the process; "": none */
static _Atomic int leaving;       /* that name may be read */

static struct {
    bool on;
    pthread_t thread;
    sem_t end;
    sigset_t before;  /* what the calling thread did not take */
    sigset_t watched; /* without one that stays ignored: blocked, it would be pending, and taken for one that counts */
} listener;

static sigset_t all_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set, signals[i]);
    return set;
}

static void remember(int number);

/* A shell's background jobs ignore SIGINT; a run saves by it nevertheless. nohup's SIGHUP stays ignored. */
static bool stays_ignored(int number, const struct sigaction *before, void (*handler)(int))
{
    return before->sa_handler == SIG_IGN && (number == SIGHUP || handler != remember);
}

static void set_all(void (*handler)(int))
{
    /* one at a time, so that the first is remembered whole before a second looks */
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART, .sa_mask = all_signals()}, before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && !stays_ignored(signals[i], &before, handler))
            sigaction(signals[i], &action, NULL);
}

/* By default, but for the file. */
static void end_process(int number)
{
    if (leaving)
        unlink(leaves);
    set_all(SIG_DFL);
    kill(getpid(), number);
}

static void remember(int number)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec, first = 0;
    if (atomic_compare_exchange_strong(&caught_at, &first, now)) {
        caught = number;
        return;
    }
    if (number == SIGHUP || (double)(now - first) * 1e-9 < LS_INTERRUPT_ECHO)
        return;
    end_process(number);
}

static void *listen(void *nothing)
{
    pthread_sigmask(SIG_UNBLOCK, &listener.watched, NULL);
    while (sem_wait(&listener.end) != 0)
        continue; /* a signal came */
    return nothing;
}

static sigset_t watched_signals(void)
{
    sigset_t set;
    struct sigaction now;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == remember)
            sigaddset(&set, signals[i]);
    return set;
}

/* The calling thread and all that compute with it. */
static void set_masks(const sigset_t *set)
{
#pragma omp parallel
    pthread_sigmask(SIG_SETMASK, set, NULL);
}

void ls_interrupt_watch(void)
{
    caught = 0;
    caught_at = 0;
    set_all(remember);
    if (listener.on || sem_init(&listener.end, 0, 0) != 0)
        return;
    listener.watched = watched_signals();
    listener.on = ls_thread_create(&listener.thread, listen, NULL) == 0;
    if (!listener.on) { /* they come to whom they come */
        sem_destroy(&listener.end);
        return;
    }
    pthread_sigmask(SIG_BLOCK, NULL, &listener.before);
    sigset_t quiet;
    sigorset(&quiet, &listener.before, &listener.watched);
    set_masks(&quiet);
}

void ls_interrupt_release(void)
{
    if (!ls_interrupted())
        set_all(end_process);
    if (!listener.on)
        return;
    set_masks(&listener.before);
    sem_post(&listener.end);
    pthread_join(listener.thread, NULL);
    sem_destroy(&listener.end);
    listener.on = false;
}

int ls_interrupted(void)
{
    /* One that was sent to this very thread. */
    const struct timespec no_time = {0};
    int number = listener.on ? sigtimedwait(&listener.watched, NULL, &no_time) : -1;
    if (number > 0)
        remember(number);
    return caught;
}

void ls_interrupt_unlink(const char *file)
{
    leaving = 0;
    if (!file || strlen(file) >= sizeof leaves)
        return;
    strcpy(leaves, file);
    leaving = 1;
    set_all(end_process);
}
