#define _GNU_SOURCE
#include "launch/children/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int ls_child_rank(const struct ls_children_job *job, int number)
{
    const struct ls_launch *l = job->launch;
    return l->kind == LS_LAUNCH_ALONE || l->rank < 0 ? number : l->rank + number;
}

/* --- streams --------------------------------------------------------------------------------------------- */

static void replace(int from, int to)
{
    if (from >= 0)
        dup2(from, to);
}

/* Of copies of Lockstep only rank 0 writes to standard output, and none reads the terminal (W2). Where ranks are given in
 * the order of arrival, any of them may become rank 0; the others are quiet. */
static void set_own_streams(const struct ls_child *c, int nothing)
{
    bool ranked = c->job->launch->kind == LS_LAUNCH_ALONE || c->job->launch->rank >= 0;
    replace(nothing, STDIN_FILENO);
    if (ranked && ls_child_rank(c->job, c->number) > 0)
        replace(nothing, STDOUT_FILENO);
}

/* Another program may read standard input in rank 0, as under mpirun; a terminal would stop a process in the background. */
static void set_foreign_streams(const struct ls_child *c, int nothing)
{
    if (ls_child_rank(c->job, c->number) > 0 || isatty(STDIN_FILENO))
        replace(nothing, STDIN_FILENO);
    replace(c->output, STDOUT_FILENO);
    signal(SIGPIPE, SIG_DFL); /* main ignores it */
}

static void set_streams(const struct ls_child *c)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    replace(c->errors, STDERR_FILENO);
    if (c->job->foreign)
        set_foreign_streams(c, nothing);
    else
        set_own_streams(c, nothing);
}

/* --- variables ------------------------------------------------------------------------------------------- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void set_or_unset(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* -1: the launcher of a single process does not tell. */
static void set_local(int rank, int size)
{
    if (rank >= 0)
        set_number("LOCKSTEP_LAUNCH_LOCAL_RANK", rank);
    if (size >= 0)
        set_number("LOCKSTEP_LAUNCH_LOCAL_SIZE", size);
}

/* launchers.c reads these variables. A launcher that started one MPI process speaks for itself. */
static void set_variables(const struct ls_child *c)
{
    const struct ls_launch *l = c->job->launch;
    if (l->kind == LS_LAUNCH_ALONE) {
        set_number("LOCKSTEP_WORKER_RANK", c->number);
        set_number("LOCKSTEP_WORKER_SIZE", c->job->n);
        setenv("LOCKSTEP_WORKER_SESSION", c->session, 1);
    } else if (l->kind != LS_LAUNCH_MPI) {
        if (l->rank >= 0)
            set_number("LOCKSTEP_LAUNCH_RANK", l->rank + c->number);
        else
            setenv("LOCKSTEP_LAUNCH_RANK", "any", 1);
        set_number("LOCKSTEP_LAUNCH_SIZE", l->size);
        set_local(l->workers > 0 ? c->number : l->local_rank, l->workers > 0 ? c->job->n : l->local_size);
        set_number("LOCKSTEP_LAUNCH_PORT", l->port);
        set_or_unset("LOCKSTEP_LAUNCH_ADDRESS", l->kind == LS_LAUNCH_FILE ? NULL : l->address);
        set_or_unset("LOCKSTEP_LAUNCH_PATH", l->kind == LS_LAUNCH_FILE ? l->path : NULL);
        set_or_unset("LOCKSTEP_LAUNCH_TOKEN", l->token);
    }
}

/* --- the process ----------------------------------------------------------------------------------------- */

void ls_child_become(const struct ls_child *c)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a signal that saves the state */
    if (getppid() != c->parent)
        _exit(LS_PEER_LOST);
    if (c->cores)
        sched_setaffinity(0, sizeof *c->cores, c->cores);
    set_streams(c);
    set_variables(c);
    sigprocmask(SIG_SETMASK, c->mask, NULL);
    if (c->job->foreign)
        execvp(c->job->program, c->job->argv);
    else
        execv(c->job->program, c->job->argv);
    int why = errno;
    fprintf(stderr, "lockstep: error: %s %d: %s cannot be started: %s\n", c->job->foreign ? "rank" : "worker",
            ls_child_rank(c->job, c->number), c->job->program, strerror(why));
    _exit(!c->job->foreign ? LS_FAILED : why == ENOENT ? 127 : 126);
}
