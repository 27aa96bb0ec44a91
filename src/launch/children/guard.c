#define _GNU_SOURCE
#include "launch/children/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE = 5 /* seconds between SIGTERM and SIGKILL */, GROUPS = 4096 };

static void signal_groups(const pid_t *groups, int n, int number)
{
    for (int i = 0; i < n; i++)
        if (groups[i] > 0)
            kill(-groups[i], number);
}

/* Runs in the guard. Only functions that are safe after fork are called. */
static void watch(int pipe_end, const pid_t *groups, int n)
{
    pid_t left[GROUPS];
    int ended;
    ssize_t got;
    for (int i = 0; i < n; i++)
        left[i] = groups[i];
    while ((got = read(pipe_end, &ended, sizeof ended)) != 0)
        if (got == (ssize_t)sizeof ended && ended >= 0 && ended < n)
            left[ended] = 0;
        else if (got < 0 && errno != EINTR)
            break;
    signal_groups(left, n, SIGTERM);
    signal_groups(left, n, SIGCONT); /* a stopped process handles no other signal */
    sleep(GRACE);
    signal_groups(left, n, SIGKILL);
    _exit(0);
}

/* The guard keeps no stream or pipe of the parent open: the other end must see that the parent has closed it. */
static int close_others(int pipe_end)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; nothing >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(nothing, fd);
    pipe_end = dup2(pipe_end, STDERR_FILENO + 1);
    closefrom(STDERR_FILENO + 2);
    return pipe_end;
}

void ls_guard_start(struct ls_guard *g, const pid_t *groups, int n)
{
    int ends[2];
    sigset_t all;
    *g = (struct ls_guard){.pipe = -1};
    if (n > GROUPS || pipe2(ends, O_CLOEXEC) != 0)
        return;
    g->pid = fork();
    if (g->pid == 0) {
        setpgid(0, 0);
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        watch(close_others(ends[0]), groups, n);
    }
    close(ends[0]);
    g->pipe = ends[1];
    if (g->pid < 0)
        ls_guard_end(g);
}

void ls_guard_forget(const struct ls_guard *g, int i)
{
    if (g->pid > 0 && write(g->pipe, &i, sizeof i) < 0)
        return; /* the guard was killed; nothing depends on it */
}

void ls_guard_end(struct ls_guard *g)
{
    if (g->pid > 0) {
        kill(g->pid, SIGKILL);
        while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (g->pipe >= 0)
        close(g->pipe);
    *g = (struct ls_guard){.pipe = -1};
}
