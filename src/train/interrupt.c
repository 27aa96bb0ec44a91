#include "train/interrupt.h"

#include <signal.h>
#include <stddef.h>

static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
/* A signal handler reaches nothing but a global. */
static volatile sig_atomic_t caught;

static void set_all(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

static void remember(int number)
{
    caught = number;
    set_all(SIG_DFL);
}

void ls_interrupt_watch(void)
{
    caught = 0;
    set_all(remember);
}

void ls_interrupt_release(void)
{
    set_all(SIG_DFL);
}

int ls_interrupted(void)
{
    return caught;
}
