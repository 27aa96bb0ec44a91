/* Matrix products of oneDNN before 3.11.2 switch to a stack in a heap buffer. A signal handler that runs on such a thread
 * overwrites the memory before that buffer. Therefore compute threads block the signals, and a separate thread takes them. */
#define _GNU_SOURCE /* sigorset */
#include "base/system/interrupt.h"
#include "base/system/thread.h"

#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
/* Globals, because a signal handler has no argument. */
static _Atomic int caught;
static _Atomic int64_t caught_at;  /* ns; 0: none */
static char unlink_path[PATH_MAX]; /* a file to unlink when a signal ends the process */
static _Atomic int unlink_set;     /* unlink_path is valid */

static struct {
    bool on;
    pthread_t thread;
    sem_t end;
    sigset_t before;  /* the mask of the calling thread before ls_interrupt_watch */
    sigset_t watched; /* without ignored signals: a blocked one would become pending and be counted */
} listener;

static sigset_t all_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set, signals[i]);
    return set;
}

static void record(int number);

/* A shell starts background jobs with SIGINT ignored; a run catches it nevertheless. An ignored SIGHUP (nohup) stays
 * ignored. */
static bool stays_ignored(int number, const struct sigaction *before, void (*handler)(int))
{
    return before->sa_handler == SIG_IGN && (number == SIGHUP || handler != record);
}

static void set_all(void (*handler)(int))
{
    /* sa_mask serialises the handlers: the first signal is recorded completely before a second one is handled. */
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART, .sa_mask = all_signals()}, before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && !stays_ignored(signals[i], &before, handler))
            sigaction(signals[i], &action, NULL);
}

/* Unlinks the file and takes the default action. */
static void end_process(int number)
{
    if (unlink_set)
        unlink(unlink_path);
    set_all(SIG_DFL);
    kill(getpid(), number);
}

static void record(int number)
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
        continue; /* EINTR: a signal was handled */
    return nothing;
}

static sigset_t watched_signals(void)
{
    sigset_t set;
    struct sigaction now;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == record)
            sigaddset(&set, signals[i]);
    return set;
}

/* Sets the mask of the calling thread and of its OpenMP threads. */
static void set_masks(const sigset_t *set)
{
#pragma omp parallel
    pthread_sigmask(SIG_SETMASK, set, NULL);
}

void ls_interrupt_watch(void)
{
    caught = 0;
    caught_at = 0;
    set_all(record);
    if (listener.on || sem_init(&listener.end, 0, 0) != 0)
        return;
    listener.watched = watched_signals();
    listener.on = ls_thread_create(&listener.thread, listen, NULL) == 0;
    if (!listener.on) { /* without the thread, any thread takes the signals */
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
    /* A signal that was sent to this thread is pending here. */
    const struct timespec no_time = {0};
    int number = listener.on ? sigtimedwait(&listener.watched, NULL, &no_time) : -1;
    if (number > 0)
        record(number);
    return caught;
}

void ls_interrupt_unlink(const char *file)
{
    unlink_set = 0;
    if (!file || strlen(file) >= sizeof unlink_path)
        return;
    snprintf(unlink_path, sizeof unlink_path, "%s", file);
    unlink_set = 1;
    set_all(end_process);
}
