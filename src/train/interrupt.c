/* oneDNN's products of matrices lay their stack into a buffer of the heap (oneDNN 3.11.2 is the first that does not). A
 * signal that comes to such a thread overwrites what lies before that buffer. So while signals are watched, those who
 * compute take none; a thread that does nothing else does. */
#include "train/interrupt.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
/* A signal handler reaches nothing but globals. */
static volatile sig_atomic_t caught;
static struct timespec caught_at; /* written once, before caught */

static struct {
    bool on;
    pthread_t thread;
    sem_t end;
    sigset_t before; /* what the calling thread did not take */
} listener;

static sigset_t all_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set, signals[i]);
    return set;
}

static void set_all(void (*handler)(int))
{
    /* one at a time, so that the first is remembered whole before a second looks */
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART, .sa_mask = all_signals()};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

static void remember(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!caught) {
        caught_at = now;
        caught = number;
        return;
    }
    double since = (double)(now.tv_sec - caught_at.tv_sec) + 1e-9 * (double)(now.tv_nsec - caught_at.tv_nsec);
    if (since < LS_INTERRUPT_ECHO)
        return;
    set_all(SIG_DFL);
    raise(number); /* once this handler is left */
}

static void *listen(void *nothing)
{
    sigset_t mine = all_signals();
    pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
    while (sem_wait(&listener.end) != 0)
        continue; /* a signal came */
    return nothing;
}

/* The calling thread and all that compute with it. */
static void set_masks(const sigset_t *set)
{
#pragma omp parallel
    pthread_sigmask(SIG_SETMASK, set, NULL);
}

void ls_interrupt_watch(void)
{
    sigset_t none;
    caught = 0;
    set_all(remember);
    if (listener.on || sem_init(&listener.end, 0, 0) != 0)
        return;
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &listener.before);
    listener.on = pthread_create(&listener.thread, NULL, listen, NULL) == 0;
    if (!listener.on) { /* they come to whom they come */
        sem_destroy(&listener.end);
        pthread_sigmask(SIG_SETMASK, &listener.before, NULL);
        return;
    }
    sigset_t quiet = listener.before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&quiet, signals[i]);
    set_masks(&quiet);
}

void ls_interrupt_release(void)
{
    if (!caught)
        set_all(SIG_DFL);
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
    return caught;
}
