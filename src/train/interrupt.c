#include "train/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
/* A signal handler reaches nothing but globals. */
static volatile sig_atomic_t caught;
static struct timespec caught_at; /* written once, before caught */

static void set_all(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    /* one at a time, so that the first is remembered whole before a second looks */
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&action.sa_mask, signals[i]);
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

void ls_interrupt_watch(void)
{
    caught = 0;
    set_all(remember);
}

void ls_interrupt_release(void)
{
    if (!caught)
        set_all(SIG_DFL);
}

int ls_interrupted(void)
{
    return caught;
}
