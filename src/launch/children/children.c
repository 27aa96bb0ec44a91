#define _GNU_SOURCE
#include "launch/children/children.h"
#include "base/system/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/children/child.h"
#include "launch/cores.h"
#include "launch/children/guard.h"
#include "launch/children/outputs.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE 5.0 /* seconds after the deadline */
#define SOON 2.0  /* seconds for a child that missed the deadline of the others */

struct group {
    const struct ls_children_job *job;
    pid_t *pids; /* owned; 0: not running */
    struct ls_outputs outputs;
    struct pollfd *polled; /* owned; the signalfd, then the pipes of the children */
    int n, running;
    char session[48]; /* also the name of the shared memory */
    struct ls_guard guard;
    sigset_t watched, before;
    int code;      /* 0 until a child fails */
    bool indirect; /* code is LS_PEER_LOST of a child that reports the loss of another one */
    struct {
        int number, code;
        pid_t pid; /* 0: none */
    } silent;      /* the child that `code` is from, if no error of it was printed */
    double until;  /* when all children must have ended; 0: no limit */
    int sent;      /* last signal that was sent to end them */
    int forwarded; /* last signal from outside that was forwarded */
};

/* --- starting -------------------------------------------------------------------------------------------- */

static enum ls_status make_session(struct group *p)
{
    uint64_t r[2];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r)
        return ls_fail(LS_FAILED, "getrandom failed: %s", strerror(errno));
    snprintf(p->session, sizeof p->session, "/lockstep-%016" PRIx64 "%016" PRIx64, r[0], r[1]);
    return LS_OK;
}

static const char *noun(const struct group *p)
{
    return p->job->foreign ? "rank" : "worker";
}

static enum ls_status start_one(struct group *p, int i, const cpu_set_t *cores)
{
    struct ls_child child = {
        .job = p->job, .number = i, .session = p->session, .cores = cores, .parent = getpid(), .mask = &p->before};
    bool open = ls_outputs_open(&p->outputs, i, ls_child_rank(p->job, i), &child.output, &child.errors);
    pid_t pid = open ? fork() : -1;
    if (pid == 0)
        ls_child_become(&child);
    int why = errno;
    if (child.output >= 0)
        close(child.output);
    if (child.errors >= 0)
        close(child.errors);
    if (pid < 0)
        return ls_fail(LS_FAILED, "%s %d of %d cannot be started: %s", noun(p), i, p->n, strerror(why));
    setpgid(pid, pid); /* as the child does: whoever comes first */
    p->pids[i] = pid;
    p->running++;
    return LS_OK;
}

static enum ls_status start_all(struct group *p)
{
    cpu_set_t *shares = ls_alloc((size_t)p->n, sizeof *shares);
    if (!shares)
        return LS_FAILED;
    bool split = ls_cores_split(p->n, shares);
    enum ls_status st = LS_OK;
    fflush(NULL);
    for (int i = 0; i < p->n && st == LS_OK; i++)
        st = start_one(p, i, split ? &shares[i] : NULL);
    ls_free(shares);
    if (st == LS_OK && p->job->foreign)
        ls_guard_start(&p->guard, p->pids, p->n);
    return st;
}

/* --- the end of a child ---------------------------------------------------------------------------------- */

static void signal_all(const struct group *p, int number)
{
    for (int i = 0; i < p->n; i++)
        if (p->pids[i] > 0)
            kill(p->job->foreign ? -p->pids[i] : p->pids[i], number);
}

/* A copy of Lockstep reports its errors itself, or rank 0 does. Another program may have printed anything. */
static bool has_reported(const struct group *p, int number, int code)
{
    if (p->job->foreign)
        return code == LS_INTERRUPTED;
    return code == LS_INTERRUPTED || code == LS_DIVERGED || p->outputs.dedup.streams[number].complained;
}

static int report_signal(const struct group *p, int number, pid_t pid, int signal_number)
{
    int code = p->job->foreign ? 128 + signal_number : LS_PEER_LOST;
    if (signal_number == p->forwarded) { /* the user's: to a worker that does not save, or a second time */
        if (!p->job->foreign)
            ls_fail(LS_FAILED, "stopped by signal %d (%s); nothing was saved", signal_number, strsignal(signal_number));
        return 128 + signal_number; /* as a shell reports one process that the signal ended */
    }
    ls_fail(LS_PEER_LOST, "%s %d (pid %ld) was killed by signal %d (%s)", noun(p), ls_child_rank(p->job, number),
            (long)pid, signal_number, strsignal(signal_number));
    return code;
}

static void report_code(const struct group *p)
{
    ls_fail(LS_FAILED, "%s %d (pid %ld) ended with exit code %d", noun(p), ls_child_rank(p->job, p->silent.number),
            (long)p->silent.pid, p->silent.code);
}

/* Records the end of a child. The first child that fails determines the code; later failures are consequences. Children
 * that report the loss of another one may end before that one: its code replaces theirs. */
static void note_end(struct group *p, int i, int how)
{
    pid_t pid = p->pids[i];
    int code = WIFEXITED(how) ? WEXITSTATUS(how) : 0, number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    bool consequence = code == LS_PEER_LOST || code == LS_INTERRUPTED || (number && number == p->sent);
    ls_outputs_read_rest(&p->outputs, i);
    p->pids[i] = 0;
    p->running--;
    ls_guard_forget(&p->guard, i);
    if ((code == 0 && number == 0) || (p->code != 0 && (!p->indirect || consequence)))
        return;
    p->indirect = code == LS_PEER_LOST;
    p->silent.pid = 0;
    if (number)
        p->code = report_signal(p, i, pid, number);
    else {
        p->code = code;
        p->silent.number = i;
        p->silent.code = code;
        p->silent.pid = has_reported(p, i, code) ? 0 : pid;
    }
    if (p->job->foreign && p->silent.pid && !p->indirect) { /* the others may run for long */
        report_code(p);
        p->silent.pid = 0;
    }
    if (p->running > 0) /* starts again when the child that others reported lost ends */
        p->until = ls_now() + (p->job->foreign ? GRACE : p->indirect ? SOON : p->job->deadline + GRACE);
}

/* Another program's own children end with it when it fails; the process group has its number until it is reaped. */
static void reap(struct group *p)
{
    for (int i = 0; i < p->n; i++) {
        siginfo_t info = {0};
        int how;
        if (p->pids[i] <= 0)
            continue;
        bool ended = waitid(P_PID, (id_t)p->pids[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
        if (ended && p->job->foreign && (info.si_code != CLD_EXITED || info.si_status != 0))
            kill(-p->pids[i], SIGTERM);
        if (ended && waitpid(p->pids[i], &how, 0) == p->pids[i])
            note_end(p, i, how);
    }
}

/* Sends SIGTERM, then SIGKILL, to children that do not end. */
static void enforce_deadline(struct group *p)
{
    if (p->until == 0 || ls_now() < p->until)
        return;
    const bool foreign = p->job->foreign;
    const double more = foreign ? GRACE : p->job->deadline + GRACE; /* a child that saves its state ends after that */
    if (p->sent == 0)
        ls_warn("%d %s%s did not end %s; sending SIGTERM, and SIGKILL in %.3g s", p->running, noun(p),
                p->running == 1 ? "" : "s", foreign ? "by themselves" : "by the deadline", more);
    else if (p->sent == SIGTERM)
        ls_warn("%d %s%s did not end by SIGTERM; sending SIGKILL", p->running, noun(p), p->running == 1 ? "" : "s");
    p->sent = p->sent ? SIGKILL : SIGTERM;
    signal_all(p, p->sent);
    signal_all(p, SIGCONT); /* a stopped process handles no other signal */
    p->until = ls_now() + more;
}

/* --- supervision ----------------------------------------------------------------------------------------- */

/* Ctrl-Z stops all children and the parent; `fg` continues them. */
static void stop_all(struct group *p)
{
    signal_all(p, SIGSTOP);
    raise(SIGSTOP);
    signal_all(p, SIGCONT);
}

static void take_signal(struct group *p)
{
    struct signalfd_siginfo info;
    if (read(p->polled[0].fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGTSTP)
        stop_all(p);
    else if (info.ssi_signo != SIGCHLD) {
        p->forwarded = (int)info.ssi_signo;
        signal_all(p, p->forwarded);
    }
}

/* Waits for output or signals, and prints the output. */
static void await(struct group *p, int milliseconds)
{
    for (int i = 0; i < p->outputs.pipes; i++)
        p->polled[i + 1] = (struct pollfd){.fd = ls_outputs_fd(&p->outputs, i), .events = POLLIN};
    if (poll(p->polled, (nfds_t)p->outputs.pipes + 1, milliseconds) <= 0)
        return;
    for (int i = 0; i < p->outputs.pipes; i++)
        if (p->polled[i + 1].revents)
            ls_outputs_read(&p->outputs, i);
}

static void supervise(struct group *p)
{
    while (p->running > 0) {
        await(p, 1000);
        if (p->polled[0].revents)
            take_signal(p);
        reap(p);
        enforce_deadline(p);
    }
    for (int i = 0; p->polled && i < p->n; i++)
        ls_outputs_read_rest(&p->outputs, i);
    for (int i = 0; !p->job->foreign && i < p->n; i++)
        if (p->silent.pid && p->outputs.dedup.streams[i].complained)
            p->silent.pid = 0;
    if (p->silent.pid)
        report_code(p);
}

static void watch_signals(struct group *p)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGQUIT, SIGTSTP, SIGCHLD};
    sigemptyset(&p->watched);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] != SIGUSR2 || p->job->foreign)
            sigaddset(&p->watched, numbers[i]);
    sigprocmask(SIG_BLOCK, &p->watched, &p->before);
}

static enum ls_status open_all(struct group *p)
{
    LS_TRY(ls_outputs_init(&p->outputs, p->n, !p->job->foreign, p->job->label));
    p->pids = ls_alloc((size_t)p->n, sizeof *p->pids);
    p->polled = ls_alloc((size_t)p->outputs.pipes + 1, sizeof *p->polled);
    if (!p->pids || !p->polled)
        return LS_FAILED;
    int fd = signalfd(-1, &p->watched, SFD_CLOEXEC | SFD_NONBLOCK);
    p->polled[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    return fd >= 0 ? LS_OK : ls_fail(LS_FAILED, "signalfd failed: %s", strerror(errno));
}

static void release(struct group *p)
{
    ls_guard_end(&p->guard);
    if (p->polled && p->polled[0].fd > 0)
        close(p->polled[0].fd);
    ls_outputs_release(&p->outputs);
    ls_free(p->pids);
    ls_free(p->polled);
}

enum ls_status ls_children_run(const struct ls_children_job *job, int *code)
{
    struct group p = {.job = job, .n = job->n, .guard = {.pipe = -1}};
    LS_TRY(make_session(&p));
    watch_signals(&p);
    enum ls_status st = open_all(&p);
    if (st == LS_OK)
        st = start_all(&p);
    if (st != LS_OK && p.running > 0)
        signal_all(&p, SIGKILL);
    p.code = (int)st;
    supervise(&p);
    shm_unlink(p.session); /* children unlink it once all have mapped it; one may have ended before */
    sigprocmask(SIG_SETMASK, &p.before, NULL);
    release(&p);
    *code = p.code;
    return st;
}
